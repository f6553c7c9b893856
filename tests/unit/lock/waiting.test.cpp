// SPDX-License-Identifier: MIT

#include "fixture.hpp"

#include <leaselock/lock/detail/backoff.hpp>
#include <leaselock/lock/renewer.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace leaselock::test {
namespace {

using detail::backoff;
using detail::next_attempt;

TEST(Backoff, IsFullJitterBetweenFloorAndADoublingCeiling) {
    EXPECT_EQ(backoff(10ms, 500ms, 1, 0), 10ms);
    EXPECT_EQ(backoff(10ms, 500ms, 1, 10'000'000), 20ms);
    EXPECT_EQ(backoff(10ms, 500ms, 1, 10'000'001), 10ms) << "the width is 10 ms";
    EXPECT_EQ(backoff(10ms, 500ms, 3, 70'000'000), 80ms);
    EXPECT_EQ(backoff(10ms, 500ms, 99, 490'000'000), 500ms);
    EXPECT_EQ(backoff(10ms, 10ms, 5, 12345), 10ms);
    EXPECT_EQ(backoff(10ms, 15ms, 1, 5'000'000), 15ms);
    for (std::uint64_t random = 0; random < 1'000'000'000; random += 7'654'321) {
        const auto pause = backoff(10ms, 500ms, 7, random);
        ASSERT_GE(pause, 10ms);
        ASSERT_LE(pause, 500ms);
    }
}

TEST(NextAttempt, IsNotPastTheHoldersEndTheDeadlineOrTheLastMoment) {
    const Deadline now{1000s};
    EXPECT_EQ(next_attempt(now, 50ms, {}, now + 1s, 2ms), now + 50ms);
    EXPECT_EQ(next_attempt(now, 50ms, 20ms, now + 1s, 2ms), now + 21ms);
    EXPECT_EQ(next_attempt(now, 50ms, 0ms, now + 1s, 2ms), now + 1ms);
    EXPECT_EQ(next_attempt(now, 50ms, 90ms, now + 1s, 2ms), now + 50ms);
    EXPECT_EQ(next_attempt(now, 50ms, {}, now + 40ms, 2ms), now + 38ms) << "the last one";
    EXPECT_EQ(next_attempt(now, 50ms, {}, now + 2ms, 2ms), std::nullopt) << "it has been made";
    EXPECT_EQ(next_attempt(now, 50ms, {}, Deadline::max(), 2ms), now + 50ms);
}

struct WaitingTest : LockTest {
    Lock lock{redis, "k", {.ttl = 10s, .observer = &recorder}, std::defer_lock};
};

TEST_F(WaitingTest, AFreeLockIsTakenAtOnce) {
    EXPECT_TRUE(lock.try_lock_for(5s));
    EXPECT_EQ(redis.calls(), 1U);
    const auto waits = recorder.of(Verb::wait);
    ASSERT_EQ(waits.size(), 1U);
    EXPECT_EQ(waits[0].answer, Answer::yes);
}

TEST_F(WaitingTest, ABusyOneEndsAtTheDeadlineAndNotBefore) { // B44
    LeaseLock holder{other, "k", 10s};
    for (const auto span : {200ms, 1ms, 777ms}) {
        const Deadline start = clock.now();
        EXPECT_FALSE(lock.try_lock_for(span));
        EXPECT_EQ(clock.now(), start + span);
    }
    EXPECT_TRUE(is(lock.try_acquire_for(50ms), Answer::no, errc::busy));
}

TEST_F(WaitingTest, TheLastAttemptIsJustBeforeTheEnd) {
    LeaseLock holder{other, "k", 10s};
    server.clear_log();
    const Deadline end = clock.now() + 3s;
    EXPECT_FALSE(lock.try_lock_for(3s));
    const auto log = server.log();
    EXPECT_EQ(log.back().time, end - 20ms);
}

TEST_F(WaitingTest, NobodySleepsPastTheHoldersEnd) { // B07
    LeaseLock holder{other, "k", 700ms};
    const Deadline start = clock.now();
    Lock waiter{redis, "k", 500ms, std::defer_lock};
    ASSERT_TRUE(waiter.try_lock_for(2s));
    EXPECT_GE(clock.now(), start + 700ms);
    EXPECT_LE(clock.now(), start + 702ms) << "whole milliseconds, plus 1";
    EXPECT_EQ(waiter.remaining(), 500ms - 7ms) << "a new lease, not what is left of the wait";
    EXPECT_TRUE(waiter.renew());
    EXPECT_EQ(holder.loss(), Loss::expired);
}

TEST_F(WaitingTest, FloorAndCapHold) { // B48
    LeaseLock holder{other, "k", 60s};
    Lock waiter{redis, "k", {.wait_floor = 40ms, .wait_cap = 100ms}, std::defer_lock};
    server.clear_log();
    EXPECT_FALSE(waiter.try_lock_for(5s));
    std::optional<Deadline> last;
    std::vector<std::chrono::nanoseconds> pauses;
    for (const auto& executed : server.log()) {
        if (executed.argv.front() != "SET") continue;
        if (last) pauses.push_back(executed.time - *last);
        last = executed.time;
    }
    pauses.pop_back(); // the last attempt is where the deadline wants it
    EXPECT_THAT(pauses,
                ::testing::Each(::testing::AllOf(::testing::Ge(40ms), ::testing::Le(100ms))));
    EXPECT_GT(*std::max_element(pauses.begin(), pauses.end()), 90ms) << "it is jitter";
    EXPECT_LT(*std::min_element(pauses.begin(), pauses.end()), 50ms);
}

TEST_F(WaitingTest, PttlRidesBehindTheSetInWaitingCallsOnly) {
    LeaseLock holder{other, "k", 10s};
    server.clear_log();
    (void)lock.try_acquire();
    EXPECT_EQ(server.count("PTTL"), 0U);
    redis.reset_counters();
    (void)lock.try_acquire_for(1ms);
    EXPECT_EQ(server.count("PTTL"), server.count("SET") - 1);
    EXPECT_EQ(redis.commands(), 2 * redis.calls());
}

TEST_F(WaitingTest, AForbiddenPttlCostsTheHintOnly) {
    LeaseLock holder{other, "k", 300ms};
    for (int i = 0; i < 100; ++i) redis.on("PTTL", {.kind = Fault::error, .text = "NOPERM no"});
    EXPECT_TRUE(lock.try_lock_for(2s));
}

TEST_F(WaitingTest, AValueWithoutExpiryIsWaitedForAndNoLonger) { // S19
    server.set("k", "v");
    const Deadline start = clock.now();
    EXPECT_FALSE(lock.try_lock_for(1s));
    EXPECT_EQ(clock.now(), start + 1s);
}

TEST_F(WaitingTest, ZeroAndLessIsOneAttempt) {
    LeaseLock holder{other, "k", 10s};
    for (const auto span : {0ms, -5ms, std::chrono::milliseconds::min()}) {
        redis.reset_counters();
        EXPECT_FALSE(lock.try_lock_for(span));
        EXPECT_EQ(redis.calls(), 1U);
    }
    ASSERT_TRUE(holder.unlock());
    EXPECT_TRUE(lock.try_lock_for(0ms));
}

TEST_F(WaitingTest, AnInfiniteWaitEndsWithTheLock) {
    LeaseLock holder{other, "k", 1h};
    EXPECT_TRUE(lock.try_lock_for(std::chrono::hours::max()));
    EXPECT_EQ(holder.loss(), Loss::expired);
    ASSERT_TRUE(lock.unlock());
    LeaseLock again{other, "k", 1s};
    lock.lock();
    EXPECT_TRUE(lock);
}

TEST_F(WaitingTest, APointInTimeOfAnyClock) {
    LeaseLock holder{other, "k", 10s};
    const Deadline start = clock.now();
    EXPECT_FALSE(lock.try_lock_until(start + 250ms));
    EXPECT_EQ(clock.now(), start + 250ms);
    EXPECT_FALSE(lock.try_lock_until(start)) << "past: one attempt";
    EXPECT_EQ(clock.now(), start + 250ms);
    EXPECT_FALSE(lock.try_lock_until(std::chrono::steady_clock::now() + 100ms));
    EXPECT_GT(clock.now(), start + 250ms);
    EXPECT_LE(clock.now(), start + 350ms);
}

TEST_F(WaitingTest, ErrorsThatWaitingCannotCureEndItAtOnce) { // S16
    for (const char* text : {"WRONGPASS invalid username-password pair or user is disabled.",
                             "NOAUTH Authentication required.",
                             "NOPERM this user has no permissions to run the 'set' command",
                             "ERR unknown command 'SET', with args beginning with: 'k'"}) {
        redis.on("SET", {.kind = Fault::error, .text = text});
        const Deadline start = clock.now();
        const Outcome outcome = lock.try_acquire_for(10s);
        EXPECT_EQ(outcome.answer, Answer::refused) << text;
        EXPECT_EQ(outcome.text.view(), without_arguments(text));
        EXPECT_EQ(clock.now(), start) << text;
    }
    EXPECT_TRUE(is(Lock(redis, "", 10s, std::defer_lock).try_acquire_for(10s), Answer::unsent,
                   errc::invalid_argument));
}

TEST_F(WaitingTest, MovedEndsItWhereNobodyFollowsAndNamesTheCure) {
    redis.on("SET", {.kind = Fault::error, .text = "MOVED 6035 127.0.0.1:7001"});
    const Deadline start = clock.now();
    const Outcome outcome = lock.try_acquire_for(10s);
    EXPECT_TRUE(is(outcome, Answer::refused, errc::moved));
    EXPECT_EQ(outcome.text.view(), "MOVED 6035 127.0.0.1:7001 (a node of a cluster: that takes a "
                                   "ClusterConnection)");
    EXPECT_EQ(clock.now(), start);
}

TEST_F(WaitingTest, ErrorsThatPassAreWaitedOut) { // S3, S4, S13, S14, S15, S30
    for (const char* text :
         {"LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script.",
          "MASTERDOWN Link with MASTER is down",
          "MISCONF Redis is configured to save RDB snapshots",
          "NOREPLICAS Not enough good replicas to write.", "CLUSTERDOWN The cluster is down",
          "READONLY You can't write against a read only replica.", "ERR Connection timed out",
          "OOM command not allowed when used memory > 'maxmemory'.",
          "ERR max number of clients reached"}) {
        redis.on("SET", {.kind = Fault::error, .text = text});
        EXPECT_TRUE(lock.try_lock_for(10s)) << text;
        ASSERT_TRUE(lock.unlock());
    }
}

TEST_F(WaitingTest, ALostConnectionIsWaitedOutAndNamedAtTheEnd) { // B46
    redis.go_down();
    const Deadline start = clock.now();
    const Outcome outcome = lock.try_acquire_for(200ms);
    EXPECT_EQ(clock.now(), start + 200ms);
    EXPECT_EQ(outcome.answer, Answer::unsent);
    EXPECT_EQ(outcome.cause, condition::unreachable);
    EXPECT_THROW((void)lock.try_lock_for(200ms), Error);
    redis.heal();
    redis.next({.kind = Fault::cut_request});
    EXPECT_TRUE(lock.try_lock_for(2s));
}

TEST_F(WaitingTest, ABlackHoleKeepsTheDeadline) {
    redis.always({.kind = Fault::lost_request});
    const Deadline start = clock.now();
    EXPECT_EQ(lock.try_acquire_for(300ms).answer, Answer::unknown);
    EXPECT_EQ(clock.now(), start + 300ms) << "the clean-up does not wait for an answer";
}

TEST_F(WaitingTest, AForeignTtlOfAnyLengthIsNoHurry) {
    server.set("k", "v", std::chrono::milliseconds{9'300'000'000'000});
    server.clear_log();
    EXPECT_FALSE(lock.try_lock_for(1s));
    EXPECT_LE(server.count("SET"), 1000U / 10 + 2);
}

TEST_F(WaitingTest, PointsInTimeAtTheEndsOfTheirClocks) {
    LeaseLock holder{other, "k", 1s};
    EXPECT_FALSE(lock.try_lock_until(std::chrono::steady_clock::time_point::min()));
    EXPECT_TRUE(lock.try_lock_until(std::chrono::sys_days{std::chrono::year{9999} / 1 / 1}));
    ASSERT_TRUE(lock.unlock());
    LeaseLock again{other, "k", 1s};
    EXPECT_TRUE(lock.try_lock_until(std::chrono::system_clock::time_point::max()));
}

TEST_F(WaitingTest, AGuardWhoseRenewalIsStillOnItsWayWaits) {
    MemoryConnection wire{server};
    Renewer<MemoryConnection> renewer{wire};
    ASSERT_TRUE(lock.try_acquire());
    renewer.keep(lock);
    clock.settle();
    wire.set_delay(50ms, 900ms);
    clock.advance(3400ms); // a renewal is on its way
    ASSERT_TRUE(lock.unlock());
    LeaseLock holder{other, "k", 20s};
    ASSERT_TRUE(holder);
    EXPECT_FALSE(lock.try_lock_for(2s));
    ASSERT_TRUE(holder.unlock());
    EXPECT_TRUE(lock.try_lock_for(2s));
}

TEST_F(WaitingTest, AStopRequestEndsTheSleepAtOnce) {
    LeaseLock holder{other, "k", 10s};
    std::stop_source source;
    // the request comes from a thread of the runtime, at 1 s
    struct Context {
        ManualRuntime& clock;
        std::stop_source& source;
    } context{clock, source};
    ThreadHandle thread;
    ASSERT_FALSE(clock.start_thread(
        thread,
        [](void* argument) -> void* {
            auto& with = *static_cast<Context*>(argument);
            with.clock.sleep_until(with.clock.now() + 1s);
            with.source.request_stop();
            return nullptr;
        },
        &context));
    const Deadline start = clock.now();
    const Outcome outcome = lock.try_acquire_for(1h, source.get_token());
    EXPECT_TRUE(is(outcome, Answer::no, errc::stopped));
    EXPECT_EQ(clock.now(), start + 1s);
    clock.join(thread);

    redis.reset_counters();
    EXPECT_TRUE(is(lock.try_acquire_for(1h, source.get_token()), Answer::unsent, errc::stopped));
    EXPECT_TRUE(is(lock.try_acquire_for(0s, source.get_token()), Answer::unsent, errc::stopped));
    EXPECT_FALSE(lock.try_lock_for(1h, source.get_token()));
    EXPECT_THROW(lock.lock(source.get_token()), Error);
    EXPECT_EQ(redis.calls(), 0U) << "set already: not one attempt";
}

TEST_F(WaitingTest, BadBoundsAreRefused) {
    for (const Options& options : {Options{.wait_floor = 0ms}, Options{.wait_floor = -1ms},
                                   Options{.wait_floor = 20ms, .wait_cap = 10ms}}) {
        Lock bad{redis, "k", options, std::defer_lock};
        EXPECT_TRUE(is(bad.try_acquire_for(1s), Answer::unsent, errc::invalid_argument));
    }
    EXPECT_EQ(redis.calls(), 0U);
    Lock huge{redis,
              "k",
              {.wait_floor = std::chrono::milliseconds::max(),
               .wait_cap = std::chrono::milliseconds::max()},
              std::defer_lock};
    EXPECT_TRUE(huge.try_lock_for(1s));
}

TEST_F(WaitingTest, StdLockGuardsWork) {
    Lock a{redis, "a", 10s, std::defer_lock};
    Lock b{redis, "b", 10s, std::defer_lock};
    {
        const std::scoped_lock both{a, b};
        EXPECT_TRUE(a.owns_lock() && b.owns_lock());
    }
    EXPECT_FALSE(server.get("a") || server.get("b"));
    {
        const std::lock_guard one{a};
        EXPECT_TRUE(a.owns_lock());
    }
    const std::unique_lock timed{a, 10ms};
    EXPECT_TRUE(timed.owns_lock());
}

/// Threads that wait for one key on one connection.
struct Crowd {
    struct Member {
        Crowd* crowd;
        int number;
        ThreadHandle thread{};
    };
    ManualRuntime& clock;
    MemoryConnection& redis;
    std::chrono::milliseconds hold;
    std::mutex mutex{};
    std::vector<int> order{};

