// SPDX-License-Identifier: MIT

#include <leaselock/hiredis/detail/slot_queue.hpp>

#include <gmock/gmock.h>

#include <array>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace leaselock::test {
namespace {

using detail::Entrance;
using detail::Failure;
using detail::Slot;
using detail::SlotQueue;
using Words = std::vector<std::string_view>;

/// A call of commands of one word each, so that a command is 14 bytes: `*1 $4 PING`.
struct Call {
    explicit Call(std::size_t count, bool attended = true) : replies(count) {
        for (std::size_t i = 0; i < count; ++i) commands.push_back({words, {}});
        slot.commands = commands;
        slot.replies = replies;
        slot.attended = attended;
    }

    /// A letter for each reply: `s`ent for unknown, `u`nsent, `+` for an answer.
    [[nodiscard]] std::string verdicts() const {
        std::string letters;
        for (const Reply& reply : replies) {
            letters += reply.kind == Reply::unknown ? 's' : reply.kind == Reply::unsent ? 'u' : '+';
        }
        return letters;
    }

    Words words{"PING"};
    std::vector<Command> commands;
    std::vector<Reply> replies;
    Slot slot;
};

constexpr std::size_t size = 14;

class SlotQueueTest : public testing::Test {
protected:
    void enter(Call& call) {
        (void)entrance.enter(call.slot);
        queue.add_from(entrance);
    }
    /// Writes what waits, of which the kernel takes `bytes`.
    void write(std::size_t bytes) {
        queue.write_pending();
        queue.mark_sent(bytes);
    }
    bool answer(Reply::Kind kind = Reply::status) {
        Reply* const reply = queue.expected();
        if (reply == nullptr) return false;
        reply->set_text(kind, "PONG");
        return queue.take_reply(*reply);
    }

