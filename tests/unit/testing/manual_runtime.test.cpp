// SPDX-License-Identifier: MIT
#include <leaselock/testing/manual_runtime.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

namespace {

using leaselock::Deadline;
using leaselock::ThreadHandle;
using leaselock::testing::ManualRuntime;
using namespace std::chrono_literals;
using Word = std::atomic<std::uint32_t>;

/// Runs functions on threads of the runtime, and notes down who did what when.
struct Stage {
    std::mutex mutex;
    std::vector<std::string> lines;
    std::vector<std::unique_ptr<std::function<void()>>> bodies;
    ManualRuntime runtime; // last: its destructor joins those who use the others
    const Deadline begin = runtime.now();

    ThreadHandle start(std::function<void()> body) {
        bodies.push_back(std::make_unique<std::function<void()>>(std::move(body)));
        ThreadHandle handle;
        EXPECT_FALSE(runtime.start_thread(
            handle,
            [](void* f) -> void* {
                (*static_cast<std::function<void()>*>(f))();
                return nullptr;
            },
            bodies.back().get()));
        return handle;
    }
    std::chrono::milliseconds elapsed() const {
        return std::chrono::duration_cast<std::chrono::milliseconds>(runtime.now() - begin);
    }
    void note(const std::string& what) {
        const std::lock_guard lock{mutex};
        lines.push_back(std::to_string(elapsed().count()) + " " + what);
    }
    Deadline in(std::chrono::milliseconds span) const { return begin + span; }
};
using Lines = std::vector<std::string>;

TEST(ManualRuntime, ClockStandsUntilItIsMoved) {
    ManualRuntime runtime;
    const Deadline begin = runtime.now();
    EXPECT_GT(begin.time_since_epoch(), 0s);
    EXPECT_EQ(runtime.now(), begin);
    runtime.advance(3s);
    EXPECT_EQ(runtime.now(), begin + 3s);
    runtime.advance_to(begin + 5s);
    EXPECT_EQ(runtime.now(), begin + 5s);
    runtime.advance_to(begin); // never back
    runtime.advance(-1s);
    EXPECT_EQ(runtime.now(), begin + 5s);
    runtime.advance(leaselock::LeaseClock::duration::max());
    EXPECT_EQ(runtime.now(), Deadline::max());
}

TEST(ManualRuntime, TheTestsOwnSleepMovesTheClock) {
    ManualRuntime runtime;
    const Deadline begin = runtime.now();
    runtime.sleep_until(begin + 2s);
    EXPECT_EQ(runtime.now(), begin + 2s);
    runtime.sleep_until(begin);
    runtime.sleep_until(Deadline::min());
    EXPECT_EQ(runtime.now(), begin + 2s);
    const Word word{0};
    EXPECT_FALSE(runtime.wait_until(word, 0, begin + 3s));
    EXPECT_EQ(runtime.now(), begin + 3s);
    EXPECT_TRUE(runtime.wait_until(word, 1, begin + 9s));
    EXPECT_FALSE(runtime.wait_until(word, 0, begin));
    EXPECT_EQ(runtime.now(), begin + 3s);
}

TEST(ManualRuntime, AdvanceWalksFromWakeUpToWakeUp) {
    Stage stage;
    for (const int seconds : {3, 1, 2, 7}) {
        stage.start([&stage, seconds] {
            stage.runtime.sleep_until(stage.in(seconds * 1000ms));
            stage.note("slept " + std::to_string(seconds));
        });
    }
    stage.runtime.advance(5s);
    EXPECT_EQ(stage.lines, (Lines{"1000 slept 1", "2000 slept 2", "3000 slept 3"}));
    EXPECT_EQ(stage.elapsed(), 5s);
    stage.runtime.advance(2s - 1ns);
    EXPECT_EQ(stage.lines.size(), 3U);
    stage.runtime.advance(1ns);
    EXPECT_EQ(stage.lines.back(), "7000 slept 7");
}

TEST(ManualRuntime, WhatIsDueAtTheTargetHasHappened) {
    for (int round = 0; round < 200; ++round) {
        Stage stage;
        int ticks = 0; // no atomic: the clock's own order has to be enough
        stage.start([&] {
            for (int i = 1; i <= 10; ++i) {
                stage.runtime.sleep_until(stage.in(i * 100ms));
                ++ticks;
            }
        });
        stage.runtime.advance(500ms);
        EXPECT_EQ(ticks, 5);
        stage.runtime.advance(10s);
        EXPECT_EQ(ticks, 10);
    }
}

TEST(ManualRuntime, SleepersOfOneMomentWakeInTheOrderInWhichTheyFellAsleep) {
    Stage stage;
    for (int i = 0; i < 8; ++i) {
        stage.start([&stage, i] {
            stage.runtime.sleep_until(stage.in(1s));
            stage.note(std::to_string(i));
        });
        stage.runtime.settle();
    }
    stage.runtime.advance(1s);
    EXPECT_EQ(stage.lines, (Lines{"1000 0", "1000 1", "1000 2", "1000 3", "1000 4", "1000 5",
                                  "1000 6", "1000 7"}));
}

TEST(ManualRuntime, ANotifiedThreadIsAwakeFromTheNotifyOn) {
    Word word{0};
    Word stop{0};
    int seen = 0;
    Stage stage; // joins what uses them
    stage.start([&] {
        for (std::uint32_t last = 0; stop.load() == 0; last = word.load()) {
            ASSERT_TRUE(stage.runtime.wait_until(word, last, Deadline::max()));
            ++seen;
        }
    });
    for (int i = 1; i <= 2000; ++i) { // each without a pause, where a wake-up could get lost
        stage.runtime.settle();
        word.fetch_add(1);
        stage.runtime.notify_all(word);
        stage.runtime.settle();
        ASSERT_EQ(seen, i);
    }
    stop = 1;
    word.fetch_add(1);
    stage.runtime.notify_all(word);
    EXPECT_EQ(stage.elapsed(), 0s);
}

TEST(ManualRuntime, ANotifyWithoutAChangeWakesNobody) {
    Stage stage;
    Word word{0};
    Word other{0};
    stage.start([&] {
        stage.note(stage.runtime.wait_until(word, 0, stage.in(5s)) ? "changed" : "timed out");
    });
    stage.runtime.settle();
    stage.runtime.notify_all(word);
    other = 1;
    stage.runtime.notify_all(other);
    stage.runtime.advance(4999ms);
    EXPECT_TRUE(stage.lines.empty());
    stage.runtime.advance(1ms);
    EXPECT_EQ(stage.lines, Lines{"5000 timed out"});
}

TEST(ManualRuntime, AChangeWithoutANotifyIsSeenAtTheDeadline) {
    Stage stage;
    Word word{0};
    stage.start([&] {
        stage.note(stage.runtime.wait_until(word, 0, stage.in(5s)) ? "changed" : "timed out");
    });
    stage.runtime.settle();
    word = 1;
    stage.runtime.advance(5s);
    EXPECT_EQ(stage.lines, Lines{"5000 changed"});
}

TEST(ManualRuntime, NotifyWakesAllWhoWaitOnTheWord) {
    Stage stage;
    Word word{0};
    for (int i = 0; i < 5; ++i) {
        stage.start([&] {
            EXPECT_TRUE(stage.runtime.wait_until(word, 0, Deadline::max()));
            stage.note("woken");
        });
    }
    stage.start([&] {
        stage.runtime.sleep_until(stage.in(2s));
        word = 1;
        stage.runtime.notify_all(word);
    });
    stage.runtime.advance(10s);
    EXPECT_EQ(stage.lines, Lines(5, "2000 woken"));
}

TEST(ManualRuntime, TheTestsOwnWaitEndsWhereTheWordChanges) {
    Stage stage;
    Word word{0};
    stage.start([&] {
        stage.runtime.sleep_until(stage.in(2s));
        word = 1;
        stage.runtime.notify_all(word);
        stage.runtime.sleep_until(stage.in(20s));
        stage.note("later");
    });
    EXPECT_TRUE(stage.runtime.wait_until(word, 0, stage.in(10s)));
    EXPECT_EQ(stage.elapsed(), 2s);
    EXPECT_FALSE(stage.runtime.wait_until(word, 1, stage.in(10s)));
    EXPECT_EQ(stage.elapsed(), 10s);
    EXPECT_TRUE(stage.lines.empty());
}

TEST(ManualRuntime, TheTestsOwnWaitForEverEndsToo) {
    Stage stage;
    Word word{0};
    stage.start([&] {
        for (int i = 1; i <= 100; ++i) stage.runtime.sleep_until(stage.in(i * 1s));
        word = 1;
        stage.runtime.notify_all(word);
    });
    EXPECT_TRUE(stage.runtime.wait_until(word, 0, Deadline::max()));
    EXPECT_EQ(stage.elapsed(), 100s);
}

TEST(ManualRuntime, JoinLeavesTheClockAloneWhereItCan) {
    Stage stage;
    Word stop{0};
    const ThreadHandle handle = stage.start([&] {
        while (!stage.runtime.wait_until(stop, 0, stage.runtime.now() + 1s)) stage.note("tick");
    });
    stage.runtime.advance(3s);
    stop = 1;
    stage.runtime.notify_all(stop);
    stage.runtime.join(handle);
    EXPECT_EQ(stage.elapsed(), 3s);
    EXPECT_EQ(stage.lines, (Lines{"1000 tick", "2000 tick", "3000 tick"}));
}

TEST(ManualRuntime, JoinLetsTimePassWhereTheThreadNeedsIt) {
    Stage stage;
    const ThreadHandle handle = stage.start([&] { stage.runtime.sleep_until(stage.in(4s)); });
    stage.start([&] { stage.runtime.sleep_until(stage.in(60s)); });
    stage.runtime.join(handle);
    EXPECT_EQ(stage.elapsed(), 4s);
}

TEST(ManualRuntime, ThreadsStartAndJoinThreads) {
    Stage stage;
    stage.start([&] {
        const ThreadHandle inner = stage.start([&] {
            stage.runtime.sleep_until(stage.in(3s));
            stage.note("inner");
        });
        stage.runtime.join(inner);
        stage.note("outer");
    });
    stage.runtime.advance(2s);
    EXPECT_TRUE(stage.lines.empty());
    stage.runtime.advance(2s);
    EXPECT_EQ(stage.lines, (Lines{"3000 inner", "3000 outer"}));
}

TEST(ManualRuntime, AThreadThatAdvancesSleeps) {
    Stage stage;
    stage.start([&] {
        stage.runtime.advance(2s);
        stage.note("there");
    });
    stage.runtime.settle();
    EXPECT_EQ(stage.elapsed(), 0s);
    stage.runtime.advance(5s);
    EXPECT_EQ(stage.lines, Lines{"2000 there"});
}

TEST(ManualRuntime, NextWakeUpIsThatOfTheEarliestSleeper) {
    Stage stage;
    EXPECT_EQ(stage.runtime.next_wake_up(), Deadline::max());
    for (const auto span : {9s, 4s, 6s}) {
        stage.start([&stage, span] { stage.runtime.sleep_until(stage.in(span)); });
    }
    stage.runtime.settle();
    EXPECT_EQ(stage.runtime.next_wake_up(), stage.in(4s));
    stage.runtime.advance(5s);
    EXPECT_EQ(stage.runtime.next_wake_up(), stage.in(6s));
}

TEST(ManualRuntime, TheDestructorJoins) {
    Word done{0};
    {
        Stage stage;
        stage.start([&] {
            stage.runtime.sleep_until(stage.in(1h));
            done = 1;
        });
    }
    EXPECT_EQ(done, 1U);
}

TEST(ManualRuntime, SameSeedSameBytes) {
    const auto draw = [](ManualRuntime& runtime) {
        std::array<std::byte, 32> bytes{};
        EXPECT_FALSE(runtime.fill_random(bytes));
        return bytes;
    };
    ManualRuntime a{7};
    ManualRuntime b{7};
    ManualRuntime c{8};
    const auto first = draw(a);
    EXPECT_EQ(first, draw(b));
    EXPECT_NE(first, draw(c));
    EXPECT_NE(first, draw(a)) << "the stream goes on";
}

TEST(ManualRuntime, P16_RandomBytesFailOnDemand) {
    ManualRuntime runtime;
    std::array<std::byte, 4> bytes{};
    runtime.fail_random(std::make_error_code(std::errc::io_error));
    EXPECT_EQ(runtime.fill_random(bytes), std::errc::io_error);
    EXPECT_EQ(bytes, (std::array<std::byte, 4>{}));
    runtime.fail_random({});
    EXPECT_FALSE(runtime.fill_random(bytes));
}

TEST(ManualRuntime, P10_ThreadsFailOnDemand) {
    ManualRuntime runtime;
    runtime.fail_threads(std::make_error_code(std::errc::resource_unavailable_try_again));
    ThreadHandle handle;
    const auto entry = [](void*) -> void* { return nullptr; };
    EXPECT_EQ(runtime.start_thread(handle, entry, nullptr),
              std::errc::resource_unavailable_try_again);
    runtime.settle();
    runtime.fail_threads({});
    ASSERT_FALSE(runtime.start_thread(handle, entry, nullptr));
    runtime.join(handle);
}

TEST(ManualRuntime, P4_BecomesAnotherProcess) {
    ManualRuntime runtime;
    const leaselock::ProcessId parent = runtime.process();
    EXPECT_EQ(runtime.process(), parent);
    runtime.become_another_process();
    EXPECT_NE(runtime.process(), parent);
    runtime.set_process(parent);
    EXPECT_EQ(runtime.process(), parent);
}

TEST(ManualRuntime, ACrowdRunsTheSameEveryTime) {
    const auto run = [] {
        Stage stage;
        for (int i = 1; i <= 6; ++i) {
            stage.start([&stage, i] {
                for (int n = 1; n <= 20; ++n) {
                    stage.runtime.sleep_until(stage.in(i * n * 10ms));
                    stage.note(std::to_string(i));
                }
            });
            stage.runtime.settle();
        }
        stage.runtime.advance(2s);
        return stage.lines;
    };
    const Lines first = run();
    EXPECT_EQ(first.size(), 120U);
    for (int round = 0; round < 20; ++round) EXPECT_EQ(run(), first);
}

} // namespace
