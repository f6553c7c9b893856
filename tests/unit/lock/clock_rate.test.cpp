// SPDX-License-Identifier: MIT
// A holder whose clock runs at another rate than Redis'.

#include "fixture.hpp"

#include <leaselock/lock/renewer.hpp>

#include <optional>

namespace leaselock::test {
namespace {

/// A machine whose clock runs slow, or fast, beside another: `rate` tenths of its speed.
class RateRuntime final : public Runtime {
public:
    RateRuntime(ManualRuntime& real, std::int64_t rate) : real_(real), rate_(rate) {}

    /// The same moment on the other clock.
    [[nodiscard]] Deadline to_real(Deadline mine) const noexcept {
        if (mine == Deadline::max() || mine == Deadline::min()) return mine;
        return start_ + (mine - start_) * 10 / rate_ + 1ns; // not before it
    }

    [[nodiscard]] Deadline now() const noexcept override {
        return start_ + (real_.now() - start_) * rate_ / 10;
    }
    void sleep_until(Deadline by) noexcept override { real_.sleep_until(to_real(by)); }
    bool wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t old,
                    Deadline by) noexcept override {
        return real_.wait_until(word, old, to_real(by));
    }
    void notify_all(const std::atomic<std::uint32_t>& word) noexcept override {
        real_.notify_all(word);
    }
    [[nodiscard]] std::error_code fill_random(std::span<std::byte> bytes) noexcept override {
        return real_.fill_random(bytes);
    }
    [[nodiscard]] ProcessId process() const noexcept override { return real_.process(); }
    [[nodiscard]] std::error_code start_thread(ThreadHandle& handle, void* (*entry)(void*),
                                               void* argument) noexcept override {
        return real_.start_thread(handle, entry, argument);
    }
    void join(ThreadHandle handle) noexcept override { real_.join(handle); }
    void detach(ThreadHandle handle) noexcept override { real_.detach(handle); }

private:
    ManualRuntime& real_;
    Deadline start_ = real_.now();
    std::int64_t rate_;
};

/// The way of that machine to a Redis that lives by the right clock.
struct RateConnection {
    static constexpr bool is_shareable = true;

    MemoryConnection& way;
    RateRuntime& runtime;

    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        way.call(commands, replies, runtime.to_real(by));
    }
    friend Runtime& runtime_of(const RateConnection& connection) noexcept {
        return connection.runtime;
    }
};

struct ClockRateTest : LockTest {
    MemoryConnection slow_way{server};
    RateRuntime slow_clock{clock, 9};
    RateConnection slow{slow_way, slow_clock};

    /// Lets A, whose clock is slow, hold a lease that ends unrenewed, and B try for it all the while.
    /// @return for how long both believed that they held it
    std::chrono::milliseconds overlap(std::optional<std::chrono::milliseconds> margin) {
        const Options options{.ttl = 10s, .margin = margin};
        LeaseLock a{slow, "k", options};
        LeaseLock b{redis, "k", options, std::defer_lock};
        EXPECT_TRUE(a.owns_lock());
        std::chrono::milliseconds both{0};
        while (a.owns_lock() || !b.owns_lock()) {
            if (!b.owns_lock()) (void)b.try_acquire();
            if (a.owns_lock() && b.owns_lock()) both += 1ms;
            clock.advance(1ms);
        }
        return both;
    }
};

TEST_F(ClockRateTest, C6AMarginOfATenthCoversAClockThatIsATenthSlow) {
    EXPECT_EQ(overlap(1s), 0ms);
}

TEST_F(ClockRateTest, C6TheDefaultMarginDoesNotCoverThat) { // what the margin is for
    EXPECT_GT(overlap(std::nullopt), 800ms);
}

TEST_F(ClockRateTest, C6ARenewerOnASlowClockKeepsItsLeaseAndSignalsBeforeRedisLetsGo) {
    MemoryConnection slow_wire{server};
    RateConnection wire{slow_wire, slow_clock};
    Renewer<RateConnection> renewer{wire};
    LeaseLock a{slow, "k", {.ttl = 10s, .margin = 1s}};
    renewer.keep(a);
    for (int i = 0; i < 60; ++i) {
        clock.advance(1s);
        ASSERT_TRUE(a.owns_lock());
        ASSERT_GE(server.pttl("k"), 1);
    }
    const std::stop_token told = a.stop_token();
    slow_wire.go_down();
    while (!told.stop_requested()) {
        ASSERT_GE(server.pttl("k"), 0) << "told too late";
        clock.advance(1ms);
    }
    EXPECT_EQ(a.loss(), Loss::expired);
    EXPECT_LE(server.pttl("k"), 100) << "nor much too early";
}

} // namespace
} // namespace leaselock::test
