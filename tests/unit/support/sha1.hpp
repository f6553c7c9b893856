// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace leaselock::test {

/// The SHA-1 of the bytes in hex: what a server calls a script by. Source: RFC 3174, method 1.
[[nodiscard]] inline std::string sha1(std::string_view bytes) {
    std::string padded{bytes};
    padded += static_cast<char>(0x80);
    while (padded.size() % 64 != 56) padded += '\0';
    for (int shift = 56; shift >= 0; shift -= 8) {
        padded += static_cast<char>((std::uint64_t{bytes.size()} * 8) >> shift & 0xff);
    }
    std::array<std::uint32_t, 5> h{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    for (std::size_t block = 0; block < padded.size(); block += 64) {
        std::array<std::uint32_t, 80> w{};
        for (std::size_t i = 0; i < 64; ++i) {
            w[i / 4] = w[i / 4] << 8 | static_cast<unsigned char>(padded[block + i]);
        }
        for (std::size_t i = 16; i < 80; ++i) {
            w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
        }
        auto [a, b, c, d, e] = h;
        for (std::size_t i = 0; i < 80; ++i) {
            const std::uint32_t f = i < 20   ? (b & c) | (~b & d)
                                    : i < 40 ? b ^ c ^ d
                                    : i < 60 ? (b & c) | (b & d) | (c & d)
                                             : b ^ c ^ d;
            const std::uint32_t k = i < 20   ? 0x5a827999
                                    : i < 40 ? 0x6ed9eba1
                                    : i < 60 ? 0x8f1bbcdc
                                             : 0xca62c1d6;
            const std::uint32_t next = std::rotl(a, 5) + f + e + w[i] + k;
            e = d;
            d = c;
            c = std::rotl(b, 30);
            b = a;
            a = next;
        }
        h = {h[0] + a, h[1] + b, h[2] + c, h[3] + d, h[4] + e};
    }
    std::string hex;
    for (const std::uint32_t part : h) {
        for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[part >> shift & 0xf];
    }
    return hex;
}

} // namespace leaselock::test
