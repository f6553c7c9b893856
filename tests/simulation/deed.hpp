#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/token.hpp>
#include <leaselock/redis/reply.hpp>
#include <leaselock/redis/script.hpp>
#include <leaselock/testing/memory_reply.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// What a command does to a lock, as the history says it. Pure.
namespace leaselock::simulation {

struct Deed {
    std::string_view verb; ///< set, delete, expire, adopt, fence, who; else the command's own name
    std::string_view key;
    std::string_view token;   ///< fingerprint of the value that it compares or sets
    std::string_view heir;    ///< of adopt: that of the new value
    std::string_view counter; ///< of fence: the counter's key
    std::int64_t ttl = 0;     ///< ms, where it gives one
};

namespace detail {

template <class Words>
std::string_view word(const Words& argv, std::size_t n) {
    return n < argv.size() ? std::string_view{argv[n]} : std::string_view{};
}
inline std::int64_t to_number(std::string_view digits) {
    std::int64_t number = 0;
    (void)std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return number;
}
inline bool is_script(std::string_view word, const Script& script) {
    for (const ScriptText* text : {&script.getex, &script.get}) {
        if (word == text->sha1 || word == text->text) return true;
    }
    return false;
}

} // namespace detail

/// @param argv words, each a string or a view of one
template <class Words>
[[nodiscard]] Deed deed_of(const Words& argv) {
    using detail::word;
    const std::string_view name = word(argv, 0);
    if (name == "SET") {
        const bool if_absent = word(argv, 3) == "NX" && word(argv, 4) == "PX";
        return {
            if_absent ? "set" : "SET",       word(argv, 1), fingerprint_of(word(argv, 2)), {}, {},
            detail::to_number(word(argv, 5))};
    }
    if (name == "EVAL" || name == "EVALSHA") {
        const std::string_view script = word(argv, 1);
        if (script == scripts::run_id) return {"who", {}, {}, {}, {}};
        const std::string_view key = word(argv, 3);
        const std::string_view first = word(argv, 4);
        const std::string_view token = fingerprint_of(first);
        if (detail::is_script(script, scripts::compare_and_delete) ||
            detail::is_script(script, scripts::compare_and_delete_anywhere))
            return {"delete", key, token, {}, {}};
        if (detail::is_script(script, scripts::compare_and_expire)) {
            return {"expire", key, token, {}, {}, detail::to_number(word(argv, 5))};
        }
        if (detail::is_script(script, scripts::compare_and_adopt)) {
            return {"adopt", key,
                    token,   fingerprint_of(word(argv, 5)),
                    {},      detail::to_number(word(argv, 6))};
        }
        if (detail::is_script(script, scripts::compare_and_fence)) {
            return {"fence", key, fingerprint_of(word(argv, 5)), {}, first};
        }
        return {name, key, token, {}, {}};
    }
    return {name, word(argv, 1), {}, {}, {}};
}

/// What a script returned as a string: a number, or who a server is, which is another one in each run.
[[nodiscard]] inline std::string word_of(std::string_view text) {
    return std::string{text.size() <= 20 ? text : "text"};
}

/// An answer in one word: `ok`, `nil`, a number, `text`, `error:CODE`; of a connection also `unknown`.
[[nodiscard]] inline std::string word_of(const testing::MemoryReply& reply) {
    using testing::MemoryReply;
    switch (reply.kind) {
    case MemoryReply::nil: return "nil";
    case MemoryReply::status: return "ok";
    case MemoryReply::integer: return std::to_string(reply.number);
    case MemoryReply::string: return word_of(std::string_view{reply.text});
    case MemoryReply::error: return "error:" + reply.text.substr(0, reply.text.find(' '));
    case MemoryReply::array: break;
    }
    return "array";
}
[[nodiscard]] inline std::string word_of(const Reply& reply) {
    switch (reply.kind) {
    case Reply::unsent: return "unsent";
    case Reply::unknown: return "unknown";
    case Reply::nil: return "nil";
    case Reply::status: return "ok";
    case Reply::integer: return std::to_string(reply.number);
    case Reply::string: return word_of(reply.text.view());
    case Reply::error: break;
    }
    const std::string_view line = reply.text.view();
    return "error:" + std::string{line.substr(0, line.find(' '))};
}

} // namespace leaselock::simulation
