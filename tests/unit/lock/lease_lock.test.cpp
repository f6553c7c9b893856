// SPDX-License-Identifier: MIT

#include "fixture.hpp"

#include <leaselock/core/deadline.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>

#include <gmock/gmock.h>

#include <span>
#include <type_traits>
#include <utility>

namespace leaselock::test {
namespace {

static_assert(!std::is_copy_constructible_v<Lock> && !std::is_copy_assignable_v<Lock>);
static_assert(std::is_nothrow_move_constructible_v<Lock> &&
              std::is_nothrow_move_assignable_v<Lock>);
static_assert(std::is_nothrow_destructible_v<Lock> && std::is_nothrow_swappable_v<Lock>);
static_assert(!std::is_convertible_v<Lock, bool>, "only in conditions");
static_assert(
    noexcept(std::declval<Lock&>().try_acquire()) && noexcept(std::declval<Lock&>().renew()));
static_assert(
    noexcept(std::declval<Lock&>().unlock()) && noexcept(std::declval<Lock&>().owns_lock()));
static_assert(sizeof(Lock) + sizeof(detail::LeaseRecord) <= 192);

struct Unfinished;
struct HoldsOne { // a guard over a connection that is only declared
    LeaseLock<Unfinished>* lock;
    static constexpr std::size_t size = sizeof(LeaseLock<Unfinished>);
};
static_assert(HoldsOne::size > 0);

std::vector<std::string> names(const MemoryRedis& server) {
    std::vector<std::string> all;
    for (const auto& executed : server.log()) all.push_back(executed.argv.front());
    return all;
}

using LeaseLockTest = LockTest;

TEST_F(LeaseLockTest, TakesTheKeyWithOneSetAndGivesItBackWithOneScript) {
    {
        LeaseLock lock{redis, "lock:a", 10s};
        ASSERT_TRUE(lock);
        EXPECT_TRUE(lock.owns_lock());
        EXPECT_EQ(lock.key(), "lock:a");
        const auto set = server.log().at(0).argv;
        EXPECT_THAT(set, ::testing::ElementsAre("SET", "lock:a", ::testing::SizeIs(32), "NX", "PX",
                                                "10000"));
        EXPECT_EQ(server.pttl("lock:a"), 10'000);
    }
    EXPECT_FALSE(server.get("lock:a"));
    EXPECT_EQ(redis.calls(), 3U) << "SET, EVALSHA and, this once, EVAL";

    server.clear_log();
    redis.reset_counters();
    {
        LeaseLock lock{redis, "lock:a", 10s};
        (void)lock;
    }
    EXPECT_THAT(names(server), ::testing::ElementsAre("SET", "EVALSHA"));
    EXPECT_EQ(redis.calls(), 2U);
}

TEST_F(LeaseLockTest, BusyGivesAnEmptyGuardThatSendsNothingMore) {
    LeaseLock first{redis, "k", 10s};
    {
        LeaseLock second{other, "k", 10s};
        EXPECT_FALSE(second);
        EXPECT_EQ(second.deadline(), Deadline{});
        EXPECT_EQ(second.remaining(), 0ns);
        EXPECT_TRUE(second.stop_token().stop_requested());
        EXPECT_EQ(other.calls(), 1U);
    }
    EXPECT_EQ(other.calls(), 1U);
    EXPECT_TRUE(first);
    LeaseLock same_thread{redis, "k", 10s};
    EXPECT_FALSE(same_thread) << "not re-entrant";
}

TEST_F(LeaseLockTest, TheDeadlineCountsFromBeforeTheSendAndNoThreadEnforcesIt) {
    redis.set_delay(30ms, 20ms);
    const Deadline before = clock.now();
    LeaseLock lock{redis, "k", 1s};
    ASSERT_TRUE(lock);
    EXPECT_EQ(lock.deadline(), before + 1s - 12ms);
    EXPECT_EQ(lock.remaining(), 1s - 12ms - 50ms);

    clock.advance_to(lock.deadline() - 1ns);
    EXPECT_TRUE(lock.owns_lock());
    clock.advance(1ns);
    EXPECT_FALSE(lock.owns_lock());
    EXPECT_EQ(lock.loss(), Loss::expired);
    EXPECT_EQ(lock.deadline(), Deadline{});
    EXPECT_TRUE(server.get("k")) << "the server's key outlives the lease by the margin";
}

TEST_F(LeaseLockTest, TheMarginCanBeSet) {
    LeaseLock lock{redis, "k", {.ttl = 1s, .margin = 100ms}};
    EXPECT_EQ(lock.remaining(), 900ms);
}

TEST_F(LeaseLockTest, EveryAttemptHasItsOwnToken) {
    std::vector<std::string> tokens;
    LeaseLock lock{redis, "k", 10s, std::defer_lock};
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(lock.try_acquire());
        tokens.push_back(*server.get("k"));
        ASSERT_TRUE(lock.unlock());
    }
    EXPECT_EQ(lock.fingerprint(), tokens.back().substr(0, 8));
    EXPECT_NE(tokens[0], tokens[1]);
    EXPECT_NE(tokens[1], tokens[2]);
}

TEST_F(LeaseLockTest, TheLabelStandsBehindTheTokenAndIsComparedToo) {
    LeaseLock lock{redis, "k", {.owner = "worker-7"}};
    const std::string value = *server.get("k");
    EXPECT_EQ(value.substr(32), ":worker-7");
    server.set("k", value.substr(0, 32) + ":worker-8", 10s);
    EXPECT_TRUE(is(lock.unlock(), Answer::no, errc::taken));
    EXPECT_TRUE(server.get("k"));
}

TEST_F(LeaseLockTest, KeysAndLabelsOfAnyBytesArriveExact) {
    const std::string key{"k\0 \r\n%s{}\xff", 11};
    const std::string owner{"o\0\r\n:%n \xfe", 9};
    LeaseLock lock{redis, key, {.owner = owner}};
    ASSERT_TRUE(lock);
    EXPECT_EQ(server.get(key)->substr(33), owner);
    EXPECT_EQ(lock.key(), key);
    EXPECT_TRUE(lock.unlock());
    EXPECT_FALSE(server.get(key));
}

// --- renewal

TEST_F(LeaseLockTest, RenewalCountsFromBeforeItsSendAndNeverShortens) {
    LeaseLock lock{redis, "k", 1s};
    clock.advance(500ms);
    redis.set_delay(10ms, 10ms);
    const Deadline before = clock.now();
    EXPECT_TRUE(is(lock.renew(), Answer::yes));
    EXPECT_EQ(lock.deadline(), before + 1s - 12ms);
    EXPECT_EQ(server.pttl("k"), 990);
}

TEST_F(LeaseLockTest, RenewalOfAnothersKeyIsALossAndTouchesNothing) {
    LeaseLock lock{redis, "k", 10s};
    const std::stop_token token = lock.stop_token();
    server.set("k", "somebody", 700ms);
    EXPECT_TRUE(is(lock.renew(), Answer::no, errc::taken));
    EXPECT_FALSE(lock.owns_lock());
    EXPECT_EQ(lock.loss(), Loss::taken);
    EXPECT_TRUE(token.stop_requested());
    EXPECT_EQ(server.pttl("k"), 700);
    EXPECT_EQ(server.get("k"), "somebody");

    server.del("k");
    EXPECT_TRUE(is(lock.renew(), Answer::unsent, errc::not_held)) << "a lost lease stays lost";
    EXPECT_FALSE(server.get("k"));
    EXPECT_TRUE(is(lock.unlock(), Answer::unsent, errc::not_held));
}

TEST_F(LeaseLockTest, RenewalNeverCreatesAKey) {
    LeaseLock lock{redis, "k", 10s};
    server.del("k");
    EXPECT_TRUE(is(lock.renew(), Answer::no, errc::gone));
    EXPECT_EQ(lock.loss(), Loss::gone);
    EXPECT_FALSE(server.get("k"));
}

TEST_F(LeaseLockTest, AFailedRenewalIsNoLoss) {
    LeaseLock lock{redis, "k", 1s};
    const Deadline old = lock.deadline();
    clock.advance(100ms);
    redis.next({.kind = Fault::lost_reply});
    EXPECT_TRUE(is(lock.renew(), Answer::unknown, errc::timed_out));
    EXPECT_EQ(clock.now(), old) << "a renewal takes no longer than the lease";
    EXPECT_FALSE(lock.owns_lock());

    ASSERT_TRUE(lock.try_acquire());
    redis.next({.kind = Fault::refused});
    EXPECT_EQ(lock.renew().answer, Answer::unsent);
    redis.next({.kind = Fault::error, .text = "LOADING Redis is loading the dataset in memory"});
    const Outcome loading = lock.renew();
    EXPECT_TRUE(is(loading, Answer::refused, errc::loading));
    EXPECT_EQ(loading.text.view(), "LOADING Redis is loading the dataset in memory");
    EXPECT_TRUE(lock.owns_lock());
}

/// A connection whose caller stalls, once, behind the answer: what no time limit of a call can prevent.
struct Stalling {
    MemoryConnection& way;
    ManualRuntime& clock;
    LeaseClock::duration stall{};

    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        way.call(commands, replies, by);
        clock.advance(std::exchange(stall, LeaseClock::duration{}));
    }
    friend Runtime& runtime_of(const Stalling& connection) noexcept { return connection.clock; }
};

TEST_F(LeaseLockTest, AYesToARenewalReadBehindTheDeadlineChangesNothing) {
    Stalling stalling{redis, clock};
    LeaseLock lock{stalling, "k", 1s};
    ASSERT_TRUE(lock.renew());
    clock.advance(500ms);
    stalling.stall = lock.remaining();
    EXPECT_TRUE(is(lock.renew(), Answer::unknown, errc::too_late));
    EXPECT_FALSE(lock.owns_lock());
    EXPECT_EQ(lock.loss(), Loss::expired);
    EXPECT_TRUE(is(lock.renew(), Answer::unsent, errc::expired));
}

TEST_F(LeaseLockTest, AYesToAnAcquireReadBehindTheDeadlineIsGivenBack) { // S5
    Stalling stalling{redis, clock};
    LeaseLock lock{stalling, "k", 1s, std::defer_lock};
    stalling.stall = 988ms;
    EXPECT_TRUE(is(lock.try_acquire(), Answer::refused, errc::too_late))
        << "its deletion is confirmed";
    EXPECT_FALSE(server.get("k"));
    stalling.stall = 987ms;
    EXPECT_TRUE(is(lock.try_acquire(), Answer::yes));
    EXPECT_EQ(lock.remaining(), 1ms);
    ASSERT_TRUE(lock.unlock());
    stalling.stall = 2s;
    EXPECT_TRUE(is(lock.try_acquire(), Answer::unknown, errc::too_late))
        << "the key is gone by itself";
    EXPECT_FALSE(lock);
}

// --- release

TEST_F(LeaseLockTest, ALateHolderDoesNotDeleteTheNextOnesLock) { // B12
    LeaseLock a{redis, "k", 200ms};
    clock.advance(300ms);
    LeaseLock b{other, "k", 10s};
    ASSERT_TRUE(b);
    const std::string value = *server.get("k");
    EXPECT_TRUE(is(a.unlock(), Answer::no, errc::taken));
    EXPECT_EQ(server.get("k"), value);
    EXPECT_TRUE(b);
    LeaseLock c{redis, "k", 10s};
    EXPECT_FALSE(c);
}

TEST_F(LeaseLockTest, ThreeEndsOfAReleaseAreThreeAnswers) { // B16
    LeaseLock gone{redis, "k", 150ms};
    clock.advance(200ms);
    EXPECT_TRUE(is(gone.unlock(), Answer::no, errc::gone));
    EXPECT_TRUE(is(gone.unlock(), Answer::unsent, errc::not_held));

    LeaseLock unreachable{redis, "k", 150ms};
    redis.go_down();
    const Outcome outcome = unreachable.unlock();
    EXPECT_EQ(outcome.answer, Answer::unsent);
    EXPECT_EQ(outcome.cause, condition::unreachable);
    redis.come_up();
}

/// Looks at a guard whenever that sends something.
struct Onlooker {
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        if (guard != nullptr) owned.push_back(guard->owns_lock());
        way.call(commands, replies, by);
    }
    friend Runtime& runtime_of(Onlooker& self) noexcept { return detail::find_runtime(self.way); }

