// SPDX-License-Identifier: MIT

#include "fixture.hpp"

#include <leaselock/lock/inspect.hpp>

namespace leaselock::test {
namespace {

using State = Inspection::State;
using InspectTest = LockTest;

TEST_F(InspectTest, AFreeKeyIsFree) {
    const Inspection seen = inspect(redis, "k");
    EXPECT_TRUE(seen.outcome);
    EXPECT_EQ(seen.state, State::free);
    EXPECT_EQ(redis.calls(), 1U);
}

TEST_F(InspectTest, AHeldKeyShowsLabelAndTtlAndNothingOfTheToken) {
    LeaseLock lock{redis, "k", {.ttl = 10s, .owner = "worker-7"}};
    clock.advance(4s);
    const Inspection seen = inspect(other, "k");
    EXPECT_EQ(seen.state, State::held);
    EXPECT_EQ(seen.ttl, 6s);
    EXPECT_EQ(seen.owner.view(), "worker-7");
    for (const auto& executed : server.log()) {
        if (executed.argv.front() != "GETRANGE") continue;
        EXPECT_EQ(executed.argv.at(2), "32");
    }

    LeaseLock unlabelled{redis, "j", 10s};
    EXPECT_EQ(inspect(other, "j").owner.view(), "");
    LeaseLock longest{redis, "i", {.owner = std::string(128, 'o')}};
    EXPECT_EQ(inspect(other, "i").owner.view(), std::string(128, 'o'));
}

TEST_F(InspectTest, AForeignValueWithoutExpiryIsToldApart) { // S19
    server.set("k", "v");
    EXPECT_EQ(inspect(redis, "k").state, State::held_without_expiry);
    EXPECT_EQ(inspect(redis, "k").owner.view(), "");
    server.set("k", std::string(200, 'x'));
    EXPECT_EQ(inspect(redis, "k").owner.view(), "") << "not a value of ours";
    server.plant_hash("h");
    EXPECT_EQ(inspect(redis, "h").state, State::held_without_expiry);
}

TEST_F(InspectTest, TroubleIsAnOutcome) {
    redis.next({.kind = Fault::lost_reply});
    const Inspection late = inspect(redis, "k", 50ms);
    EXPECT_TRUE(is(late.outcome, Answer::unknown, errc::timed_out));
    EXPECT_EQ(late.state, State::unknown);
    redis.next({.kind = Fault::error, .text = "NOPERM this user has no permissions"});
    EXPECT_TRUE(is(inspect(redis, "k").outcome, Answer::refused, errc::no_permission));
    redis.on("GETRANGE", {.kind = Fault::error, .text = "NOPERM this user has no permissions"});
    const Inspection half = inspect(redis, "k");
    EXPECT_TRUE(is(half.outcome, Answer::refused, errc::no_permission));
    EXPECT_EQ(half.state, State::free) << "the state is known, the label is not";
    EXPECT_TRUE(is(inspect(redis, "").outcome, Answer::unsent, errc::invalid_argument));
    EXPECT_TRUE(
        is(inspect(redis, std::string(1025, 'k')).outcome, Answer::unsent, errc::invalid_argument));
    EXPECT_TRUE(inspect(redis, "k", std::chrono::milliseconds::max()).outcome);
}

} // namespace
} // namespace leaselock::test
