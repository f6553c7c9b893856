#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/observer.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/lock/detail/lease_record.hpp>
#include <leaselock/lock/detail/wake_word.hpp>

#include <chrono>
#include <cstddef>
#include <mutex>
#include <thread>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// The losses that are still to be signalled, and the threads at it: a record is queued once, told to
/// its observer and then to its stop token, whose callbacks are the user's and may take as long as
/// they like, destroy the guard, or the renewer itself.
///
/// Everything here is called with the renewer's mutex held, and gives it up around the callbacks.
class Signaller {
public:
    using Guarded = std::unique_lock<std::mutex>;

    /// For so long a callback may hold up the signals behind it; then another thread goes on with them.
    static constexpr std::chrono::milliseconds patience{5};

    explicit Signaller(Runtime& runtime) noexcept : runtime_(runtime), done_(runtime) {}

    void queue(LeaseRecord& record, bool tells) noexcept {
        if (record.signal != Signal::none) return;
        record.signal = Signal::queued;
        record.signal_tells = tells;
        record.next_signal = nullptr;
        (void)record.share().release(); // the queue's, until it has been signalled
        (last_ != nullptr ? last_->next_signal : first_) = &record;
        last_ = &record;
    }
    [[nodiscard]] bool pending() const noexcept { return first_ != nullptr; }
    [[nodiscard]] std::size_t running() const noexcept { return signals_; }
    /// When the signals that wait are no longer to wait for those that are being given.
    [[nodiscard]] Deadline overdue_at() const noexcept {
        return signals_ == 0 ? (Deadline::min)() : overdue_at_;
    }

    /// Gives all signals that are queued, on this thread.
    void run(Guarded& lock) noexcept {
        while (LeaseRecord* const record = take_first()) signal(*record, lock);
    }

    /// Sees to it that nothing of this record is signalled any more when it returns, unless the
    /// callback that asks for it is its own.
    void settle(LeaseRecord& record, Guarded& lock) noexcept {
        if (record.signal == Signal::queued) {
            take_out(record);
            return signal(record, lock);
        }
        while (is_running(record) && !is_inside_a_callback()) done_.rest((Deadline::max)(), lock);
    }

    /// Tells the observer of a record, where `settle` can wait for it.
    void tell(LeaseRecord& record, Verb verb, Deadline start, const Outcome& outcome,
              Guarded& lock) noexcept {
        Running self{&record, std::this_thread::get_id(), running_};
        running_ = &self;
        lock.unlock();
        record.tell(verb, start, outcome);
        lock.lock();
        end(self);
    }

private:
    /// The user's code at work on a record; it lives on its thread's stack.
    struct Running {
        LeaseRecord* record = nullptr;
        std::thread::id thread{};
        Running* next = nullptr;
    };

    void signal(LeaseRecord& record, Guarded& lock) noexcept {
        const LeaseRecord::Handle hold{&record}; // the queue's share
        Running self{&record, std::this_thread::get_id(), running_};
        running_ = &self;
        record.signal = Signal::running;
        overdue_at_ = later(runtime_.now(), patience);
        ++signals_;
        const bool tells = record.signal_tells;
        lock.unlock();
        if (tells) record.tell_loss();
        record.request_stop();
        lock.lock();
        --signals_;
        end(self);
    }
    void end(const Running& self) noexcept {
        Running** at = &running_;
        while (*at != &self) at = &(*at)->next;
        *at = self.next;
        done_.wake();
    }
    [[nodiscard]] bool is_running(const LeaseRecord& record) const noexcept {
        for (const Running* at = running_; at != nullptr; at = at->next) {
            if (at->record == &record) return true;
        }
        return false;
    }
    [[nodiscard]] bool is_inside_a_callback() const noexcept {
        for (const Running* at = running_; at != nullptr; at = at->next) {
            if (at->thread == std::this_thread::get_id()) return true;
        }
        return false;
    }
    LeaseRecord* take_first() noexcept {
        LeaseRecord* const record = first_;
        if (record != nullptr) take_out(*record);
        return record;
    }
    void take_out(LeaseRecord& record) noexcept {
        LeaseRecord* before = nullptr;
        for (LeaseRecord* at = first_; at != &record; at = at->next_signal) before = at;
        (before != nullptr ? before->next_signal : first_) = record.next_signal;
        if (last_ == &record) last_ = before;
    }

    Runtime& runtime_;
    LeaseRecord* first_ = nullptr;
    LeaseRecord* last_ = nullptr;
    Running* running_ = nullptr;
    std::size_t signals_ = 0; ///< of those
    Deadline overdue_at_{};
    WakeWord done_;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
