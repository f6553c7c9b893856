#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

#include <chrono>
#include <cstdint>
#include <ratio>

#if LEASELOCK_DEFINES
#include <leaselock/core/detail/linux.hpp>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// The clock that leases are measured by: nanoseconds since boot, steady, counting suspend, so that
/// a machine that slept wakes up without its leases. On Linux: CLOCK_BOOTTIME.
/// It names the points in time; a `Runtime` reads it, so that tests can move it by hand.
struct LeaseClock {
    using rep = std::int64_t;
    using period = std::nano;
    using duration = std::chrono::duration<rep, period>;
    using time_point = std::chrono::time_point<LeaseClock, duration>;
    static constexpr bool is_steady = true;

    /// The system's own reading. Never fails. Thread-safe.
    [[nodiscard]] static time_point now() noexcept;
};

/// A point in time by which something ends. Absolute, so that waiting in steps adds up to nothing.
using Deadline = LeaseClock::time_point;

#if LEASELOCK_DEFINES
LEASELOCK_INLINE LeaseClock::time_point LeaseClock::now() noexcept {
    return time_point{duration{detail::boot_time_ns()}};
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
