#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/testing/detail/seeded_random.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <system_error>
#include <vector>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace testing {

/// A runtime whose clock is moved by hand: an hour passes in no time, and exactly when the test says.
///
/// Its threads (`start_thread`) are real ones, but time waits for them: the clock moves from one
/// wake-up to the next, earliest first, and not on before all threads are asleep again in this
/// runtime. When `advance(10s)` returns, what had to happen within 10 s has happened.
///
/// Any other thread, such as the test's own, moves the clock itself when it sleeps, waits or joins:
/// up to what it waits for, no further. One such thread at a time gives repeatable runs.
///
/// A thread of the runtime that blocks in anything else counts as awake, and time stands still: hold
/// no mutex while sleeping here. Thread-safety: as `Runtime`, but `settle` and the destructor are
/// not for the runtime's own threads.
class ManualRuntime final : public Runtime {
    using Word = const std::atomic<std::uint32_t>;
    using Lock = std::unique_lock<std::mutex>;

public:
    /// @param seed of the random bytes. They repeat from run to run, so that two runtimes that talk to
    ///     one server need two seeds, or their tokens are the same.
    explicit ManualRuntime(std::uint64_t seed = 1) noexcept : random_(seed) {}
    /// Joins what was not joined: declare it behind what its threads use.
    ~ManualRuntime();
    ManualRuntime(const ManualRuntime&) = delete;
    ManualRuntime& operator=(const ManualRuntime&) = delete;

    /// Moves the clock, and lets everything happen on the way.
    void advance(LeaseClock::duration span) noexcept { advance_to(later(now(), span)); }
    /// As `advance`; a point that has passed only settles.
    void advance_to(Deadline target) noexcept;
    /// The machine sleeps for so long: the clock jumps, and what was due meanwhile happens behind that.
    void suspend(LeaseClock::duration span) noexcept;
    /// Returns when all threads of the runtime are asleep or have ended; time stands still.
    void settle() noexcept {
        Lock lock{mutex_};
        await_quiet(lock);
    }
    /// The earliest time at which a thread of the runtime wakes up; `Deadline::max()` for none.
    [[nodiscard]] Deadline next_wake_up() noexcept;

    /// From now on the source of random bytes fails with `why`; with none it works again.
    void fail_random(std::error_code why) noexcept {
        const Lock lock{mutex_};
        random_error_ = why;
    }
    /// From now on no thread can be started, for the reason `why`; with none it works again.
    void fail_threads(std::error_code why) noexcept {
        const Lock lock{mutex_};
        thread_error_ = why;
    }
    /// What `process()` says from now on, as if `fork` had returned in the child.
    void set_process(ProcessId process) noexcept { process_.store(process); }
    void become_another_process() noexcept { process_.fetch_add(1); }

    /// Starts at 1,000 s.
    [[nodiscard]] Deadline now() const noexcept override {
        return Deadline{LeaseClock::duration{now_.load(std::memory_order_acquire)}};
    }
    void sleep_until(Deadline by) noexcept override { (void)wait(nullptr, 0, by); }
    bool wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t old,
                    Deadline by) noexcept override {
        return wait(&word, old, by);
    }
    inline void notify_all(const std::atomic<std::uint32_t>& word) noexcept override;
    [[nodiscard]] inline std::error_code fill_random(std::span<std::byte> bytes) noexcept override;
    [[nodiscard]] ProcessId process() const noexcept override { return process_.load(); }
    [[nodiscard]] inline std::error_code start_thread(ThreadHandle& handle, void* (*entry)(void*),
                                                      void* argument) noexcept override;
    /// Where the thread needs time to end, the clock moves as if the caller slept meanwhile; a
    /// thread that ends without leaves the clock alone.
    inline void join(ThreadHandle handle) noexcept override;
    /// The destructor joins it.
    void detach(ThreadHandle /*handle*/) noexcept override {}

