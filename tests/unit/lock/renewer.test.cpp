// SPDX-License-Identifier: MIT

#include "fixture.hpp"

#include <leaselock/lock/renewer.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

namespace leaselock::test {
namespace {

static_assert(std::is_nothrow_constructible_v<Renewer<MemoryConnection>, MemoryConnection&>);
static_assert(!std::is_move_constructible_v<Renewer<MemoryConnection>>);

struct RenewerTest : LockTest {
    MemoryConnection wire{server};
    std::optional<Renewer<MemoryConnection>> renewer{wire};

    /// When the server executed the renewals, since `start`.
    std::vector<std::chrono::milliseconds> renewals(Deadline start) const {
        std::vector<std::chrono::milliseconds> times;
        for (const auto& executed : server.log()) {
            if (executed.connection == wire.id()) {
                times.push_back(
                    std::chrono::duration_cast<std::chrono::milliseconds>(executed.time - start));
            }
        }
        return times;
    }
};

TEST_F(RenewerTest, RenewsAtOnceAndThenEveryThirdOfTheTtl) {
    { // the script is known
        LeaseLock warm{wire, "warm", 3s};
        (void)warm.renew();
    }
    server.clear_log();
    LeaseLock lock{redis, "k", 3s};
    const Deadline start = clock.now();
    renewer->keep(lock);
    clock.settle();
    EXPECT_THAT(renewals(start), ::testing::ElementsAre(0ms));
    clock.advance(10s);
    EXPECT_TRUE(lock.owns_lock());
    EXPECT_THAT(renewals(start),
                ::testing::ElementsAre(0ms, 1s, 2s, 3s, 4s, 5s, 6s, 7s, 8s, 9s, 10s));
    EXPECT_EQ(lock.deadline(), start + 10s + 3s - 32ms);
    EXPECT_FALSE(lock.stop_token().stop_requested());
}

TEST_F(RenewerTest, AShortTtlWorks) {
    LeaseLock lock{redis, "k", 60ms};
    renewer->keep(lock);
    for (int i = 0; i < 100; ++i) {
        clock.advance(20ms);
        ASSERT_TRUE(lock.owns_lock());
        ASSERT_GE(server.pttl("k"), 1);
    }
}

TEST_F(RenewerTest, UnlockEndsRenewalAndNothingIsLeft) { // B26
    LeaseLock lock{redis, "k", 60ms};
    renewer->keep(lock);
    clock.advance(100ms);
    EXPECT_TRUE(is(lock.unlock(), Answer::yes));
    server.clear_log();
    clock.advance(1s);
    EXPECT_TRUE(server.log().empty());
    EXPECT_FALSE(server.get("k"));
    EXPECT_EQ(clock.next_wake_up(), Deadline::max());
}

TEST_F(RenewerTest, UnlockWaitsForNoRenewalAndTheNextLeaseIsNotTouchedByIt) {
    LeaseLock lock{redis, "k", 3s};
    renewer->keep(lock);
    clock.settle();
    wire.set_delay(100ms, 300ms);
    clock.advance(1050ms); // a renewal is on its way
    const Deadline start = clock.now();
    EXPECT_TRUE(is(lock.unlock(), Answer::yes));
    EXPECT_EQ(clock.now(), start);
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    const Deadline end = lock.deadline();
    clock.advance(1s); // its answer comes: gone, or another's
    EXPECT_TRUE(lock.owns_lock());
    EXPECT_EQ(lock.deadline(), end);
    EXPECT_EQ(lock.loss(), Loss::none);
}

TEST_F(RenewerTest, TheObserverHearsOfNoRenewalBehindUnlock) {
    LeaseLock lock{redis, "k", {.ttl = 3s, .observer = &recorder}};
    renewer->keep(lock);
    clock.settle();
    wire.set_delay(100ms, 300ms);
    clock.advance(1050ms); // a renewal is on its way
    EXPECT_TRUE(is(lock.unlock(), Answer::yes));
    const std::size_t heard = recorder.of(Verb::renew).size();
    clock.advance(1s); // its answer comes
    EXPECT_EQ(recorder.of(Verb::renew).size(), heard);
}

TEST_F(RenewerTest, TheRecordMovesWithTheGuard) {
    std::optional<Lock> first{std::in_place, redis, "k", 3s};
    renewer->keep(*first);
    Lock second{std::move(*first)};
    first.reset();
    LeaseLock other_lock{redis, "j", 3s};
    swap(second, other_lock);
    clock.advance(10s);
    EXPECT_TRUE(other_lock.owns_lock());
    EXPECT_EQ(other_lock.key(), "k");
    EXPECT_FALSE(second.owns_lock()) << "nobody kept that one";
}

TEST_F(RenewerTest, ALossIsSignalledWithinOnePeriod) { // B32
    LeaseLock lock{redis, "k", {.ttl = 3s, .observer = &recorder}};
    renewer->keep(lock);
    const std::stop_token token = lock.stop_token();
    std::atomic<int> called = 0;
    const std::stop_callback callback{token, [&] { ++called; }};
    clock.advance(1500ms);
    server.set("k", "somebody", 1s);
    clock.advance(400ms);
    EXPECT_TRUE(lock.owns_lock());
    clock.advance(100ms);
    EXPECT_FALSE(lock.owns_lock());
    EXPECT_EQ(lock.loss(), Loss::taken);
    EXPECT_TRUE(token.stop_requested());
    EXPECT_EQ(called, 1);
    EXPECT_EQ(server.pttl("k"), 500) << "another's key is left alone";
    clock.advance(10s);
    EXPECT_EQ(called, 1);
    const auto losses = recorder.of(Verb::lose);
    ASSERT_EQ(losses.size(), 1U);
    EXPECT_EQ(losses[0].cause, errc::taken);
    EXPECT_TRUE(is(lock.unlock(), Answer::no, errc::gone));
}

TEST_F(RenewerTest, RenewalNeverSetsAKeyAgain) { // S1, S10
    LeaseLock lock{redis, "k", 3s};
    renewer->keep(lock);
    clock.advance(1500ms);
    server.restart();
    clock.advance(10s);
    EXPECT_EQ(lock.loss(), Loss::gone);
    EXPECT_FALSE(server.get("k"));
}

TEST_F(RenewerTest, AfterALossTheSameNameIsRenewedAgain) { // B30
    LeaseLock lock{redis, "k", 300ms};
    renewer->keep(lock);
    clock.advance(150ms);
    server.del("k");
    clock.advance(150ms);
    ASSERT_FALSE(lock.owns_lock());
    ASSERT_TRUE(lock.try_acquire());
    EXPECT_FALSE(lock.stop_token().stop_requested());
    renewer->keep(lock);
    for (int i = 0; i < 15; ++i) {
        clock.advance(100ms);
        ASSERT_GE(server.pttl("k"), 1);
        LeaseLock busy{other, "k", 300ms};
        ASSERT_FALSE(busy);
    }
}

TEST_F(RenewerTest, AFailedRenewalIsTriedAgainFasterInsideTheLease) { // B34, N7
    LeaseLock lock{redis, "k", {.ttl = 900ms, .observer = &recorder}};
    renewer->keep(lock);
    clock.advance(350ms);
    wire.go_down();
    clock.advance(400ms); // due at 600
    EXPECT_TRUE(lock.owns_lock());
    const auto failed = recorder.of(Verb::renew);
    EXPECT_GE(failed.size(), 4U) << "each failed try is heard";
    EXPECT_EQ(failed.back().answer, Answer::unsent);
    wire.come_up();
    clock.advance(30ms);
    EXPECT_GT(lock.remaining(), 850ms);
    clock.advance(10s);
    EXPECT_TRUE(lock.owns_lock());
    EXPECT_TRUE(recorder.of(Verb::lose).empty());
}

TEST_F(RenewerTest, TheDeadlineSignalsWhateverTheServerDoes) { // S5, N11, B28
    LeaseLock lock{redis, "k", {.ttl = 900ms, .observer = &recorder}};
    renewer->keep(lock);
    clock.advance(700ms);
    wire.always({.kind = Fault::lost_request});
    const std::stop_token token = lock.stop_token();
    const Deadline end = lock.deadline();
    clock.advance_to(end - 1ns);
    EXPECT_FALSE(token.stop_requested());
    EXPECT_TRUE(lock.owns_lock());
    clock.advance(1ns);
    EXPECT_TRUE(token.stop_requested()) << "exactly then";
    EXPECT_EQ(lock.loss(), Loss::expired);
    clock.advance(10s);
    ASSERT_EQ(recorder.of(Verb::lose).size(), 1U);
    EXPECT_EQ(recorder.of(Verb::lose)[0].cause, errc::expired);
}

TEST_F(RenewerTest, AnOldRenewalThatArrivesLateIsHarmless) { // N8
    LeaseLock lock{redis, "k", 3s};
    renewer->keep(lock);
    clock.settle();
    wire.next({.kind = Fault::held});
    clock.advance(5s);
    ASSERT_TRUE(lock.owns_lock());
    wire.deliver_held();
    EXPECT_EQ(server.pttl("k"), 3000) << "the ttl never changes within an acquisition";
    clock.advance(10s);
    EXPECT_TRUE(lock.owns_lock());
}

TEST_F(RenewerTest, TheLongestHoldLetsTheLeaseRunOut) {
    LeaseLock lock{redis, "k", {.ttl = 3s, .observer = &recorder}};
    const Deadline start = clock.now();
    renewer->keep(lock, 5s);
    const std::stop_token token = lock.stop_token();
    clock.advance_to(start + 5s - 1ns);
    EXPECT_FALSE(token.stop_requested());
    clock.advance(1ns);
    EXPECT_TRUE(token.stop_requested());
    EXPECT_TRUE(lock.owns_lock()) << "it runs out";
    EXPECT_EQ(lock.loss(), Loss::max_hold);
    EXPECT_EQ(lock.deadline(), start + 5s + 3s - 32ms);
    clock.advance(3s);
    EXPECT_FALSE(lock.owns_lock());
    EXPECT_EQ(lock.loss(), Loss::max_hold);
    ASSERT_EQ(recorder.of(Verb::lose).size(), 1U);
    EXPECT_EQ(recorder.of(Verb::lose)[0].cause, errc::held_too_long);
}

TEST_F(RenewerTest, ARenewerThatGoesFirstSaysSo) {
    LeaseLock lock{redis, "k", {.ttl = 3s, .observer = &recorder}};
    renewer->keep(lock);
    const std::stop_token token = lock.stop_token();
    clock.advance(1s);
    renewer.reset();
    EXPECT_TRUE(token.stop_requested());
    EXPECT_EQ(lock.loss(), Loss::unkept);
    EXPECT_TRUE(lock.owns_lock()) << "it runs out";
    Renewer<MemoryConnection> next{other};
    EXPECT_TRUE(is(next.try_keep(lock), Answer::unsent, errc::not_held));
    EXPECT_EQ(recorder.of(Verb::lose).size(), 1U);
    EXPECT_TRUE(is(lock.unlock(), Answer::yes));
}

TEST_F(RenewerTest, KeepSaysWhyNot) {
    LeaseLock lock{redis, "k", 3s, std::defer_lock};
    EXPECT_TRUE(is(renewer->try_keep(lock), Answer::unsent, errc::not_held));
    EXPECT_THROW(renewer->keep(lock), Error);
    ASSERT_TRUE(lock.try_acquire());
    const Outcome too_short = renewer->try_keep(lock, 2999ms);
    EXPECT_TRUE(is(too_short, Answer::unsent, errc::invalid_argument));
    EXPECT_EQ(too_short.text.view(),
              "max_hold is 2999 ms: it must be 0 or at least the ttl of 3000 ms");
    EXPECT_TRUE(is(renewer->try_keep(lock, -1ms), Answer::unsent, errc::invalid_argument));
    EXPECT_TRUE(is(renewer->try_keep(lock, std::chrono::milliseconds::max()), Answer::yes));
    EXPECT_TRUE(is(renewer->try_keep(lock), Answer::unsent, errc::already_kept));
    Renewer<MemoryConnection> second{other};
    EXPECT_TRUE(is(second.try_keep(lock), Answer::unsent, errc::already_kept));
    ASSERT_TRUE(lock.unlock());
    ASSERT_TRUE(lock.try_acquire());
    EXPECT_TRUE(is(second.try_keep(lock), Answer::yes)) << "another lease, another renewer";
    ASSERT_TRUE(lock.unlock());
}

struct Unshareable {
    MemoryConnection& way;
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        way.call(commands, replies, by);
    }
    friend Runtime& runtime_of(const Unshareable& connection) noexcept {
        return runtime_of(connection.way);
    }
};

TEST_F(RenewerTest, TheGuardsOwnConnectionIsRefusedWhereItMayNotBeShared) {
    Unshareable own{redis};
    Unshareable another{wire};
    LeaseLock lock{own, "k", 3s};
    Renewer same{own};
    EXPECT_TRUE(is(same.try_keep(lock), Answer::unsent, errc::invalid_argument));
    Renewer apart{another};
    EXPECT_TRUE(is(apart.try_keep(lock), Answer::yes));
    clock.advance(10s);
    EXPECT_TRUE(lock.owns_lock());
}

TEST_F(RenewerTest, WithoutAThreadKeepFailsAndTheLeaseRunsOut) { // P10
    clock.fail_threads(std::make_error_code(std::errc::resource_unavailable_try_again));
    LeaseLock lock{redis, "k", 3s};
    const Outcome outcome = renewer->try_keep(lock);
    EXPECT_EQ(outcome.answer, Answer::unsent);
    EXPECT_EQ(outcome.cause, std::errc::resource_unavailable_try_again);
    EXPECT_TRUE(lock.owns_lock());
    clock.advance(3s);
    EXPECT_FALSE(lock.owns_lock());
    clock.fail_threads({});
    ASSERT_TRUE(lock.try_acquire());
    EXPECT_TRUE(is(renewer->try_keep(lock), Answer::yes));
}

TEST_F(RenewerTest, InAChildRenewerAndLeaseAreInert) { // P4, P5
    auto lock = std::make_unique<Lock>(redis, "k", 3s);
    renewer->keep(*lock);
    clock.settle();
    const ProcessId parent = clock.process();
    clock.become_another_process();
    EXPECT_FALSE(lock->owns_lock());
    EXPECT_TRUE(is(renewer->try_keep(*lock), Answer::unsent, errc::other_process));
    {
        LeaseLock own{other, "j", 3s}; // B79
        Renewer<MemoryConnection> fresh{other};
        EXPECT_TRUE(is(fresh.try_keep(own), Answer::yes));
        clock.advance(10s);
        EXPECT_TRUE(own.owns_lock());
    }
    clock.set_process(parent);
    EXPECT_TRUE(lock->owns_lock());
}

TEST_F(RenewerTest, ThousandLeasesAreSignalledEachAtItsOwnDeadline) { // P19
    constexpr std::size_t count = 1000;
    std::vector<Lock> locks;
    std::vector<std::stop_token> tokens;
    locks.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        locks.emplace_back(redis, "k" + std::to_string(i), 3s, std::defer_lock);
        ASSERT_TRUE(locks.back().try_acquire());
        renewer->keep(locks.back());
        tokens.push_back(locks.back().stop_token());
        clock.advance(1ms);
    }
    clock.advance(5s);
    wire.always({.kind = Fault::lost_request});
    redis.go_down();
    std::vector<Deadline> ends;
    for (const Lock& lock : locks) ends.push_back(lock.deadline());
    for (std::size_t i = 0; i < count; ++i) ASSERT_NE(ends[i], Deadline{}) << i;
    // walk from deadline to deadline
    std::vector<Deadline> order = ends;
    std::sort(order.begin(), order.end());
    for (std::size_t step = 0; step < count; step += 97) {
        clock.advance_to(order[step] - 1ns);
        for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(tokens[i].stop_requested(), ends[i] < order[step]) << i;
        }
        clock.advance(1ns);
        for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(tokens[i].stop_requested(), ends[i] <= order[step]) << i;
        }
    }
    clock.advance_to(order.back());
    for (const std::stop_token& token : tokens) ASSERT_TRUE(token.stop_requested());
}