    static void* run(void* argument) {
        auto& self = *static_cast<Member*>(argument);
        Crowd& crowd = *self.crowd;
        Lock lock{crowd.redis, "k", 60s, std::defer_lock};
        crowd.clock.sleep_until(crowd.clock.now() + 1ms * self.number);
        if (!lock.try_acquire_for(1h)) return nullptr;
        {
            const std::lock_guard guard{crowd.mutex};
            crowd.order.push_back(self.number);
        }
        crowd.clock.sleep_until(crowd.clock.now() + crowd.hold);
        return nullptr;
    }
};

TEST_F(WaitingTest, ThreadsOfOneConnectionTakeTurns) { // X3
    constexpr int count = 20;
    LeaseLock holder{other, "k", 5s};
    Crowd crowd{clock, redis, 300ms};
    std::vector<Crowd::Member> members;
    for (int i = 0; i < count; ++i) members.push_back({&crowd, i + 1});
    for (auto& member : members) {
        ASSERT_FALSE(clock.start_thread(member.thread, &Crowd::run, &member));
    }
    server.clear_log();
    clock.advance(4s);
    EXPECT_LE(server.count("SET"), 4'000U / 10) << "one of them at a time";
    clock.advance(60s);
    std::vector<int> expected;
    for (int i = 1; i <= count; ++i) expected.push_back(i);
    EXPECT_EQ(crowd.order, expected);
    for (auto& member : members) clock.join(member.thread);
}

TEST_F(WaitingTest, WhoeverRunsOutOfTimeInTheLineStillAsks) {
    LeaseLock holder{other, "k", 1h};
    struct First {
        ManualRuntime& clock;
        MemoryConnection& redis;
    } first{clock, redis};
    ThreadHandle thread;
    ASSERT_FALSE(clock.start_thread(
        thread,
        [](void* argument) -> void* {
            auto& with = *static_cast<First*>(argument);
            Lock ahead{with.redis, "k", 60s, std::defer_lock};
            (void)ahead.try_acquire_for(10s);
            return nullptr;
        },
        &first));
    clock.settle();
    const Deadline start = clock.now();
    EXPECT_TRUE(is(lock.try_acquire_for(200ms), Answer::no, errc::busy));
    EXPECT_EQ(clock.now(), start + 200ms);
    EXPECT_THAT(recorder.of(Verb::acquire).size(),
                ::testing::AllOf(::testing::Ge(1U), ::testing::Le(6U)));
    clock.join(thread);
}

} // namespace
} // namespace leaselock::test
