#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/observer.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/lock/detail/lease_record.hpp>
#include <leaselock/lock/detail/renewal_schedule.hpp>
#include <leaselock/lock/detail/signaller.hpp>
#include <leaselock/lock/detail/verbs.hpp>
#include <leaselock/lock/detail/wake_word.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/script_call.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

[[nodiscard]] inline LeaseRecord& record_of(RenewalNode& node) noexcept {
    // every node of a schedule is a record: `keep` takes no other
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-static-cast-downcast)
    return static_cast<LeaseRecord&>(node);
}

/// The leases that a renewer keeps on one server, and the thread that renews them: one write in flight.
///
/// Called with the renewer's mutex held; `step` gives it up while it sleeps and while it waits for the
/// server. A lease is in one lane at a time, and moves to another where its key does.
/// Source: design, "Losing a lease".
template <class B>
class RenewalLane {
public:
    using Guarded = std::unique_lock<std::mutex>;

    /// @param number under which records know it
    /// @param watch woken when a loss is to be signalled
    RenewalLane(std::uint8_t number, B& backend, Runtime& runtime, Signaller& signaller,
                WakeWord& watch) noexcept
        : number_(number), backend_(backend), runtime_(runtime), signaller_(signaller),
          watch_(watch), word_(runtime) {}

    [[nodiscard]] RenewalSchedule& schedule() noexcept { return schedule_; }
    void wake() noexcept { word_.wake(); }

    /// Takes a lease up; its first renewal is due at once. @return false when there is no memory
    [[nodiscard]] bool keep(LeaseRecord& record, std::chrono::milliseconds max_hold) noexcept {
        if (!schedule_.reserve()) return false;
        const Deadline now = runtime_.now();
        const bool bounded = max_hold != std::chrono::milliseconds::zero();
        record.signal = Signal::none;
        (void)record.share().release(); // the schedule's
        pause_until_ = {};
        add(record, now, record.term().deadline(),
            bounded ? later(now, max_hold) : (Deadline::max)());
        return true;
    }

    /// Takes a record out of the schedule; the caller holds it too. @return whether it was there
    bool drop(LeaseRecord& record) noexcept {
        if (!RenewalSchedule::holds(record)) return false;
        schedule_.remove(record);
        const LeaseRecord::Handle schedules{&record};
        return true;
    }

    /// No lease, and no write on its way.
    [[nodiscard]] bool idle() const noexcept { return !busy_ && schedule_.size() == 0; }
    /// An idle lane is another server's from now on.
    void forget_the_server() noexcept {
        dialect_.reset();
        pause_until_ = {};
        answer_time_ = {};
    }

    /// What its thread does over and over: renews a batch, or sleeps until one is due.
    /// @param lane_of the lane of the server on which a key lives now, for a backend that knows
    template <class LaneOf>
    void step(Guarded& lock, const LaneOf& lane_of) noexcept {
        const Deadline now = runtime_.now();
        const Deadline next = (std::max)(schedule_.next_batch(), pause_until_);
        if (next > now) return word_.rest(next, lock);
        const Deadline by = take_batch(now, lane_of);
        if (batch_.size == 0) { // all of it went elsewhere
            lock.unlock();      // there may be many more: others have their turn in between
            return lock.lock();
        }
        busy_ = true;
        lock.unlock();
        const Deadline sent = runtime_.now();
        Verbs<B>::renew_many(backend_, dialect_, batch_, by);
        const Deadline read = runtime_.now();
        const bool all_unsent = extend_terms(sent, read);
        lock.lock();
        tell_observers(sent, lock);
        for (std::size_t i = 0; i < batch_.size; ++i)
            conclude(*held_[i], batch_.outcomes[i], sent, read, lane_of);
        hand_over_the_line(read, lane_of);
        if (all_unsent) {
            pause_until_ = later(read, pause(read));
        } else {
            answer_time_ = read - sent;
        }
        lock.unlock();
        for (std::size_t i = 0; i < batch_.size; ++i) held_[i].reset();
        lock.lock();
        busy_ = false;
    }

private:
    void add(LeaseRecord& record, Deadline due, Deadline end, Deadline hold_end) noexcept {
        record.lane = number_;
        schedule_.add(record, due, end, hold_end);
        wake();
    }

