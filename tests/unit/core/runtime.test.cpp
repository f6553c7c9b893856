// SPDX-License-Identifier: MIT
#include <leaselock/core/runtime.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>

#include <sys/wait.h>
#include <unistd.h>

namespace {

using leaselock::Deadline;
using leaselock::Runtime;
using leaselock::system_runtime;
using namespace std::chrono_literals;

TEST(SystemRuntime, SleepsUntilTheDeadlineNotBefore) {
    Runtime& runtime = system_runtime();
    const Deadline by = runtime.now() + 2ms;
    runtime.sleep_until(by);
    EXPECT_GE(runtime.now(), by);
    runtime.sleep_until(by);         // has passed
    runtime.sleep_until(Deadline{}); // long ago
    runtime.sleep_until(Deadline::min());
}

TEST(SystemRuntime, DoesNotWaitForAWordThatHasChanged) {
    const std::atomic<std::uint32_t> word{1};
    EXPECT_TRUE(system_runtime().wait_until(word, 0, Deadline::max()));
    EXPECT_TRUE(system_runtime().wait_until(word, 0, Deadline::min()));
}

TEST(SystemRuntime, AWaitEndsAtItsDeadline) {
    Runtime& runtime = system_runtime();
    const std::atomic<std::uint32_t> word{0};
    EXPECT_FALSE(runtime.wait_until(word, 0, Deadline{}));
    const Deadline by = runtime.now() + 2ms;
    EXPECT_FALSE(runtime.wait_until(word, 0, by));
    EXPECT_GE(runtime.now(), by);
}

TEST(SystemRuntime, AWaitForTheLeastDeadlineHasEndedToo) { // no overflow in what is left of it
    const std::atomic<std::uint32_t> word{0};
    EXPECT_FALSE(system_runtime().wait_until(word, 0, Deadline::min()));
}

TEST(SystemRuntime, NotifyWakesAThreadThatTakesNoSignals) {
    struct Shared {
        std::atomic<std::uint32_t> word{0};
        bool woken = false;
        bool takes_signals = true;
    } shared;
    leaselock::ThreadHandle handle;
    ASSERT_FALSE(system_runtime().start_thread(
        handle,
        [](void* argument) -> void* {
            Shared& s = *static_cast<Shared*>(argument);
            sigset_t blocked;
            pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
            s.takes_signals = sigismember(&blocked, SIGTERM) == 0;
            s.woken = system_runtime().wait_until(s.word, 0, Deadline::max());
            return nullptr;
        },
        &shared));
    shared.word.store(1, std::memory_order_release);
    system_runtime().notify_all(shared.word);
    system_runtime().join(handle);
    EXPECT_TRUE(shared.woken);
    EXPECT_FALSE(shared.takes_signals);
    sigset_t ours;
    pthread_sigmask(SIG_SETMASK, nullptr, &ours);
    EXPECT_EQ(sigismember(&ours, SIGTERM), 0) << "the starter's own mask has changed";
}

TEST(SystemRuntime, FillsAllOfTheBytes) {
    std::array<std::byte, 64> seen{};
    for (int i = 0; i < 64; ++i) { // each byte is zero 64 times in a row once in 2^512
        std::array<std::byte, 64> bytes{};
        ASSERT_FALSE(system_runtime().fill_random(bytes));
        for (std::size_t at = 0; at < bytes.size(); ++at) seen[at] |= bytes[at];
    }
    for (const std::byte b : seen) EXPECT_NE(b, std::byte{0});
    EXPECT_FALSE(system_runtime().fill_random({}));
}

TEST(SystemRuntime, P4_AForkedChildIsAnotherProcess) {
    const leaselock::ProcessId here = system_runtime().process();
    EXPECT_EQ(system_runtime().process(), here);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const leaselock::ProcessId there = system_runtime().process();
        _exit(there != here && there == system_runtime().process() ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(system_runtime().process(), here) << "the parent notices nothing";
}

struct Plain {};
struct Own {
    leaselock::SystemRuntime runtime;
    friend Runtime& runtime_of(Own& own) noexcept { return own.runtime; }
};

TEST(FindRuntime, AsksTheConnectionElseTheSystem) {
    Plain plain;
    Own own;
    EXPECT_EQ(&leaselock::detail::find_runtime(plain), &system_runtime());
    EXPECT_EQ(&leaselock::detail::find_runtime(own), &own.runtime);
    EXPECT_EQ(&system_runtime(), &system_runtime());
}

} // namespace
