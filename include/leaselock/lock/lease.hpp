#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/token.hpp>
#include <leaselock/lock/options.hpp>
#include <leaselock/redis/key.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#if LEASELOCK_DEFINES
#include <array>
#include <charconv>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// A lease on its way to another holder: key, stored value and ttl. No deadline travels with it: the
/// adopter counts its own.
///
/// It carries the token: whoever has it can adopt the lease. Treat its text like a password.
/// Thread-safety: that of a `std::string`.
class Lease {
public:
    /// No lease at all.
    Lease() = default;
    Lease(std::string key, std::string value, std::chrono::milliseconds ttl)
        : key_(std::move(key)), value_(std::move(value)), ttl_(ttl) {}

    [[nodiscard]] const std::string& key() const noexcept { return key_; }
    [[nodiscard]] const std::string& value() const noexcept { return value_; }
    [[nodiscard]] std::chrono::milliseconds ttl() const noexcept { return ttl_; }
    /// The label that the last holder set; may be empty.
    [[nodiscard]] std::string_view owner() const noexcept {
        return value_.size() > Token::size ? std::string_view{value_}.substr(Token::size + 1)
                                           : std::string_view{};
    }
    /// Whether there is a lease in it.
    explicit operator bool() const noexcept { return !key_.empty(); }
    friend bool operator==(const Lease&, const Lease&) = default;

    /// One line of printable characters that crosses process boundaries; empty for no lease.
    [[nodiscard]] std::string to_text() const;
    /// Reads `to_text` back. @return none when the text was cut, changed, or never was a lease. Whether
    /// the lease still stands, only adopting it tells.
    [[nodiscard]] static std::optional<Lease> from_text(std::string_view text);

private:
    std::string key_;
    std::string value_;
    std::chrono::milliseconds ttl_{0};
};

#if LEASELOCK_DEFINES
namespace detail {

/// Whether `value` is what this library stores: 32 lower-case hex digits, then nothing or `:label`.
constexpr bool is_lock_value(std::string_view value) noexcept {
    if (value.size() < Token::size || value.size() > Token::size + 1 + max_owner_size) return false;
    if (value.size() > Token::size && value[Token::size] != ':') return false;
    for (const char c : value.substr(0, Token::size)) {
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
    }
    return true;
}

/// FNV-1a, 64 bits: notices a text that was cut or changed by accident; it is no signature.
constexpr std::uint64_t checksum(std::string_view bytes) noexcept {
    std::uint64_t hash = 0xcbf29ce484222325U;
    for (const char c : bytes) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    }
    return hash;
}

inline void append_hex(std::string& out, std::string_view bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    for (const char c : bytes) {
        out += digits[static_cast<unsigned char>(c) >> 4U];
        out += digits[static_cast<unsigned char>(c) & 0xfU];
    }
}

inline std::optional<std::string> parse_hex(std::string_view text) {
    if (text.size() % 2 != 0) return std::nullopt;
    std::string bytes;
    bytes.reserve(text.size() / 2);
    for (std::size_t i = 0; i < text.size(); i += 2) {
        unsigned byte = 0;
        const char* const end = text.data() + i + 2;
        if (std::from_chars(text.data() + i, end, byte, 16).ptr != end) return std::nullopt;
        bytes += static_cast<char>(byte);
    }
    return bytes;
}

inline constexpr std::string_view lease_text_mark = "leaselock1";

} // namespace detail

LEASELOCK_INLINE std::string Lease::to_text() const {
    if (key_.empty()) return {};
    std::string text{detail::lease_text_mark};
    text.append(".").append(std::to_string(ttl_.count())).append(".");
    detail::append_hex(text, key_);
    text += '.';
    detail::append_hex(text, value_);
    std::array<char, 16> sum{};
    const std::uint64_t hash = detail::checksum(text);
    for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] = "0123456789abcdef"[(hash >> (60 - 4 * i)) & 0xfU];
    }
    return text.append(".").append(sum.data(), sum.size());
}

LEASELOCK_INLINE std::optional<Lease> Lease::from_text(std::string_view text) {
    std::array<std::string_view, 5> part{};
    std::string_view rest = text;
    for (std::size_t i = 0; i < part.size(); ++i) {
        const std::size_t dot = rest.find('.');
        if ((dot == std::string_view::npos) != (i + 1 == part.size())) return std::nullopt;
        part[i] = rest.substr(0, dot);
        if (dot != std::string_view::npos) rest.remove_prefix(dot + 1);
    }
    if (part[0] != detail::lease_text_mark || part[4].size() != 16) return std::nullopt;
    std::uint64_t sum = 0;
    const char* const sum_end = part[4].data() + part[4].size();
    if (std::from_chars(part[4].data(), sum_end, sum, 16).ptr != sum_end) return std::nullopt;
    if (sum != detail::checksum(text.substr(0, text.size() - 17))) return std::nullopt;

    std::int64_t ttl = 0;
    const char* const ttl_end = part[1].data() + part[1].size();
    if (std::from_chars(part[1].data(), ttl_end, ttl).ptr != ttl_end) return std::nullopt;
    std::optional<std::string> key = detail::parse_hex(part[2]);
    std::optional<std::string> value = detail::parse_hex(part[3]);
    if (ttl < 1 || ttl > max_ttl.count() || !key || key->empty() || key->size() > max_key_size ||
        !value || !detail::is_lock_value(*value)) {
        return std::nullopt;
    }
    return Lease{std::move(*key), std::move(*value), std::chrono::milliseconds{ttl}};
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
