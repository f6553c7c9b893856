// SPDX-License-Identifier: MIT
// A renewer over several servers: one lane, one thread, one write in flight for each.

#include "fixture.hpp"

#include <leaselock/lock/renewer.hpp>
#include <leaselock/redis/script.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace leaselock::test {
namespace {

/// Several servers, and which key lives on which: its letters before the colon say so.
struct Town {
    static constexpr std::size_t most = 40;

    explicit Town(ManualRuntime& runtime) : clock(runtime) {
        for (auto& server : servers) server = std::make_unique<MemoryRedis>(clock);
    }
    static std::size_t district(std::string_view key) {
        return static_cast<std::size_t>(key[0] - 'a') + 20 * static_cast<std::size_t>(key[1] - 'a');
    }
    [[nodiscard]] std::size_t home(std::string_view key) const { return homes[district(key)]; }
    /// All keys of a district live on another server from now on. What `lane` says follows when
    /// `announce` is called.
    void move(std::string_view keys, std::size_t to, std::span<const std::string> all) {
        MemoryRedis& from = *servers[home(keys)];
        for (const std::string& key : all) {
            if (district(key) != district(keys)) continue;
            if (const auto value = from.get(key)) {
                servers[to]->set(key, *value, std::chrono::milliseconds{from.pttl(key)});
            }
            from.del(key);
        }
        homes[district(keys)] = to;
    }
    void announce(std::string_view keys, std::uint32_t lane) { lanes[district(keys)] = lane; }

    ManualRuntime& clock;
    std::array<std::unique_ptr<MemoryRedis>, most> servers;
    std::array<std::atomic<std::size_t>, 400> homes{};
    std::array<std::atomic<std::uint32_t>, 400> lanes{};
};

/// A way to all of them, as a cluster's, that notes who calls and how.
class RoutedWay {
public:
    static constexpr bool is_shareable = true;

    explicit RoutedWay(Town& town) : town_(town) {
        for (std::size_t i = 0; i < Town::most; ++i)
            ways_[i] = std::make_unique<MemoryConnection>(*town.servers[i]);
    }
    std::uint32_t lane(std::string_view key) noexcept { return town_.lanes[Town::district(key)]; }
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        const std::size_t home = town_.home(commands.front().key);
        std::size_t end = 1;
        while (end < commands.size() && town_.home(commands[end].key) == home) ++end;
        {
            const std::lock_guard guard{mutex_};
            callers_[home].insert(std::this_thread::get_id());
            most_at_once_ = std::max(most_at_once_, ++inside_[home]);
        }
        ways_[home]->call(commands.first(end), replies.first(end), by);
        {
            const std::lock_guard guard{mutex_};
            --inside_[home];
        }
        if (end == commands.size()) return;
        ++mixed_;
        call(commands.subspan(end), replies.subspan(end), by);
    }
    friend Runtime& runtime_of(const RoutedWay& way) noexcept { return way.town_.clock; }

    MemoryConnection& to(std::size_t server) { return *ways_[server]; }
    /// Calls that were about keys of more than one server.
    [[nodiscard]] int mixed() const { return mixed_; }
    [[nodiscard]] std::set<std::thread::id> callers(std::size_t server) const {
        const std::lock_guard guard{mutex_};
        return callers_[server];
    }
    [[nodiscard]] std::set<std::thread::id> all_callers() const {
        std::set<std::thread::id> all;
        for (std::size_t i = 0; i < Town::most; ++i) all.merge(callers(i));
        return all;
    }
    void forget_callers() {
        const std::lock_guard guard{mutex_};
        for (auto& callers : callers_) callers.clear();
    }
    [[nodiscard]] int most_at_once() const {
        const std::lock_guard guard{mutex_};
        return most_at_once_;
    }

private:
    Town& town_;
    std::array<std::unique_ptr<MemoryConnection>, Town::most> ways_;
    mutable std::mutex mutex_;
    std::array<std::set<std::thread::id>, Town::most> callers_;
    std::array<int, Town::most> inside_{};
    int most_at_once_ = 0; ///< calls on their way to one server
    std::atomic<int> mixed_ = 0;
};

