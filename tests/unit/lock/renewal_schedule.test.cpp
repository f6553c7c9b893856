// SPDX-License-Identifier: MIT

#include <leaselock/lock/detail/renewal_schedule.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace leaselock::detail {
namespace {

using namespace std::chrono_literals;

constexpr Deadline zero{1000s};

struct ScheduleTest : ::testing::Test {
    void add(RenewalNode& node, std::chrono::milliseconds ttl, Deadline due, Deadline end,
             Deadline hold = Deadline::max()) {
        ASSERT_TRUE(schedule.reserve());
        node.ttl = ttl;
        node.timeout_ms = 1000;
        schedule.add(node, due, end, hold);
    }
    std::vector<RenewalNode*> take(Deadline now) {
        std::array<RenewalNode*, RenewalSchedule::batch_limit> batch{};
        const std::size_t size = schedule.take(now, answer_time, batch, by);
        return {batch.begin(), batch.begin() + static_cast<std::ptrdiff_t>(size)};
    }

    RenewalSchedule schedule;
    Deadline by{};
    std::chrono::nanoseconds answer_time{};
};

TEST_F(ScheduleTest, NothingIsDueInAnEmptyOne) {
    EXPECT_EQ(schedule.next_batch(), Deadline::max());
    EXPECT_EQ(schedule.next_watch(), Deadline::max());
    EXPECT_EQ(schedule.lapsed(Deadline::max() - 1ns), nullptr);
    EXPECT_TRUE(take(zero).empty());
}

TEST_F(ScheduleTest, TakesWhatIsDueTheEarliestDeadlineFirst) {
    std::array<RenewalNode, 4> node{};
    add(node[0], 30s, zero, zero + 20s);
    add(node[1], 3s, zero + 1s, zero + 3s);
    add(node[2], 3s, zero, zero + 2s);
    add(node[3], 3s, zero + 5s, zero + 9s);
    EXPECT_EQ(schedule.next_batch(), zero);
    EXPECT_THAT(take(zero + 1s), ::testing::ElementsAre(&node[2], &node[1], &node[0]));
    EXPECT_EQ(by, zero + 1s + 500ms) << "a sixth of the shortest ttl";
    EXPECT_EQ(schedule.next_batch(), zero + 5s);
    EXPECT_TRUE(take(zero + 2s).empty()) << "those are with the caller";
}

TEST_F(ScheduleTest, LinesUpWhatIsDueAndNoMore) {
    std::array<RenewalNode, 3> node{};
    add(node[0], 3s, zero + 1s, zero + 3s);
    add(node[1], 3s, zero, zero + 2s);
    add(node[2], 3s, zero + 2s, zero + 1s);
    EXPECT_TRUE(schedule.ready().empty());
    schedule.line_up(zero + 1s);
    EXPECT_THAT(schedule.ready(), ::testing::ElementsAre(&node[1], &node[0]));
    EXPECT_EQ(schedule.next_batch(), Deadline::min());
    schedule.remove(node[1]);
    EXPECT_THAT(take(zero + 1s), ::testing::ElementsAre(&node[0]));
    EXPECT_TRUE(schedule.ready().empty());
    EXPECT_EQ(schedule.next_batch(), zero + 2s);
}

TEST_F(ScheduleTest, ABatchHasSixtyFourAtMost) {
    std::vector<RenewalNode> nodes(100);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        add(nodes[i], 3s, zero, zero + 3s + std::chrono::milliseconds{100 - i});
    }
    const auto first = take(zero);
    ASSERT_EQ(first.size(), 64U);
    EXPECT_EQ(first.front(), &nodes[99]);
    EXPECT_EQ(schedule.next_batch(), Deadline::min()) << "the rest is ready";
    EXPECT_EQ(take(zero).size(), 36U);
}

TEST_F(ScheduleTest, ABatchIsFilledWithWhatIsDueSoon) {
    std::vector<RenewalNode> nodes(100); // one every 5 ms; a quarter of their period is 250 ms
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const Deadline due = zero + std::chrono::milliseconds{5 * i};
        add(nodes[i], 3s, due, due + 2s);
    }
    const auto first = take(zero);
    ASSERT_EQ(first.size(), 51U);
    EXPECT_EQ(first.front(), &nodes.front());
    EXPECT_EQ(first.back(), &nodes[50]) << "due 250 ms later";
    EXPECT_EQ(schedule.next_batch(), zero + 255ms);
    // together from now on
    for (RenewalNode* const node : first) schedule.renewed(*node, zero, zero + 3s);
    EXPECT_EQ(take(zero + 255ms).size(), 49U);
    EXPECT_EQ(take(zero + 1s).size(), 51U);
}

