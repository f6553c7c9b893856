#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/lock/detail/keeper.hpp>
#include <leaselock/lock/detail/lease_record.hpp>
#include <leaselock/lock/detail/renewal_lane.hpp>
#include <leaselock/lock/detail/renewal_lanes.hpp>
#include <leaselock/lock/detail/signaller.hpp>
#include <leaselock/lock/detail/wake_word.hpp>
#include <leaselock/lock/detail/workers.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// The threads of a renewer: one that renews for each server that its backend tells apart, and one or
/// more that watch and signal.
///
/// The watch is one thread's at a time. It marks what has lapsed, all of it, before it signals any of
/// it; and before it runs a user's callback it hands the watch to another thread, so that a slow one
/// delays no other lease. A thread that renews runs no callback at all.
///
/// Shared by the renewer, its threads and the guards that it keeps. The mutex is never held while
/// anything else than memory is touched.
template <class B>
class RenewerCore final : public Keeper {
    using Guarded = std::unique_lock<std::mutex>;
    using Threads = Workers<RenewerCore>;
    using Worker = typename Threads::Worker;
    friend Threads;

public:
    RenewerCore(B& backend, Runtime& runtime) noexcept
        : runtime_(runtime), signaller_(runtime), workers_(runtime), watch_word_(runtime),
          lanes_(backend, runtime, signaller_, watch_word_) {}

    void retain() noexcept override { references_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept override {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

    /// Starts the two threads that it takes at least, once.
    [[nodiscard]] std::error_code start() noexcept {
        const Guarded lock{mutex_};
        if (!renews_) {
            if (const auto error = start_worker(&RenewerCore::renew_loop)) return error;
            renews_ = true;
        }
        if (!watches_) {
            if (const auto error = start_worker(&RenewerCore::watch_loop)) return error;
            watches_ = true;
        }
        return {};
    }

    /// Takes a lease up; its first renewal is due at once. @return false when there is no memory
    [[nodiscard]] bool keep(LeaseRecord& record, std::chrono::milliseconds max_hold) noexcept {
        const Guarded lock{mutex_};
        if (!lane_of(record.key()).keep(record, max_hold)) return false;
        watch_word_.wake();
        return true;
    }

    void forget(LeaseRecord& record) noexcept override {
        Guarded lock{mutex_};
        // lost, and the watch has not got there yet
        if (lanes_.of(record).drop(record) && record.term().loss() != Loss::none &&
            !record.term().ending()) {
            signaller_.queue(record, false);
        }
        signaller_.settle(record, lock);
    }

    void lost(LeaseRecord& record) noexcept override {
        const Guarded lock{mutex_};
        if (!lanes_.of(record).drop(record)) return;
        signaller_.queue(record, false);
        watch_word_.wake();
    }

    /// Ends it all: what is kept still is told so, and the threads are joined; one that runs the very
    /// callback that asks for this ends by itself.
    void stop() noexcept {
        Guarded lock{mutex_};
        stopping_ = true;
        while (LeaseRecord* const record = lanes_.any()) {
            end_watch(*record, runtime_.now(), Loss::unkept);
        }
        lanes_.wake();
        watch_word_.wake();
        signaller_.run(lock);
        workers_.join(lock);
    }

private:
    ~RenewerCore() = default;

    /// Watches a lease no longer, and queues the signal for it.
    /// @param why it is let run out, where it is held still
    void end_watch(LeaseRecord& record, Deadline now, Loss why) noexcept {
        const LeaseRecord::Handle hold = record.share();
        LeaseTerm& term = record.term();
        const bool expired = term.expire(now);
        const bool held = term.deadline() != Deadline{};
        if (held) term.let_run_out(why);
        lanes_.of(record).drop(record);
        // what was given back just now is no loss; where the guard noticed first, it has told
        if (term.loss() != Loss::none) signaller_.queue(record, expired || held);
    }

    [[nodiscard]] std::error_code start_worker(typename Threads::Loop loop,
                                               std::size_t part = 0) noexcept {
        retain(); // the thread's
        const std::error_code error = workers_.start(*this, loop, part);
        if (error) references_.fetch_sub(1, std::memory_order_relaxed);
        return error;
    }

    // --- the threads that renew

    void renew_loop(const Worker& self, Guarded& lock) noexcept {
        RenewalLane<B>& lane = lanes_.at(self.part);
        const auto of_key = [this](std::string_view key) -> auto& { return lane_of(key); };
        while (!stopping_) lane.step(lock, of_key);
    }

    [[nodiscard]] RenewalLane<B>& lane_of(std::string_view key) noexcept {
        return lanes_.of_key(key, [this](std::size_t number) {
            return !start_worker(&RenewerCore::renew_loop, number);
        });
    }

    // --- the threads that watch and signal

    void watch_loop(const Worker& self, Guarded& lock) noexcept {
        while (!stopping_) {
            if (watcher_ != nullptr && watcher_ != &self) {
                if (resting_ != 0) return workers_.leave(self); // one understudy is enough
                ++resting_;
                watch_word_.rest((Deadline::max)(), lock);
                --resting_;
                continue;
            }
            watcher_ = &self;
            const Deadline now = runtime_.now();
            mark_lapsed(now);
            const bool crowded = signaller_.running() >= most_signals;
            if (signaller_.pending() && !crowded && signaller_.overdue_at() <= now) {
                hand_over_the_watch();
                signaller_.run(lock);
                continue;
            }
            Deadline next = lanes_.next_watch();
            if (signaller_.pending() && !crowded) next = (std::min)(next, signaller_.overdue_at());
            watch_word_.rest(next, lock);
        }
        if (watcher_ == &self) watcher_ = nullptr;
    }

    /// Marks every lease that has lapsed, or has been held for long enough, and queues its signal.
    void mark_lapsed(Deadline now) noexcept {
        while (LeaseRecord* const record = lanes_.lapsed(now)) {
            const Deadline end = record->term().deadline();
            if (end > now && now < record->hold_end) {
                lanes_.of(*record).schedule().watch_until(*record, end); // renewed just now
            } else {
                end_watch(*record, now, Loss::max_hold);
            }
        }
    }

    /// Where no other thread can be had, the watch stops until the callbacks have returned: `owns_lock`
    /// is right all the same.
    void hand_over_the_watch() noexcept {
        watcher_ = nullptr;
        if (resting_ != 0) return watch_word_.wake();
        (void)start_worker(&RenewerCore::watch_loop);
    }

    /// So many callbacks may be stuck at once, each with a thread to itself, before signals wait.
    static constexpr std::size_t most_signals = 32;

    Runtime& runtime_;
    std::atomic<std::uint32_t> references_{1};
    std::mutex mutex_;
    Signaller signaller_;
    Threads workers_;
    bool renews_ = false;  ///< there is a thread for the first lane
    bool watches_ = false; ///< there is at least one
    const Worker* watcher_ = nullptr;
    std::size_t resting_ = 0; ///< threads that could take the watch
    bool stopping_ = false;
    WakeWord watch_word_;
    RenewalLanes<B> lanes_;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
