#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/observer.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/core/token.hpp>
#include <leaselock/lock/detail/lease_record.hpp>
#include <leaselock/lock/detail/verbs.hpp>
#include <leaselock/lock/options.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <stop_token>
#include <string_view>
#include <system_error>
#include <utility>

namespace leaselock {
inline namespace LEASELOCK_ABI {

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
        attempt_or_throw();
    }

    /// The same with a ttl, rounded up to milliseconds, and all other options at their defaults.
    template <class Rep, class Period>
    [[nodiscard]] LeaseLock(B& backend, std::string_view key,
                            std::chrono::duration<Rep, Period> ttl)
        : LeaseLock(backend, key, options_type{.ttl = to_ttl(ttl)}) {}
#endif

    /// Sends nothing; what is wrong with the arguments shows at the first attempt.
    /// @throws std::bad_alloc
    LeaseLock(B& backend, std::string_view key, const typename detail::OptionsOf<B>::type& options,
              std::defer_lock_t /*tag*/);

    template <class Rep, class Period>
    LeaseLock(B& backend, std::string_view key, std::chrono::duration<Rep, Period> ttl,
              std::defer_lock_t tag)
        : LeaseLock(backend, key, options_type{.ttl = to_ttl(ttl)}, tag) {}

    LeaseLock(LeaseLock&& other) noexcept
        : backend_(std::exchange(other.backend_, nullptr)), record_(std::move(other.record_)) {}
    /// Gives back what this guard holds, as its destructor would.
    LeaseLock& operator=(LeaseLock&& other) noexcept {
        LeaseLock{std::move(other)}.swap(*this);
        return *this;
    }
    /// compare-and-delete, if anything of the guard's may be in Redis: after the deadline too, and
    /// again where an earlier one went unanswered. Takes `timeout` at most. What came of it goes to
    /// the observer: a destructor has nobody else to tell.
    ~LeaseLock() {
        if (!inert() && record_->trace != Trace::none) (void)unlock();
    }

#if LEASELOCK_EXCEPTIONS
    /// One attempt. @return false when busy  @throws Error for any answer but yes and busy
    [[nodiscard]] bool try_lock() {
        attempt_or_throw();
        return owns_lock();
    }
#endif

    /// One attempt, with a new token.
    /// @return yes: acquired. no: busy. refused: surely not acquired, with the server's text; also
    ///         `errc::too_late`, and a fence that failed, once the key has been deleted again.
    ///         unsent: nothing was sent. unknown: no answer, or none that proves anything; the token
    ///         is never believed, its deletion has been sent, and the destructor or the next attempt
    ///         repeat that until it is answered.
    /// Takes `timeout` at most, and once more as much where it has to clean up.
    [[nodiscard]] Outcome try_acquire() noexcept;

    /// Extends the lease to a full ttl from now, if this acquisition still owns the key.
    /// @return yes: extended. no: lost for good, `errc::taken` or `gone`. refused or unknown: the lease
    ///         runs on to its old deadline. unsent: nothing was sent; `errc::not_held`, or
    ///         `errc::expired` when the lease had ended before.
    /// Takes `timeout` at most, and not longer than the lease.
    [[nodiscard]] Outcome renew() noexcept;

    /// Gives the lock back: `owns_lock()` is false from the start of the call, whatever comes of it.
    /// @return yes: deleted. no: not the owner any more, `errc::taken` or `gone`. unknown, refused or
    ///         unsent: the key may be there until its ttl ends; calling again, or the destructor,
    ///         repeats the deletion. unsent with `errc::not_held`: there is nothing to give back.
    /// The outcome may be ignored, so that the guards of `std` work. Takes `timeout` at most.
    Outcome unlock() noexcept;

    void swap(LeaseLock& other) noexcept {
        std::swap(backend_, other.backend_);
        std::swap(record_, other.record_);
    }
    friend void swap(LeaseLock& a, LeaseLock& b) noexcept { a.swap(b); }

    /// Whether the lease can be relied on, now: false from the deadline on, with no network and no
    /// thread needed for it. Once false, false until the next acquisition.
    [[nodiscard]] bool owns_lock() const noexcept { return deadline() != Deadline{}; }
    explicit operator bool() const noexcept { return owns_lock(); }