private:
    struct Thread {
        ManualRuntime& runtime;
        std::uintptr_t id = 0;
        void* (*entry)(void*) = nullptr;
        void* argument = nullptr;
        ThreadHandle system{};
        bool ended = false;
    };
    /// A thread of the runtime that is asleep. It lives on that thread's stack; whoever wakes it
    /// takes it off the list and counts it as awake at once, before it really runs.
    struct Sleeper {
        Word* word;
        const Thread* joined;
        Deadline by;
        bool awake = false;
        std::condition_variable woken{};
    };

    static const ManualRuntime*& runtime_of_this_thread() noexcept {
        static thread_local const ManualRuntime* runtime = nullptr;
        return runtime;
    }
    static void* run(void* thread) noexcept;
    static bool changed(Word* word, std::uint32_t old) noexcept {
        return word != nullptr && word->load(std::memory_order_acquire) != old;
    }

    bool wait(Word* word, std::uint32_t old, Deadline by) noexcept;
    bool wait_moving_the_clock(Lock& lock, Word* word, std::uint32_t old, Deadline by) noexcept;
    void sleep(Lock& lock, Word* word, const Thread* joined, Deadline by) noexcept;
    void await_quiet(Lock& lock) noexcept;
    [[nodiscard]] std::vector<Sleeper*>::iterator earliest() noexcept;
    bool wake_next(Deadline limit) noexcept;
    void wake(Sleeper& sleeper) noexcept;
    template <class Predicate>
    void wake_if(Predicate asked_for) noexcept;
    void move_clock(Deadline target) noexcept {
        if (target > now())
            now_.store(target.time_since_epoch().count(), std::memory_order_release);
    }

    std::atomic<LeaseClock::rep> now_{1'000'000'000'000};
    std::atomic<ProcessId> process_{1};
    std::mutex mutex_;
    std::condition_variable changed_; ///< for threads that are not the runtime's
    std::vector<Sleeper*> sleepers_;  ///< in the order in which they fell asleep
    std::vector<std::unique_ptr<Thread>> threads_;
    std::uintptr_t started_ = 0;
    std::size_t awake_ = 0; ///< threads of the runtime that are not asleep
    detail::SeededRandom random_;
    std::error_code random_error_;
    std::error_code thread_error_;
};

inline ManualRuntime::~ManualRuntime() {
    while (!threads_.empty()) {
        join({threads_.front()->id});
    }
}

inline void ManualRuntime::advance_to(Deadline target) noexcept {
    if (runtime_of_this_thread() == this) return sleep_until(target);
    Lock lock{mutex_};
    do await_quiet(lock);
    while (wake_next(target));
    move_clock(target);
}

inline void ManualRuntime::suspend(LeaseClock::duration span) noexcept {
    Lock lock{mutex_};
    await_quiet(lock);
    move_clock(later(now(), span));
    do await_quiet(lock);
    while (wake_next(now()));
}

inline Deadline ManualRuntime::next_wake_up() noexcept {
    const Lock lock{mutex_};
    const auto found = earliest();
    return found == sleepers_.end() ? (Deadline::max)() : (*found)->by;
}

inline void ManualRuntime::notify_all(Word& word) noexcept {
    const Lock lock{mutex_};
    wake_if([&](const Sleeper& sleeper) { return sleeper.word == &word; });
    changed_.notify_all();
}

inline std::error_code ManualRuntime::fill_random(std::span<std::byte> bytes) noexcept {
    const Lock lock{mutex_};
    if (random_error_) return random_error_;
    random_.fill(bytes);
    return {};
}

inline std::error_code ManualRuntime::start_thread(ThreadHandle& handle, void* (*entry)(void*),
                                                   void* argument) noexcept {
    const Lock lock{mutex_};
    if (thread_error_) return thread_error_;
    std::unique_ptr<Thread> thread{new (std::nothrow) Thread{*this, ++started_, entry, argument}};
    if (!thread) return std::make_error_code(std::errc::not_enough_memory);
    if (const auto error = system_runtime().start_thread(thread->system, &run, thread.get())) {
        return error;
    }
    ++awake_; // before it runs: the clock must not move meanwhile
    handle.value = thread->id;
    threads_.push_back(std::move(thread));
    return {};
}

