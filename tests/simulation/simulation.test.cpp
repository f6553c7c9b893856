// SPDX-License-Identifier: MIT

#include "simulation/simulation.hpp"
#include "simulation/fiber.hpp"
#include "simulation/plan.hpp"
#include "simulation/shrink.hpp"
#include "simulation/world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
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

TEST(Simulation, RepeatsItselfToTheByte) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
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

TEST(Shrink, LeavesOutWhatHasNothingToDoWithIt) {
    std::uint64_t seed = 0;
    while (draw_plan(seed).faults.size() < 8 || draw_plan(seed).clients < 4) ++seed;
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
}

} // namespace
} // namespace leaselock::simulation