    MemoryConnection& way;
    const LeaseLock<Onlooker>* guard = nullptr;
    std::vector<bool> owned{};
};

TEST_F(LeaseLockTest, OwnershipHasEndedWhenTheReleaseGoesOut) {
    Onlooker onlooker{redis};
    LeaseLock<Onlooker> lock{onlooker, "k", 10s};
    onlooker.guard = &lock;
    ASSERT_TRUE(is(lock.renew(), Answer::yes));
    ASSERT_TRUE(is(lock.unlock(), Answer::yes));
    EXPECT_EQ(onlooker.owned, (std::vector<bool>{true, true, false, false})) << "EVALSHA, EVAL";
}

TEST_F(LeaseLockTest, OwnershipEndsAtTheStartOfUnlockWhateverComesOfIt) {
    LeaseLock lock{redis, "k", 10s};
    redis.next({.kind = Fault::refused});
    EXPECT_EQ(lock.unlock().answer, Answer::unsent);
    EXPECT_FALSE(lock.owns_lock());
    EXPECT_EQ(lock.loss(), Loss::none);
    EXPECT_TRUE(is(lock.renew(), Answer::unsent, errc::not_held));
}

TEST_F(LeaseLockTest, AReleaseThatWentUnansweredCanBeRepeated) { // B18, N6
    LeaseLock lock{redis, "k", 10s};
    redis.next({.kind = Fault::lost_request});
    EXPECT_TRUE(is(lock.unlock(), Answer::unknown, errc::timed_out));
    EXPECT_TRUE(server.get("k"));
    EXPECT_TRUE(is(lock.unlock(), Answer::yes)) << "the first one had not arrived";
    EXPECT_FALSE(server.get("k"));

    ASSERT_TRUE(lock.try_acquire());
    redis.next({.kind = Fault::lost_reply});
    EXPECT_TRUE(is(lock.unlock(), Answer::unknown, errc::timed_out));
    server.set("k", "a newer token", 10s);
    EXPECT_TRUE(is(lock.unlock(), Answer::unknown, errc::unconfirmed))
        << "it may have been us who deleted it";
    EXPECT_TRUE(is(lock.unlock(), Answer::unsent, errc::not_held));
    EXPECT_EQ(server.get("k"), "a newer token");
}