    /// When the lease ends, counted from before the send and less the margin; the clock's epoch when
    /// none is held.
    [[nodiscard]] Deadline deadline() const noexcept {
        return inert() ? Deadline{} : record_->deadline(record_->runtime().now());
    }
    /// What is left of the lease; zero when none is held.
    [[nodiscard]] LeaseClock::duration remaining() const noexcept;
    /// The key; empty in a guard that was moved from.
    [[nodiscard]] std::string_view key() const noexcept {
        return record_ ? record_->key() : std::string_view{};
    }
    /// How the last lease ended; none while it is held, and after it was given back in time.
    [[nodiscard]] Loss loss() const noexcept {
        (void)owns_lock();
        return record_ ? record_->loss() : Loss::none;
    }
    /// Set when the lease is lost. Without a renewer that is when a verb of this guard, or
    /// `owns_lock`, notices. Without a lease: set already. Every acquisition has its own; after a swap
    /// or move it stays with the lease. No memory: set already.
    [[nodiscard]] std::stop_token stop_token() const noexcept {
        (void)owns_lock();
        return inert() ? Record::stopped_token() : record_->stop_token();
    }
    /// The fencing token of the lease, above all earlier ones of the key; 0 without fencing, or without
    /// a lease.
    [[nodiscard]] std::uint64_t fencing_token() const noexcept {
        return owns_lock() ? record_->fencing_token : 0;
    }

private:
    using Verbs = detail::Verbs<B>;
    using Record = detail::LeaseRecord;
    using Trace = detail::Trace;

    [[nodiscard]] bool inert() const noexcept { return !record_ || record_->foreign(); }
    [[nodiscard]] detail::LeaseView view() const noexcept {
        return {record_->key(), record_->value(), record_->fence_key(), record_->ttl()};
    }
    [[nodiscard]] Outcome acquire(Deadline start) noexcept;
    Outcome clean_up(Deadline start) noexcept;
    Outcome tell(Verb verb, Deadline start, const Outcome& outcome) const noexcept;
#if LEASELOCK_EXCEPTIONS
    void attempt_or_throw();
#endif

    B* backend_;
    std::unique_ptr<Record, Record::Free> record_;
};

template <class B>
LeaseLock<B>::LeaseLock(B& backend, std::string_view key,
                        const typename detail::OptionsOf<B>::type& options,
                        std::defer_lock_t /*tag*/)
    : backend_(&backend), record_(Record::make(detail::find_runtime(backend), key, options)) {
    (void)Record::stopped_token();
    if (!record_) {
#if LEASELOCK_EXCEPTIONS
        throw std::bad_alloc{};
#else
        std::abort(); // as operator new does where exceptions are off
#endif
    }
}

template <class B>
LeaseClock::duration LeaseLock<B>::remaining() const noexcept {
    if (inert()) return {};
    const Deadline now = record_->runtime().now();
    const Deadline end = record_->deadline(now);
    return end == Deadline{} ? LeaseClock::duration{} : end - now;
}

template <class B>
Outcome LeaseLock<B>::try_acquire() noexcept {
    if (!record_) return {Answer::unsent, errc::invalid_argument, "the guard was moved from"};
    if (record_->foreign()) return {Answer::unsent, errc::other_process};
    const Deadline start = record_->runtime().now();
    return tell(Verb::acquire, start, acquire(start));
}

template <class B>
Outcome LeaseLock<B>::acquire(Deadline start) noexcept {
    Record& record = *record_;
    if (record.deadline(start) != Deadline{}) return {Answer::unsent, errc::already_held};
    if (record.flaw() != detail::Flaw::none) {
        return {Answer::unsent, errc::invalid_argument,
                describe(record.flaw(), record.ttl(), record.margin()).view()};
    }
    // What an earlier token may have left goes first, and is answered before the next token is
    // drawn: a guard never has more than one stray token about.
    if (record.trace != Trace::none) {
        const Outcome cleaned = clean_up(start);
        if (record.trace != Trace::none) return {Answer::unsent, cleaned.cause, cleaned.text.view()};
    }

    Token token;
    if (const std::error_code error = token.draw(record.runtime())) {
        return {Answer::unsent, error, "no random bytes for a token"};
    }
    record.set_token(token);
    const Deadline before_send = record.runtime().now();
    const Deadline end = lease_deadline(before_send, record.ttl(), record.margin());
    // an answer behind the deadline of the lease is worth nothing
    const Deadline by = std::min(later(start, record.timeout()), end);
    detail::Attempt attempt = Verbs::acquire(*backend_, record.dialect(), view(), by);

    const Deadline now = record.runtime().now();
    if (attempt.outcome && now < end) {
        record.fencing_token = attempt.fencing_token;
        record.trace = Trace::lease;
        record.begin(end);
        return attempt.outcome;
    }
    if (attempt.set != Answer::yes && attempt.set != Answer::unknown) return attempt.outcome;

    // Not an acquisition, whatever came of it: without an answer it is never believed, and too late,
    // or without the fence that was asked for, it is of no use. Only where the SET itself was
    // answered does the confirmed deletion prove that nothing is left or can still come.
    if (attempt.outcome) attempt.outcome = {Answer::unknown, errc::too_late};
    record.trace = Trace::ghost;
    const Outcome cleaned = clean_up(now);
    if (attempt.set == Answer::yes) {
        attempt.outcome.answer = cleaned ? Answer::refused : Answer::unknown;
    }
    return attempt.outcome;
}

