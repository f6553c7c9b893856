#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// Milliseconds in decimal, as an argument.
class MillisecondText {
public:
    explicit MillisecondText(std::chrono::milliseconds span) noexcept
        : size_(static_cast<std::size_t>(
              std::to_chars(digits_.data(), digits_.data() + digits_.size(), span.count()).ptr -
              digits_.data())) {}
    [[nodiscard]] std::string_view view() const noexcept { return {digits_.data(), size_}; }

private:
    std::array<char, 20> digits_{};
    std::size_t size_ = 0;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