TEST_F(LeaseLockTest, TheDestructorRepeatsAReleaseThatFailed) {
    {
        LeaseLock lock{redis, "k", 10s};
        redis.next({.kind = Fault::refused});
        EXPECT_FALSE(lock.unlock());
    }
    EXPECT_FALSE(server.get("k"));
}

TEST_F(LeaseLockTest, TheDestructorDeletesBehindTheDeadlineToo) {
    {
        LeaseLock lock{redis, "k", 1s};
        clock.advance(lock.remaining());
        EXPECT_TRUE(server.get("k"));
    }
    EXPECT_FALSE(server.get("k"));
}

TEST_F(LeaseLockTest, ADestructorWithTheServerDownIsBoundedAndHeard) { // B14, P8
    Deadline before{};
    {
        LeaseLock lock{redis, "k", {.timeout = 200ms, .observer = &recorder}};
        redis.always({.kind = Fault::lost_request});
        before = clock.now();
    }
    EXPECT_EQ(clock.now(), before + 200ms);
    const auto releases = recorder.of(Verb::release);
    ASSERT_EQ(releases.size(), 1U);
    EXPECT_EQ(releases[0].answer, Answer::unknown);
}

// --- moves: P17

TEST_F(LeaseLockTest, MovesAndSwapsDeleteOnce) {
    {
        LeaseLock a{redis, "a", 10s};
        LeaseLock b{std::move(a)};
        EXPECT_TRUE(b);
        EXPECT_FALSE(a); // NOLINT(bugprone-use-after-move): what is left of it is the point
        EXPECT_EQ(a.key(), "");
        EXPECT_TRUE(is(a.unlock(), Answer::unsent, errc::not_held));
        EXPECT_TRUE(is(a.renew(), Answer::unsent, errc::not_held));
        EXPECT_TRUE(is(a.try_acquire(), Answer::unsent, errc::invalid_argument));
        EXPECT_EQ(a.loss(), Loss::none);
        EXPECT_TRUE(a.stop_token().stop_requested());

        LeaseLock c{other, "c", 10s};
        swap(b, c);
        EXPECT_EQ(b.key(), "c");
        EXPECT_EQ(c.key(), "a");
        b = std::move(c);
        EXPECT_EQ(b.key(), "a");
        EXPECT_FALSE(server.get("c")) << "assignment gives back what was held";
        EXPECT_TRUE(server.get("a"));
        server.clear_log();
    }
    EXPECT_FALSE(server.get("a"));
    EXPECT_EQ(server.count("EVALSHA"), 1U);
}

