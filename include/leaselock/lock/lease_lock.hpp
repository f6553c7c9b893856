#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/observer.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/core/token.hpp>
#include <leaselock/lock/detail/guard_state.hpp>
#include <leaselock/lock/detail/lease_record.hpp>
#include <leaselock/lock/lease.hpp>
#include <leaselock/lock/options.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <utility>

namespace leaselock {
inline namespace LEASELOCK_ABI {

template <class B>
class Renewer;

/// A lease lock on one key, as a RAII guard: taken with one `SET key token NX PX ttl`, renewed and
/// released through owner-checked scripts only.
///
/// A guard that does not own its key is empty and converts to false. The connection outlives the
/// guard. A second guard for the same key is busy, in the same thread too. In a forked child the
/// guards of its parent are inert: they own nothing and send nothing.
///
/// Misuse of a verb that does not throw (renew without a lease, acquire while held, a bad argument)
/// answers *unsent* with `errc::not_held`, `already_held` or `invalid_argument`.
///
/// Thread-safety: one thread at a time per guard; the connection says for itself whether it may be
/// shared. Source: design, "How it reads in service code".
template <class B>
class LeaseLock {
public:
    using options_type = typename detail::OptionsOf<B>::type;

#if LEASELOCK_EXCEPTIONS
    /// Makes one attempt: one SET. Busy leaves the guard empty.
    /// @param key 1 to 1,024 bytes, any bytes
    /// @throws Error for any answer but yes and busy, bad arguments included; std::bad_alloc
    [[nodiscard]] LeaseLock(B& backend, std::string_view key,
                            const typename detail::OptionsOf<B>::type& options)
        : LeaseLock(backend, key, options, std::defer_lock) {
        (void)require(try_acquire(), Verb::acquire);
    }

    /// The same with a ttl, rounded up to milliseconds, and all other options at their defaults.
    template <class Rep, class Period>
    [[nodiscard]] LeaseLock(B& backend, std::string_view key,
                            std::chrono::duration<Rep, Period> ttl)
        : LeaseLock(backend, key, options_type{.ttl = to_ttl(ttl)}) {}

    /// Takes over a lease that another holder detached, with the lease's ttl. However often it is
    /// delivered, one adopter wins; the guard of any other, and of a stale lease, is empty.
    /// @throws Error for any answer but yes and no; std::bad_alloc
    [[nodiscard]] LeaseLock(B& backend, const Lease& lease, std::adopt_lock_t /*tag*/)
        : LeaseLock(backend, lease.key(), options_type{.ttl = lease.ttl()}, std::defer_lock) {
        (void)require(try_adopt(lease), Verb::adopt);
    }
    /// The same with options, whose ttl counts. With fencing, the adopter gets a token of its own.
    [[nodiscard]] LeaseLock(B& backend, const Lease& lease, std::adopt_lock_t /*tag*/,
                            const typename detail::OptionsOf<B>::type& options)
        : LeaseLock(backend, lease.key(), options, std::defer_lock) {
        (void)require(try_adopt(lease), Verb::adopt);
    }
#endif

    /// Sends nothing; what is wrong with the arguments shows at the first attempt.
    /// @throws std::bad_alloc
    LeaseLock(B& backend, std::string_view key, const typename detail::OptionsOf<B>::type& options,
              std::defer_lock_t /*tag*/)
        : state_(backend, key, detail::as_options(options)) {}

    template <class Rep, class Period>
    LeaseLock(B& backend, std::string_view key, std::chrono::duration<Rep, Period> ttl,
              std::defer_lock_t tag)
        : LeaseLock(backend, key, options_type{.ttl = to_ttl(ttl)}, tag) {}

    /// A ttl is a duration, not a number: write `10s`, with `using namespace std::chrono_literals`.
    template <std::integral Number>
    LeaseLock(B& backend, std::string_view key, Number ttl) = delete;
    template <std::integral Number>
    LeaseLock(B& backend, std::string_view key, Number ttl, std::defer_lock_t tag) = delete;

    LeaseLock(LeaseLock&& other) noexcept = default;
    /// Gives back what this guard holds, as its destructor would.
    LeaseLock& operator=(LeaseLock&& other) noexcept {
        LeaseLock{std::move(other)}.swap(*this);
        return *this;
    }
    /// compare-and-delete, if anything of the guard's may be in Redis: after the deadline too, and
    /// again where an earlier one went unanswered. As `unlock`; what came of it goes to the observer: a
    /// destructor has nobody else to tell.
    ~LeaseLock() { state_.end(); }

#if LEASELOCK_EXCEPTIONS
    /// One attempt. @return false when busy  @throws Error for any answer but yes and busy
    [[nodiscard]] bool try_lock() { return require(try_acquire(), Verb::acquire); }

    /// Waits for as long as it takes: without a stop token there is no other end than the lock, or an
    /// error that waiting cannot cure. @throws Error for that, and with `errc::stopped`
    void lock(const std::stop_token& stop = {}) {
        const Outcome outcome = state_.wait((LeaseClock::duration::max)(), stop);
        if (!outcome) detail::throw_error(outcome, to_string(Verb::wait), key());
    }
    /// `try_acquire_for`. @return false when busy to the end, or stopped  @throws Error for any other end
    template <class Rep, class Period>
    [[nodiscard]] bool try_lock_for(std::chrono::duration<Rep, Period> span,
                                    const std::stop_token& stop = {}) {
        const Outcome outcome = try_acquire_for(span, stop);
        return outcome.cause != errc::stopped && require(outcome, Verb::wait);
    }
    /// The same until a point in time. That of another clock is translated when the wait begins:
    /// later steps of that clock do not move it.
    template <class Clock, class Duration>
    [[nodiscard]] bool try_lock_until(std::chrono::time_point<Clock, Duration> at,
                                      const std::stop_token& stop = {}) {
        return try_lock_for(span_between(now_of(Clock{}), at), stop);
    }
#endif

    /// One attempt, with a new token.
    /// @return yes: acquired. no: busy. refused: surely not acquired, with the server's text; also
    ///         `errc::too_late`, and a fence that failed, once the key has been deleted again.
    ///         unsent: nothing was sent. unknown: no answer, or none that proves anything; the token
    ///         is never believed, its deletion is sent where there is time for it, and the destructor
    ///         or the next attempt repeat that until it is answered.
    /// Takes `timeout` at most, and once more as much where it has to clean up.
    [[nodiscard]] Outcome try_acquire() noexcept { return state_.try_acquire(); }

    /// Attempts, with pauses between them, until one succeeds or the wait ends. The pauses are random,
    /// between `wait_floor` and a ceiling that grows to `wait_cap`, and no longer than the holder's
    /// key has left to live, plus 1 ms; the last attempt is made just before the end. Threads that
    /// wait for one key on one connection take turns, in the order in which they came.
    /// @param span from now; zero or less: one attempt, which takes its `timeout` as `try_acquire` does;
    ///        saturated: for ever
    /// @param stop ends a pause at once, and the wait behind an attempt that is under way
    /// @return yes: acquired. Else what came of the last attempt, at the end of the span and not
    ///         before, or at once for a cause that waiting cannot cure (misuse, authentication,
    ///         permission, …). With the cause `errc::stopped` where that ended it; unsent if it came
    ///         before any attempt.
    template <class Rep, class Period>
    [[nodiscard]] Outcome try_acquire_for(std::chrono::duration<Rep, Period> span,
                                          const std::stop_token& stop = {}) noexcept {
        return state_.wait(ceil_saturated<LeaseClock::duration>(span), stop);
    }

    /// Takes over a lease that another holder detached: swaps in a new token, so that one adopter can
    /// win. For a guard on the lease's key; its own ttl counts, not the lease's.
    /// @return yes: owned. no: it was adopted, taken or has run out, `errc::taken` or `gone`. The others
    ///         as for `try_acquire`.
    [[nodiscard]] Outcome try_adopt(const Lease& lease) noexcept { return state_.try_adopt(lease); }

    /// Extends the lease to a full ttl from now, if this acquisition still owns the key.
    /// @return yes: extended. no: lost for good, `errc::taken` or `gone`. refused or unknown: the lease
    ///         runs on to its old deadline. unsent: nothing was sent; `errc::not_held`, or
    ///         `errc::expired` when the lease had ended before.
    /// Takes `timeout` at most, and not longer than the lease.
    [[nodiscard]] Outcome renew() noexcept { return state_.renew(); }

    /// Gives the lock back: `owns_lock()` is false from the start of the call, whatever comes of it.
    /// @return yes: deleted. no: not the owner any more, `errc::taken` or `gone`. unknown, refused or
    ///         unsent: the key may be there until its ttl ends; calling again, or the destructor,
    ///         repeats the deletion. unsent with `errc::not_held`: there is nothing to give back.
    /// The outcome may be ignored, so that the guards of `std` work. Takes `timeout` at most. Of a kept
    /// lease that has been lost, it first waits for the stop callbacks that a renewer's thread is
    /// running for it, or runs them itself where none does yet: as with `~stop_callback`, hold no
    /// mutex that they take.
    Outcome unlock() noexcept { return state_.unlock(); }

    /// Hands the lease over without giving it back: the guard is empty, the key stays for whoever adopts
    /// it, and runs out if nobody does. @return no lease where none is held, or for want of memory
    [[nodiscard]] Lease detach() noexcept { return state_.detach(); }

    void swap(LeaseLock& other) noexcept { std::swap(state_, other.state_); }
    friend void swap(LeaseLock& a, LeaseLock& b) noexcept { a.swap(b); }

    /// Whether the lease can be relied on, now: false from the deadline on, with no network and no
    /// thread needed for it. Once false, false until the next acquisition.
    [[nodiscard]] bool owns_lock() const noexcept { return deadline() != Deadline{}; }
    explicit operator bool() const noexcept { return owns_lock(); }

    /// When the lease ends, counted from before the send and less the margin; the clock's epoch when
    /// none is held.
    [[nodiscard]] Deadline deadline() const noexcept { return state_.deadline(now()); }
    /// What is left of the lease; zero when none is held.
    [[nodiscard]] LeaseClock::duration remaining() const noexcept {
        const Deadline at = now();
        const Deadline end = state_.deadline(at);
        return end == Deadline{} ? LeaseClock::duration{} : end - at;
    }
    /// The key; empty in a guard that was moved from.
    [[nodiscard]] std::string_view key() const noexcept {
        return record() != nullptr ? record()->key() : std::string_view{};
    }
    /// What may be printed of the last acquisition's token: its first 8 digits. Empty when moved from.
    [[nodiscard]] std::string_view fingerprint() const noexcept {
        return record() != nullptr ? fingerprint_of(record()->value()) : std::string_view{};
    }
    /// How the last lease ended, until the next attempt; none while it is held, and after it was given
    /// back in time. `max_hold`
    /// and `unkept` show from the moment at which they set the stop token, while the lease runs out.
    [[nodiscard]] Loss loss() const noexcept {
        (void)owns_lock();
        return record() != nullptr ? record()->term().loss() : Loss::none;
    }
    /// Set when the lease is lost. With a renewer that is at the loss, at the deadline at the latest,
    /// and callbacks run on a thread of the renewer, where they may destroy the guard. Without one it is
    /// when a verb of this guard, or `owns_lock`, notices; callbacks run inside of that, and must not.
    /// Without a lease: set already. Every acquisition has its own, which moves with the guard. No
    /// memory: set already.
    [[nodiscard]] std::stop_token stop_token() const noexcept {
        (void)owns_lock();
        return state_.inert() ? Record::stopped_token() : record()->stop_token();
    }
    /// The fencing token of the lease, above all earlier ones of the key; 0 without fencing, or without
    /// a lease.
    [[nodiscard]] std::uint64_t fencing_token() const noexcept {
        static_assert(
            std::same_as<options_type, Options>,
            "a quorum has no fencing tokens: counters of independent nodes do not form one "
            "order");
        return owns_lock() ? record()->fencing_token : 0;
    }

private:
    friend class Renewer<B>;
    using Record = detail::LeaseRecord;

    [[nodiscard]] Record* record() const noexcept { return state_.record(); }
    [[nodiscard]] Deadline now() const noexcept {
        return record() != nullptr ? record()->runtime().now() : Deadline{};
    }
#if LEASELOCK_EXCEPTIONS
    template <class Clock>
    [[nodiscard]] typename Clock::time_point now_of(Clock /*clock*/) const {
        return Clock::now();
    }
    [[nodiscard]] Deadline now_of(LeaseClock /*clock*/) const noexcept { return now(); }

    [[nodiscard]] bool require(const Outcome& outcome, Verb verb) const {
        return detail::require(outcome, verb, key());
    }
#endif

    detail::GuardState<B> state_;
};

} // namespace LEASELOCK_ABI
} // namespace leaselock
