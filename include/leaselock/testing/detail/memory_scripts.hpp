#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/redis/script.hpp>
#include <leaselock/testing/detail/memory_commands.hpp>
#include <leaselock/testing/detail/memory_options.hpp>
#include <leaselock/testing/detail/memory_state.hpp>
#include <leaselock/testing/memory_reply.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The library's scripts, line by line, over the same commands.
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace testing::detail {

using Word = std::optional<std::string_view>; ///< none is Lua's nil

/// One run of a script: its `KEYS`, its `ARGV`, and `redis.call`.
struct ScriptRun {
    static constexpr std::string_view unknown_command =
        "ERR Unknown Redis command called from script";

    MemoryState& state;
    std::string_view sha1;
    bool getex; ///< the dialect
    Words keys;
    Words values;
    bool has_written = false;

    [[nodiscard]] Word key(std::size_t n) const { return at(keys, n); }
    [[nodiscard]] Word value(std::size_t n) const { return at(values, n); }
    [[nodiscard]] static Word at(Words words, std::size_t n) {
        return n <= words.size() ? Word{words[n - 1]} : Word{};
    }

    /// An error that ends the script, as Redis 7 decorates it.
    [[nodiscard]] MemoryReply fail(int line, std::string_view text) const {
        std::string whole{text};
        whole.append(" script: ").append(sha1).append(", on @user_script:");
        return MemoryReply::failure(whole.append(std::to_string(line)).append("."));
    }

    /// Source: script.c, `scriptCall`. A script that has written may go on when memory is full.
    MemoryReply call(int line, std::initializer_list<Word> words) {
        std::vector<std::string_view> argv;
        for (const Word& word : words) {
            if (!word) {
                return fail(line,
                            "ERR Lua redis lib command arguments must be strings or integers");
            }
            argv.push_back(*word);
        }
        const CommandRow* const row = find_command(command_rows, state, argv.front());
        if (row == nullptr) return fail(line, unknown_command);
        if (!fits_arity(*row, argv.size())) {
            return fail(line, "ERR Wrong number of args calling Redis command from script");
        }
        if (row->writes && state.read_only) return fail(line, texts::read_only);
        if (row->needs_memory && state.out_of_memory && !state.read_only && !has_written) {
            return fail(line, texts::out_of_memory);
        }
        has_written = has_written || row->writes;
        MemoryReply reply = row->run(state, argv);
        return reply.kind == MemoryReply::error ? fail(line, reply.text) : reply;
    }

    MemoryReply read_lock(int line) { return call(line, {getex ? "getex" : "get", key(1)}); }
};

[[nodiscard]] inline bool is_value(const MemoryReply& reply, const Word& word) {
    return word && reply.kind == MemoryReply::string && reply.text == *word;
}
[[nodiscard]] inline std::int64_t not_owner(const MemoryReply& held) {
    return held.kind == MemoryReply::string ? 0 : -1;
}

inline MemoryReply compare_and_delete(ScriptRun& run) {
    MemoryReply held = run.read_lock(1);
    if (held.kind == MemoryReply::error) return held;
    if (is_value(held, run.value(1))) return run.call(2, {"del", run.key(1)});
    return MemoryReply::of(not_owner(held));
}

inline MemoryReply compare_and_delete_anywhere(ScriptRun& run) {
    MemoryReply held = run.call(1, {"getex", run.key(1)});
    if (held.kind == MemoryReply::error) {
        const bool lacking = held.text.starts_with(ScriptRun::unknown_command);
        held = run.call(3, {lacking ? "get" : "getex", run.key(1)});
        if (held.kind == MemoryReply::error) return held;
    }
    if (is_value(held, run.value(1))) return run.call(5, {"del", run.key(1)});
    return MemoryReply::of(not_owner(held));
}

inline MemoryReply compare_and_expire(ScriptRun& run) {
    MemoryReply held = run.read_lock(1);
    if (held.kind == MemoryReply::error) return held;
    if (is_value(held, run.value(1))) return run.call(2, {"pexpire", run.key(1), run.value(2)});
    return MemoryReply::of(not_owner(held));
}

inline MemoryReply compare_and_adopt(ScriptRun& run) {
    MemoryReply held = run.read_lock(1);
    if (held.kind == MemoryReply::error) return held;
    if (!is_value(held, run.value(1)) && !is_value(held, run.value(2))) {
        return MemoryReply::of(not_owner(held));
    }
    MemoryReply set = run.call(3, {"set", run.key(1), run.value(2), "PX", run.value(3)});
    return set.kind == MemoryReply::error ? set : MemoryReply::of(1);
}

/// A string as Lua 5.1 takes it for a number.
[[nodiscard]] inline std::optional<double> lua_number(const std::string& text) {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (end == text.c_str()) return std::nullopt;
    while (*end == ' ' || (*end >= '\t' && *end <= '\r')) ++end;
    return end == text.c_str() + text.size() ? std::optional{number} : std::nullopt;
}
[[nodiscard]] inline std::string lua_integer(double number) { // string.format('%.0f', number)
    std::array<char, 330> digits{};                           // the longest double has 309
    const int size = std::snprintf(digits.data(), digits.size(), "%.0f", number);
    return {digits.data(), static_cast<std::size_t>(size)};
}

inline MemoryReply compare_and_fence(ScriptRun& run) {
    const int shift = run.getex ? 0 : 1; // the dialects differ by a line, and later by two
    MemoryReply held = run.read_lock(1 + shift);
    if (held.kind == MemoryReply::error) return held;
    if (!is_value(held, run.value(1))) {
        return MemoryReply::of(MemoryReply::string, std::to_string(not_owner(held)));
    }
    const auto wall = static_cast<double>(run.state.now_us);
    double fence = wall;
    MemoryReply last = run.call(run.getex ? 5 : 7, {"get", run.key(2)});
    if (last.kind == MemoryReply::error) return last;
    if (last.kind == MemoryReply::string) {
        const bool digits = last.text.find_first_not_of("0123456789") == std::string::npos;
        if (last.text.size() > 16 || last.text.empty() || !digits) {
            return MemoryReply::failure("FENCE corrupt");
        }
        const double number = std::strtod(last.text.c_str(), nullptr);
        if (number >= fence) fence = number + 1;
    }
    if (fence >= 9007199254740992.0) return MemoryReply::failure("FENCE overflow");
    const std::string text = lua_integer(fence);
    const int line = run.getex ? 12 : 14;
    const Word keep = run.value(2);
    const std::optional<double> ms = keep ? lua_number(std::string{*keep}) : std::nullopt;
    if (!ms) {
        return run.fail(line, "ERR user_script:" + std::to_string(line) +
                                  ": attempt to perform arithmetic on field '?' (a " +
                                  (keep ? "string" : "nil") + " value)");
    }
    const double from = run.getex ? fence : fence - wall;
    const std::string expiry = lua_integer(std::floor(from / 1000) + 1 + *ms);
    MemoryReply set = run.call(line, {"set", run.key(2), text, run.getex ? "PXAT" : "PX", expiry});
    return set.kind == MemoryReply::error ? set : MemoryReply::of(MemoryReply::string, text);
}

struct ScriptRow {
    const Script& script;
    MemoryReply (*run)(ScriptRun&);
};
inline constexpr ScriptRow script_rows[] = {
    {scripts::compare_and_delete, compare_and_delete},
    {scripts::compare_and_delete_anywhere, compare_and_delete_anywhere},
    {scripts::compare_and_expire, compare_and_expire},
    {scripts::compare_and_adopt, compare_and_adopt},
    {scripts::compare_and_fence, compare_and_fence},
};

struct KnownScript {
    const ScriptRow* row = nullptr;
    const ScriptText* text = nullptr;
};
[[nodiscard]] inline KnownScript find_script(std::string_view word,
                                             std::string_view ScriptText::*member) noexcept {
    for (const ScriptRow& row : script_rows) {
        for (const ScriptText* const text : {&row.script.getex, &row.script.get}) {
            if (text->*member == word) return {&row, text};
        }
    }
    return {};
}

} // namespace testing::detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
