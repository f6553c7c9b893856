#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace testing::detail {

/// Random bytes that repeat from run to run: SplitMix64, Steele, Lea and Flood 2014.
class SeededRandom {
public:
    explicit SeededRandom(std::uint64_t seed) noexcept : state_(seed) {}

    void fill(std::span<std::byte> bytes) noexcept {
        for (std::byte& byte : bytes) {
            state_ += 0x9e3779b97f4a7c15U;
            std::uint64_t z = state_;
            z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
            z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
            byte = static_cast<std::byte>((z ^ (z >> 31U)) >> 56U);
        }
    }

private:
    std::uint64_t state_;
};

} // namespace testing::detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