TEST_F(LeaseLockTest, SelfMoveKeepsTheLease) {
    LeaseLock lock{redis, "a", 10s};
    Lock& same = lock;
    lock = std::move(same);
    EXPECT_TRUE(lock);
}

// --- ghosts

TEST_F(LeaseLockTest, AnUnansweredAcquireIsNeverBelievedAndDeletedByItsToken) { // N3
    LeaseLock lock{redis, "k", {.observer = &recorder}, std::defer_lock};
    redis.next({.kind = Fault::lost_reply});
    EXPECT_TRUE(is(lock.try_acquire(), Answer::unknown, errc::timed_out));
    EXPECT_FALSE(lock);
    EXPECT_FALSE(server.get("k"));
    ASSERT_EQ(recorder.of(Verb::clean_up).size(), 1U);
    EXPECT_EQ(recorder.of(Verb::clean_up)[0].answer, Answer::yes);
    EXPECT_TRUE(is(lock.unlock(), Answer::unsent, errc::not_held)) << "nothing is left";
}

TEST_F(LeaseLockTest, OneWriteCleansUpAnsweredOrNot) { // N3, S7
    LeaseLock lock{redis, "k", 10s, std::defer_lock};
    redis.next({.kind = Fault::lost_reply});
    redis.next({.kind = Fault::lost_reply}); // of the deletion
    EXPECT_TRUE(is(lock.try_acquire(), Answer::unknown, errc::timed_out));
    EXPECT_FALSE(server.get("k")) << "by a server that has never seen the script";
}