static_assert(RoutedConnection<RoutedWay>);
static_assert(detail::RenewalLanes<MemoryConnection>::most == 1);
static_assert(detail::RenewalLanes<RoutedWay>::most == 16);

using RoutedLock = LeaseLock<RoutedWay>;

struct LanesTest : ::testing::Test {
    inline static const Fault silence{.kind = Fault::lost_request};

    LanesTest() { settle_in(3); }

    /// Districts aa, ba, ca … on servers 0, 1, 2 …
    void settle_in(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            const std::string name = district(i);
            town.homes[Town::district(name)] = i;
            town.announce(name, static_cast<std::uint32_t>(100 + i));
        }
    }
    static std::string district(std::size_t number) {
        return {static_cast<char>('a' + number % 20), static_cast<char>('a' + number / 20)};
    }
    /// Keeps so many leases on keys of this district.
    void keep(std::string_view of, int count, Options options = {.ttl = 3s}) {
        for (int i = 0; i < count; ++i) {
            keys.push_back(std::string{of} + ":" + std::to_string(keys.size()));
            locks.push_back(std::make_unique<RoutedLock>(redis, keys.back(), options));
            renewer->keep(*locks.back());
            tokens.push_back(locks.back()->stop_token());
        }
    }
    [[nodiscard]] bool lives_in(std::size_t lock, std::string_view of) const {
        return keys[lock].starts_with(of);
    }
    /// The shortest lease of a district, or of all others.
    [[nodiscard]] std::chrono::nanoseconds shortest(std::string_view of, bool others = false) {
        std::chrono::nanoseconds least = 1h;
        for (std::size_t i = 0; i < locks.size(); ++i) {
            if (lives_in(i, of) != others) least = std::min(least, locks[i]->remaining());
        }
        return least;
    }

    ManualRuntime clock;
    Town town{clock};
    RoutedWay redis{town};
    RoutedWay wire{town};
    Recorder recorder;
    std::optional<Renewer<RoutedWay>> renewer{wire};
    std::vector<std::string> keys;
    std::vector<std::unique_ptr<RoutedLock>> locks;
    std::vector<std::stop_token> tokens;
};

// a lease of 3 s is renewed each second, and 32 ms are its margin
constexpr auto on_time = 3s - 32ms - 1s;

TEST_F(LanesTest, EachServerHasAThreadAndOneWriteInFlight) {
    for (std::size_t i = 0; i < 3; ++i) {
        wire.to(i).set_delay(2ms, 2ms);
        keep(district(i), 200);
    }
    clock.advance(20s);
    EXPECT_GT(shortest(""), on_time - 50ms);
    EXPECT_EQ(wire.mixed(), 0);
    EXPECT_EQ(wire.most_at_once(), 1);
    EXPECT_EQ(wire.all_callers().size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(wire.callers(i).size(), 1U) << i;
        wire.to(i).reset_counters();
    }
    clock.advance(10s);
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(wire.to(i).commands(), 2000U) << i;
        EXPECT_EQ(wire.to(i).calls(), 40U) << i << ": 64, 64, 64 and 8";
    }
}

TEST_F(LanesTest, ASilentServerStarvesNoLeaseOnAnother) {
    for (int i = 0; i < 100; ++i) {
        for (std::size_t server = 0; server < 3; ++server) keep(district(server), 1);
        clock.advance(7ms);
    }
    clock.advance(5s);
    wire.to(1).always(silence);
    std::vector<Deadline> ends;
    for (const auto& lock : locks) ends.push_back(lock->deadline());
    std::vector<Deadline> order;
    for (std::size_t i = 0; i < locks.size(); ++i) {
        if (lives_in(i, "ba")) order.push_back(ends[i]);
    }
    std::sort(order.begin(), order.end());
    order.erase(std::unique(order.begin(), order.end()), order.end());
    for (const Deadline end : order) {
        clock.advance_to(end - 1ns);
        for (std::size_t i = 0; i < locks.size(); ++i) {
            ASSERT_EQ(tokens[i].stop_requested(), lives_in(i, "ba") && ends[i] < end) << i;
        }
        clock.advance_to(end);
        for (std::size_t i = 0; i < locks.size(); ++i) {
            ASSERT_EQ(tokens[i].stop_requested(), lives_in(i, "ba") && ends[i] <= end) << i;
        }
        ASSERT_GE(shortest("ba", true), on_time) << "not one renewal was late";
    }
    clock.advance(10s);
    EXPECT_GE(shortest("ba", true), on_time);
    EXPECT_EQ(wire.mixed(), 0);
}

