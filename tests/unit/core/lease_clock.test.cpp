// SPDX-License-Identifier: MIT
#include <leaselock/core/lease_clock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <ratio>
#include <type_traits>

namespace {

using leaselock::Deadline;
using leaselock::LeaseClock;

static_assert(LeaseClock::is_steady);
static_assert(std::is_same_v<LeaseClock::period, std::nano>);
static_assert(std::is_same_v<Deadline::clock, LeaseClock>); // no mixing with wall time
static_assert(noexcept(LeaseClock::now()));

Deadline reading_of(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return Deadline{std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec}};
}

TEST(LeaseClock, ReadsTheClockThatCountsSuspend) {
    const Deadline before = reading_of(CLOCK_BOOTTIME);
    const Deadline now = LeaseClock::now();
    EXPECT_LE(before, now);
    EXPECT_LE(now, reading_of(CLOCK_BOOTTIME));
}

TEST(LeaseClock, NeverGoesBack) {
    Deadline last = LeaseClock::now();
    for (int i = 0; i < 1000; ++i) {
        const Deadline now = LeaseClock::now();
        EXPECT_LE(last, now);
        last = now;
    }
}

} // namespace
