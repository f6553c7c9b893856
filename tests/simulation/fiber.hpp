#pragma once
// SPDX-License-Identifier: MIT

#include <cstddef>
#include <functional>

#include <ucontext.h>

namespace leaselock::simulation {

/// A function on a stack of its own, which runs when it is resumed and gives way when it suspends
/// itself: a thread of the simulation. All fibers share one thread of the system, so that no two of
/// them ever run at once, and which one runs is decided by whoever resumes.
///
/// To `std::this_thread::get_id()` each fiber is a thread: the program is linked with
/// `--wrap=pthread_self`. A fiber that blocks in anything of the system's blocks all.
class Fiber {
public:
    explicit Fiber(std::function<void()> body);
    /// Of one that has ended, or was never resumed: what lives on its stack is not destroyed.
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    /// Runs it until it suspends or ends. Not to be called by a fiber.
    void resume();
    /// Gives way to whoever resumed the fiber that calls.
    static void suspend();
    [[nodiscard]] bool ended() const noexcept { return ended_; }
    /// The fiber that runs; null outside of any.
    [[nodiscard]] static Fiber* current() noexcept;

private:
    static void run();
    void enter() noexcept;
    void leave(bool for_good) noexcept;

    std::function<void()> body_;
    void* stack_;
    ucontext_t self_{};
    ucontext_t resumer_{};
    bool ended_ = false;

    // what the sanitizers want to know
    [[maybe_unused]] void* own_fake_stack_ = nullptr;
    [[maybe_unused]] void* resumers_fake_stack_ = nullptr;
    [[maybe_unused]] const void* resumers_stack_ = nullptr;
    [[maybe_unused]] std::size_t resumers_stack_size_ = 0;
    [[maybe_unused]] void* tsan_fiber_ = nullptr;
    [[maybe_unused]] void* tsan_resumer_ = nullptr;
};

} // namespace leaselock::simulation