TEST_F(LeaseLockTest, AZeroFromTheCleanUpDoesNotMakeItCertain) { // N4
    LeaseLock lock{redis, "k", 10s, std::defer_lock};
    redis.next({.kind = Fault::lost_request});
    EXPECT_TRUE(is(lock.try_acquire(), Answer::unknown, errc::timed_out));
    EXPECT_FALSE(lock);
}

TEST_F(LeaseLockTest, ASetThatRunsAfterTheClientGaveUpIsNeverBelieved) { // N5
    LeaseLock lock{redis, "k", {.ttl = 5s, .timeout = 150ms}, std::defer_lock};
    redis.next({.kind = Fault::held});
    redis.on("EVAL", {.kind = Fault::held});
    const Deadline start = clock.now();
    EXPECT_TRUE(is(lock.try_acquire(), Answer::unknown, errc::timed_out));
    EXPECT_EQ(clock.now(), start + 300ms) << "the call, and once more as much for the clean-up";
    redis.deliver_held();
    EXPECT_FALSE(lock);
    EXPECT_FALSE(server.get("k")) << "the clean-up was in order behind it";
}

TEST_F(LeaseLockTest, TheNextAttemptCleansUpBeforeItDrawsANewToken) { // B05
    LeaseLock lock{
        redis, "k", {.ttl = 5s, .timeout = 150ms, .observer = &recorder}, std::defer_lock};
    redis.next({.kind = Fault::held});
    redis.on("EVAL", {.kind = Fault::lost_request});
    EXPECT_EQ(lock.try_acquire().answer, Answer::unknown);
    redis.deliver_held();
    ASSERT_TRUE(server.get("k")) << "the ghost stands";

    redis.go_down();
    server.clear_log();
    EXPECT_TRUE(lock.try_acquire().answer == Answer::unsent);
    EXPECT_TRUE(server.log().empty()) << "no second stray token while the first is unanswered";

    redis.come_up();
    EXPECT_TRUE(is(lock.try_acquire(), Answer::yes));
    EXPECT_THAT(names(server), ::testing::ElementsAre("EVAL", "SET"));
}

TEST_F(LeaseLockTest, TheDestructorCleansUpAGhost) {
    {
        LeaseLock lock{redis, "k", {.ttl = 5s, .timeout = 150ms}, std::defer_lock};
        redis.next({.kind = Fault::held});
        redis.on("EVAL", {.kind = Fault::lost_request});
        EXPECT_EQ(lock.try_acquire().answer, Answer::unknown);
        redis.deliver_held();
        ASSERT_TRUE(server.get("k"));
    }
    EXPECT_FALSE(server.get("k"));
}

TEST_F(LeaseLockTest, NoCallWaitsLongerThanTheLeaseIsLong) {
    LeaseLock lock{redis, "k", {.ttl = 100ms, .timeout = 5s}, std::defer_lock};
    const Deadline start = clock.now();
    redis.next({.kind = Fault::lost_reply});
    EXPECT_TRUE(is(lock.try_acquire(), Answer::unknown, errc::timed_out));
    EXPECT_EQ(clock.now(), start + 97ms);
}

// --- fencing

