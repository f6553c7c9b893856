#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/lease_clock.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

/// When a waiting call tries again: pure. Source: design, "Waiting".
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// Full jitter: anywhere from the floor to a ceiling that doubles with each attempt, up to the cap.
/// @param failed attempts so far, from 1
/// @param random any 64 bits
[[nodiscard]] constexpr std::chrono::nanoseconds backoff(std::chrono::nanoseconds floor,
                                                         std::chrono::nanoseconds cap,
                                                         unsigned failed,
                                                         std::uint64_t random) noexcept {
    std::chrono::nanoseconds ceiling = floor;
    for (unsigned i = 0; i < failed && ceiling < cap; ++i) ceiling = (std::min)(cap, ceiling * 2);
    const auto width = static_cast<std::uint64_t>((ceiling - floor).count()) + 1;
    return floor + std::chrono::nanoseconds{static_cast<std::int64_t>(random % width)};
}

/// The point of the next attempt, or none when the last one has been made.
/// @param holder_left what the holder's key has left to live, where that is known: nobody sleeps past
///        it by more than 1 ms
/// @param lead how long before `until` the last attempt is made, so that it can still be answered
[[nodiscard]] constexpr std::optional<Deadline>
next_attempt(Deadline now, std::chrono::nanoseconds pause,
             std::optional<std::chrono::milliseconds> holder_left, Deadline until,
             std::chrono::nanoseconds lead) noexcept {
    const Deadline last = later(until, -lead);
    if (now >= last) return std::nullopt;
    Deadline wake = later(now, pause);
    if (holder_left) {
        wake = (std::min)(wake, later(now, *holder_left + std::chrono::milliseconds{1}));
    }
    return (std::min)(wake, last);
}

/// Room for the last attempt's answer: four times what the one before took, at least 20 ms, but no more
/// than a quarter of the whole wait.
[[nodiscard]] constexpr std::chrono::nanoseconds last_lead(std::chrono::nanoseconds took,
                                                           std::chrono::nanoseconds span) noexcept {
    const std::chrono::nanoseconds least = std::chrono::milliseconds{20};
    return (std::min)((std::max)(4 * took, least), span / 4);
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
