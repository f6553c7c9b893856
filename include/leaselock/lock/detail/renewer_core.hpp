#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/lock/detail/keeper.hpp>
#include <leaselock/lock/detail/lease_record.hpp>
#include <leaselock/lock/detail/renewal_schedule.hpp>
#include <leaselock/lock/detail/signaller.hpp>
#include <leaselock/lock/detail/verbs.hpp>
#include <leaselock/lock/detail/workers.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// The threads of a renewer: one that renews, and one or more that watch and signal.
///
/// The watch is one thread's at a time. It marks what has lapsed, all of it, before it signals any of
/// it; and before it runs a user's callback it hands the watch to another thread, so that a slow one
/// delays no other lease. The thread that renews runs no callback at all.
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
        : backend_(backend), runtime_(runtime), signaller_(runtime), workers_(runtime) {}

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
        if (!schedule_.reserve()) return false;
        const Deadline now = runtime_.now();
        const bool bounded = max_hold != std::chrono::milliseconds::zero();
        record.signal = Signal::none;
        (void)record.share().release(); // the schedule's
        schedule_.add(record, now, record.term().deadline(),
                      bounded ? later(now, max_hold) : Deadline::max());
        pause_until_ = {};
        wake(io_word_);
        wake(watch_word_);
        return true;
    }

    void forget(LeaseRecord& record) noexcept override {
        Guarded lock{mutex_};
        // lost, and the watch has not got there yet
        if (drop(record) && record.term().loss() != Loss::none && !record.term().ending()) {
            signaller_.queue(record, false);
        }
        signaller_.settle(record, lock);
    }

    void lost(LeaseRecord& record) noexcept override {
        const Guarded lock{mutex_};
        if (!drop(record)) return;
        signaller_.queue(record, false);
        wake(watch_word_);
    }

    /// Ends it all: what is kept still is told so, and the threads are joined; one that runs the very
    /// callback that asks for this ends by itself.
    void stop() noexcept {
        Guarded lock{mutex_};
        stopping_ = true;
        while (RenewalNode* const node = schedule_.any()) {
            end_watch(record_of(*node), runtime_.now(), Loss::unkept);
        }
        wake(io_word_);
        wake(watch_word_);
        signaller_.run(lock);
        workers_.join(lock);
    }