TEST_F(LeaseLockTest, FencingTokensGrowAndCostNoRoundTrip) {
    {
        LeaseLock warm{redis, "k", {.fencing = true}};
        (void)warm;
    }
    std::uint64_t last = 0;
    for (int i = 0; i < 3; ++i) {
        redis.reset_counters();
        LeaseLock lock{redis, "k", {.fencing = true}};
        ASSERT_TRUE(lock);
        EXPECT_EQ(redis.calls(), 1U);
        EXPECT_GT(lock.fencing_token(), last);
        last = lock.fencing_token();
    }
    EXPECT_TRUE(server.get("{k}:leaselock:fence"));
}

TEST_F(LeaseLockTest, WithoutFencingOrLeaseTheTokenIsZero) {
    LeaseLock plain{redis, "a", 10s};
    EXPECT_EQ(plain.fencing_token(), 0U);
    LeaseLock fenced{redis, "b", {.ttl = 10s, .fencing = true}};
    EXPECT_NE(fenced.fencing_token(), 0U);
    clock.advance(10s);
    EXPECT_EQ(fenced.fencing_token(), 0U);
}

TEST_F(LeaseLockTest, AFenceThatFailsGivesTheLockBackAndIsRefused) {
    server.set("{k}:leaselock:fence", "no number");
    LeaseLock lock{redis, "k", {.fencing = true}, std::defer_lock};
    const Outcome outcome = lock.try_acquire();
    EXPECT_TRUE(is(outcome, Answer::refused, errc::fence_corrupt));
    EXPECT_FALSE(lock);
    EXPECT_FALSE(server.get("k"));
}

TEST_F(LeaseLockTest, AFenceThatFailsAndADeletionThatIsNotConfirmedIsUnknown) {
    LeaseLock lock{redis, "k", {.fencing = true}, std::defer_lock};
    redis.next({.kind = Fault::cut_reply, .after = 1}); // SET's +OK arrives, the fence does not
    redis.on("EVAL", {.kind = Fault::lost_request});
    EXPECT_EQ(lock.try_acquire().answer, Answer::unknown);
    EXPECT_FALSE(lock);
}

TEST_F(LeaseLockTest, BusyWithFencingIsBusy) {
    LeaseLock first{redis, "k", {.fencing = true}};
    LeaseLock second{other, "k", {.fencing = true}, std::defer_lock};
    EXPECT_TRUE(is(second.try_acquire(), Answer::no, errc::busy));
}

// --- misuse

TEST_F(LeaseLockTest, AcquireWhileHeldIsUnsent) {
    LeaseLock lock{redis, "k", 10s};
    EXPECT_TRUE(is(lock.try_acquire(), Answer::unsent, errc::already_held));
    EXPECT_TRUE(lock);
    EXPECT_EQ(redis.calls(), 1U);
}

TEST_F(LeaseLockTest, ThrowingFormsThrowWhatIsNeitherYesNorBusy) {
    redis.next(
        {.kind = Fault::error, .text = "READONLY You can't write against a read only replica."});
    try {
        LeaseLock lock{redis, "lock:a", 10s};
        FAIL() << "entered without the lock";
    } catch (const Error& error) {
        EXPECT_EQ(error.answer(), Answer::refused);
        EXPECT_EQ(error.code(), errc::read_only);
        EXPECT_THAT(error.what(), ::testing::HasSubstr("acquire 'lock:a': refused: READONLY You"));
    }
    LeaseLock lock{redis, "k", 10s, std::defer_lock};
    EXPECT_TRUE(lock.try_lock());
    EXPECT_THROW((void)lock.try_lock(), Error);
    LeaseLock busy{redis, "k", 10s, std::defer_lock};
    EXPECT_FALSE(busy.try_lock());
}

struct Bad {
    const char* what;
    std::string key;
    Options options;
    const char* named;
};

void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.what; }

class BadArgument : public LockTest, public ::testing::WithParamInterface<Bad> {};

TEST_P(BadArgument, IsRefusedBeforeAnythingIsSent) {
    LeaseLock lock{redis, GetParam().key, GetParam().options, std::defer_lock};
    const Outcome outcome = lock.try_acquire();
    EXPECT_TRUE(is(outcome, Answer::unsent, errc::invalid_argument));
    EXPECT_THAT(std::string{outcome.text.view()}, ::testing::HasSubstr(GetParam().named));
    EXPECT_EQ(redis.calls(), 0U);
    EXPECT_THROW((void)Lock(redis, GetParam().key, GetParam().options).owns_lock(), Error);
}

const std::string long_label(129, 'x');

