#pragma once
// SPDX-License-Identifier: MIT

#include <cstddef>
#include <cstdint>

namespace leaselock::simulation {

/// A stream of numbers that depends on its seed alone: SplitMix64, Steele, Lea and Flood 2014. The
/// distributions of the standard library differ from one implementation to the next.
class Random {
public:
    /// @param stream two streams of one seed have nothing in common
    explicit constexpr Random(std::uint64_t seed, std::uint64_t stream = 0) noexcept
        : state_(mix(seed + 0x632be59bd9b4e019U * (stream + 1))) {}

    constexpr std::uint64_t next() noexcept {
        state_ += 0x9e3779b97f4a7c15U;
        return mix(state_);
    }
    /// From 0 to `count` - 1; `count` is not 0.
    constexpr std::uint64_t below(std::uint64_t count) noexcept { return next() % count; }
    /// Both ends included.
    constexpr std::int64_t between(std::int64_t least, std::int64_t most) noexcept {
        return least +
               static_cast<std::int64_t>(below(static_cast<std::uint64_t>(most - least) + 1));
    }
    constexpr bool chance(unsigned per_thousand) noexcept { return below(1000) < per_thousand; }
    /// One of an array or a vector that is not empty.
    template <class Sequence>
    constexpr const auto& pick(const Sequence& from) noexcept {
        return from[static_cast<std::size_t>(below(from.size()))];
    }

    static constexpr std::uint64_t mix(std::uint64_t z) noexcept {
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31U);
    }

private:
    std::uint64_t state_;
};

} // namespace leaselock::simulation
