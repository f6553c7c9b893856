#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

#include <cctype>
#include <charconv>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace testing::detail {

using Words = std::span<const std::string_view>;

struct Entry {
    std::string value;
    std::optional<std::int64_t> expires{}; ///< milliseconds of the server's clock
    bool foreign = false;                  ///< of a type that no lock uses
};

/// The keys of a server, expiring as they are looked at.
class Keyspace {
public:
    /// The entry, or none. It is there up to its last millisecond, that one included.
    /// Source: Redis 7.0, db.c, `keyIsExpired`: `now > when`.
    [[nodiscard]] Entry* find(std::string_view key, std::int64_t now_ms) {
        const auto at = entries_.find(key);
        if (at == entries_.end()) return nullptr;
        if (at->second.expires && now_ms > *at->second.expires) {
            entries_.erase(at);
            return nullptr;
        }
        return &at->second;
    }
    Entry& put(std::string_view key, Entry entry) {
        return entries_.insert_or_assign(std::string{key}, std::move(entry)).first->second;
    }
    void erase(std::string_view key) {
        const auto at = entries_.find(key);
        if (at != entries_.end()) entries_.erase(at);
    }
    void clear() noexcept { entries_.clear(); }

private:
    std::map<std::string, Entry, std::less<>> entries_;
};

/// All that a server knows. Time is part of it: set before each command.
struct MemoryState {
    Keyspace keys{};
    std::set<std::string, std::less<>> scripts{}; ///< SHA-1s in the cache
    std::int64_t now_us = 0;
    std::string run_id{};
    bool lacks_getex = false;
    bool read_only = false;
    bool out_of_memory = false;

    [[nodiscard]] std::int64_t now_ms() const noexcept { return now_us / 1000; }
    [[nodiscard]] Entry* find(std::string_view key) { return keys.find(key, now_ms()); }
};

[[nodiscard]] inline char lower(char c) noexcept {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}
[[nodiscard]] inline std::string lowered(std::string_view word) {
    std::string result{word};
    for (char& c : result) c = lower(c);
    return result;
}
/// Compares with a word in lower case.
[[nodiscard]] inline bool is_word(std::string_view word, std::string_view lower_case) noexcept {
    if (word.size() != lower_case.size()) return false;
    for (std::size_t i = 0; i < word.size(); ++i) {
        if (lower(word[i]) != lower_case[i]) return false;
    }
    return true;
}

/// As strict as Redis: no sign but `-`, no leading zero, no space. Source: util.c, `string2ll`.
[[nodiscard]] inline std::optional<std::int64_t> parse_integer(std::string_view digits) noexcept {
    const std::string_view magnitude = digits.starts_with('-') ? digits.substr(1) : digits;
    if (magnitude.starts_with('0') && digits != "0") return std::nullopt;
    std::int64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error != std::errc{} || stop != end) return std::nullopt;
    return value;
}

} // namespace testing::detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
