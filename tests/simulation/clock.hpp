#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/history.hpp"

#include <cstdint>

namespace leaselock::simulation {

inline constexpr Time us = 1'000;
inline constexpr Time ms = 1'000'000;
inline constexpr Time s = 1'000'000'000;

/// A clock that starts anywhere, and runs a little too fast or too slow.
struct Clock {
    Time offset = 0;
    std::int64_t ppm = 0;

    [[nodiscard]] constexpr Time at(Time time) const noexcept {
        return offset + time + time * ppm / 1'000'000;
    }
    /// The first moment of the run at which this clock says `reading`, or more.
    [[nodiscard]] constexpr Time when(Time reading) const noexcept {
        const std::int64_t rate = 1'000'000 + ppm;
        const Time span = reading - offset;
        Time time = span / rate * 1'000'000 + span % rate * 1'000'000 / rate - 2;
        while (at(time) < reading) ++time;
        return time;
    }
};

} // namespace leaselock::simulation
