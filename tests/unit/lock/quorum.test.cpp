// SPDX-License-Identifier: MIT
#include <leaselock/lock/quorum.hpp>

#include "fixture.hpp"

#include <leaselock/lock/renewer.hpp>

#include <gmock/gmock.h>

#include <array>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace leaselock::test {
namespace {

using Nodes = Quorum<MemoryConnection>;
using Guard = LeaseLock<Nodes>;

static_assert(std::is_same_v<Guard::options_type, QuorumOptions>);
static_assert(!std::is_move_constructible_v<Nodes>);
static_assert(!SharedConnection<Nodes>);

/// Independent servers, and a way to each of them.
struct Cluster {
    Cluster(ManualRuntime& clock, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) servers.emplace_back(clock);
    }
    std::deque<MemoryRedis> servers;
};
struct Way {
    explicit Way(Cluster& cluster) {
        for (MemoryRedis& server : cluster.servers) nodes.emplace_back(server);
        for (MemoryConnection& node : nodes) pointers.push_back(&node);
        quorum.emplace(std::span<MemoryConnection* const>{pointers});
    }
    std::vector<std::size_t> calls() const {
        std::vector<std::size_t> counts;
        for (const MemoryConnection& node : nodes) counts.push_back(node.calls());
        return counts;
    }
    void reset_counters() {
        for (MemoryConnection& node : nodes) node.reset_counters();
    }
    std::deque<MemoryConnection> nodes;
    std::vector<MemoryConnection*> pointers;
    std::optional<Nodes> quorum;
};

struct QuorumTest : ::testing::Test {
    explicit QuorumTest(std::size_t count = 5) : cluster{clock, count} {}

    MemoryRedis& server(std::size_t i) { return cluster.servers[i]; }
    MemoryConnection& node(std::size_t i) { return way.nodes[i]; }
    Nodes& quorum() { return *way.quorum; }
    /// Which servers have the key, as `11001`.
    std::string held(std::string_view key = "k") {
        std::string all;
        for (MemoryRedis& each : cluster.servers) all += each.get(key) ? '1' : '0';
        return all;
    }
    /// The first acquisition meets all nodes: what comes later is not about that.
    void meet() {
        Guard lock{quorum(), "met", 10s};
        ASSERT_TRUE(lock);
        ASSERT_TRUE(is(lock.renew(), Answer::yes));
        ASSERT_TRUE(is(lock.unlock(), Answer::yes));
        way.reset_counters();
    }
    Guard guard(QuorumOptions options = {.ttl = 10s}) {
        options.observer = &recorder;
        return Guard{quorum(), "k", options, std::defer_lock};
    }

    ManualRuntime clock;
    Cluster cluster;
    Way way{cluster};
    Way other{cluster};
    Recorder recorder;
};
struct ThreeNodes : QuorumTest {
    ThreeNodes() : QuorumTest(3) {}
};

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Fault silence{Fault::lost_request};

std::string text_of(const Outcome& outcome) { return std::string{outcome.text.view()}; }
std::string count_of(const Outcome& outcome) {
    return std::to_string(outcome.confirmed) + "/" + std::to_string(outcome.nodes);
}

// --- what it is made of

TEST_F(QuorumTest, TakesConnectionsByReference) {
    Quorum nodes{node(0), node(1), node(2)};
    EXPECT_EQ(nodes.size(), 3U);
    LeaseLock lock{nodes, "k", 10s};
    EXPECT_TRUE(lock);
    EXPECT_EQ(held(), "11100");
}

TEST_F(QuorumTest, RefusesFewerThanThreeAnEvenNumberAndOneTwice) {
    struct Row {
        std::vector<MemoryConnection*> nodes;
        std::string_view text;
    };
    const Row rows[] = {
        {{}, "from 3 to 15"},
        {{&node(0)}, "from 3 to 15"},
        {{&node(0), &node(1)}, "from 3 to 15"},
        {{&node(0), &node(1), &node(2), &node(3)}, "odd number"},
        {{&node(0), &node(1), &node(0)}, "twice"},
        {{&node(0), nullptr, &node(1)}, "null"},
    };
    for (const Row& row : rows) {
        Nodes nodes{std::span<MemoryConnection* const>{row.nodes}};
        Guard lock{nodes, "k", 10s, std::defer_lock};
        const Outcome outcome = lock.try_acquire();
        EXPECT_TRUE(is(outcome, Answer::unsent, errc::invalid_argument));
        EXPECT_THAT(text_of(outcome), HasSubstr(row.text));
        EXPECT_THROW(static_cast<void>(Guard{nodes, "k", 10s}), Error);
    }
    EXPECT_EQ(held(), "00000");
}

TEST_F(QuorumTest, RefusesOneServerUnderTwoConnections) {
    MemoryConnection again{server(0)};
    std::vector<MemoryConnection*> pointers{&node(0), &node(1), &again};
    Nodes nodes{std::span<MemoryConnection* const>{pointers}};
    Guard lock{nodes, "k", 10s, std::defer_lock};
    const Outcome outcome = lock.try_acquire();
    EXPECT_TRUE(is(outcome, Answer::refused, errc::same_server));
    EXPECT_TRUE(outcome.cause == condition::misuse);
    EXPECT_THAT(text_of(outcome), HasSubstr("3: the same server as another"));
    EXPECT_EQ(held(), "00000");
    EXPECT_TRUE(is(lock.try_acquire(), Answer::refused, errc::same_server)); // and always
}