TEST_F(ScheduleTest, AFullBatchTakesNothingAlong) {
    std::vector<RenewalNode> nodes(200);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const Deadline due = zero + std::chrono::microseconds{i < 64 ? 0 : 200 * i};
        add(nodes[i], 3s, due, due + 2s); // a hundredth of their period is 10 ms
    }
    EXPECT_EQ(take(zero).size(), 64U);
    EXPECT_EQ(schedule.next_batch(), zero + 12800us);
}

TEST_F(ScheduleTest, AThousandLeasesHoweverTheyCameTravelInFullBatches) {
    std::vector<RenewalNode> nodes(1024);
    for (std::size_t i = 0; i < nodes.size(); ++i) { // evenly, over a whole period of 1 s
        const Deadline due = zero + i * std::chrono::nanoseconds{1s} / nodes.size();
        add(nodes[i], 3s, due, due + 2s);
    }
    std::size_t writes = 0;
    std::size_t renewals = 0;
    for (Deadline now = zero; now < zero + 10s; now = std::max(now, schedule.next_batch())) {
        const auto batch = take(now);
        for (RenewalNode* const node : batch) schedule.renewed(*node, now, now + 3s);
        if (now < zero + 2s) continue; // until they have come together
        ++writes;
        renewals += batch.size();
    }
    EXPECT_GE(renewals, 8 * nodes.size());
    EXPECT_LE(writes * RenewalSchedule::batch_limit, renewals);
}

TEST_F(ScheduleTest, AHangingBatchLeavesEveryLeaseOneMoreTry) {
    RenewalNode slow{};
    RenewalNode quick{};
    add(slow, 30s, zero, zero + 20s);
    add(quick, 3s, zero + 1s, zero + 1200ms);
    EXPECT_THAT(take(zero), ::testing::ElementsAre(&slow));
    EXPECT_EQ(by, zero + 700ms) << "not 1 s: the other one's last try starts then";
}

TEST_F(ScheduleTest, EvenABatchInAHurryHasTimeForAnAnswer) {
    RenewalNode slow{};
    RenewalNode quick{};
    add(slow, 30s, zero, zero + 20s);
    add(quick, 6s, zero + 9s, zero + 100ms);
    EXPECT_THAT(take(zero), ::testing::ElementsAre(&slow));
    EXPECT_EQ(by, zero + 5ms);
    schedule.failed(slow, zero);
    answer_time = 40ms;
    EXPECT_THAT(take(zero + 1s), ::testing::ElementsAre(&slow));
    EXPECT_EQ(by, zero + 1s + 80ms) << "twice what the server took";
}

TEST_F(ScheduleTest, NoTryTakesLongerThanOneCallMay) {
    RenewalNode days{};
    add(days, 24h, zero, zero + 24h);
    ASSERT_EQ(take(zero).size(), 1U);
    EXPECT_EQ(by, zero + 1s);
}

TEST_F(ScheduleTest, TheLeasesOfTheBatchItselfDoNotHurryIt) {
    std::array<RenewalNode, 3> dying{};
    for (auto& node : dying) add(node, 30s, zero, zero + 10ms);
    RenewalNode other{};
    add(other, 30s, zero + 5s, zero + 25s);
    EXPECT_EQ(take(zero).size(), 3U);
    EXPECT_EQ(by, zero + 1s);
}

TEST_F(ScheduleTest, AWideMarginMakesRenewalsMoreFrequent) {
    RenewalNode node{};
    node.margin = 21s;
    add(node, 30s, zero, zero + 9s);
    ASSERT_EQ(take(zero).size(), 1U);
    schedule.renewed(node, zero, zero + 9s);
    EXPECT_EQ(schedule.next_batch(), zero + 4500ms) << "half its life";
}

TEST_F(ScheduleTest, ARenewedLeaseIsDueAThirdOfItsTtlAfterTheSend) {
    RenewalNode node{};
    add(node, 3s, zero, zero + 3s);
    ASSERT_EQ(take(zero + 100ms).size(), 1U);
    schedule.renewed(node, zero + 100ms, zero + 3100ms);
    EXPECT_EQ(schedule.next_batch(), zero + 1100ms);
    EXPECT_EQ(schedule.next_watch(), zero + 3100ms);
}

TEST_F(ScheduleTest, AFailedOneIsTriedAgainSoon) {
    struct Row {
        std::chrono::milliseconds ttl;
        std::chrono::nanoseconds retry;
    };
    for (const Row& row : {Row{3s, 100ms}, Row{10ms, 1ms}, Row{10min, 1s}}) {
        RenewalNode node{};
        add(node, row.ttl, zero, zero + row.ttl);
        ASSERT_EQ(take(zero).size(), 1U);
        schedule.failed(node, zero + 5ms);
        EXPECT_EQ(schedule.next_batch(), zero + 5ms + row.retry);
        schedule.remove(node);
    }
}