TEST_F(RenewerTest, RenewalsTravelInBatchesOfSixtyFour) {
    std::vector<Lock> locks;
    for (int i = 0; i < 200; ++i) locks.emplace_back(redis, "k" + std::to_string(i), 3s);
    for (Lock& lock : locks) renewer->keep(lock);
    clock.advance(5s);
    wire.reset_counters();
    clock.advance(10s);
    EXPECT_EQ(wire.commands(), 2000U);
    EXPECT_EQ(wire.calls(), 40U) << "ten rounds of 64, 64, 64 and 8";
    for (const Lock& lock : locks) ASSERT_TRUE(lock.owns_lock());
}

TEST_F(RenewerTest, AFlushedScriptOfAWholeBatchCostsOneMoreWrite) {
    std::vector<Lock> locks;
    for (int i = 0; i < 64; ++i) locks.emplace_back(redis, "k" + std::to_string(i), 3s);
    for (Lock& lock : locks) renewer->keep(lock);
    clock.advance(1500ms);
    server.flush_scripts();
    server.clear_log();
    wire.reset_counters();
    clock.advance(500ms);
    EXPECT_EQ(wire.calls(), 2U);
    EXPECT_EQ(server.count("EVAL"), 1U);
    EXPECT_EQ(server.count("EVALSHA"), 127U);
    server.set_lacks_getex(true);
    clock.advance(3s);
    for (const Lock& lock : locks) ASSERT_GT(lock.remaining(), 1s);
}