TEST_F(QuorumTest, AsksForTheRunIdOncePerConnect) {
    const auto asked = [&](std::size_t i) {
        std::size_t count = 0;
        for (const auto& executed : server(i).log()) {
            count += executed.argv.size() == 3 && executed.argv[1] == scripts::run_id ? 1U : 0U;
        }
        return count;
    };
    for (int i = 0; i < 4; ++i) meet();
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(asked(i), 1U);
    node(0).next({Fault::cut_request}); // the connection is lost
    Guard lock{quorum(), "k", 10s};
    clock.advance(1s);
    EXPECT_TRUE(is(lock.renew(), Answer::yes));
    EXPECT_EQ(asked(0), 2U);
    EXPECT_EQ(asked(1), 1U);
}

/// Without the permission to ask who it is a node has no vote, and what it set is deleted.
TEST_F(QuorumTest, ANodeThatDoesNotTellWhoItIsHasNoVote) {
    for (const std::size_t i : {0U, 1U, 2U}) {
        node(i).on("EVAL",
                   {Fault::error, "ERR The user executing the script can't run this command"});
    }
    Guard lock = guard();
    const Outcome outcome = lock.try_acquire();
    EXPECT_TRUE(is(outcome, Answer::refused, errc::script_not_permitted));
    EXPECT_THAT(text_of(outcome), HasSubstr("2 of 5 nodes; 1: needs +info: ERR The user"));
    EXPECT_EQ(held(), "00000");
    EXPECT_TRUE(is(lock.try_acquire(), Answer::yes));
}

// --- round trips, and who waits for whom

TEST_F(QuorumTest, EveryVerbIsOneRoundTrip) {
    Guard lock = guard();
    EXPECT_TRUE(is(lock.try_acquire(), Answer::yes)); // with the question who they are
    EXPECT_THAT(way.calls(), Each(1U));
    EXPECT_TRUE(is(lock.renew(), Answer::yes));
    EXPECT_THAT(way.calls(), Each(2U));
    EXPECT_TRUE(is(lock.unlock(), Answer::yes));
    EXPECT_THAT(way.calls(), Each(3U));
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    const Lease lease = lock.detach();
    EXPECT_TRUE(is(lock.try_adopt(lease), Answer::yes));
    EXPECT_THAT(way.calls(), Each(5U));
}

TEST_F(QuorumTest, FiveNodesTakeAsLongAsOne) {
    meet();
    for (MemoryConnection& each : way.nodes) each.set_delay(3ms, 2ms);
    Guard lock = guard();
    const Deadline start = clock.now();
    EXPECT_TRUE(is(lock.try_acquire(), Answer::yes));
    EXPECT_EQ(clock.now() - start, 5ms);
    EXPECT_EQ(lock.remaining(), 10s - 102ms - 5ms); // counted from before the first send
}

TEST_F(QuorumTest, ReturnsAsSoonAsItIsDecided) {
    meet();
    for (std::size_t i = 0; i < 5; ++i) node(i).set_delay(0ms, std::chrono::milliseconds{10 * i});
    const auto took = [&](auto&& verb) {
        const Deadline start = clock.now();
        EXPECT_TRUE(is(verb(), Answer::yes));
        const auto span = clock.now() - start;
        clock.advance(100ms);
        return span;
    };
    Guard lock = guard();
    EXPECT_EQ(took([&] { return lock.try_acquire(); }), 20ms); // the third of five
    EXPECT_EQ(took([&] { return lock.renew(); }), 20ms);
    EXPECT_EQ(took([&] { return lock.unlock(); }), 20ms);
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    const Lease lease = lock.detach();
    EXPECT_EQ(took([&] { return lock.try_adopt(lease); }), 20ms);
    Guard late{*other.quorum, "k", 10s, std::defer_lock};
    EXPECT_TRUE(is(late.try_acquire(), Answer::no, errc::busy));
}

/// The node that has yet to answer the SET is sent the deletion behind it.
TEST_F(QuorumTest, AReleaseGoesOutBehindAnUnansweredAcquire) {
    meet();
    node(4).set_delay(15ms, 15ms);
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    EXPECT_TRUE(is(lock.unlock(), Answer::yes));
    clock.advance(100ms);
    EXPECT_EQ(held(), "00000");
}

/// Nor is a node left out because its last answer was the slowest: the lock would be on fewer.
TEST_F(QuorumTest, ASlowNodeIsAskedEveryTime) {
    meet();
    node(4).set_delay(15ms, 15ms);
    Guard lock = guard();
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
        EXPECT_TRUE(is(lock.renew(), Answer::yes));
        clock.advance(15ms);
        EXPECT_EQ(held(), "11111");
        EXPECT_EQ(server(4).pttl("k"), 10'000);
        ASSERT_TRUE(is(lock.unlock(), Answer::yes));
    }
}

/// A call that has less time than a node may take says nothing of the node.
TEST_F(QuorumTest, AShortCallMakesNoNodeDown) {
    meet();
    for (const std::size_t i : {3U, 4U}) node(i).set_delay(10ms, 10ms);
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire_for(4ms), Answer::yes));
    clock.advance(6ms);
    ASSERT_TRUE(is(lock.unlock(), Answer::yes));
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    clock.advance(10ms);
    EXPECT_EQ(held(), "11111");
}

