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
        record.hold_end =
            max_hold == std::chrono::milliseconds::zero() ? Deadline::max() : later(now, max_hold);
        record.signal = Signal::none;
        (void)record.share().release(); // the schedule's
        schedule_.add(record, now, record.term().deadline(), record.hold_end);
        wake(io_word_);
        wake(watch_word_);
        return true;
    }

    void forget(LeaseRecord& record) noexcept override {
        Guarded lock{mutex_};
        drop(record);
        signaller_.settle(record, lock);
    }

    /// Ends it all: what is kept still is told so, and the threads are joined; one that runs the very
    /// callback that asks for this ends by itself.
    void stop() noexcept {
        Guarded lock{mutex_};
        stopping_ = true;
        while (schedule_.next_watched() != nullptr) {
            LeaseRecord& record = record_of(*schedule_.next_watched());
            if (record.term().expire(runtime_.now())) {
                signaller_.queue(record, true);
            } else {
                const bool held = record.term().deadline() != Deadline{};
                if (held) record.term().let_run_out(Loss::unkept);
                signaller_.queue(record, held);
            }
            drop(record);
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

    /// Takes a record out of the schedule; the caller holds it too.
    void drop(LeaseRecord& record) noexcept {
        if (!RenewalSchedule::holds(record)) return;
        schedule_.remove(record);
        const LeaseRecord::Handle schedules{&record};
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
        const std::size_t taken = schedule_.take(now, nodes_, by);
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
                !record.term().extend(read, lease_deadline(sent, record.ttl, record.margin()))) {
                outcome = {Answer::unknown, errc::too_late};
            }
            // what was given back meanwhile is nobody's renewal any more
            if (record.term().deadline() != Deadline{}) record.tell(Verb::renew, sent, outcome);
        }
        lock.lock();
        for (std::size_t i = 0; i < batch_.size; ++i)
            conclude(*held_[i], batch_.outcomes[i], sent, read);
        if (all_unsent) pause_until_ = later(read, pause());
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
            schedule_.renewed(record, sent, record.term().deadline(), record.hold_end);
        } else if (record.term().deadline() != Deadline{}) {
            schedule_.failed(record, read);
        }
    }

    /// Behind a batch of which not a byte could be sent: the next one fares no better just yet.
    [[nodiscard]] std::chrono::nanoseconds pause() const noexcept {
        std::chrono::nanoseconds shortest = std::chrono::milliseconds{100};
        for (std::size_t i = 0; i < batch_.size; ++i) {
            shortest = std::min(shortest, RenewalSchedule::retry_after(held_[i]->ttl));
        }
        return shortest;
    }

    // --- the threads that watch and signal

    void watch_loop(const Worker& self, Guarded& lock) noexcept {
        while (!stopping_) {
            if (watcher_ != nullptr && watcher_ != &self) {
                ++resting_;
                rest(watch_word_, Deadline::max(), lock);
                --resting_;
                continue;
            }
            watcher_ = &self;
            const Deadline now = runtime_.now();
            mark_lapsed(now);
            if (signaller_.pending() && signaller_.overdue_at() <= now) {
                hand_over_the_watch();
                signaller_.run(lock);
                continue;
            }
            const RenewalNode* const first = schedule_.next_watched();
            Deadline next = first != nullptr ? first->watch : Deadline::max();
            if (signaller_.pending()) next = std::min(next, signaller_.overdue_at());
            rest(watch_word_, next, lock);
        }
        if (watcher_ == &self) watcher_ = nullptr;
    }

    /// Marks every lease that has lapsed, or has been held for long enough, and queues its signal.
    void mark_lapsed(Deadline now) noexcept {
        while (RenewalNode* const node = schedule_.next_watched()) {
            if (node->watch > now) return;
            LeaseRecord& record = record_of(*node);
            const bool expired = record.term().expire(now);
            const Deadline end = record.term().deadline();
            if (end != Deadline{} && now < record.hold_end) {
                schedule_.watch_until(*node, std::min(end, record.hold_end)); // renewed just now
                continue;
            }
            const bool held = end != Deadline{};
            if (held) record.term().let_run_out(Loss::max_hold);
            // where the guard noticed first, it has told the observer
            signaller_.queue(record, expired || held);
            drop(record);
        }
    }

    /// Where no other thread can be had, the watch stops until the callbacks have returned: `owns_lock`
    /// is right all the same.
    void hand_over_the_watch() noexcept {
        watcher_ = nullptr;
        if (resting_ != 0) return wake(watch_word_);
        (void)start_worker(&RenewerCore::watch_loop);
    }

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