INSTANTIATE_TEST_SUITE_P(
    Table, BadArgument,
    ::testing::Values(
        Bad{"ttl_zero", "k", {.ttl = 0ms}, "ttl is 0 ms: it must be more than the margin of 2 ms"},
        Bad{"ttl_negative", "k", {.ttl = -5ms}, "ttl is -5 ms"},
        Bad{"ttl_at_margin", "k", {.ttl = 100ms, .margin = 100ms}, "margin of 100 ms"},
        Bad{"ttl_below_default_margin", "k", {.ttl = 2ms}, "more than the margin of 3 ms"},
        Bad{"ttl_too_long", "k", {.ttl = 2147483648ms}, "at most 2147483647 ms"},
        Bad{"ttl_hours_max", "k", {.ttl = to_ttl(std::chrono::hours::max())}, "at most 2147483647"},
        Bad{"ttl_milliseconds_min", "k", {.ttl = std::chrono::milliseconds::min()}, "ttl is -"},
        Bad{"margin_negative", "k", {.margin = -1ms}, "margin is negative"},
        Bad{"margin_huge", "k", {.margin = std::chrono::milliseconds::max()}, "ttl is 30000 ms"},
        Bad{"timeout_zero", "k", {.timeout = 0ms}, "timeout is too short"},
        Bad{"key_empty", "", {}, "key is empty"},
        Bad{"key_too_long", std::string(1025, 'k'), {}, "1 to 1024 bytes"},
        Bad{"owner_too_long", "k", {.owner = long_label}, "at most 128 bytes"},
        Bad{"no_room_for_a_fence", "a}b{", {.fencing = true}, "'}'"},
        Bad{"empty_tag_and_fence", "{}a", {.fencing = true}, "hash tag"}),
    [](const auto& row) { return std::string{row.param.what}; });

TEST_F(LeaseLockTest, TheEdgesOfTheArgumentsWork) {
    for (const auto& ttl : {3ms, std::chrono::milliseconds{2147483647}}) {
        LeaseLock lock{redis, std::string(1024, 'k'), {.ttl = ttl, .owner = std::string(128, 'o')}};
        EXPECT_TRUE(lock);
    }
    LeaseLock finer{redis, "finer", 9'000'001ns};
    EXPECT_EQ(server.pttl("finer"), 10);
    LeaseLock patient{redis, "patient", {.timeout = std::chrono::milliseconds::max()}};
    EXPECT_TRUE(patient);
    LeaseLock unfenced{redis, "a}b{", 10s};
    EXPECT_TRUE(unfenced);
}

// --- the machine

TEST_F(LeaseLockTest, WithoutRandomBytesThereIsNoAttempt) { // P16
    clock.fail_random(std::make_error_code(std::errc::function_not_supported));
    LeaseLock lock{redis, "k", 10s, std::defer_lock};
    const Outcome outcome = lock.try_acquire();
    EXPECT_EQ(outcome.answer, Answer::unsent);
    EXPECT_EQ(outcome.cause, std::errc::function_not_supported);
    EXPECT_EQ(redis.calls(), 0U);
}

TEST_F(LeaseLockTest, InAForkedChildGuardsAreInert) { // P4
    {
        LeaseLock held{redis, "k", 10s};
        LeaseLock idle{redis, "j", 10s, std::defer_lock};
        const std::size_t calls = redis.calls();
        clock.become_another_process();
        EXPECT_FALSE(held.owns_lock());
        EXPECT_EQ(held.deadline(), Deadline{});
        EXPECT_TRUE(held.stop_token().stop_requested());
        EXPECT_TRUE(is(held.renew(), Answer::unsent, errc::other_process));
        EXPECT_TRUE(is(held.unlock(), Answer::unsent, errc::other_process));
        EXPECT_TRUE(is(idle.try_acquire(), Answer::unsent, errc::other_process));
        EXPECT_EQ(redis.calls(), calls);
        LeaseLock fresh{redis, "new", 10s};
        EXPECT_TRUE(fresh) << "new objects in the child work";
    }
    EXPECT_TRUE(server.get("k"));
    EXPECT_FALSE(server.get("new"));
}

TEST_F(LeaseLockTest, TheStopTokenIsSetWhenTheGuardNotices) {
    LeaseLock lock{redis, "k", 1s};
    const std::stop_token token = lock.stop_token();
    EXPECT_FALSE(token.stop_requested());
    int called = 0;
    const std::stop_callback callback{token, [&] { ++called; }};
    clock.advance(1s);
    EXPECT_FALSE(lock.owns_lock());
    EXPECT_TRUE(token.stop_requested());
    EXPECT_EQ(called, 1);

    ASSERT_TRUE(lock.try_acquire());
    EXPECT_FALSE(lock.stop_token().stop_requested()) << "each acquisition has its own";
    ASSERT_TRUE(lock.unlock());
    EXPECT_TRUE(lock.stop_token().stop_requested()) << "there is no lease to work under";
}