TEST_F(QuorumTest, AStoppedNodeCostsItsTimeoutOnceAndDelaysNobody) {
    node(4).always(silence);
    Guard lock = guard({.ttl = 1s, .timeout = 50ms});
    const auto cycle = [&] {
        const Deadline start = clock.now();
        EXPECT_TRUE(is(lock.try_acquire(), Answer::yes));
        const auto acquired = clock.now() - start;
        EXPECT_LE(acquired, 50ms);
        EXPECT_EQ(lock.remaining(), 1s - 12ms - acquired);
        EXPECT_EQ(count_of(recorder.all.empty() ? Outcome{} : lock.renew()), "4/5");
        EXPECT_TRUE(is(lock.unlock(), Answer::yes));
        return clock.now() - start;
    };
    // of 1,000 ms the lease has 938 left; and the deletion for the silent node gets a moment to go out
    EXPECT_EQ(cycle(), 50ms + 1ms);
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(cycle(), 0ms);
        clock.advance(10ms);
    }
}

TEST_F(QuorumTest, ANodeThatStopsLaterCostsNoMore) {
    meet();
    node(4).always(silence);
    Guard lock = guard({.ttl = 1s, .timeout = 50ms});
    Deadline start = clock.now();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    EXPECT_EQ(clock.now() - start, 0ms);
    EXPECT_TRUE(is(lock.unlock(), Answer::yes)); // its deletion goes behind the unanswered SET
    EXPECT_EQ(clock.now() - start, 50ms);
    start = clock.now();
    for (int i = 0; i < 5; ++i) {
        ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
        EXPECT_TRUE(is(lock.unlock(), Answer::yes));
    }
    EXPECT_EQ(clock.now() - start, 0ms);
}

TEST_F(QuorumTest, N1ANodeThatIsDownIsNotDialledInEveryCall) {
    meet();
    node(1).go_down();
    Guard lock = guard({.ttl = 1s});
    for (int i = 0; i < 500; ++i) { // five seconds
        ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
        clock.advance(10ms);
        ASSERT_TRUE(is(lock.unlock(), Answer::yes));
    }
    EXPECT_LE(way.calls()[1], 8U); // at 0, 0.1, 0.3, 0.7, 1.5, 3.1, 4.7 s
    node(1).come_up();
    for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
        clock.advance(10ms);
        ASSERT_TRUE(is(lock.unlock(), Answer::yes));
    }
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    EXPECT_EQ(held(), "11111"); // it is asked again
}

/// While the others are too few, the ones that are down are what decides: they are tried in every call.
TEST_F(QuorumTest, TooFewNodesAskTheRestAtOnce) {
    meet();
    for (const std::size_t i : {0U, 1U, 2U}) node(i).go_down();
    Guard lock = guard({.ttl = 1s});
    EXPECT_TRUE(is(lock.try_acquire(), Answer::refused, errc::no_majority));
    for (const std::size_t i : {0U, 1U, 2U}) node(i).come_up();
    EXPECT_TRUE(is(lock.try_acquire(), Answer::yes)); // no pause is waited for
    EXPECT_EQ(held(), "11111");
}

// --- acquiring

TEST_F(ThreeNodes, B69OneDeadNodeOfThree) {
    node(2).always(silence);
    Guard lock = guard();
    EXPECT_TRUE(is(lock.try_acquire(), Answer::yes));
    const Outcome renewed = lock.renew();
    EXPECT_TRUE(is(renewed, Answer::yes));
    EXPECT_EQ(count_of(renewed), "2/3");
    EXPECT_EQ(text_of(renewed), "2 of 3 nodes; 3: no answer in time");
    EXPECT_TRUE(is(lock.unlock(), Answer::yes));
}

TEST_F(ThreeNodes, B69TwoDeadNodesOfThree) {
    node(1).always(silence);
    node(2).go_down();
    Guard lock = guard();
    const Outcome outcome = lock.try_acquire();
    EXPECT_TRUE(is(outcome, Answer::unknown, errc::no_majority));
    EXPECT_TRUE(outcome.cause == condition::unreachable);
    EXPECT_EQ(text_of(outcome), "1 of 3 nodes; 2: no answer in time; 3: Connection refused");
    EXPECT_EQ(held(), "000");
}

TEST_F(ThreeNodes, B71AMinorityIsGivenBackAtOnce) {
    for (const std::size_t i : {0U, 1U}) server(i).set("k", "another's", 60s);
    Guard lock = guard();
    EXPECT_TRUE(is(lock.try_acquire(), Answer::no, errc::busy));
    EXPECT_EQ(held(), "110");
    EXPECT_EQ(server(0).get("k"), "another's");
    EXPECT_EQ(server(1).get("k"), "another's");
    EXPECT_EQ(lock.loss(), Loss::none);
    EXPECT_FALSE(lock.try_lock()); // busy is no error
}

TEST_F(ThreeNodes, B71TheCleanUpWaitsForTheNodeThatHasTheKey) {
    meet();
    for (const std::size_t i : {0U, 1U}) server(i).set("k", "another's", 60s);
    node(2).set_delay(10ms, 10ms);
    Guard lock = guard();
    EXPECT_TRUE(is(lock.try_acquire(), Answer::no, errc::busy));
    EXPECT_EQ(held(), "110");
}