TEST_F(RenewerTest, ADeadServerStarvesNoLeaseOnAnother) {
    MemoryRedis second_server{clock};
    MemoryConnection second{second_server};
    MemoryConnection second_wire{second_server};
    Renewer<MemoryConnection> second_renewer{second_wire};
    LeaseLock dead{redis, "k", 3s};
    LeaseLock alive{second, "k", 3s};
    renewer->keep(dead);
    second_renewer.keep(alive);
    clock.advance(1s);
    wire.always({.kind = Fault::lost_request});
    clock.advance(10s);
    EXPECT_FALSE(dead.owns_lock());
    EXPECT_TRUE(alive.owns_lock());
}

TEST_F(RenewerTest, ASlowCallbackDelaysNoOtherSignal) {
    LeaseLock a{redis, "a", 3s};
    LeaseLock b{redis, "b", 3s};
    LeaseLock c{redis, "c", 4s};
    for (Lock* lock : {&a, &b, &c}) renewer->keep(*lock);
    const std::stop_callback slow{a.stop_token(), [&] { clock.sleep_until(clock.now() + 1h); }};
    clock.advance(2s);
    wire.go_down();
    const std::stop_token of_b = b.stop_token();
    const std::stop_token of_c = c.stop_token();
    clock.advance_to(a.deadline() + detail::Signaller::patience);
    EXPECT_TRUE(of_b.stop_requested());
    EXPECT_FALSE(of_c.stop_requested());
    clock.advance_to(c.deadline());
    EXPECT_TRUE(of_c.stop_requested());
    clock.advance(2h);
}

