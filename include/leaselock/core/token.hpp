#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/runtime.hpp>

#include <array>
#include <cstddef>
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
    [[nodiscard]] std::error_code draw(Runtime& runtime) noexcept {
        std::array<std::byte, size / 2> bits{};
        if (const std::error_code error = runtime.fill_random(bits)) return error;
        constexpr std::string_view digits = "0123456789abcdef";
        std::size_t at = 0;
        for (const std::byte b : bits) {
            digits_[at++] = digits[std::to_integer<std::size_t>(b >> 4)];
            digits_[at++] = digits[std::to_integer<std::size_t>(b & std::byte{0x0f})];
        }
        return {};
    }

    [[nodiscard]] std::string_view view() const noexcept { return {digits_.data(), size}; }

private:
    std::array<char, size> digits_{};
};

/// What may be printed of a stored value: the first 8 digits of its token.
[[nodiscard]] constexpr std::string_view fingerprint_of(std::string_view value) noexcept {
    return value.substr(0, Token::fingerprint_size);
}

} // namespace LEASELOCK_ABI
} // namespace leaselock