/// A set that was executed where the reply was lost is deleted too, and the node is told even while it is
/// silent.
TEST_F(QuorumTest, N3AMinorityIsGivenBackOnNodesThatDidNotAnswer) {
    meet();
    for (const std::size_t i : {0U, 1U, 2U}) server(i).set("k", "another's", 60s);
    node(3).next({Fault::lost_reply}); // it has the key, and does not say so
    node(4).next({Fault::cut_reply});
    server(0).set("k", "another's", 60s);
    Guard lock = guard();
    EXPECT_FALSE(lock.try_acquire());
    clock.advance(100ms);
    EXPECT_EQ(held(), "11100");
}

/// Its deletion has to go behind the SET that a slow node has yet to answer, and the wait ends before that.
TEST_F(ThreeNodes, N3WhatAWaitHasNoTimeToGiveBackIsLeftToTheGuard) {
    meet();
    for (const std::size_t i : {0U, 1U}) server(i).set("k", "another's", 60s);
    node(2).set_delay(20ms, 20ms);
    Guard lock = guard();
    EXPECT_TRUE(is(lock.try_acquire_for(5ms), Answer::no, errc::busy));
    clock.advance(20ms);
    EXPECT_EQ(held(), "111");
    EXPECT_FALSE(lock.owns_lock());
    (void)lock.unlock();
    clock.advance(20ms);
    EXPECT_EQ(held(), "110");
}

/// A node that was silent for a while is being asked who it is when the lock is given back.
TEST_F(ThreeNodes, N3AReleaseGoesOutBehindAProbe) {
    meet();
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    node(2).next(silence);
    ASSERT_TRUE(is(lock.renew(), Answer::yes));
    clock.advance(1s);
    ASSERT_TRUE(is(lock.renew(), Answer::yes)); // it shows as down
    clock.advance(1s);
    for (const std::size_t i : {0U, 1U}) node(i).set_delay(1ms, 1ms);
    node(2).set_delay(2500us, 2500us);
    ASSERT_TRUE(is(lock.renew(), Answer::yes)); // and is probed
    EXPECT_TRUE(is(lock.unlock(), Answer::yes));
    clock.advance(10ms);
    EXPECT_EQ(held(), "000");
}

TEST_F(ThreeNodes, N3AnAcquireWithoutAnswersIsCleanedUpOnAll) {
    meet();
    for (MemoryConnection& each : way.nodes) each.next({Fault::lost_reply});
    Guard lock = guard();
    EXPECT_TRUE(is(lock.try_acquire(), Answer::unknown, errc::no_majority));
    EXPECT_FALSE(lock.owns_lock());
    EXPECT_EQ(held(), "000");
    EXPECT_TRUE(is(lock.try_acquire(), Answer::yes));
}

TEST_F(ThreeNodes, N5ASetThatRunsLaterIsNeverBelieved) {
    meet();
    for (const std::size_t i : {1U, 2U}) node(i).next({Fault::held});
    Guard lock = guard({.ttl = 1s});
    EXPECT_TRUE(is(lock.try_acquire(), Answer::unknown, errc::no_majority));
    for (const std::size_t i : {1U, 2U}) node(i).deliver_held(); // behind its deletion
    EXPECT_EQ(held(), "011");
    EXPECT_FALSE(lock.owns_lock());
    clock.advance(1s + 1ms); // its ttl
    EXPECT_TRUE(is(lock.try_acquire(), Answer::yes));
}

TEST_F(ThreeNodes, VotesOfTwoTriesAreNotAdded) {
    meet();
    for (const std::size_t i : {1U, 2U}) node(i).next({Fault::cut_request});
    Guard lock = guard();
    EXPECT_FALSE(lock.try_acquire()); // node 1
    clock.advance(200ms);
    for (const std::size_t i : {0U, 2U}) node(i).next({Fault::cut_request});
    EXPECT_FALSE(lock.try_acquire()); // node 2
    EXPECT_FALSE(lock.owns_lock());
}

TEST_F(ThreeNodes, ASilentNodeHasNoVoteThoughItSaidYesBefore) {
    meet();
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    ASSERT_TRUE(is(lock.unlock(), Answer::yes));
    for (const std::size_t i : {0U, 2U}) node(i).next({Fault::lost_request});
    EXPECT_FALSE(lock.try_acquire()); // node 1 alone
    EXPECT_FALSE(lock.owns_lock());
}

TEST_F(ThreeNodes, AMajorityBehindTheDeadlineIsNoAcquisition) {
    meet();
    for (MemoryConnection& each : way.nodes) each.set_delay(0ms, 980ms);
    Guard lock = guard({.ttl = 1s, .timeout = 5s, .margin = 20ms});
    EXPECT_FALSE(lock.try_acquire()); // the answer comes at the very deadline
    EXPECT_FALSE(lock.owns_lock());
    clock.advance(3s);
    EXPECT_EQ(held(), "000");
}

TEST_F(QuorumTest, MixedFailuresListEachNodesOwnAnswer) {
    meet();
    node(0).go_down();
    server(1).set("k", "another's", 60s);
    server(2).set_read_only(true);
    node(3).on("SET", {Fault::error, "NOAUTH Authentication required."});
    Guard lock = guard();
    const Outcome outcome = lock.try_acquire();
    EXPECT_TRUE(is(outcome, Answer::refused, errc::no_majority));
    EXPECT_EQ(
        text_of(outcome),
        "1 of 5 nodes; 1: Connection refused; 2: held by another; 3: READONLY You can't write "
        "against a read only replica.; 4: NOAUTH Authentication required.");
    EXPECT_EQ(held(), "01000");
}