private:
    ~RenewerCore() = default;

    static LeaseRecord& record_of(RenewalNode& node) noexcept {
        // every node of the schedule is a record: `keep` takes no other
        // NOLINTNEXTLINE(cppcoreguidelines-pro-type-static-cast-downcast)
        return static_cast<LeaseRecord&>(node);
    }

    void wake(std::atomic<std::uint32_t>& word) noexcept {
        word.fetch_add(1, std::memory_order_release);
        runtime_.notify_all(word);
    }
    /// Sleeps until somebody wakes `word`, or `by`; the mutex is free meanwhile.
    void rest(std::atomic<std::uint32_t>& word, Deadline by, Guarded& lock) noexcept {
        const std::uint32_t seen = word.load(std::memory_order_acquire);
        lock.unlock();
        (void)runtime_.wait_until(word, seen, by);
        lock.lock();
    }

    /// Takes a record out of the schedule; the caller holds it too. @return whether it was there
    bool drop(LeaseRecord& record) noexcept {
        if (!RenewalSchedule::holds(record)) return false;
        schedule_.remove(record);
        const LeaseRecord::Handle schedules{&record};
        return true;
    }
    /// Watches a lease no longer, and queues the signal for it.
    /// @param why it is let run out, where it is held still
    void end_watch(LeaseRecord& record, Deadline now, Loss why) noexcept {
        const LeaseRecord::Handle hold = record.share();
        LeaseTerm& term = record.term();
        const bool expired = term.expire(now);
        const bool held = term.deadline() != Deadline{};
        if (held) term.let_run_out(why);
        drop(record);
        // what was given back just now is no loss; where the guard noticed first, it has told
        if (term.loss() != Loss::none) signaller_.queue(record, expired || held);
    }

    [[nodiscard]] std::error_code start_worker(typename Threads::Loop loop) noexcept {
        retain(); // the thread's
        const std::error_code error = workers_.start(*this, loop);
        if (error) references_.fetch_sub(1, std::memory_order_relaxed);
        return error;
    }

    // --- the thread that renews

    void renew_loop(const Worker& /*self*/, Guarded& lock) noexcept {
        while (!stopping_) {
            const Deadline now = runtime_.now();
            const Deadline next = std::max(schedule_.next_batch(), pause_until_);
            if (next > now || schedule_.size() == 0) {
                rest(io_word_, schedule_.size() == 0 ? Deadline::max() : next, lock);
            } else {
                renew_batch(now, lock);
            }
        }
    }

    void renew_batch(Deadline now, Guarded& lock) noexcept {
        Deadline by{};
        const std::size_t taken = schedule_.take(now, answer_time_, nodes_, by);
        batch_.size = 0;
        for (std::size_t i = 0; i < taken; ++i) {
            LeaseRecord& record = record_of(*nodes_[i]);
            if (record.term().deadline() == Deadline{})
                continue; // ended: the watch sees to the rest
            held_[batch_.size] = record.share();
            batch_.leases[batch_.size++] = {record.key(), record.value(), {}, record.ttl_text()};
        }
        if (batch_.size == 0) return;
        lock.unlock();
        const Deadline sent = runtime_.now();
        Verbs<B>::renew_many(backend_, dialect_, batch_, by);
        const Deadline read = runtime_.now();
        bool all_unsent = true;
        for (std::size_t i = 0; i < batch_.size; ++i) {
            LeaseRecord& record = *held_[i];
            Outcome& outcome = batch_.outcomes[i];
            all_unsent = all_unsent && outcome.answer == Answer::unsent;
            // a 1 read after the deadline changes nothing
            if (outcome &&
                !record.term().extend(read, lease_deadline(sent, record.ttl, record.margin))) {
                outcome = {Answer::unknown, errc::too_late};
            }
        }
        lock.lock();
        for (std::size_t i = 0; i < batch_.size; ++i) {
            // what was given back meanwhile is nobody's renewal any more
            LeaseRecord& record = *held_[i];
            if (record.observed() && RenewalSchedule::holds(record)) {
                signaller_.tell(record, Verb::renew, sent, batch_.outcomes[i], lock);
            }
        }
        for (std::size_t i = 0; i < batch_.size; ++i)
            conclude(*held_[i], batch_.outcomes[i], sent, read);
        if (all_unsent) {
            pause_until_ = later(read, pause(read));
        } else {
            answer_time_ = read - sent;
        }
        lock.unlock();
        for (std::size_t i = 0; i < batch_.size; ++i) held_[i].reset();
        lock.lock();
    }

    void conclude(LeaseRecord& record, const Outcome& outcome, Deadline sent,
                  Deadline read) noexcept {
        if (!RenewalSchedule::holds(record)) return; // forgotten while it was on its way
        if (outcome.answer == Answer::no) {
            const Loss why = outcome.cause == errc::taken ? Loss::taken : Loss::gone;
            signaller_.queue(record, record.term().lose(why));
            drop(record);
            wake(watch_word_);
        } else if (outcome) {
            // ended all the same: too late, or given back; the watch or `forget` sees to that
            const Deadline end = record.term().deadline();
            if (end != Deadline{}) schedule_.renewed(record, sent, end);
        } else if (record.term().deadline() != Deadline{}) {
            schedule_.failed(record, read);
        }
    }

    /// Behind a batch of which not a byte could be sent: the next one fares no better just yet. Not so
    /// long that it would matter to the lease that ends first.
    [[nodiscard]] std::chrono::nanoseconds pause(Deadline now) const noexcept {
        const RenewalNode* const first = schedule_.any();
        if (first == nullptr || first->confirmed <= now) return std::chrono::milliseconds{1};
        return std::clamp<std::chrono::nanoseconds>((first->confirmed - now) / 20,
                                                    std::chrono::milliseconds{1},
                                                    std::chrono::milliseconds{100});
    }

    // --- the threads that watch and signal

    void watch_loop(const Worker& self, Guarded& lock) noexcept {
        while (!stopping_) {
            if (watcher_ != nullptr && watcher_ != &self) {
                if (resting_ != 0) return workers_.leave(self); // one understudy is enough
                ++resting_;
                rest(watch_word_, Deadline::max(), lock);
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
            Deadline next = schedule_.next_watch();
            if (signaller_.pending() && !crowded) next = std::min(next, signaller_.overdue_at());
            rest(watch_word_, next, lock);
        }
        if (watcher_ == &self) watcher_ = nullptr;
    }

    /// Marks every lease that has lapsed, or has been held for long enough, and queues its signal.
    void mark_lapsed(Deadline now) noexcept {
        while (RenewalNode* const node = schedule_.lapsed(now)) {
            LeaseRecord& record = record_of(*node);
            const Deadline end = record.term().deadline();
            if (end > now && now < record.hold_end) {
                schedule_.watch_until(*node, end); // renewed just now
            } else {
                end_watch(record, now, Loss::max_hold);
            }
        }
    }

    /// Where no other thread can be had, the watch stops until the callbacks have returned: `owns_lock`
    /// is right all the same.
    void hand_over_the_watch() noexcept {
        watcher_ = nullptr;
        if (resting_ != 0) return wake(watch_word_);
        (void)start_worker(&RenewerCore::watch_loop);
    }

    /// So many callbacks may be stuck at once, each with a thread to itself, before signals wait.
    static constexpr std::size_t most_signals = 32;

    B& backend_;
    Runtime& runtime_;
    std::atomic<std::uint32_t> references_{1};
    std::mutex mutex_;
    RenewalSchedule schedule_;
    Signaller signaller_;
    Threads workers_;
    bool renews_ = false;  ///< there is a thread for it
    bool watches_ = false; ///< there is at least one
    const Worker* watcher_ = nullptr;
    std::size_t resting_ = 0; ///< threads that could take the watch
    bool stopping_ = false;
    Deadline pause_until_{};
    std::chrono::nanoseconds answer_time_{}; ///< of the last batch that was answered
    std::atomic<std::uint32_t> io_word_{0};
    std::atomic<std::uint32_t> watch_word_{0};

    // of the thread that renews
    Dialect dialect_;
    RenewalBatch batch_;
    std::array<RenewalNode*, RenewalBatch::limit> nodes_{};
    std::array<LeaseRecord::Handle, RenewalBatch::limit> held_;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
