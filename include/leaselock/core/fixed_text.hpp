#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// A short string that lives inside its owner: copying it can neither allocate nor fail.
///
/// What does not fit is cut off and `truncated()` says so. Bytes behind `size()` are never read,
/// nor set: a reply is made for every command, and most of them carry no text.
/// Thread-safety: that of an `int`.
template <std::size_t Capacity>
class FixedText {
    static_assert(Capacity <= UINT16_MAX);

public:
    // not defaulted: that would set the unused bytes where an owner is value-initialised
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init,modernize-use-equals-default)
    FixedText() noexcept {}
    FixedText(std::string_view text) noexcept { append(text); }
    FixedText(const FixedText& other) noexcept { assign(other); }
    FixedText& operator=(const FixedText& other) noexcept {
        if (this != &other) assign(other);
        return *this;
    }
    ~FixedText() = default;

    FixedText& append(std::string_view text) noexcept {
        if (text.empty()) return *this; // most outcomes have no text
        const std::size_t taken = (std::min)(text.size(), Capacity - size_);
        std::memcpy(bytes_.data() + size_, text.data(), taken);
        size_ = static_cast<std::uint16_t>(size_ + taken);
        truncated_ = truncated_ || taken < text.size();
        return *this;
    }
    void clear() noexcept {
        size_ = 0;
        truncated_ = false;
    }

    [[nodiscard]] std::string_view view() const noexcept { return {bytes_.data(), size_}; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] bool truncated() const noexcept { return truncated_; }
    static constexpr std::size_t capacity() noexcept { return Capacity; }

    friend bool operator==(const FixedText& a, const FixedText& b) noexcept {
        return a.view() == b.view();
    }

private:
    void assign(const FixedText& other) noexcept {
        size_ = other.size_;
        truncated_ = other.truncated_;
        if (size_ != 0) std::memcpy(bytes_.data(), other.bytes_.data(), size_);
    }

    std::array<char, Capacity> bytes_;
    std::uint16_t size_ = 0;
    bool truncated_ = false;
};

} // namespace LEASELOCK_ABI
} // namespace leaselock