    Entrance entrance;
    SlotQueue queue;
    const Failure failure{make_error_code(errc::timed_out), {}};
};

TEST_F(SlotQueueTest, HandsRepliesOutInOrder) {
    Call a{2};
    Call b{1};
    enter(a);
    enter(b);
    EXPECT_TRUE(queue.has_pending());
    EXPECT_TRUE(queue.is_idle());
    EXPECT_FALSE(queue.owed());
    write(0);
    EXPECT_FALSE(queue.owed()); // written, not sent
    queue.mark_sent(3 * size);
    EXPECT_TRUE(queue.owed());
    EXPECT_TRUE(answer());
    EXPECT_FALSE(a.slot.is_done());
    EXPECT_TRUE(answer());
    EXPECT_TRUE(a.slot.is_done());
    EXPECT_TRUE(answer());
    EXPECT_TRUE(b.slot.is_done());
    EXPECT_EQ(queue.expected(), nullptr);
    EXPECT_TRUE(queue.is_empty());
}

TEST_F(SlotQueueTest, BelievesNoReplyAheadOfItsCommand) {
    const std::vector<std::tuple<std::size_t, Reply::Kind, bool>> rows{
        {0, Reply::status, false}, {0, Reply::error, false},         {1, Reply::status, false},
        {1, Reply::error, true},   {size - 1, Reply::status, false}, {size, Reply::status, true},
    };
    for (const auto& [sent, kind, believed] : rows) {
        SlotQueue fresh;
        Entrance door;
        Call call{1};
        Call behind{1};
        (void)door.enter(call.slot);
        (void)door.enter(behind.slot);
        fresh.add_from(door);
        fresh.write_pending();
        fresh.mark_sent(sent);
        Reply* const reply = fresh.expected();
        ASSERT_NE(reply, nullptr);
        reply->set_text(kind, "ERR");
        EXPECT_EQ(fresh.take_reply(*reply), believed) << sent;
    }
}

TEST_F(SlotQueueTest, AFallGivesEachCommandItsVerdict) {
    const std::vector<std::pair<std::size_t, std::string>> rows{
        {0, "uu|u"},        {1, "su|u"},        {size, "su|u"},
        {size + 1, "ss|u"}, {2 * size, "ss|u"}, {2 * size + 1, "ss|s"},
        {3 * size, "ss|s"},
    };
    for (const auto& [sent, expected] : rows) {
        SlotQueue fresh;
        Entrance door;
        Call a{2};
        Call b{1};
        Call pending{1};
        (void)door.enter(a.slot);
        (void)door.enter(b.slot);
        fresh.add_from(door);
        fresh.write_pending();
        fresh.mark_sent(sent);
        (void)door.enter(pending.slot);
        fresh.add_from(door);
        fresh.fall(failure, false);
        EXPECT_EQ(a.verdicts() + "|" + b.verdicts(), expected) << sent;
        EXPECT_TRUE(a.slot.is_done());
        EXPECT_FALSE(pending.slot.is_done()); // it was not on that stream
        EXPECT_TRUE(fresh.is_idle());
        EXPECT_FALSE(fresh.has_output());
    }
}

TEST_F(SlotQueueTest, AnAbandonedCallKeepsItsPlaceOnlyAsFarAsItHasGoneOut) {
    Call a{1};
    Call b{3};
    Call c{1};
    for (Call* const call : {&a, &b, &c}) enter(*call);
    write(size + size + 3); // the second command of b is cut
    queue.abandon(b.slot, failure);
    EXPECT_EQ(b.verdicts(), "ssu");
    EXPECT_EQ(queue.output().size(), size - 3 + size); // the rest of the cut one, and c
    queue.mark_sent(queue.output().size());
    EXPECT_TRUE(answer()); // a
    EXPECT_TRUE(a.slot.is_done());
    EXPECT_TRUE(answer()); // nobody's
    EXPECT_TRUE(answer());
    EXPECT_FALSE(c.slot.is_done());
    EXPECT_TRUE(answer());
    EXPECT_TRUE(c.slot.is_done());
    EXPECT_EQ(b.verdicts(), "ssu"); // untouched since
    EXPECT_TRUE(queue.is_empty());
}

TEST_F(SlotQueueTest, WhatTheStreamHoldsOnToIsNotCutOut) {
    Call a{2};
    enter(a);
    write(0);
    queue.commit_output();
    queue.abandon(a.slot, failure);
    EXPECT_EQ(a.verdicts(), "ss");
    EXPECT_EQ(queue.output().size(), 2 * size);
    EXPECT_FALSE(queue.is_idle());
}

TEST_F(SlotQueueTest, APendingCallThatIsAbandonedWasNeverThere) {
    Call a{1};
    Call b{1};
    enter(a);
    enter(b);
    queue.abandon(a.slot, failure);
    EXPECT_EQ(a.verdicts(), "u");
    write(size);
    EXPECT_TRUE(answer());
    EXPECT_TRUE(b.slot.is_done());
    queue.abandon(b.slot, failure); // too late
    EXPECT_EQ(b.verdicts(), "+");
}

TEST_F(SlotQueueTest, WritesInBatches) {
    std::deque<Call> calls;
    for (int i = 0; i < 10; ++i) {
        calls.emplace_back(1'000); // 14,000 bytes: five of them fill a batch
        enter(calls.back());
    }
    queue.write_pending();
    EXPECT_EQ(queue.output().size(), 5'000 * size);
    queue.mark_sent(5'000 * size);
    EXPECT_TRUE(queue.has_pending());
    queue.write_pending();
    EXPECT_EQ(queue.output().size(), 5'000 * size);
    EXPECT_FALSE(queue.has_pending());
}

TEST_F(SlotQueueTest, AppointsAThreadThatWaits) {
    Call absent{1, false};
    Call awake{1};
    Call asleep{1};
    Call alone{1};
    for (Call* const call : {&absent, &awake, &asleep, &alone}) enter(*call);
    write(size);
    absent.slot.bell = awake.slot.bell = asleep.slot.bell = 3;
    alone.slot.bell = 0;
    (void)detail::Bells::change(asleep.slot, Slot::asleep);
    (void)detail::Bells::change(alone.slot, Slot::asleep);

    EXPECT_TRUE(queue.appoint(true)); // most are awake: the oldest
    EXPECT_EQ(awake.slot.state, Slot::leading);
    EXPECT_EQ(queue.take_bells(), 0U);
    awake.slot.attended = false;
    EXPECT_TRUE(queue.appoint(false)); // most are asleep: one that is woken alone
    EXPECT_EQ(alone.slot.state, Slot::leading);
    EXPECT_EQ(queue.take_bells(), 1U);
    alone.slot.attended = false;
    EXPECT_TRUE(queue.appoint(false)); // else any
    EXPECT_EQ(asleep.slot.state, Slot::leading);
    EXPECT_EQ(queue.take_bells(), 8U);
    asleep.slot.attended = false;
    EXPECT_FALSE(queue.appoint(true));
    EXPECT_FALSE(queue.appoint(false));
}

TEST_F(SlotQueueTest, AServerThatTurnsAwaySpeaksForAll) {
    Call a{2};
    enter(a);
    write(2 * size);
    const Failure words{make_error_code(errc::connection_lost),
                        ServerText{"ERR max number of clients reached"}};
    queue.fall(words, true);
    for (const Reply& reply : a.replies) {
        EXPECT_EQ(reply.text.view(), "ERR max number of clients reached");
        EXPECT_EQ(reply.kind, Reply::error);
    }
    Call b{1};
    enter(b);
    queue.refuse_pending(failure, false);
    EXPECT_EQ(b.verdicts(), "u");
    EXPECT_TRUE(b.slot.is_done());
}

} // namespace
} // namespace leaselock::test