TEST_F(ScheduleTest, AFailedOneKeepsItsPauseWhateverGoesOutMeanwhile) {
    std::array<RenewalNode, 2> node{};
    add(node[0], 3s, zero, zero + 3s);
    add(node[1], 3s, zero + 50ms, zero + 3s);
    ASSERT_EQ(take(zero).size(), 2U) << "a renewal goes along";
    schedule.failed(node[0], zero);
    schedule.renewed(node[1], zero, zero + 3s);
    schedule.line_up(zero);
    EXPECT_TRUE(schedule.ready().empty());
    RenewalNode other{};
    add(other, 3s, zero + 80ms, zero + 3s);
    EXPECT_THAT(take(zero + 80ms), ::testing::ElementsAre(&other));
    EXPECT_EQ(schedule.next_batch(), zero + 100ms);
    ASSERT_THAT(take(zero + 100ms), ::testing::ElementsAre(&node[0]));
    // and is like any other once it has succeeded
    schedule.renewed(node[0], zero + 100ms, zero + 3100ms);
    EXPECT_EQ(take(zero + 1s).size(), 2U);
}

TEST_F(ScheduleTest, TheWatchLooksAtTheEndOfALeaseOrOfItsLongestHold) {
    RenewalNode a{};
    RenewalNode b{};
    add(a, 3s, zero, zero + 3s);
    add(b, 3s, zero, zero + 4s, zero + 1s);
    EXPECT_EQ(schedule.next_watch(), zero + 1s);
    EXPECT_EQ(schedule.lapsed(zero + 1s - 1ns), nullptr);
    EXPECT_EQ(schedule.lapsed(zero + 1s), &b);
    schedule.remove(b);
    EXPECT_EQ(schedule.next_watch(), zero + 3s);
    schedule.watch_until(a, zero + 5s);
    EXPECT_EQ(schedule.lapsed(zero + 3s), nullptr);
    EXPECT_EQ(schedule.lapsed(zero + 5s), &a);
}

TEST_F(ScheduleTest, ARemovedLeaseIsNowhere) {
    std::array<RenewalNode, 3> node{};
    for (auto& each : node) add(each, 3s, zero, zero + 3s);
    schedule.remove(node[1]);
    schedule.remove(node[1]);
    EXPECT_FALSE(schedule.holds(node[1]));
    EXPECT_EQ(schedule.size(), 2U);
    EXPECT_EQ(take(zero).size(), 2U);
    schedule.remove(node[0]); // while it is with the caller
    EXPECT_EQ(schedule.size(), 1U);
}

TEST_F(ScheduleTest, AnyOrderOfComingAndGoingKeepsTheOrderOfDeadlines) {
    std::uint64_t random = 42;
    const auto draw = [&](std::uint64_t below) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        return (random >> 33U) % below;
    };
    std::vector<RenewalNode> nodes(500);
    std::vector<RenewalNode*> in;
    std::vector<RenewalNode*> out;
    for (auto& node : nodes) out.push_back(&node);
    for (int step = 0; step < 20'000; ++step) {
        if (!out.empty() && draw(2) == 0) {
            RenewalNode* const node = out.back();
            out.pop_back();
            const auto ttl = std::chrono::milliseconds{60 + draw(10'000)};
            const Deadline hold =
                draw(3) == 0 ? zero + std::chrono::milliseconds{draw(9'000)} : Deadline::max();
            add(*node, ttl, zero + std::chrono::milliseconds{draw(5'000)}, zero + ttl, hold);
            in.push_back(node);
        } else if (!in.empty() && draw(2) == 0) { // its end turns out to be another
            schedule.watch_until(*in[draw(in.size())],
                                 zero + std::chrono::milliseconds{draw(20'000)});
        } else if (!in.empty()) {
            const std::size_t at = draw(in.size());
            schedule.remove(*in[at]);
            out.push_back(in[at]);
            in.erase(in.begin() + static_cast<std::ptrdiff_t>(at));
        }
        Deadline earliest = Deadline::max();
        Deadline due = Deadline::max();
        for (const RenewalNode* node : in) {
            earliest = std::min(earliest, std::min(node->confirmed, node->hold_end));
            due = std::min(due, node->due);
        }
        ASSERT_EQ(schedule.size(), in.size());
        ASSERT_EQ(schedule.next_batch(), due);
        ASSERT_EQ(schedule.next_watch(), earliest);
    }
    while (true) {
        const auto batch = take(Deadline::max());
        if (batch.empty()) break;
        ASSERT_TRUE(std::is_sorted(batch.begin(), batch.end(),
                                   [](auto* a, auto* b) { return a->confirmed < b->confirmed; }));
    }
}

} // namespace
} // namespace leaselock::detail