    /// Moves a lease to where its key lives now. @return false: it is there, or there is no memory
    template <class LaneOf>
    [[nodiscard]] bool hand_over(LeaseRecord& record, const LaneOf& lane_of) noexcept {
        if constexpr (RoutedConnection<B>) {
            RenewalLane& to = lane_of(record.key());
            if (&to == this || !to.schedule_.reserve()) return false;
            schedule_.remove(record);
            to.add(record, record.due, record.confirmed, record.hold_end);
            return true;
        } else {
            return false;
        }
    }

    /// Behind a write that failed, what is in line for the next one may live elsewhere by now: then it
    /// does not wait until what lives here still has had its turn. So many are looked at in one go as
    /// take no noticeable time.
    template <class LaneOf>
    void hand_over_the_line(Deadline now, const LaneOf& lane_of) noexcept {
        if constexpr (RoutedConnection<B>) {
            if (!any_failed()) return;
            schedule_.line_up(now);
            std::size_t at = 0;
            for (std::size_t look = 0; look < 16 * RenewalBatch::limit; ++look) {
                if (at >= schedule_.ready().size()) return;
                if (!hand_over(record_of(*schedule_.ready()[at]), lane_of)) ++at;
            }
        }
    }
    [[nodiscard]] bool any_failed() const noexcept {
        const auto outcomes = std::span{batch_.outcomes}.first(batch_.size);
        return std::any_of(outcomes.begin(), outcomes.end(), [](const Outcome& outcome) {
            return !outcome && outcome.answer != Answer::no;
        });
    }

    /// Fills the batch with what is due here. A lease whose key has moved is handed over instead.
    /// @return the end of the time that it may take
    template <class LaneOf>
    Deadline take_batch(Deadline now, const LaneOf& lane_of) noexcept {
        Deadline by{};
        const std::size_t taken = schedule_.take(now, answer_time_, nodes_, by);
        batch_.size = 0;
        for (std::size_t i = 0; i < taken; ++i) {
            LeaseRecord& record = record_of(*nodes_[i]);
            if (record.term().deadline() == Deadline{})
                continue; // ended: the watch sees to the rest
            if (hand_over(record, lane_of)) continue;
            held_[batch_.size] = record.share();
            batch_.leases[batch_.size++] = {record.key(), record.value(), {}, record.ttl_text()};
        }
        return by;
    }

    /// Without the mutex. @return whether not a byte of the batch could be sent
    bool extend_terms(Deadline sent, Deadline read) noexcept {
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
        return all_unsent;
    }

    void tell_observers(Deadline sent, Guarded& lock) noexcept {
        for (std::size_t i = 0; i < batch_.size; ++i) {
            // what was given back meanwhile is nobody's renewal any more
            LeaseRecord& record = *held_[i];
            if (record.observed() && RenewalSchedule::holds(record)) {
                signaller_.tell(record, Verb::renew, sent, batch_.outcomes[i], lock);
            }
        }
    }

    template <class LaneOf>
    void conclude(LeaseRecord& record, const Outcome& outcome, Deadline sent, Deadline read,
                  const LaneOf& lane_of) noexcept {
        if (!RenewalSchedule::holds(record)) return; // forgotten while it was on its way
        if (outcome.answer == Answer::no) {
            const Loss why = outcome.cause == errc::taken ? Loss::taken : Loss::gone;
            signaller_.queue(record, record.term().lose(why));
            drop(record);
            watch_.wake();
        } else if (outcome) {
            // ended all the same: too late, or given back; the watch or `forget` sees to that
            const Deadline end = record.term().deadline();
            if (end != Deadline{}) schedule_.renewed(record, sent, end);
        } else if (record.term().deadline() != Deadline{}) {
            schedule_.failed(record, read);
            // perhaps because its key has moved: then not once more behind what is stuck here
            (void)hand_over(record, lane_of);
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

    const std::uint8_t number_;
    B& backend_;
    Runtime& runtime_;
    Signaller& signaller_;
    WakeWord& watch_;
    WakeWord word_;
    RenewalSchedule schedule_;
    Deadline pause_until_{};
    std::chrono::nanoseconds answer_time_{}; ///< of the last batch that was answered
    bool busy_ = false;                      ///< with a batch

    // of its thread
    Dialect dialect_;
    RenewalBatch batch_;
    std::array<RenewalNode*, RenewalBatch::limit> nodes_{};
    std::array<LeaseRecord::Handle, RenewalBatch::limit> held_;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