TEST_F(LeaseLockTest, UnlockDoesNotSetTheStopToken) {
    LeaseLock lock{redis, "k", 1s};
    const std::stop_token token = lock.stop_token();
    ASSERT_TRUE(lock.unlock());
    EXPECT_FALSE(token.stop_requested());
    EXPECT_EQ(lock.loss(), Loss::none);
}

// --- servers of another kind

TEST_F(LeaseLockTest, AServerWithoutGetexIsFoundOutOnce) {
    server.set_lacks_getex(true);
    LeaseLock lock{redis, "k", 10s};
    EXPECT_TRUE(is(lock.renew(), Answer::yes));
    const std::size_t calls = redis.calls();
    EXPECT_TRUE(is(lock.renew(), Answer::yes));
    EXPECT_EQ(redis.calls(), calls + 1);
    EXPECT_TRUE(is(lock.unlock(), Answer::yes));
}

/// The clean-up has no time left to hear that there is no GETEX.
TEST_F(LeaseLockTest, B05AGhostsDeletionIsEnoughForAServerWithoutGetex) {
    server.set_lacks_getex(true);
    LeaseLock lock{redis, "k", {.ttl = 10s}, std::defer_lock};
    redis.on("SET", {.kind = Fault::lost_reply});
    redis.on("EVAL", {.kind = Fault::lost_reply});
    EXPECT_TRUE(is(lock.try_acquire(), Answer::unknown, errc::timed_out));
    EXPECT_EQ(server.get("k"), std::nullopt);
    EXPECT_EQ(server.count("EVAL"), 1U);
}

TEST_F(LeaseLockTest, AFlushedScriptCostsOneMoreRoundTrip) { // S7, B62
    LeaseLock lock{redis, "k", 10s};
    ASSERT_TRUE(lock.renew());
    server.flush_scripts();
    redis.reset_counters();
    EXPECT_TRUE(is(lock.renew(), Answer::yes));
    EXPECT_EQ(redis.calls(), 2U);
    server.flush_scripts();
    EXPECT_TRUE(is(lock.unlock(), Answer::yes));
}

TEST_F(LeaseLockTest, AForbiddenEvalshaIsRemembered) {
    LeaseLock lock{redis, "k", 10s};
    redis.on("EVALSHA",
             {.kind = Fault::error,
              .text = "NOPERM this user has no permissions to run the 'evalsha' command"});
    EXPECT_TRUE(is(lock.renew(), Answer::yes));
    server.clear_log();
    EXPECT_TRUE(is(lock.renew(), Answer::yes));
    EXPECT_THAT(names(server), ::testing::ElementsAre("EVAL"));
}

TEST_F(LeaseLockTest, AReplicaIsNotTakenAsProof) { // S11, S12
    LeaseLock lock{redis, "k", 10s};
    server.del("k");
    server.set_read_only(true);
    EXPECT_TRUE(is(lock.renew(), Answer::refused, errc::read_only));
    EXPECT_TRUE(is(lock.unlock(), Answer::refused, errc::read_only));
}

// --- the observer

TEST_F(LeaseLockTest, TheObserverHearsEveryOutcome) {
    redis.set_delay(2ms, 3ms);
    std::string token;
    {
        LeaseLock lock{redis, "k", {.ttl = 10s, .owner = "me", .observer = &recorder}};
        token = *server.get("k");
        (void)lock.renew();
    }
    ASSERT_EQ(recorder.all.size(), 3U);
    const auto& acquired = recorder.all[0];
    EXPECT_EQ(acquired.verb, Verb::acquire);
    EXPECT_EQ(acquired.key, "k");
    EXPECT_EQ(acquired.answer, Answer::yes);
    EXPECT_EQ(acquired.elapsed, 5ms);
    EXPECT_EQ(acquired.remaining, 10s - 102ms - 5ms);
    EXPECT_EQ(acquired.owner, "me");
    EXPECT_EQ(acquired.fingerprint, token.substr(0, 8));
    EXPECT_EQ(recorder.all[1].verb, Verb::renew);
    EXPECT_EQ(recorder.all[2].verb, Verb::release);
    EXPECT_EQ(recorder.all[2].remaining, 0ns);
}

} // namespace
} // namespace leaselock::test
