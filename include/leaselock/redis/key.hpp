#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

/// Keys: their hash slot, and the helper keys that share it. Pure.
/// Source: redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec, "Hash tags".
namespace leaselock {
inline namespace LEASELOCK_ABI {

inline constexpr std::size_t max_key_size = 1024;
inline constexpr std::uint16_t hash_slots = 16384;

/// The part of a key between its first `{` and the first `}` behind that; empty when there is none.
[[nodiscard]] constexpr std::string_view hash_tag(std::string_view key) noexcept {
    const std::size_t open = key.find('{');
    if (open == std::string_view::npos) return {};
    const std::size_t close = key.find('}', open + 1);
    if (close == std::string_view::npos) return {};
    return key.substr(open + 1, close - open - 1);
}

namespace detail {

/// CRC-16/XMODEM, a nibble at a time: 32 bytes of table are enough for a key per call.
[[nodiscard]] constexpr std::uint16_t crc16(std::string_view bytes) noexcept {
    constexpr std::array<std::uint16_t, 16> table = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5,
                                                     0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
                                                     0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    unsigned crc = 0;
    for (const char c : bytes) {
        const unsigned byte = static_cast<unsigned char>(c);
        crc = ((crc << 4U) ^ table[((crc >> 12U) ^ (byte >> 4U)) & 0xfU]) & 0xffffU;
        crc = ((crc << 4U) ^ table[((crc >> 12U) ^ byte) & 0xfU]) & 0xffffU;
    }
    return static_cast<std::uint16_t>(crc);
}

} // namespace detail

[[nodiscard]] constexpr std::uint16_t hash_slot(std::string_view key) noexcept {
    const std::string_view tag = hash_tag(key);
    return detail::crc16(tag.empty() ? key : tag) % hash_slots;
}

/// How the helper keys of a lock are named: the key, in braces or not, and a suffix behind it.
/// They share the lock's slot and belong to it alone.
enum class HelperForm : std::uint8_t {
    plain,     ///< the key has a hash tag: `key` + suffix
    tag_alone, ///< the key is `{tag}`: without the suffix's `:`, or they were those of the key `tag`
    braced,    ///< it has none and no `}`: `{key}` + suffix
    impossible, ///< neither shares the slot
};

[[nodiscard]] constexpr HelperForm helper_form(std::string_view key) noexcept {
    if (const std::string_view tag = hash_tag(key); !tag.empty()) {
        return tag.size() + 2 == key.size() ? HelperForm::tag_alone : HelperForm::plain;
    }
    return key.find('}') == std::string_view::npos ? HelperForm::braced : HelperForm::impossible;
}

namespace helper_suffix {
inline constexpr std::string_view fence = ":leaselock:fence";
inline constexpr std::string_view waiters = ":leaselock:waiters";
inline constexpr std::string_view wake = ":leaselock:wake:";
} // namespace helper_suffix

/// A helper key, built in place: `write` says how long it is and lays it where there is room.
struct HelperKey {
    std::string_view key;
    std::string_view suffix; ///< of `helper_suffix`: it begins with a `:`

    [[nodiscard]] constexpr std::size_t size() const noexcept {
        const HelperForm form = helper_form(key);
        return key.size() + suffix_of(form).size() + (form == HelperForm::braced ? 2 : 0);
    }
    /// Writes `size()` bytes to `out`. The form must not be `impossible`.
    constexpr void write(char* out) const noexcept {
        const HelperForm form = helper_form(key);
        if (form == HelperForm::braced) *out++ = '{';
        for (const char c : key) *out++ = c;
        if (form == HelperForm::braced) *out++ = '}';
        for (const char c : suffix_of(form)) *out++ = c;
    }

private:
    [[nodiscard]] constexpr std::string_view suffix_of(HelperForm form) const noexcept {
        return suffix.substr(form == HelperForm::tag_alone ? 1 : 0);
    }
};

} // namespace LEASELOCK_ABI
} // namespace leaselock