TEST_F(LanesTest, ASlowServerDelaysNoLeaseOnAnother) {
    for (std::size_t server = 0; server < 3; ++server) keep(district(server), 60);
    wire.to(0).set_delay(150ms, 150ms);
    for (int i = 0; i < 100; ++i) {
        clock.advance(100ms);
        ASSERT_GE(shortest("aa", true), on_time);
        ASSERT_GE(shortest("aa"), on_time - 300ms);
    }
}

TEST_F(LanesTest, ALossOrALongestHoldInAnyLaneIsSignalledAtItsTime) {
    keep("aa", 1);
    keep("ba", 1);
    const std::string key = "ca:hold";
    RoutedLock bounded{redis, key, 3s};
    const Deadline start = clock.now();
    renewer->keep(bounded, 5s);
    const std::stop_token held = bounded.stop_token();
    clock.advance(1500ms);
    town.servers[1]->set(keys[1], "somebody", 60s);
    clock.advance(500ms);
    EXPECT_TRUE(tokens[1].stop_requested());
    EXPECT_EQ(locks[1]->loss(), Loss::taken);
    town.announce("ca", 101); // it goes along from lane to lane
    clock.advance(2s);
    town.announce("ca", 102);
    clock.advance_to(start + 5s - 1ns);
    EXPECT_FALSE(held.stop_requested());
    clock.advance(1ns);
    EXPECT_TRUE(held.stop_requested());
    EXPECT_EQ(bounded.loss(), Loss::max_hold);
    EXPECT_TRUE(locks[0]->owns_lock());
}

TEST_F(LanesTest, AServerThatAnswersByErrorsHearsNoStormOfThem) {
    wire.to(0).set_delay(500us, 500us);
    keep("aa", 100);
    clock.advance(5s);
    wire.to(0).always({.kind = Fault::error, .text = "OOM command not allowed"});
    wire.to(0).reset_counters();
    clock.advance(1s); // a retry is due after 100 ms
    EXPECT_LE(wire.to(0).commands(), 1000U);
    EXPECT_GE(wire.to(0).commands(), 300U);
}

TEST_F(LanesTest, ALeaseFollowsItsKey) {
    keep("aa", 10);
    keep("ba", 10);
    clock.advance(5s);
    town.move("aa", 2, keys);
    town.announce("aa", 102);
    wire.to(0).always(silence);
    wire.forget_callers();
    clock.advance(10s);
    EXPECT_GE(shortest(""), on_time);
    EXPECT_EQ(wire.mixed(), 0);
    EXPECT_TRUE(wire.callers(0).empty()) << "nobody asks there any more";
    EXPECT_EQ(wire.callers(2).size(), 1U);
    EXPECT_NE(wire.callers(2), wire.callers(1));
    // and both may share one again
    town.move("aa", 1, keys);
    town.announce("aa", 101);
    wire.forget_callers();
    clock.advance(10s);
    EXPECT_GE(shortest(""), on_time);
    EXPECT_EQ(wire.callers(1).size(), 1U);
}

TEST_F(LanesTest, BehindAFailoverNobodyWaitsInLineForTheDeadServer) {
    town.announce("da", 100); // on server 0, too, and stays there
    for (int i = 0; i < 300; ++i) {
        keep("aa", 1);
        keep("da", 1);
    }
    clock.advance(5s);
    wire.to(0).always(silence);
    clock.advance(1200ms); // all are due, and a try of half a second is on its way
    ASSERT_LT(shortest("aa"), on_time);
    town.move("aa", 2, keys);
    town.announce("aa", 102);
    clock.advance(300ms + 100ms); // the end of that one, and what was in it once more
    EXPECT_GE(shortest("aa"), 3s - 32ms - 100ms);
    EXPECT_EQ(wire.mixed(), 0);
}