/// Two that refuse the connection decide it at once; the third is heard all the same.
TEST_F(ThreeNodes, AFailureWaitsForTheAnswersThatItLists) {
    meet();
    node(0).set_delay(5ms, 5ms);
    node(1).go_down();
    node(2).go_down();
    Guard lock = guard();
    EXPECT_EQ(text_of(lock.try_acquire()),
              "1 of 3 nodes; 2: Connection refused; 3: Connection refused");
    EXPECT_EQ(held(), "000");
}

TEST_F(ThreeNodes, AnIncurableCauseOfAMajorityEndsTheWait) {
    meet();
    const Fault denied{Fault::error, "NOAUTH Authentication required."};
    node(0).on("SET", denied);
    node(1).on("SET", denied);
    Guard lock = guard();
    const Deadline start = clock.now();
    EXPECT_TRUE(is(lock.try_acquire_for(10s), Answer::refused, errc::not_authenticated));
    EXPECT_LT(clock.now() - start, 1s);
}

TEST_F(QuorumTest, S8S11AMinorityThatCannotIsBorne) {
    meet();
    server(0).set_out_of_memory(true);
    server(1).set_read_only(true);
    Guard lock = guard();
    EXPECT_TRUE(is(lock.try_acquire(), Answer::yes));
    EXPECT_EQ(count_of(lock.renew()), "3/5");
    EXPECT_TRUE(is(lock.unlock(), Answer::yes));
    EXPECT_EQ(held(), "00000");
}

TEST_F(QuorumTest, S18AForeignTypeIsBusy) {
    for (MemoryRedis& each : cluster.servers) each.plant_hash("k");
    Guard lock = guard();
    EXPECT_TRUE(is(lock.try_acquire(), Answer::no, errc::busy));
    EXPECT_EQ(held(), "11111");
}

TEST_F(QuorumTest, S7NodesThatForgotTheScripts) {
    meet();
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    for (const std::size_t i : {0U, 1U, 2U}) server(i).flush_scripts();
    const Outcome renewed = lock.renew();
    EXPECT_TRUE(is(renewed, Answer::yes));
    for (const std::size_t i : {0U, 1U, 2U}) server(i).flush_scripts();
    EXPECT_TRUE(is(lock.unlock(), Answer::yes));
    clock.advance(1ms);
    EXPECT_EQ(held(), "00000");
}

TEST_F(QuorumTest, NodesMayDifferInWhatTheyKnow) {
    for (const std::size_t i : {0U, 1U, 2U}) server(i).set_lacks_getex(true);
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    EXPECT_TRUE(is(lock.renew(), Answer::yes));
    EXPECT_TRUE(is(lock.unlock(), Answer::yes));
    EXPECT_EQ(held(), "00000");
}

/// A node that is always slower than the majority is never heard in time: it is understood all the same.
TEST_F(QuorumTest, ASlowNodesDialectIsLearntFromItsLateAnswers) {
    server(4).set_lacks_getex(true);
    Guard lock = guard({.ttl = 1s, .timeout = 200ms});
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    ASSERT_EQ(held(), "11111");
    node(4).set_delay(20ms, 20ms);
    for (int i = 0; i < 10; ++i) {
        clock.advance(300ms);
        ASSERT_TRUE(is(lock.renew(), Answer::yes));
    }
    clock.advance(100ms);
    EXPECT_EQ(held(), "11111");
}

TEST_F(QuorumTest, S7ASlowNodeThatForgotTheScriptsHearsTheTextAgain) {
    meet();
    Guard lock = guard({.ttl = 1s, .timeout = 200ms});
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    node(4).set_delay(20ms, 20ms);
    server(4).flush_scripts();
    for (int i = 0; i < 10; ++i) {
        clock.advance(300ms);
        ASSERT_TRUE(is(lock.renew(), Answer::yes));
    }
    clock.advance(100ms);
    EXPECT_EQ(held(), "11111");
}

/// Nobody is there any more to say it again in the other dialect.
TEST_F(QuorumTest, B05ANodeWithoutGetexUnderstandsADeletionAtOnce) {
    for (MemoryRedis& each : cluster.servers) each.set_lacks_getex(true);
    node(4).set_delay(20ms, 20ms);
    Guard lock = guard({.ttl = 10s, .timeout = 200ms});
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    way.reset_counters();
    EXPECT_TRUE(is(lock.unlock(), Answer::yes));
    clock.advance(100ms);
    EXPECT_THAT(way.calls(), Each(1U));
    EXPECT_EQ(held(), "00000");
}

/// What is known not to be there is not given up a second time.
TEST_F(ThreeNodes, AnErrorOfTheOldDialectIsFinal) {
    for (MemoryRedis& each : cluster.servers) each.set_lacks_getex(true);
    meet();
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    way.reset_counters();
    for (MemoryConnection& each : way.nodes) {
        each.on("EVALSHA", {Fault::error, "ERR Unknown Redis command called from script"});
    }
    EXPECT_TRUE(is(lock.renew(), Answer::refused, errc::unknown_command));
    EXPECT_THAT(way.calls(), Each(1U));
}

// --- waiting

