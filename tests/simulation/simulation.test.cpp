// SPDX-License-Identifier: MIT

#include "simulation/simulation.hpp"

#include "simulation/checker.hpp"
#include "simulation/connection.hpp"
#include "simulation/deed.hpp"
#include "simulation/fiber.hpp"
#include "simulation/plan.hpp"
#include "simulation/scene.hpp"
#include "simulation/shrink.hpp"
#include "simulation/world.hpp"

#include <leaselock/core/lease_clock.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace leaselock::simulation {
namespace {

constexpr Time never = std::numeric_limits<Time>::max();

TEST(Fiber, IsAThreadToTheLibrary) {
    std::vector<std::thread::id> ids;
    Fiber one{[&] {
        ids.push_back(std::this_thread::get_id());
        Fiber::suspend();
        ids.push_back(std::this_thread::get_id());
    }};
    Fiber two{[&] { ids.push_back(std::this_thread::get_id()); }};
    one.resume();
    two.resume();
    EXPECT_FALSE(one.ended());
    one.resume();
    EXPECT_TRUE(one.ended());
    EXPECT_TRUE(two.ended());
    ASSERT_EQ(ids.size(), 3U);
    EXPECT_EQ(ids[0], ids[2]);
    EXPECT_NE(ids[0], ids[1]);
    EXPECT_NE(ids[0], std::this_thread::get_id());
}

TEST(Fiber, StopCallbacksEndOnOtherFibers) {
    std::stop_source source;
    std::optional<std::stop_callback<void (*)()>> callback;
    bool gone = false;
    Fiber listener{[&] {
        callback.emplace(source.get_token(), [] { Fiber::suspend(); });
        Fiber::suspend();
        callback.reset();
        gone = true;
    }};
    Fiber stopper{[&] { source.request_stop(); }};
    listener.resume();
    stopper.resume(); // stands in the callback
    stopper.resume();
    listener.resume();
    EXPECT_TRUE(gone);
}

TEST(World, SleepsByTheClockOfTheProcess) {
    World world{1};
    Process& fast = world.start_process("fast", {100 * s, 1'000'000});
    Time woke = 0;
    world.start_thread(fast, [&] {
        world.sleep_until(110 * s); // 10 s by a clock of twice the rate
        woke = world.now();
    });
    EXPECT_TRUE(world.run(never));
    EXPECT_GE(woke, 5 * s);
    EXPECT_LT(woke, 5 * s + ms);
}

TEST(World, LetsAStoppedProcessRunWhenItGoesOn) {
    World world{1};
    Process& process = world.start_process("p", {});
    Time woke = 0;
    world.start_thread(process, [&] {
        world.sleep_until(s);
        woke = world.now();
    });
    world.at(s / 2, [&] { world.stop(process); });
    world.at(3 * s, [&] { world.resume(process); });
    EXPECT_TRUE(world.run(never));
    EXPECT_GE(woke, 3 * s);
    EXPECT_NE(world.history().find("p stop\n"), std::string::npos);
}

TEST(World, EndsTheThreadsOfAKilledProcessWithoutALine) {
    World world{1};
    Process& process = world.start_process("p", {});
    std::atomic<std::uint32_t> word{0};
    std::vector<Time> afterlife;
    world.start_thread(process, [&] {
        world.sleep_until(10 * s);
        world.line("said");
        (void)world.wait_until(word, 0, 20 * s);
        afterlife = {world.now(), world.reading()};
    });
    world.at(s, [&] { world.kill(process); });
    EXPECT_TRUE(world.run(never));
    EXPECT_EQ(world.threads(), 0U);
    EXPECT_EQ(afterlife, (std::vector<Time>{s, 20 * s}));
    EXPECT_NE(world.history().find("p kill\n"), std::string::npos);
    EXPECT_EQ(world.history().find("said"), std::string::npos);
}

TEST(World, SaysWhenThereIsNoEnd) {
    World world{1};
    Process& process = world.start_process("p", {});
    world.start_thread(process, [&] {
        for (Time at = 0;; ++at) world.sleep_until(at);
    });
    EXPECT_FALSE(world.run(never));
    world.kill(process); // its thread is left where it stands
}

std::vector<std::uint64_t> seeds_of_quorums(std::size_t count) {
    std::vector<std::uint64_t> seeds;
    for (std::uint64_t seed = 0; seeds.size() < count; ++seed) {
        if (draw_plan(seed).nodes > 1) seeds.push_back(seed);
    }
    return seeds;
}

TEST(Simulation, RepeatsItselfToTheByte) {
    std::vector<std::uint64_t> seeds = seeds_of_quorums(5);
    for (std::uint64_t seed = 0; seed < 10; ++seed) seeds.push_back(seed);
    for (const std::uint64_t seed : seeds) {
        const simulation::Run once = carry_out(draw_plan(seed));
        EXPECT_TRUE(once.ended);
        EXPECT_EQ(once.history, carry_out(draw_plan(seed)).history) << seed;
        EXPECT_NE(once.history, carry_out(draw_plan(seed + 1'000)).history) << seed;
    }
}

TEST(Plan, DrawsEveryKindOfFault) {
    std::set<Kind> drawn;
    for (std::uint64_t seed = 0; seed < 1'000; ++seed) {
        for (const Fault& fault : draw_plan(seed).faults) drawn.insert(fault.kind);
    }
    EXPECT_EQ(drawn.size(), kinds);
}

TEST(Simulation, ClientsOfAQuorumLockOverAllOfItsNodes) {
    Counts counts;
    for (const std::uint64_t seed : seeds_of_quorums(10)) {
        const Verdict verdict = judge({seed});
        counts += verdict.findings.counts;
        for (std::size_t node = 0; node < draw_plan(seed).nodes; ++node) {
            const std::string exec = " s" + std::to_string(node) + " exec ";
            EXPECT_NE(verdict.history.find(exec), std::string::npos) << seed;
        }
    }
    EXPECT_GT(counts.by_quorum, 50U);
    EXPECT_EQ(counts.by_quorum, counts.grants);
    EXPECT_GT(counts.renewals, 50U);
}

TEST(Connection, ManyAreWaitedForAtOnce) {
    Plan plan = draw_plan(seeds_of_quorums(1).front());
    plan.nodes = 3;
    plan.latency = ms;
    Scene scene{plan};
    Process& process = scene.world.start_process("p", {});
    scene.servers[2].pause();
    std::vector<std::string> answers;
    std::vector<Time> times;
    scene.world.start_thread(process, [&] {
        Way<SimulatedQuorum> way{scene.network, scene.links_of(0)};
        std::vector<SimulatedConnection*> all;
        for (SimulatedConnection& one : way.connections) all.push_back(&one);
        const std::array<std::string_view, 1> ping{"PING"};
        const Command command{ping, {}};
        const Deadline by{std::chrono::milliseconds{100}};
        for (SimulatedConnection* const one : all) one->start({&command, 1}, by);
        std::vector<bool> over(all.size());
        while (std::find(over.begin(), over.end(), false) != over.end()) {
            SimulatedConnection::wait_any(all, by);
            for (std::size_t i = 0; i < all.size(); ++i) {
                Reply reply;
                if (over[i] || !all[i]->finish({&reply, 1})) continue;
                over[i] = true;
                answers.push_back(std::to_string(i) + " " + word_of(reply));
                times.push_back(scene.world.now());
            }
        }
    });
    ASSERT_TRUE(scene.world.run(never));
    ASSERT_EQ(answers.size(), 3U);
    std::sort(answers.begin(), answers.end());
    EXPECT_EQ(answers, (std::vector<std::string>{"0 ok", "1 ok", "2 unknown"}));
    EXPECT_LT(times[1], 20 * ms); // three ways of 3 ms at most, and what a thread may lose
    EXPECT_GE(times[2], 100 * ms);
    EXPECT_LT(times[2], 101 * ms);
}

TEST(Plan, AThirdOfTheSeedsIsAboutQuorums) {
    int quorums = 0;
    int of_five = 0;
    for (std::uint64_t seed = 0; seed < 1'000; ++seed) {
        const Plan plan = draw_plan(seed);
        if (plan.nodes > 1) ++quorums;
        if (plan.nodes == 5) ++of_five;
        EXPECT_EQ(plan.nodes % 2, 1U);
        for (const Fault& fault : plan.faults) {
            const bool of_quorums = fault.kind == Kind::misroute || fault.node;
            EXPECT_FALSE(of_quorums && plan.nodes == 1);
            EXPECT_FALSE(fault.kind == Kind::failover && plan.nodes > 1);
            EXPECT_TRUE(plan.nodes == 1 || strikes_client(fault.kind) || fault.node);
            EXPECT_LT(fault.node.value_or(0), plan.nodes);
        }
    }
    EXPECT_NEAR(quorums, 333, 60);
    EXPECT_GT(of_five, 30);
}

TEST(Plan, LeavesSeedsWithoutWhatMayBreakExclusion) {
    int strict = 0;
    for (std::uint64_t seed = 0; seed < 1'000; ++seed) {
        const std::vector<Fault> faults = draw_plan(seed).faults;
        const bool breaks = std::any_of(faults.begin(), faults.end(), [](const Fault& fault) {
            return breaks_exclusion(fault.kind);
        });
        strict += !breaks && !faults.empty() ? 1 : 0;
    }
    EXPECT_GT(strict, 400);
}

class Shrink : public ::testing::TestWithParam<bool> {};

TEST_P(Shrink, LeavesOutWhatHasNothingToDoWithIt) {
    std::uint64_t seed = 0;
    while (draw_plan(seed).faults.size() < 8 || draw_plan(seed).clients < 4 ||
           (draw_plan(seed).nodes > 1) != GetParam()) {
        ++seed;
    }
    const std::vector<Fault> faults = draw_plan(seed).faults;
    const auto needs = [](const Plan& plan, const Fault& fault) {
        return std::any_of(plan.faults.begin(), plan.faults.end(), [&](const Fault& kept) {
            return kept.at == fault.at && kept.kind == fault.kind;
        });
    };
    const Selection small = shrink({seed}, [&](const Selection& selection) {
        const Plan plan = selection.plan();
        const bool client =
            std::find(plan.without.begin(), plan.without.end(), 2U) == plan.without.end();
        return client && needs(plan, faults[1]) && needs(plan, faults[5]) && plan.horizon >= s / 2;
    });
    EXPECT_EQ(small.plan().faults.size(), 2U);
    EXPECT_EQ(small.without, (std::vector<std::size_t>{0, 1, 3}));
    EXPECT_LT(small.plan().horizon, s);
    EXPECT_NE(small.arguments().find("--seed " + std::to_string(seed) + " --drop 0,2,3,4,6"),
              std::string::npos)
        << small.arguments();
    EXPECT_EQ(small.plan().nodes > 1, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Worlds, Shrink, ::testing::Values(false, true), [](const auto& one) {
    return std::string{one.param ? "OfAQuorum" : "OfOneMaster"};
});

} // namespace
} // namespace leaselock::simulation