/// Deletes, by its token, what may be left of it; until that is answered the trace remains.
template <class B>
Outcome LeaseLock<B>::clean_up(Deadline start) noexcept {
    Record& record = *record_;
    const Outcome outcome = Verbs::clean_up(*backend_, record.dialect(), view(),
                                            later(start, record.timeout()));
    if (outcome.answer == Answer::yes || outcome.answer == Answer::no) record.trace = Trace::none;
    return tell(Verb::clean_up, start, outcome);
}

template <class B>
Outcome LeaseLock<B>::renew() noexcept {
    if (!record_) return {Answer::unsent, errc::not_held};
    Record& record = *record_;
    if (record.foreign()) return {Answer::unsent, errc::other_process};
    const Deadline before_send = record.runtime().now();
    const Deadline end = record.deadline(before_send);
    if (end == Deadline{}) {
        const bool ended = record.loss() == Loss::expired;
        return tell(Verb::renew, before_send,
                    {Answer::unsent, ended ? errc::expired : errc::not_held});
    }
    Outcome outcome = Verbs::renew(*backend_, record.dialect(), view(),
                                   std::min(later(before_send, record.timeout()), end));
    const Deadline now = record.runtime().now();
    if (outcome.answer == Answer::no) {
        record.lose(outcome.cause == errc::taken ? Loss::taken : Loss::gone);
        record.trace = Trace::none;
    } else if (outcome) {
        // a 1 read after the deadline changes nothing
        const Deadline extended = lease_deadline(before_send, record.ttl(), record.margin());
        if (!record.extend(now, extended)) outcome = {Answer::unknown, errc::too_late};
    }
    return tell(Verb::renew, before_send, outcome);
}

template <class B>
Outcome LeaseLock<B>::unlock() noexcept {
    if (!record_) return {Answer::unsent, errc::not_held};
    Record& record = *record_;
    if (record.foreign()) return {Answer::unsent, errc::other_process};
    const Deadline start = record.runtime().now();
    if (record.trace == Trace::none) return tell(Verb::release, start, {Answer::unsent, errc::not_held});
    (void)record.deadline(start); // a lease that has run out is a loss, not a return
    record.give_back();
    if (record.trace == Trace::ghost) return clean_up(start);

    Outcome outcome = Verbs::release(*backend_, record.dialect(), view(),
                                     later(start, record.timeout()));
    record.trace = Trace::released;
    if (outcome.answer == Answer::yes || outcome.answer == Answer::no) {
        record.trace = Trace::none;
        if (outcome.answer == Answer::no && record.release_unanswered) {
            outcome = {Answer::unknown, errc::unconfirmed};
        }
    }
    record.release_unanswered = record.release_unanswered || outcome.answer == Answer::unknown;
    return tell(Verb::release, start, outcome);
}

/// The observer hears it; the caller gets it back.
template <class B>
Outcome LeaseLock<B>::tell(Verb verb, Deadline start, const Outcome& outcome) const noexcept {
    Record& record = *record_;
    if (Observer* const observer = record.observer()) {
        const Deadline now = record.runtime().now();
        const Deadline end = record.deadline(now);
        observer->on_event({verb, record.key(), outcome, now - start,
                            end == Deadline{} ? LeaseClock::duration{} : end - now,
                            record.owner(), fingerprint_of(record.value())});
    }
    return outcome;
}

#if LEASELOCK_EXCEPTIONS
template <class B>
void LeaseLock<B>::attempt_or_throw() {
    const Outcome outcome = try_acquire();
    if (outcome.answer != Answer::yes && outcome.answer != Answer::no) {
        throw Error{outcome, to_string(Verb::acquire), key()};
    }
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