TEST_F(QuorumTest, WaitsUntilAMajorityIsFree) {
    meet();
    const std::array<std::chrono::seconds, 5> ttls{1s, 2s, 3s, 60s, 60s};
    for (std::size_t i = 0; i < 5; ++i) server(i).set("k", "another's", ttls[i]);
    Guard lock = guard();
    const Deadline start = clock.now();
    EXPECT_TRUE(is(lock.try_acquire_for(20s), Answer::yes));
    EXPECT_GE(clock.now() - start, 3s);
    EXPECT_LE(clock.now() - start, 3s + 550ms);
    EXPECT_EQ(server(4).get("k"), "another's");
}

// --- renewing and losing

TEST_F(QuorumTest, IsLostWhenMoreThanAMinoritySaysSo) {
    meet();
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    server(0).del("k");
    server(1).del("k");
    const Outcome renewed = lock.renew();
    EXPECT_TRUE(is(renewed, Answer::yes));
    EXPECT_EQ(count_of(renewed), "3/5");
    EXPECT_TRUE(lock.owns_lock());
    server(2).del("k");
    const std::stop_token told = lock.stop_token();
    EXPECT_TRUE(is(lock.renew(), Answer::no, errc::gone));
    EXPECT_EQ(lock.loss(), Loss::gone);
    EXPECT_TRUE(told.stop_requested());
    EXPECT_FALSE(lock.owns_lock());
}

TEST_F(QuorumTest, S10TakenByAnotherOnAMajority) {
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    for (const std::size_t i : {0U, 1U, 2U}) server(i).set("k", "another's", 60s);
    EXPECT_TRUE(is(lock.renew(), Answer::no, errc::taken));
    EXPECT_EQ(lock.loss(), Loss::taken);
    EXPECT_EQ(server(0).get("k"), "another's");
}

TEST_F(QuorumTest, NeverLostByAMinorityOfZerosAndSilence) {
    meet();
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    const Deadline end = lock.deadline();
    server(0).del("k");
    server(1).set("k", "another's", 60s);
    for (const std::size_t i : {2U, 3U, 4U}) node(i).always(silence);
    clock.advance(1s);
    EXPECT_TRUE(is(lock.renew(), Answer::unknown, errc::no_majority));
    EXPECT_TRUE(lock.owns_lock());
    EXPECT_EQ(lock.deadline(), end); // the old deadline stands
    node(2).come_up();
    node(3).come_up();
    node(4).come_up();
    EXPECT_TRUE(is(lock.renew(), Answer::yes));
    EXPECT_EQ(lock.deadline(), clock.now() + 10s - 102ms);
}

TEST_F(QuorumTest, ARenewalOfAMinorityExtendsNothing) {
    meet();
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    const Deadline end = lock.deadline();
    for (const std::size_t i : {2U, 3U, 4U}) server(i).set_read_only(true);
    clock.advance(1s);
    const Outcome outcome = lock.renew();
    EXPECT_TRUE(is(outcome, Answer::unknown, errc::no_majority));
    EXPECT_EQ(count_of(outcome), "2/5");
    EXPECT_EQ(lock.deadline(), end);
}