TEST_F(RenewerTest, ACallbackMayDestroyItsGuard) { // P18
    auto lock = std::make_unique<Lock>(redis, "k", 3s);
    renewer->keep(*lock);
    const std::stop_callback callback{lock->stop_token(), [&] { lock.reset(); }};
    server.del("k");
    clock.advance(1s);
    EXPECT_EQ(lock, nullptr);
}

TEST_F(RenewerTest, ACallbackMayDestroyTheRenewer) { // P18
    LeaseLock lock{redis, "k", 3s};
    LeaseLock other_lock{redis, "j", 3s};
    renewer->keep(lock);
    renewer->keep(other_lock);
    const std::stop_callback callback{lock.stop_token(), [&] { renewer.reset(); }};
    server.del("k");
    clock.advance(1s);
    EXPECT_FALSE(renewer);
    EXPECT_EQ(other_lock.loss(), Loss::unkept);
}

TEST_F(RenewerTest, C5ASuspendedMachineWakesUpWithoutItsLeases) {
    LeaseLock lock{redis, "k", 3s};
    renewer->keep(lock);
    const std::stop_token token = lock.stop_token();
    clock.advance(1s);
    clock.suspend(1h);
    EXPECT_FALSE(lock.owns_lock());
    EXPECT_TRUE(token.stop_requested());
}