inline void* ManualRuntime::run(void* thread) noexcept {
    Thread& self = *static_cast<Thread*>(thread);
    ManualRuntime& runtime = self.runtime;
    { const Lock started{runtime.mutex_}; }
    runtime_of_this_thread() = &runtime;
    void* const result = self.entry(self.argument);
    const Lock lock{runtime.mutex_};
    self.ended = true;
    --runtime.awake_;
    runtime.wake_if([&](const Sleeper& sleeper) { return sleeper.joined == &self; });
    runtime.changed_.notify_all();
    return result;
}

inline void ManualRuntime::join(ThreadHandle handle) noexcept {
    Lock lock{mutex_};
    const auto found = std::find_if(threads_.begin(), threads_.end(),
                                    [&](const auto& thread) { return thread->id == handle.value; });
    if (found == threads_.end()) return;
    const Thread& thread = **found;
    const bool ours = runtime_of_this_thread() == this;
    while (!thread.ended) {
        if (ours) {
            sleep(lock, nullptr, &thread, (Deadline::max)());
        } else if (awake_ != 0 || !wake_next((Deadline::max)())) {
            changed_.wait(lock);
        }
    }
    lock.unlock(); // the thread still takes it to get out
    system_runtime().join(thread.system);
    lock.lock();
    std::erase_if(threads_, [&](const auto& known) { return known.get() == &thread; });
}

inline bool ManualRuntime::wait(Word* word, std::uint32_t old, Deadline by) noexcept {
    Lock lock{mutex_};
    if (runtime_of_this_thread() != this) return wait_moving_the_clock(lock, word, old, by);
    while (!changed(word, old)) {
        if (now() >= by) return false;
        sleep(lock, word, nullptr, by);
    }
    return true;
}

inline bool ManualRuntime::wait_moving_the_clock(Lock& lock, Word* word, std::uint32_t old,
                                                 Deadline by) noexcept {
    while (!changed(word, old)) {
        if (now() >= by) return false;
        if (awake_ != 0) {
            changed_.wait(lock);
        } else if (!wake_next(by)) {
            if (by == (Deadline::max)()) {
                changed_.wait(lock); // nothing is due, ever: another thread has to notify
            } else {
                move_clock(by);
            }
        }
    }
    return true;
}

inline void ManualRuntime::sleep(Lock& lock, Word* word, const Thread* joined,
                                 Deadline by) noexcept {
    Sleeper self{word, joined, by};
    sleepers_.push_back(&self);
    if (--awake_ == 0) changed_.notify_all();
    self.woken.wait(lock, [&] { return self.awake; });
}

inline void ManualRuntime::await_quiet(Lock& lock) noexcept {
    changed_.wait(lock, [&] { return awake_ == 0; });
}

inline std::vector<ManualRuntime::Sleeper*>::iterator ManualRuntime::earliest() noexcept {
    return std::min_element(sleepers_.begin(), sleepers_.end(),
                            [](const Sleeper* a, const Sleeper* b) { return a->by < b->by; });
}

/// Wakes the one that is due first, if that is by `limit`, and moves the clock there. One at a time,
/// so that those who wake at the same moment run in the order in which they fell asleep.
inline bool ManualRuntime::wake_next(Deadline limit) noexcept {
    const auto found = earliest();
    if (found == sleepers_.end() || (*found)->by > limit || (*found)->by == (Deadline::max)()) {
        return false;
    }
    Sleeper& sleeper = **found;
    sleepers_.erase(found);
    move_clock(sleeper.by);
    wake(sleeper);
    return true;
}

inline void ManualRuntime::wake(Sleeper& sleeper) noexcept {
    sleeper.awake = true;
    ++awake_;
    sleeper.woken.notify_one();
}

template <class Predicate>
void ManualRuntime::wake_if(Predicate asked_for) noexcept {
    std::erase_if(sleepers_, [&](Sleeper* sleeper) {
        if (!asked_for(*sleeper)) return false;
        wake(*sleeper);
        return true;
    });
}

} // namespace testing
} // namespace LEASELOCK_ABI
} // namespace leaselock
