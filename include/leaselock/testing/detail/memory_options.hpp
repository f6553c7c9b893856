#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/testing/detail/memory_state.hpp>
#include <leaselock/testing/memory_reply.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

/// What several commands share: error texts, and the options of SET and GETEX.
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace testing::detail {

namespace texts {
inline constexpr std::string_view syntax = "ERR syntax error";
inline constexpr std::string_view not_an_integer = "ERR value is not an integer or out of range";
inline constexpr std::string_view wrong_type =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
inline constexpr std::string_view read_only =
    "READONLY You can't write against a read only replica.";
inline constexpr std::string_view out_of_memory =
    "OOM command not allowed when used memory > 'maxmemory'.";
} // namespace texts

inline MemoryReply wrong_arity(std::string_view name) {
    return MemoryReply::failure("ERR wrong number of arguments for '" + std::string{name} +
                                "' command");
}
inline MemoryReply invalid_expire(std::string_view name) {
    return MemoryReply::failure("ERR invalid expire time in '" + std::string{name} + "' command");
}

/// The options that SET and GETEX share. Source: t_string.c, `parseExtendedStringArgumentsOrReply`.
struct StringOptions {
    bool nx = false, xx = false, get = false, keep_ttl = false, persist = false;
    std::string_view unit{}; ///< ex, px, exat, pxat
    std::string_view expire{};

    /// False: a syntax error.
    bool parse(Words rest, bool is_set, bool since_6_2) {
        for (std::size_t i = 0; i < rest.size(); ++i) {
            const std::string_view word = rest[i];
            if (is_set && is_word(word, "nx") && !xx) {
                nx = true;
            } else if (is_set && is_word(word, "xx") && !nx) {
                xx = true;
            } else if (is_set && is_word(word, "get") && since_6_2) {
                get = true;
            } else if (is_set && is_word(word, "keepttl") && unit.empty()) {
                keep_ttl = true;
            } else if (!is_set && is_word(word, "persist") && unit.empty()) {
                persist = true;
            } else if (i + 1 < rest.size() && !keep_ttl && !persist && take_unit(word, since_6_2)) {
                expire = rest[++i];
            } else {
                return false;
            }
        }
        return true;
    }

    bool take_unit(std::string_view word, bool since_6_2) {
        for (const std::string_view known : {"ex", "px", "exat", "pxat"}) {
            if (!is_word(word, known)) continue;
            if ((known.size() > 2 && !since_6_2) || (!unit.empty() && unit != known)) return false;
            unit = known;
            return true;
        }
        return false;
    }

    /// Absolute, in milliseconds. Source: t_string.c, `getExpireMillisecondsOrReply`.
    std::optional<MemoryReply> expiry(std::string_view command, std::int64_t now_ms,
                                      std::int64_t& when) const {
        constexpr std::int64_t top = (std::numeric_limits<std::int64_t>::max)();
        const std::optional<std::int64_t> value = parse_integer(expire);
        if (!value) return MemoryReply::failure(texts::not_an_integer);
        const bool seconds = unit.starts_with('e');
        if (*value <= 0 || (seconds && *value > top / 1000)) return invalid_expire(command);
        when = seconds ? *value * 1000 : *value;
        if (unit.size() > 2) return std::nullopt;
        if (when > top - now_ms) return invalid_expire(command);
        when += now_ms;
        return std::nullopt;
    }
};

} // namespace testing::detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
