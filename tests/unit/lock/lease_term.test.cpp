// SPDX-License-Identifier: MIT

#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/lock/detail/lease_term.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace leaselock::detail {
namespace {

using namespace std::chrono_literals;

constexpr Deadline at(LeaseClock::duration since_boot) { return Deadline{since_boot}; }

struct LeaseTermTest : ::testing::Test {
    LeaseTermTest() { term.begin(at(10s)); }
    LeaseTerm term;
};

TEST_F(LeaseTermTest, AnExtensionNeverShortens) {
    EXPECT_TRUE(term.extend(at(1s), at(5s))); // of a renewal that was sent before the last one
    EXPECT_EQ(term.deadline(), at(10s));
    EXPECT_TRUE(term.extend(at(1s), at(12s)));
    EXPECT_EQ(term.deadline(), at(12s));
}

TEST_F(LeaseTermTest, NothingExtendsWhatHasEnded) {
    EXPECT_TRUE(term.extend(at(10s) - 1ns, at(11s)));
    EXPECT_FALSE(term.extend(at(11s), at(20s))) << "nobody has noticed yet";
    EXPECT_FALSE(term.expire(at(11s) - 1ns));
    EXPECT_TRUE(term.expire(at(11s)));
    EXPECT_FALSE(term.expire(at(12s))) << "one notices";
    EXPECT_EQ(term.deadline(), Deadline{});
    EXPECT_EQ(term.loss(), Loss::expired);
    EXPECT_FALSE(term.extend(at(1s), at(20s)));
}

TEST_F(LeaseTermTest, ALossIsFinal) {
    EXPECT_TRUE(term.lose(Loss::taken));
    EXPECT_FALSE(term.lose(Loss::gone));
    EXPECT_FALSE(term.extend(at(1s), at(20s)));
    term.give_back();
    EXPECT_EQ(term.loss(), Loss::taken);
    term.reset();
    EXPECT_EQ(term.loss(), Loss::none);
}

TEST_F(LeaseTermTest, WhatIsGivenBackIsNoLoss) {
    term.give_back();
    EXPECT_EQ(term.deadline(), Deadline{});
    EXPECT_FALSE(term.lose(Loss::taken));
    EXPECT_FALSE(term.expire(at(20s)));
    EXPECT_FALSE(term.extend(at(1s), at(20s)));
    EXPECT_EQ(term.loss(), Loss::none);
}

TEST_F(LeaseTermTest, WhatIsLetRunOutSaysWhyFromTheStart) {
    term.let_run_out(Loss::max_hold);
    EXPECT_TRUE(term.ending());
    EXPECT_EQ(term.loss(), Loss::max_hold);
    EXPECT_EQ(term.deadline(), at(10s)) << "it is held still";
    EXPECT_TRUE(term.expire(at(10s)));
    EXPECT_EQ(term.loss(), Loss::max_hold);
}

} // namespace
} // namespace leaselock::detail