TEST_F(RenewerTest, ALongLeaseStarvesNoShortOneAndTheDestructorWaitsForOneCallAtMost) {
    LeaseLock minutes{redis, "minutes", 5min};
    LeaseLock seconds{redis, "seconds", 7s};
    const Deadline start = clock.now();
    renewer->keep(minutes);
    renewer->keep(seconds);
    clock.advance_to(start + 100s - 1ms); // the long one is due at 100 s, the short one later
    wire.next({.kind = Fault::lost_reply});
    clock.advance_to(start + 200s - 1ms);
    EXPECT_TRUE(minutes.owns_lock());
    EXPECT_TRUE(seconds.owns_lock());

    LeaseLock days{redis, "days", 24 * 24h};
    renewer->keep(days);
    wire.next({.kind = Fault::lost_request});
    clock.settle();
    const Deadline end = clock.now();
    renewer.reset();
    EXPECT_LE(clock.now(), end + 1s);
}

TEST_F(RenewerTest, OneRefusedConnectStarvesNoShortLease) {
    LeaseLock slow{redis, "slow", 30s};
    const Deadline start = clock.now();
    renewer->keep(slow);
    clock.advance(7ms);
    LeaseLock quick{redis, "quick", 60ms};
    renewer->keep(quick); // due at 9.987 s and 10.007 s, the other one at 10 s
    clock.advance_to(start + 9'999ms);
    wire.next({.kind = Fault::refused});
    clock.advance(10s);
    EXPECT_TRUE(quick.owns_lock());
    EXPECT_TRUE(slow.owns_lock());
}

TEST_F(RenewerTest, AWideMarginIsKeptTooAndAShortestTtl) {
    LeaseLock wide{redis, "wide", {.ttl = 30s, .margin = 21s}};
    LeaseLock shortest{redis, "shortest", 3ms};
    renewer->keep(wide);
    clock.advance(60s);
    EXPECT_TRUE(wide.owns_lock());
    ASSERT_FALSE(shortest.owns_lock());
    ASSERT_TRUE(shortest.try_acquire());
    renewer->keep(shortest);
    clock.advance(1s);
    EXPECT_TRUE(shortest.owns_lock());
}

TEST_F(RenewerTest, ATokenIsSetHoweverTheLossIsFoundOut) {
    LeaseLock lock{redis, "k", 3s};
    renewer->keep(lock);
    clock.advance(500ms);
    const std::stop_token by_hand = lock.stop_token();
    server.set("k", "somebody", 1ms);
    EXPECT_TRUE(is(lock.renew(), Answer::no, errc::taken));
    clock.settle();
    EXPECT_TRUE(by_hand.stop_requested()) << "at once, not at the old deadline";

    clock.advance(1s);
    ASSERT_TRUE(lock.try_acquire());
    renewer->keep(lock);
    clock.settle();
    wire.go_down();
    const std::stop_token lapsed = lock.stop_token();
    clock.suspend(lock.remaining());
    EXPECT_TRUE(lapsed.stop_requested());
}

TEST_F(RenewerTest, ALossIsToldOnceThoughTheGuardFindsItOut) {
    LeaseLock lock{redis, "k", {.ttl = 3s, .observer = &recorder}};
    renewer->keep(lock);
    clock.settle();
    const std::stop_token token = lock.stop_token();
    server.set("k", "somebody", 60s);
    EXPECT_TRUE(is(lock.renew(), Answer::no, errc::taken));
    clock.advance(5s);
    EXPECT_TRUE(token.stop_requested());
    EXPECT_EQ(recorder.of(Verb::lose).size(), 1U);
}

TEST_F(RenewerTest, ReleasingALeaseThatIsLostAndNotYetSignalledSignalsIt) {
    auto lock = std::make_unique<Lock>(redis, "k", 3s);
    renewer->keep(*lock);
    clock.settle();
    const std::stop_token token = lock->stop_token();
    // found out by the guard, in the moment before the watch wakes up
    EXPECT_TRUE(lock->owns_lock());
    server.set("k", "somebody", 1s);
    EXPECT_FALSE(lock->renew());
    lock.reset();
    EXPECT_TRUE(token.stop_requested());
}

/// An observer that is told while somebody destroys the guard.
struct SlowObserver final : Observer {
    ManualRuntime& clock;
    std::atomic<bool> inside = false;
    explicit SlowObserver(ManualRuntime& c) : clock(c) {}
    void on_event(const Event& event) noexcept override {
        if (event.verb != Verb::renew) return;
        inside = true;
        clock.sleep_until(clock.now() + 1s);
        inside = false;
    }
};

TEST_F(RenewerTest, BehindAGuardsDestructorItsObserverIsNotCalledAnyMore) {
    SlowObserver observer{clock};
    auto lock = std::make_unique<Lock>(redis, "k", Options{.ttl = 30s, .observer = &observer});
    renewer->keep(*lock);
    clock.settle();
    ASSERT_TRUE(observer.inside);
    lock.reset();
    EXPECT_FALSE(observer.inside);
}

TEST_F(RenewerTest, CallbacksThatDestroyEachOthersGuardsEnd) {
    auto a = std::make_unique<Lock>(redis, "a", 3s);
    auto b = std::make_unique<Lock>(redis, "b", 3s);
    renewer->keep(*a);
    renewer->keep(*b);
    clock.settle();
    wire.go_down();
    std::atomic<int> ended = 0;
    const std::stop_callback of_a{a->stop_token(), [&] {
                                      clock.sleep_until(clock.now() + 100ms);
                                      b.reset();
                                      ++ended;
                                  }};
    const std::stop_callback of_b{b->stop_token(), [&] {
                                      clock.sleep_until(clock.now() + 100ms);
                                      a.reset();
                                      ++ended;
                                  }};
    clock.advance(5s);
    EXPECT_EQ(ended, 2);
}

TEST_F(RenewerTest, ThreadsForCallbacksAreBoundedAndGoAgain) {
    std::vector<Lock> locks;
    for (int i = 0; i < 100; ++i) locks.emplace_back(redis, "k" + std::to_string(i), 3s);
    std::atomic<int> inside = 0;
    std::atomic<int> most = 0;
    std::atomic<int> called = 0;
    std::vector<std::unique_ptr<std::stop_callback<std::function<void()>>>> callbacks;
    for (Lock& lock : locks) {
        renewer->keep(lock);
        callbacks.push_back(
            std::make_unique<std::stop_callback<std::function<void()>>>(lock.stop_token(), [&] {
                const int now = ++inside;
                int seen = most;
                while (now > seen && !most.compare_exchange_weak(seen, now)) {
                }
                clock.sleep_until(clock.now() + 2s);
                --inside;
                ++called;
            }));
    }
    clock.advance(1s);
    wire.go_down();
    clock.advance(30s);
    EXPECT_EQ(called, 100);
    EXPECT_GT(most, 1);
    EXPECT_LE(most, 32);
}

TEST_F(RenewerTest, GuardAndRenewerMeasureByOneRuntime) {
    ManualRuntime other_clock{2};
    MemoryRedis other_server{other_clock};
    MemoryConnection there{other_server};
    LeaseLock lock{redis, "k", 3s};
    Renewer<MemoryConnection> of_another{there};
    EXPECT_TRUE(is(of_another.try_keep(lock), Answer::unsent, errc::invalid_argument));
}

TEST_F(RenewerTest, ADetachedLeaseIsRenewedNoMore) {
    LeaseLock lock{redis, "k", 3s};
    renewer->keep(lock);
    clock.advance(1500ms);
    const Lease lease = lock.detach();
    EXPECT_TRUE(lease);
    clock.advance(3s);
    EXPECT_FALSE(server.get("k"));
    EXPECT_EQ(lock.loss(), Loss::none);
}

} // namespace
} // namespace leaselock::test