TEST_F(QuorumTest, S20ATtlThatWasTakenOffIsMended) {
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    server(0).execute({"PERSIST", "k"});
    EXPECT_TRUE(is(lock.renew(), Answer::yes));
    EXPECT_EQ(server(0).pttl("k"), 10'000);
}

TEST_F(QuorumTest, C1AJumpOfOneServersClockIsBorne) {
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    server(0).set_clock_offset(60s);
    EXPECT_EQ(count_of(lock.renew()), "4/5");
    server(1).set_clock_offset(60s);
    server(2).set_clock_offset(60s);
    EXPECT_TRUE(is(lock.renew(), Answer::no, errc::gone));
}

/// A renewal creates no key: where one is absent it may have been somebody else's meanwhile. The lease
/// lives on the rest, and its holder hears on how many.
TEST_F(QuorumTest, S1ANodeThatRestartsEmptyIsHeardOfAndNotRepaired) {
    meet();
    Way wire{cluster};
    Renewer renewer{*wire.quorum};
    Guard lock = guard({.ttl = 3s});
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    renewer.keep(lock);
    const auto last_renewal = [&] {
        clock.advance(2s);
        const auto renewals = recorder.of(Verb::renew);
        return renewals.empty() ? std::string{} : renewals.back().text;
    };
    EXPECT_EQ(last_renewal(), "");
    EXPECT_EQ(recorder.of(Verb::renew).back().confirmed, 5);
    server(3).restart();
    EXPECT_EQ(last_renewal(), "4 of 5 nodes; 4: the key is absent");
    EXPECT_EQ(recorder.of(Verb::renew).back().confirmed, 4);
    server(1).restart();
    EXPECT_EQ(last_renewal(), "3 of 5 nodes; 2: the key is absent; 4: the key is absent");
    clock.advance(1h);
    EXPECT_TRUE(lock.owns_lock());
    EXPECT_EQ(held(), "10101"); // never set again
    server(0).restart();
    clock.advance(2s);
    EXPECT_EQ(lock.loss(), Loss::gone);
    EXPECT_EQ(recorder.of(Verb::lose).size(), 1U); // once
    clock.advance(10s);
    EXPECT_EQ(held(), "00000");
}

/// Why absence is not repaired: the run-out, the other holder and the release are over by the time the
/// first holder renews, and a key set again would make that look like a lease.
TEST_F(QuorumTest, ALeaseThatAnotherHasHadMeanwhileIsNotRevived) {
    Guard lock = guard({.ttl = 60s});
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    for (const std::size_t i : {0U, 1U, 2U}) server(i).restart();
    {
        Guard second{*other.quorum, "k", 10s};
        ASSERT_TRUE(second); // on the three that forgot
    }
    EXPECT_TRUE(is(lock.renew(), Answer::no, errc::gone));
    EXPECT_FALSE(lock.owns_lock());
}

TEST_F(QuorumTest, ARenewerKeepsManyWithOneNodeStopped) {
    meet();
    Way wire{cluster};
    Renewer renewer{*wire.quorum};
    std::vector<Guard> locks;
    for (int i = 0; i < 100; ++i) {
        locks.emplace_back(quorum(), "k" + std::to_string(i), QuorumOptions{.ttl = 3s});
        ASSERT_TRUE(locks.back());
        renewer.keep(locks.back());
    }
    clock.advance(5s);
    wire.nodes[2].always(silence);
    node(2).always(silence);
    clock.advance(20s);
    for (const Guard& lock : locks) EXPECT_TRUE(lock.owns_lock());
    wire.nodes[0].always(silence);
    wire.nodes[1].always(silence);
    clock.advance(3s);
    for (const Guard& lock : locks) EXPECT_EQ(lock.loss(), Loss::expired);
}

TEST_F(QuorumTest, S7ADeletionIsEnoughForASlowNodeThatForgotTheScripts) {
    meet();
    Guard lock = guard();
    ASSERT_TRUE(lock.try_acquire());
    for (MemoryRedis& each : cluster.servers) each.flush_scripts();
    node(4).set_delay(1ms, 40ms); // its answer finds nobody who would send again
    EXPECT_TRUE(is(lock.unlock(), Answer::yes));
    clock.advance(1s);
    EXPECT_EQ(held(), "00000");
}

TEST_F(QuorumTest, ARenewerTakesNoConnectionOfTheGuardsQuorum) {
    Way wire{cluster};
    wire.pointers[4] = &node(2);
    Nodes mixed{std::span<MemoryConnection* const>{wire.pointers}};
    Renewer renewer{mixed};
    Guard lock = guard();
    ASSERT_TRUE(lock.try_acquire());
    const Outcome outcome = renewer.try_keep(lock);
    EXPECT_TRUE(is(outcome, Answer::unsent, errc::invalid_argument));
    EXPECT_THAT(text_of(outcome), HasSubstr("connections of its own"));
}

TEST_F(QuorumTest, ARenewerHearsTheSlowNodesToo) {
    meet();
    Way wire{cluster};
    for (std::size_t i = 0; i < 5; ++i) {
        wire.nodes[i].set_delay(0ms, std::chrono::milliseconds{5 * i});
    }
    Renewer renewer{*wire.quorum};
    Guard lock = guard({.ttl = 3s});
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    renewer.keep(lock);
    clock.advance(5s);
    for (const auto& heard : recorder.of(Verb::renew)) EXPECT_EQ(heard.confirmed, 5);
    EXPECT_GE(recorder.of(Verb::renew).size(), 5U);
}

TEST_F(QuorumTest, TheGuardsOwnQuorumIsNotTheRenewers) {
    Renewer renewer{quorum()};
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    EXPECT_TRUE(is(renewer.try_keep(lock), Answer::unsent, errc::invalid_argument));
}

// --- releasing

TEST_F(QuorumTest, N6AReleaseWithoutAMajorityIsRepeated) {
    meet();
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    for (const std::size_t i : {0U, 1U, 2U}) node(i).next({Fault::lost_reply});
    EXPECT_TRUE(is(lock.unlock(), Answer::unknown, errc::no_majority));
    EXPECT_FALSE(lock.owns_lock());
    EXPECT_TRUE(is(lock.unlock(), Answer::unknown, errc::unconfirmed)); // gone, by whose hand?
    EXPECT_TRUE(is(lock.unlock(), Answer::unsent, errc::not_held));
    EXPECT_EQ(held(), "00000");
}

TEST_F(QuorumTest, ALeaseThatWasLostIsNotReleased) {
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    for (const std::size_t i : {0U, 1U, 2U}) server(i).set("k", "another's", 60s);
    EXPECT_TRUE(is(lock.unlock(), Answer::no, errc::taken));
    EXPECT_EQ(server(0).get("k"), "another's");
}

TEST_F(QuorumTest, P8ADestructorIsBoundedWhenAllAreSilent) {
    meet();
    Deadline start;
    {
        Guard lock = guard();
        ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
        for (MemoryConnection& each : way.nodes) each.always(silence);
        start = clock.now();
    }
    EXPECT_EQ(clock.now() - start, 50ms);
}

// --- handing over

TEST_F(QuorumTest, OneAdopterWins) {
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    const Lease lease = lock.detach();
    EXPECT_EQ(held(), "11111");
    Guard first{*other.quorum, lease, std::adopt_lock};
    EXPECT_TRUE(first);
    EXPECT_TRUE(is(lock.try_adopt(lease), Answer::no, errc::taken));
    EXPECT_EQ(held(), "11111");
    EXPECT_TRUE(is(first.renew(), Answer::yes));
}

TEST_F(QuorumTest, AnAdoptionTakesAMajority) {
    meet();
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes));
    const Lease lease = lock.detach();
    server(0).del("k");
    server(1).del("k");
    EXPECT_TRUE(is(lock.try_adopt(lease), Answer::yes));
    EXPECT_EQ(count_of(lock.renew()), "3/5");
    const Lease next = lock.detach();
    server(2).del("k");
    EXPECT_TRUE(is(lock.try_adopt(next), Answer::no, errc::gone));
    EXPECT_EQ(held(), "00000"); // what a minority swapped is deleted
}

