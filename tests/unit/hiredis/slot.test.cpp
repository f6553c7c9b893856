// SPDX-License-Identifier: MIT

#include <leaselock/hiredis/detail/slot.hpp>

#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <set>
#include <thread>
#include <vector>

namespace leaselock::test {
namespace {

using namespace std::chrono_literals;
using detail::Bells;
using detail::Entrance;
using detail::Patience;
using detail::Slot;
using detail::SlotList;

std::vector<const Slot*> all_of(const SlotList& list) {
    std::vector<const Slot*> all;
    for (const Slot* slot = list.first; slot != nullptr; slot = slot->next) all.push_back(slot);
    return all;
}

TEST(SlotList, IsARow) {
    std::array<Slot, 3> slots;
    SlotList list;
    EXPECT_EQ(list.pop(), nullptr);
    EXPECT_FALSE(list.remove(slots[0]));
    for (Slot& slot : slots) list.push(slot);
    EXPECT_EQ(all_of(list), (std::vector<const Slot*>{&slots[0], &slots[1], &slots[2]}));
    EXPECT_TRUE(list.remove(slots[1]));
    EXPECT_FALSE(list.remove(slots[1]));
    EXPECT_TRUE(list.remove(slots[2])); // the last: what is pushed next comes behind the first
    list.push(slots[1]);
    EXPECT_EQ(list.pop(), &slots[0]);
    EXPECT_EQ(list.pop(), &slots[1]);
    EXPECT_EQ(list.pop(), nullptr);
    list.push(slots[2]);
    EXPECT_EQ(all_of(list), (std::vector<const Slot*>{&slots[2]}));
}

TEST(Entrance, LetsOneLeadAndKeepsTheOrder) {
    std::array<Slot, 5> slots;
    Entrance entrance;
    SlotList queue;
    EXPECT_TRUE(entrance.is_empty());
    EXPECT_TRUE(entrance.enter(slots[0]));
    EXPECT_FALSE(entrance.enter(slots[1]));
    EXPECT_FALSE(entrance.try_lead());
    EXPECT_FALSE(entrance.try_leave()); // somebody has come
    entrance.take(queue);
    EXPECT_TRUE(entrance.is_empty());
    EXPECT_FALSE(entrance.enter(slots[2]));
    EXPECT_FALSE(entrance.enter(slots[3]));
    entrance.take(queue);
    entrance.take(queue);
    EXPECT_EQ(all_of(queue),
              (std::vector<const Slot*>{&slots[0], &slots[1], &slots[2], &slots[3]}));
    EXPECT_TRUE(entrance.try_leave());
    EXPECT_TRUE(entrance.try_lead());
    EXPECT_FALSE(entrance.enter(slots[4]));
}

TEST(Entrance, TheFirstOfThoseThatLeaveTogetherIsWokenAlone) {
    std::vector<Slot> slots(40);
    Entrance entrance;
    SlotList queue;
    for (std::size_t i = 0; i < 20; ++i) (void)entrance.enter(slots[i]);
    entrance.take(queue);
    for (std::size_t i = 20; i < 40; ++i) (void)entrance.enter(slots[i]);
    std::set<int> bells;
    for (std::size_t i = 0; i < 40; ++i) {
        EXPECT_EQ(slots[i].bell == 0, i % 20 == 0) << i;
        EXPECT_LT(slots[i].bell, Bells::count);
        bells.insert(slots[i].bell);
    }
    EXPECT_EQ(bells.size(), 1 + (38 + Bells::sharers - 1) / Bells::sharers);
}

TEST(Entrance, LosesNobody) {
    constexpr std::size_t per_thread = 2'000;
    Entrance entrance;
    ASSERT_TRUE(entrance.try_lead());
    std::array<std::vector<Slot>, 4> slots;
    std::vector<std::thread> threads;
    for (auto& mine : slots) {
        mine = std::vector<Slot>(per_thread);
        threads.emplace_back([&entrance, &mine] {
            for (Slot& slot : mine) (void)entrance.enter(slot);
        });
    }
    SlotList queue;
    std::set<const Slot*> seen;
    while (seen.size() < slots.size() * per_thread) {
        entrance.take(queue);
        while (const Slot* const slot = queue.pop()) EXPECT_TRUE(seen.insert(slot).second);
    }
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(entrance.try_leave());
}

TEST(Bells, TellWhomToWake) {
    Slot slot;
    slot.bell = 5;
    EXPECT_EQ(Bells::change(slot, Slot::asleep), 0U);
    EXPECT_EQ(Bells::change(slot, Slot::leading), Bells::Set{1} << 5U);
    EXPECT_EQ(Bells::change(slot, Slot::done), 0U);
    EXPECT_TRUE(slot.is_done());
}

TEST(Patience, LastsAsLongAsItPays) {
    Patience patience;
    EXPECT_TRUE(patience.is_worth_a_try());
    for (int i = 0; i < 1'000; ++i) patience.note(true, 5us);
    for (int i = 0; i < 100; ++i) patience.note(false, 5us); // rare failures among successes
    EXPECT_TRUE(patience.pays());
    for (int i = 0; i < 1'000; ++i) patience.note(false, 5us);
    EXPECT_FALSE(patience.pays());
}

TEST(Patience, ATimeSliceLostCostsMuch) {
    Patience patience;
    for (int i = 0; i < 1'000; ++i) patience.note(true, 5us);
    patience.note(true, 2ms);
    EXPECT_TRUE(patience.pays());
    patience.note(true, 2ms);
    EXPECT_FALSE(patience.pays());
}

TEST(Patience, TriesEverMoreSeldomButAgain) {
    Patience patience;
    int calls = 0;
    int tries = 0;
    for (; calls < 100'000; ++calls) {
        if (!patience.is_worth_a_try()) continue;
        ++tries;
        patience.note(false, 5us);
    }
    EXPECT_GT(tries, 10);
    EXPECT_LT(tries, 100);
    while (!patience.is_worth_a_try()) {
    }
    for (int i = 0; i < 1'000; ++i) patience.note(true, 5us);
    EXPECT_TRUE(patience.pays());
}

} // namespace
} // namespace leaselock::test
