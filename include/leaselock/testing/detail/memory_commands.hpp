#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/testing/detail/memory_options.hpp>
#include <leaselock/testing/detail/memory_state.hpp>
#include <leaselock/testing/memory_reply.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

/// The commands, with the answers and the error texts of Redis 7.0.
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace testing::detail {

struct CommandRow {
    std::string_view name;
    int arity; ///< with the name; negative: at least so many
    bool writes;
    bool needs_memory;
    MemoryReply (*run)(MemoryState&, Words);
};

inline MemoryReply value_of(const Entry* entry) {
    if (entry == nullptr) return {};
    if (entry->foreign) return MemoryReply::failure(texts::wrong_type);
    return MemoryReply::of(MemoryReply::string, entry->value);
}

inline MemoryReply set(MemoryState& state, Words argv) {
    StringOptions options;
    if (!options.parse(argv.subspan(3), true, !state.lacks_getex)) {
        return MemoryReply::failure(texts::syntax);
    }
    std::int64_t when = 0;
    if (!options.unit.empty()) {
        if (auto error = options.expiry("set", state.now_ms(), when)) return *std::move(error);
    }
    const Entry* const before = state.find(argv[1]);
    MemoryReply reply = options.get ? value_of(before) : MemoryReply::ok();
    if (reply.kind == MemoryReply::error) return reply;
    if ((options.nx && before != nullptr) || (options.xx && before == nullptr)) {
        return options.get ? reply : MemoryReply{};
    }
    Entry entry{std::string{argv[2]}};
    if (!options.unit.empty()) entry.expires = when;
    if (options.keep_ttl && before != nullptr) entry.expires = before->expires;
    state.keys.put(argv[1], std::move(entry));
    return reply;
}

inline MemoryReply get(MemoryState& state, Words argv) { return value_of(state.find(argv[1])); }

inline MemoryReply getex(MemoryState& state, Words argv) {
    StringOptions options;
    if (!options.parse(argv.subspan(2), false, true)) return MemoryReply::failure(texts::syntax);
    Entry* const entry = state.find(argv[1]);
    MemoryReply reply = value_of(entry);
    if (reply.kind != MemoryReply::string) return reply;
    if (!options.unit.empty()) {
        std::int64_t when = 0;
        if (auto error = options.expiry("getex", state.now_ms(), when)) return *std::move(error);
        entry->expires = when;
    }
    if (options.persist) entry->expires.reset();
    return reply;
}

inline MemoryReply getrange(MemoryState& state, Words argv) {
    const auto from = parse_integer(argv[2]);
    const auto to = parse_integer(argv[3]);
    if (!from || !to) return MemoryReply::failure(texts::not_an_integer);
    MemoryReply reply = value_of(state.find(argv[1]));
    if (reply.kind == MemoryReply::nil) return MemoryReply::of(MemoryReply::string, "");
    if (reply.kind == MemoryReply::error) return reply;
    const auto size = static_cast<std::int64_t>(reply.text.size());
    const bool backwards = *from < 0 && *to < 0 && *from > *to;
    const std::int64_t first = std::max<std::int64_t>(*from < 0 ? size + *from : *from, 0);
    const std::int64_t last =
        (std::min)(std::max<std::int64_t>(*to < 0 ? size + *to : *to, 0), size - 1);
    if (backwards || first > last) return MemoryReply::of(MemoryReply::string, "");
    reply.text = reply.text.substr(static_cast<std::size_t>(first),
                                   static_cast<std::size_t>(last - first + 1));
    return reply;
}

inline MemoryReply pttl(MemoryState& state, Words argv) {
    const Entry* const entry = state.find(argv[1]);
    if (entry == nullptr) return MemoryReply::of(-2);
    return MemoryReply::of(entry->expires ? *entry->expires - state.now_ms() : -1);
}

inline MemoryReply del(MemoryState& state, Words argv) {
    std::int64_t deleted = 0;
    for (const std::string_view key : argv.subspan(1)) {
        if (state.find(key) == nullptr) continue;
        state.keys.erase(key);
        ++deleted;
    }
    return MemoryReply::of(deleted);
}

inline MemoryReply exists(MemoryState& state, Words argv) {
    std::int64_t found = 0;
    for (const std::string_view key : argv.subspan(1)) found += state.find(key) != nullptr ? 1 : 0;
    return MemoryReply::of(found);
}

inline MemoryReply pexpire(MemoryState& state, Words argv) {
    if (argv.size() > 3) {
        return MemoryReply::failure("ERR Unsupported option " + std::string{argv[3]});
    }
    const auto ttl = parse_integer(argv[2]);
    if (!ttl) return MemoryReply::failure(texts::not_an_integer);
    if (*ttl > (std::numeric_limits<std::int64_t>::max)() - state.now_ms()) {
        return invalid_expire("pexpire");
    }
    Entry* const entry = state.find(argv[1]);
    if (entry == nullptr) return MemoryReply::of(0);
    if (*ttl > 0) {
        entry->expires = state.now_ms() + *ttl;
    } else {
        state.keys.erase(argv[1]);
    }
    return MemoryReply::of(1);
}

inline MemoryReply persist(MemoryState& state, Words argv) {
    Entry* const entry = state.find(argv[1]);
    if (entry == nullptr || !entry->expires) return MemoryReply::of(0);
    entry->expires.reset();
    return MemoryReply::of(1);
}

inline MemoryReply rename(MemoryState& state, Words argv) {
    const Entry* const entry = state.find(argv[1]);
    if (entry == nullptr) return MemoryReply::failure("ERR no such key");
    Entry moved = *entry;
    state.keys.erase(argv[1]);
    state.keys.put(argv[2], std::move(moved));
    return MemoryReply::ok();
}

inline MemoryReply time(MemoryState& state, Words) {
    MemoryReply reply;
    reply.kind = MemoryReply::array;
    for (const std::int64_t part : {state.now_us / 1'000'000, state.now_us % 1'000'000}) {
        reply.items.push_back(MemoryReply::of(MemoryReply::string, std::to_string(part)));
    }
    return reply;
}

inline MemoryReply flushall(MemoryState& state, Words argv) {
    if (argv.size() > 2 ||
        (argv.size() == 2 && !is_word(argv[1], "sync") && !is_word(argv[1], "async"))) {
        return MemoryReply::failure(texts::syntax);
    }
    state.keys.clear();
    return MemoryReply::ok();
}

inline MemoryReply ping(MemoryState&, Words argv) {
    if (argv.size() > 2) return wrong_arity("ping");
    return argv.size() == 2 ? MemoryReply::of(MemoryReply::string, argv[1])
                            : MemoryReply::of(MemoryReply::status, "PONG");
}

/// There is one database, as with `databases 1`.
inline MemoryReply select(MemoryState&, Words argv) {
    const auto index = parse_integer(argv[1]);
    if (!index) return MemoryReply::failure(texts::not_an_integer);
    if (*index < (std::numeric_limits<int>::min)() || *index > (std::numeric_limits<int>::max)()) {
        return MemoryReply::failure(
            "ERR value is out of range, value must between -2147483648 and 2147483647");
    }
    return *index == 0 ? MemoryReply::ok() : MemoryReply::failure("ERR DB index is out of range");
}

inline constexpr CommandRow command_rows[] = {
    {"set", -3, true, true, set},         {"get", 2, false, false, get},
    {"getex", -2, true, false, getex},    {"getrange", 4, false, false, getrange},
    {"pttl", 2, false, false, pttl},      {"del", -2, true, false, del},
    {"exists", -2, false, false, exists}, {"pexpire", -3, true, false, pexpire},
    {"persist", 2, true, false, persist}, {"rename", 3, true, false, rename},
    {"time", 1, false, false, time},      {"flushall", -1, true, false, flushall},
    {"ping", -1, false, false, ping},     {"select", 2, false, false, select},
};

template <class Rows>
[[nodiscard]] const CommandRow* find_command(const Rows& rows, const MemoryState& state,
                                             std::string_view name) noexcept {
    for (const CommandRow& row : rows) {
        if (is_word(name, row.name)) {
            return state.lacks_getex && row.name == "getex" ? nullptr : &row;
        }
    }
    return nullptr;
}

[[nodiscard]] inline bool fits_arity(const CommandRow& row, std::size_t words) noexcept {
    const auto count = static_cast<int>(words);
    return row.arity >= 0 ? count == row.arity : count >= -row.arity;
}

} // namespace testing::detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