// --- threads and processes

TEST_F(QuorumTest, P4InAForkedChildItStartsAfresh) {
    meet();
    node(4).set_delay(5ms, 5ms);
    Guard lock = guard();
    ASSERT_TRUE(is(lock.try_acquire(), Answer::yes)); // node 4 has yet to answer
    clock.become_another_process();
    EXPECT_TRUE(is(lock.unlock(), Answer::unsent, errc::other_process));
    Guard own{quorum(), "own", 10s, std::defer_lock};
    EXPECT_TRUE(is(own.try_acquire(), Answer::yes));
    EXPECT_EQ(held("own"), "11111");
    EXPECT_EQ(held(), "11111");
}

/// A connection that does something at each start.
class Hooked {
public:
    explicit Hooked(MemoryRedis& server) : inner{server} {}
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        inner.call(commands, replies, by);
    }
    void start(std::span<const Command> commands, Deadline by) noexcept {
        if (on_start) on_start();
        inner.start(commands, by);
    }
    bool finish(std::span<Reply> replies) noexcept { return inner.finish(replies); }
    static void wait_any(std::span<Hooked* const> all, Deadline by) noexcept {
        std::vector<MemoryConnection*> inner;
        for (Hooked* const each : all) inner.push_back(&each->inner);
        MemoryConnection::wait_any(inner, by);
    }
    friend Runtime& runtime_of(const Hooked& hooked) noexcept { return runtime_of(hooked.inner); }

    MemoryConnection inner;
    std::function<void()> on_start;
};

TEST_F(QuorumTest, ACallInsideAnothersIsRefused) {
    Hooked a{server(0)}, b{server(1)}, c{server(2)};
    Quorum nodes{a, b, c};
    LeaseLock first{nodes, "k", 10s, std::defer_lock};
    LeaseLock second{nodes, "j", 10s, std::defer_lock};
    Outcome inside;
    b.on_start = [&] { inside = second.try_acquire(); };
    EXPECT_TRUE(is(first.try_acquire(), Answer::yes));
    EXPECT_TRUE(is(inside, Answer::unsent, errc::in_use));
    b.on_start = nullptr;
    EXPECT_TRUE(is(second.try_acquire(), Answer::yes)); // without a dialect of the connection's too
    EXPECT_TRUE(is(first.renew(), Answer::yes));
}

/// A connection whose address leads elsewhere from one call to the next, as behind a changed name.
class Rewired {
public:
    explicit Rewired(MemoryRedis& server) : way_{&to_.emplace_back(server)} {}
    void rewire(MemoryRedis& server) { next_ = &to_.emplace_back(server); }

    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        way_->call(commands, replies, by);
    }
    void start(std::span<const Command> commands, Deadline by) noexcept {
        if (next_ != nullptr) dialect_.reset(); // it connects
        way_ = next_ != nullptr ? std::exchange(next_, nullptr) : way_;
        way_->start(commands, by);
    }
    bool finish(std::span<Reply> replies) noexcept { return way_->finish(replies); }
    static void wait_any(std::span<Rewired* const> all, Deadline by) noexcept {
        std::vector<MemoryConnection*> ways;
        for (Rewired* const each : all) ways.push_back(each->way_);
        MemoryConnection::wait_any(ways, by);
    }
    Dialect& dialect() noexcept { return dialect_; }
    friend Runtime& runtime_of(const Rewired& rewired) noexcept {
        return runtime_of(*rewired.way_);
    }

private:
    std::deque<MemoryConnection> to_;
    MemoryConnection* way_;
    MemoryConnection* next_ = nullptr;
    Dialect dialect_;
};

/// The answers on a stream that turns out to be new count when it is known whose they are: a server that
/// has said yes for another node already has no second vote.
TEST_F(ThreeNodes, AConnectionThatComesOutAtAnotherNodesServerHasNoSecondVote) {
    Rewired a{server(0)}, b{server(1)}, c{server(2)};
    Quorum nodes{a, b, c};
    LeaseLock lock{nodes, "k", 10s};
    ASSERT_TRUE(is(lock.renew(), Answer::yes));
    server(1).del("k");
    c.rewire(server(0));
    const Outcome renewed = lock.renew();
    EXPECT_TRUE(is(renewed, Answer::unknown, errc::no_majority));
    EXPECT_EQ(text_of(renewed),
              "1 of 3 nodes; 2: the key is absent; 3: the same server as another");
    LeaseLock next{nodes, "j", 10s, std::defer_lock};
    EXPECT_TRUE(is(next.try_acquire(), Answer::refused, errc::same_server));
    EXPECT_EQ(held("j"), "000");
    c.rewire(server(2)); // and well again
    EXPECT_TRUE(is(lock.renew(), Answer::yes));
    EXPECT_TRUE(is(next.try_acquire(), Answer::yes));
}

} // namespace
} // namespace leaselock::test
