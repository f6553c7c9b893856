// SPDX-License-Identifier: MIT
#include <leaselock/lock/detail/node_health.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace leaselock::detail {
namespace {

using namespace std::chrono_literals;

const Outcome silent{Answer::unsent, errc::timed_out};

TEST(NodeHealth, PausesGrowUpToAnEnd) {
    constexpr std::chrono::milliseconds pauses[] = {100ms, 200ms, 400ms, 800ms, 1600ms, 1600ms};
    NodeHealth health;
    Deadline now{10s};
    for (const std::chrono::milliseconds pause : pauses) {
        health.failed(silent, now);
        EXPECT_TRUE(health.is_down());
        EXPECT_FALSE(health.may_be_tried(now + pause - 1ns));
        EXPECT_TRUE(health.may_be_tried(now + pause));
        now += pause;
    }
    EXPECT_EQ(NodeHealth::pause(1'000'000), 1600ms);
}

TEST(NodeHealth, AnAnswerMakesItWellAndThePausesStartAnew) {
    NodeHealth health;
    EXPECT_FALSE(health.is_down());
    const Deadline now{10s};
    for (int i = 0; i < 5; ++i) health.failed(silent, now);
    health.answered();
    EXPECT_FALSE(health.is_down());
    health.failed({Answer::unsent, errc::connection_lost}, now);
    EXPECT_TRUE(health.may_be_tried(now + 100ms));
    EXPECT_TRUE(health.why().cause == errc::connection_lost); // the last reason counts
}

} // namespace
} // namespace leaselock::detail