TEST_F(LanesTest, AKeyThatMovesWhileItsRenewalIsOnTheWayIsTriedAgainThere) {
    keep("da", 1, {.ttl = 3s, .observer = &recorder}); // one slot of server 0's
    town.announce("da", 100);
    clock.advance(100ms);
    town.announce("ea", 100); // and another
    for (int i = 0; i < 100; ++i) {
        keep("aa", 3);
        keep("ea", 1);
    }
    clock.advance(5050ms);
    wire.to(0).always(silence);
    clock.advance(1050ms); // it is on its way since 6 s, and all others are due
    const std::size_t tries = recorder.of(Verb::renew).size();
    for (const char* moved : {"da", "ea"}) {
        town.move(moved, 2, keys);
        town.announce(moved, 102);
    }
    for (int i = 0; i < 3000 && recorder.of(Verb::renew).size() == tries; ++i) clock.advance(1ms);
    ASSERT_GT(recorder.of(Verb::renew).size(), tries);
    ASSERT_EQ(recorder.of(Verb::renew)[tries].answer, Answer::unknown);
    clock.advance(100ms);
    EXPECT_GT(shortest("da"), 2800ms) << "not behind what is stuck in the old lane";
    EXPECT_GT(shortest("ea"), 2800ms) << "nor in line with that";
    EXPECT_LT(shortest("aa"), 2s);
}

TEST_F(LanesTest, ManyServersShareSixteenThreadsAndAnIdleLaneIsUsedAgain) {
    settle_in(40);
    for (std::size_t i = 0; i < 40; ++i) keep(district(i), 2);
    clock.advance(10s);
    EXPECT_GE(shortest(""), on_time);
    EXPECT_EQ(wire.all_callers().size(), 16U);
    const auto before = wire.all_callers();
    for (std::size_t i = 0; i < locks.size(); ++i) {
        if (i >= 6) locks[i].reset();
    }
    wire.forget_callers();
    for (std::size_t i = 0; i < 3; ++i) { // three servers that nobody has heard of
        town.announce(district(i), static_cast<std::uint32_t>(1000 + i));
    }
    clock.advance(10s);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_GE(locks[i]->remaining(), on_time);
    EXPECT_EQ(wire.all_callers().size(), 3U) << "one for each: an idle lane was taken before";
    for (const std::thread::id caller : wire.all_callers()) EXPECT_EQ(before.count(caller), 1U);
}

TEST_F(LanesTest, WhereAServersNumberChangesTimeAndAgainTwoThreadsAreEnough) {
    keep("aa", 70);
    for (std::uint32_t number = 0; number < 40; ++number) {
        town.announce("aa", number);
        clock.advance(1s);
        ASSERT_GE(shortest("aa"), on_time);
    }
    EXPECT_LE(wire.all_callers().size(), 2U);
}

TEST_F(LanesTest, ALaneThatIsStuckIsNotIdle) {
    keep("aa", 1, {.ttl = 30s});
    clock.advance(5s);
    wire.to(0).always(silence);
    clock.advance(5500ms); // for half a second more it waits for an answer
    EXPECT_TRUE(is(locks[0]->unlock(), Answer::yes));
    keep("ba", 1, {.ttl = 30s});
    clock.settle();
    EXPECT_EQ(town.servers[1]->count("EVAL"), 1U) << "at once";
}

