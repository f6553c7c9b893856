#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/redis/script.hpp>
#include <leaselock/testing/detail/memory_commands.hpp>
#include <leaselock/testing/detail/memory_options.hpp>
#include <leaselock/testing/detail/memory_scripts.hpp>
#include <leaselock/testing/detail/memory_state.hpp>
#include <leaselock/testing/memory_reply.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// From the words of a client to the command, by way of the checks that a server makes first.
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace testing::detail {

inline constexpr std::string_view foreign_script =
    "ERR Error compiling script: MemoryRedis has no Lua, it knows leaselock's own scripts only";

/// Source: eval.c, `evalGenericCommand`.
inline MemoryReply run_script(MemoryState& state, Words argv, bool by_sha) {
    const std::string sha1 = by_sha ? lowered(argv[1]) : std::string{};
    constexpr std::string_view no_script = "NOSCRIPT No matching script. Please use EVAL.";
    if (by_sha && sha1.size() != 40) return MemoryReply::failure(no_script);
    const auto count = parse_integer(argv[2]);
    if (!count) return MemoryReply::failure(texts::not_an_integer);
    if (*count > static_cast<std::int64_t>(argv.size()) - 3) {
        return MemoryReply::failure("ERR Number of keys can't be greater than number of args");
    }
    if (*count < 0) return MemoryReply::failure("ERR Number of keys can't be negative");
    if (!by_sha && argv[1] == scripts::run_id) {
        return MemoryReply::of(MemoryReply::string, state.run_id);
    }
    if (by_sha && !state.scripts.contains(sha1)) return MemoryReply::failure(no_script);
    const KnownScript known =
        by_sha ? find_script(sha1, &ScriptText::sha1) : find_script(argv[1], &ScriptText::text);
    if (known.row == nullptr) return MemoryReply::failure(foreign_script);
    state.scripts.emplace(known.text->sha1);
    const auto keys = static_cast<std::size_t>(*count);
    ScriptRun run{state, known.text->sha1, known.text == &known.row->script.getex,
                  argv.subspan(3, keys), argv.subspan(3 + keys)};
    return known.row->run(run);
}

inline MemoryReply eval(MemoryState& state, Words argv) { return run_script(state, argv, false); }
inline MemoryReply evalsha(MemoryState& state, Words argv) { return run_script(state, argv, true); }

inline MemoryReply script(MemoryState& state, Words argv) {
    if (is_word(argv[1], "load")) {
        if (argv.size() != 3) return wrong_arity("script|load");
        const KnownScript known = find_script(argv[2], &ScriptText::text);
        if (known.row == nullptr) return MemoryReply::failure(foreign_script);
        state.scripts.emplace(known.text->sha1);
        return MemoryReply::of(MemoryReply::string, known.text->sha1);
    }
    if (is_word(argv[1], "exists")) {
        if (argv.size() < 3) return wrong_arity("script|exists");
        MemoryReply reply;
        reply.kind = MemoryReply::array;
        for (const std::string_view sha1 : argv.subspan(2)) {
            reply.items.push_back(MemoryReply::of(state.scripts.contains(lowered(sha1)) ? 1 : 0));
        }
        return reply;
    }
    if (is_word(argv[1], "flush")) {
        if (argv.size() > 3 ||
            (argv.size() == 3 && !is_word(argv[2], "sync") && !is_word(argv[2], "async"))) {
            return MemoryReply::failure("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
        }
        state.scripts.clear();
        return MemoryReply::ok();
    }
    return MemoryReply::failure("ERR unknown subcommand '" + std::string{argv[1]} +
                                "'. Try SCRIPT HELP.");
}

inline constexpr CommandRow script_command_rows[] = {
    {"eval", -3, false, false, eval},
    {"evalsha", -3, false, false, evalsha},
    {"script", -2, false, false, script},
};

/// Source: server.c, `processCommand`: the first 128 bytes, up to a NUL, on one line.
inline MemoryReply unknown_command(Words argv) {
    const auto cut = [](std::string_view word, std::size_t limit) {
        return word.substr(0, (std::min)(word.find('\0'), limit));
    };
    std::string text{"ERR unknown command '"};
    text.append(cut(argv[0], 128)).append("', with args beginning with: ");
    std::string arguments;
    for (std::size_t i = 1; i < argv.size() && arguments.size() < 128; ++i) {
        const std::string_view shown = cut(argv[i], 128 - arguments.size());
        arguments.append("'").append(shown).append("' ");
    }
    text.append(arguments);
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == '\r' || c == '\n'; }, ' ');
    return MemoryReply::failure(text);
}

/// A command from a client.
inline MemoryReply execute(MemoryState& state, Words argv) {
    const CommandRow* row = find_command(command_rows, state, argv[0]);
    if (row == nullptr) row = find_command(script_command_rows, state, argv[0]);
    if (row == nullptr) return unknown_command(argv);
    if (!fits_arity(*row, argv.size())) return wrong_arity(row->name);
    if (row->writes && state.read_only) return MemoryReply::failure(texts::read_only);
    if (row->needs_memory && state.out_of_memory) return MemoryReply::failure(texts::out_of_memory);
    return row->run(state, argv);
}

} // namespace testing::detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
