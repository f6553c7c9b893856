#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/lock/lease_lock.hpp>

#include <chrono>
#include <mutex>

#if LEASELOCK_DEFINES
#include <leaselock/core/deadline.hpp>
#include <leaselock/lock/detail/lease_record.hpp>
#include <leaselock/lock/detail/renewer_core.hpp>
#include <leaselock/lock/options.hpp>

#include <algorithm>
#include <new>
#include <system_error>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {
template <class B>
class RenewerCore;
}

/// Keeps leases while their holders work: renews each every third of its ttl, or a little earlier where
/// a write goes out for others anyway, and sets its stop token when it is lost, at its deadline at the
/// latest.
///
/// One renewer serves one lease or a hundred thousand, over one connection: one of its own, or one
/// that may be shared by threads. It has two threads from the first `keep` on, one that renews and one
/// that watches; where stop callbacks take long, more join them, 32 at most. Over a connection that
/// tells several servers apart (`RoutedConnection`) there is one that renews for each, 16 at most, so
/// that a slow or dead server starves no lease on another; where such a thread cannot be had, a lease
/// shares one that there is. A failed renewal is not a loss: it is tried again inside the lease.
///
/// A renewer that is destroyed first sets the stop tokens of what it still keeps, with `Loss::unkept`.
/// In a forked child it is inert, and so are its leases. It outlives neither its connection nor the
/// runtime. Stop callbacks run on its threads; a `std::stop_callback` that throws ends the process, as
/// the standard has it: catch inside.
///
/// Thread-safety: `keep` and `try_keep` may be called by any thread, of different guards.
/// Source: design, "Losing a lease".
template <class B>
class Renewer {
public:
    /// Sends nothing and starts nothing. The connection outlives the renewer.
    explicit Renewer(B& backend) noexcept;
    Renewer(const Renewer&) = delete;
    Renewer& operator=(const Renewer&) = delete;
    /// Waits for a renewal on its way and for callbacks that run, unless it is called by one of them.
    ~Renewer();

#if LEASELOCK_EXCEPTIONS
    /// `try_keep` that throws. @throws Error for any answer but yes
    void keep(LeaseLock<B>& lock, std::chrono::milliseconds max_hold = {}) {
        const Outcome outcome = try_keep(lock, max_hold);
        if (!outcome) detail::throw_error(outcome, "keep", lock.key());
    }
#endif

    /// Renews the lease from now on, at once for the first time, until it is given back, detached or
    /// lost. It moves along with its guard.
    /// @param max_hold after so long it is renewed no more: the stop token is set, `loss()` is `max_hold`,
    ///        and the lease runs out. At least the ttl; 0: no end.
    /// @return yes, or unsent: `errc::not_held`, `already_kept`, `invalid_argument` (a `max_hold` below the
    ///         ttl; the guard's own connection, where that may not be shared), `other_process`, or why a
    ///         thread could not be started or memory was short. The lease then runs on to its deadline.
    [[nodiscard]] Outcome try_keep(LeaseLock<B>& lock,
                                   std::chrono::milliseconds max_hold = {}) noexcept;

private:
    B& backend_;
    Runtime& runtime_;
    ProcessId process_;
    std::mutex mutex_; // of core_, until it is made
    detail::RenewerCore<B>* core_ = nullptr;
};

#if LEASELOCK_DEFINES
template <class B>
Renewer<B>::Renewer(B& backend) noexcept
    : backend_(backend), runtime_(detail::find_runtime(backend)), process_(runtime_.process()) {}

template <class B>
Renewer<B>::~Renewer() {
    if (core_ == nullptr || process_ != runtime_.process()) return; // a child leaves it alone
    core_->stop();
    core_->release();
}

template <class B>
Outcome Renewer<B>::try_keep(LeaseLock<B>& lock, std::chrono::milliseconds max_hold) noexcept {
    if (process_ != runtime_.process()) return {Answer::unsent, errc::other_process};
    if (!lock.owns_lock() || lock.record()->term().ending())
        return {Answer::unsent, errc::not_held};
    detail::LeaseRecord& record = *lock.record();
    if (&record.runtime() != &runtime_) {
        return {Answer::unsent, errc::invalid_argument,
                "guard and renewer measure time by different runtimes"};
    }
    if (record.keeper != nullptr) return {Answer::unsent, errc::already_kept};
    if (max_hold != std::chrono::milliseconds::zero() && max_hold < record.ttl) {
        ServerText text{"max_hold is "};
        detail::append_number(text, max_hold.count());
        text.append(" ms: it must be 0 or at least the ttl of ");
        detail::append_number(text, record.ttl.count());
        return {Answer::unsent, errc::invalid_argument, text.append(" ms").view()};
    }
    if constexpr (!requires { requires B::is_shareable; }) {
        if (lock.state_.backend() == &backend_) {
            return {
                Answer::unsent, errc::invalid_argument,
                "the renewer's connection is the guard's own, and may not be shared by threads"};
        }
    }
    if constexpr (requires { backend_.shares_connection(backend_); }) {
        if (lock.state_.backend()->shares_connection(backend_)) {
            return {Answer::unsent, errc::invalid_argument,
                    "a connection is in the renewer's quorum and in the guard's: give the renewer "
                    "connections of its own"};
        }
    }
    if (!record.make_stop_source()) {
        return {Answer::unsent, std::make_error_code(std::errc::not_enough_memory)};
    }
    const std::lock_guard guarded{mutex_};
    if (core_ == nullptr) core_ = new (std::nothrow) detail::RenewerCore<B>{backend_, runtime_};
    if (core_ == nullptr)
        return {Answer::unsent, std::make_error_code(std::errc::not_enough_memory)};
    if (const std::error_code error = core_->start()) {
        return {Answer::unsent, error, "no thread for the renewer"};
    }
    // before its threads know of it: from then on its losses are theirs to signal
    record.keeper = core_;
    core_->retain();
    if (!core_->keep(record, (std::min)(max_hold, max_ttl * 1000))) {
        record.keeper = nullptr;
        core_->release();
        return {Answer::unsent, std::make_error_code(std::errc::not_enough_memory)};
    }
    return {Answer::yes};
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