TEST_F(LanesTest, AnotherServersLaneKnowsNothingOfTheOneBefore) {
    town.servers[0]->set_lacks_getex(true);
    keep("aa", 1);
    clock.advance(5s);
    ASSERT_TRUE(locks[0]->owns_lock());
    EXPECT_TRUE(is(locks[0]->unlock(), Answer::yes));
    town.servers[1]->clear_log();
    keep("ba", 1);
    clock.advance(5s);
    EXPECT_EQ(wire.all_callers().size(), 1U) << "the same lane";
    const std::string_view sha = scripts::compare_and_expire.get.sha1;
    for (const auto& executed : town.servers[1]->log()) {
        EXPECT_FALSE(executed.argv[0] == "EVALSHA" && executed.argv[1] == sha) << "with GET";
    }
}

TEST_F(LanesTest, WithoutAThreadForItALeaseIsRenewedInALaneThatThereIs) { // P10
    keep("aa", 2);
    clock.settle();
    clock.fail_threads(std::make_error_code(std::errc::resource_unavailable_try_again));
    keep("ba", 2);
    keep("ca", 2);
    town.announce("aa", 7); // the lane of these is another from now on, which there is none for
    clock.advance(10s);
    EXPECT_GE(shortest(""), on_time);
    EXPECT_EQ(wire.all_callers().size(), 1U);
    clock.fail_threads({});
    keep("ba", 1);
    clock.settle();
    EXPECT_EQ(wire.all_callers().size(), 1U) << "not asked for again that soon";
    clock.advance(3s);
    wire.forget_callers();
    clock.advance(10s);
    EXPECT_GE(shortest(""), on_time);
    EXPECT_EQ(wire.all_callers().size(), 3U) << "as soon as there are threads";
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(wire.callers(i).size(), 1U) << i;
}

TEST_F(LanesTest, TheDestructorWaitsForTheLanesAllAtOnce) {
    for (std::size_t server = 0; server < 3; ++server) keep(district(server), 1, {.ttl = 30s});
    clock.advance(1s);
    for (std::size_t server = 0; server < 3; ++server) wire.to(server).always(silence);
    clock.advance(9500ms); // three writes are on their way, with a second each
    const Deadline start = clock.now();
    renewer.reset();
    EXPECT_GT(clock.now(), start) << "they were";
    EXPECT_LE(clock.now(), start + 1s);
    for (std::size_t i = 0; i < locks.size(); ++i) {
        EXPECT_TRUE(tokens[i].stop_requested());
        EXPECT_EQ(locks[i]->loss(), Loss::unkept);
        EXPECT_TRUE(locks[i]->owns_lock()) << "it runs out";
    }
}

TEST_F(LanesTest, UnlockWaitsForNoLaneAndTheNextLeaseIsNotTouchedByIt) {
    keep("aa", 1);
    keep("ba", 1);
    clock.settle();
    wire.to(1).set_delay(100ms, 300ms);
    clock.advance(1050ms); // a renewal is on its way in the second lane
    const Deadline start = clock.now();
    EXPECT_TRUE(is(locks[1]->unlock(), Answer::yes));
    EXPECT_EQ(clock.now(), start);
    ASSERT_TRUE(is(locks[1]->try_acquire(), Answer::yes));
    const Deadline end = locks[1]->deadline();
    clock.advance(1s); // its answer comes: another's
    EXPECT_EQ(locks[1]->deadline(), end);
    EXPECT_EQ(locks[1]->loss(), Loss::none);
    renewer->keep(*locks[1]);
    clock.advance(10s);
    EXPECT_TRUE(locks[1]->owns_lock());
}

TEST_F(LanesTest, AKeptLeaseThatMovedIsForgottenWhereItIs) {
    keep("aa", 1);
    keep("ba", 1);
    clock.advance(1500ms);
    town.move("aa", 2, keys);
    town.announce("aa", 102);
    clock.advance(3s);
    ASSERT_TRUE(locks[0]->owns_lock());
    EXPECT_TRUE(is(locks[0]->unlock(), Answer::yes));
    EXPECT_FALSE(town.servers[2]->get(keys[0]));
    wire.to(2).reset_counters();
    clock.advance(10s);
    EXPECT_EQ(wire.to(2).calls(), 0U);
    EXPECT_TRUE(locks[1]->owns_lock());
}

} // namespace
} // namespace leaselock::test
