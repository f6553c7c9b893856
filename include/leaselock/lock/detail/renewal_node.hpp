#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

inline constexpr std::uint32_t not_queued = UINT32_MAX;

/// What the schedule knows of a lease; part of the lease's own record, so that keeping one costs
/// two pointers besides.
struct RenewalNode {
    std::chrono::milliseconds ttl{};
    std::chrono::nanoseconds margin{};
    Deadline due{};                        ///< of the next renewal
    Deadline confirmed{};                  ///< the end of the lease, as last confirmed
    Deadline hold_end = (Deadline::max)(); ///< of the longest hold that was asked for
    std::int32_t timeout_ms = 0;           ///< for one call to the server
    std::uint32_t waiting_at = not_queued;
    std::uint32_t ready_at = not_queued;
    std::uint32_t watched_at = not_queued;
    std::uint32_t holding_at = not_queued;
    bool failed = false; ///< its last try was

    /// What a lease lasts at its holder's.
    [[nodiscard]] std::chrono::nanoseconds life() const noexcept {
        return std::chrono::nanoseconds{ttl} - margin;
    }
    /// From one renewal to the next: a third of the ttl, or half its life where the margin is wide.
    [[nodiscard]] std::chrono::nanoseconds period() const noexcept {
        return (std::min)(std::chrono::nanoseconds{ttl} / 3, life() / 2);
    }
    /// What one try may take.
    [[nodiscard]] std::chrono::nanoseconds try_limit() const noexcept {
        return std::min<std::chrono::nanoseconds>(period() / 2,
                                                  std::chrono::milliseconds{timeout_ms});
    }
    /// From a try that failed to the next: twenty fit into what is left behind a first one, and a dead
    /// server hears no storm of them.
    [[nodiscard]] std::chrono::nanoseconds retry_after() const noexcept {
        return std::clamp<std::chrono::nanoseconds>(period() / 10, std::chrono::milliseconds{1},
                                                    std::chrono::seconds{1});
    }
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
