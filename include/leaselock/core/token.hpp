#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/runtime.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// The proof of ownership: 128 random bits as 32 hex digits, new for every attempt.
///
/// There is no state between two tokens, so that forks and seeds cannot make them repeat.
/// It never leaves the library but to Redis; logs get the fingerprint.
class Token {
public:
    static constexpr std::size_t size = 32;
    static constexpr std::size_t fingerprint_size = 8;

    Token() noexcept = default;

    /// Draws a new token. On an error, which is that of the source, the token is of no use.
    [[nodiscard]] std::error_code draw(Runtime& runtime) noexcept;

    [[nodiscard]] std::string_view view() const noexcept { return {digits_.data(), size}; }

private:
    std::array<char, size> digits_{};
};

/// What may be printed of a stored value: the first 8 digits of its token.
[[nodiscard]] constexpr std::string_view fingerprint_of(std::string_view value) noexcept {
    return value.substr(0, Token::fingerprint_size);
}

#if LEASELOCK_DEFINES
namespace detail {

/// Eight hex digits at once: a nibble to each byte, in the order in which people read them, then `0`
/// or `a` - 10 added to each.
constexpr std::uint64_t hex_digits(std::uint64_t bits) noexcept {
    bits = ((bits & 0x0f0f0f0fU) << 4U) | ((bits >> 4U) & 0x0f0f0f0fU);
    bits = (bits | (bits << 16U)) & 0x0000ffff0000ffffU;
    bits = (bits | (bits << 8U)) & 0x00ff00ff00ff00ffU;
    bits = (bits | (bits << 4U)) & 0x0f0f0f0f0f0f0f0fU;
    const std::uint64_t letters = ((bits + 0x0606060606060606U) >> 4U) & 0x0101010101010101U;
    return bits + 0x3030303030303030U + letters * ('a' - '0' - 10);
}

} // namespace detail

LEASELOCK_INLINE std::error_code Token::draw(Runtime& runtime) noexcept {
    std::array<std::uint32_t, size / 8> bits{};
    if (const auto error = runtime.fill_random(std::as_writable_bytes(std::span{bits}))) {
        return error;
    }
    for (std::size_t i = 0; i < bits.size(); ++i) {
        const std::uint64_t digits = detail::hex_digits(bits[i]);
        std::memcpy(digits_.data() + 8 * i, &digits, sizeof digits);
    }
    return {};
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
