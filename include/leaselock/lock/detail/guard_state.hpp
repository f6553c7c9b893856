#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/observer.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/lock/detail/lease_record.hpp>
#include <leaselock/lock/lease.hpp>
#include <leaselock/lock/options.hpp>

#include <stop_token>
#include <string_view>

#if LEASELOCK_DEFINES
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/fixed_text.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/lock/detail/acquisition.hpp>
#include <leaselock/lock/detail/lease_end.hpp>
#include <leaselock/lock/detail/verbs.hpp>
#include <leaselock/lock/detail/wait.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/key.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

template <class B>
class Acquisition;

/// What a guard does, behind what it promises: the verbs on one record over one backend. The promises
/// stand with `LeaseLock`, whose members these are, one to one.
template <class B>
class GuardState {
public:
    using Record = LeaseRecord;

    /// Not inlined: g++ 12 would take options made on the spot for uninitialised, and say so to users.
    /// @throws std::bad_alloc
    [[gnu::noinline]] GuardState(B& backend, std::string_view key, const Options& options);

    /// Whether there is nothing that this process may do with it: moved from, or forked off.
    [[nodiscard]] bool inert() const noexcept { return !record_ || record_->foreign(); }
    [[nodiscard]] Record* record() const noexcept { return record_.get(); }
    [[nodiscard]] const B* backend() const noexcept { return backend_; }

    [[nodiscard]] Outcome try_acquire() noexcept;
    [[nodiscard]] Outcome try_adopt(const Lease& lease) noexcept;
    [[nodiscard]] Outcome wait(LeaseClock::duration span, const std::stop_token& stop) noexcept;
    [[nodiscard]] Outcome renew() noexcept;
    [[nodiscard]] Outcome unlock() noexcept;
    [[nodiscard]] Lease detach() noexcept;
    /// What a destructor does.
    void end() noexcept;

    /// The end of the lease; the clock's epoch where none is held at `now`.
    [[nodiscard]] Deadline deadline(Deadline now) const noexcept;

private:
    [[nodiscard]] Outcome told(Verb verb, Deadline start, const Outcome& outcome) const noexcept {
        record_->tell(verb, start, outcome);
        return outcome;
    }
    [[nodiscard]] Acquisition<B> acquisition() noexcept;

    B* backend_;
    Record::Handle record_;
};

#if LEASELOCK_EXCEPTIONS
/// Yes is true, no is false; all else throws.
[[nodiscard]] bool require(const Outcome& outcome, Verb verb, std::string_view key);
#endif

#if LEASELOCK_DEFINES
#if LEASELOCK_EXCEPTIONS
LEASELOCK_INLINE bool require(const Outcome& outcome, Verb verb, std::string_view key) {
    if (outcome || outcome.answer == Answer::no) return outcome.answer == Answer::yes;
    throw Error{outcome, to_string(verb), key};
}
#endif

template <class B>
GuardState<B>::GuardState(B& backend, std::string_view key, const Options& options)
    : backend_(&backend), record_(Record::make(find_runtime(backend), key, options)) {
    (void)Record::stopped_token();
    if (record_) return;
#if LEASELOCK_EXCEPTIONS
    throw std::bad_alloc{};
#else
    std::abort(); // as operator new does where exceptions are off
#endif
}

template <class B>
Deadline GuardState<B>::deadline(Deadline now) const noexcept {
    return inert() ? Deadline{} : deadline_at(*record_, now);
}

template <class B>
Acquisition<B> GuardState<B>::acquisition() noexcept {
    return {*backend_, record_};
}

template <class B>
Outcome GuardState<B>::try_acquire() noexcept {
    if (!record_) return {Answer::unsent, errc::invalid_argument, "the guard was moved from"};
    if (record_->foreign()) return {Answer::unsent, errc::other_process};
    const Deadline start = record_->runtime().now();
    Outcome outcome = acquisition().acquire(start, (Deadline::max)(), nullptr);
    record_->tell(Verb::acquire, start, outcome);
    return outcome;
}

template <class B>
Outcome GuardState<B>::try_adopt(const Lease& lease) noexcept {
    if (!record_) return {Answer::unsent, errc::invalid_argument, "the guard was moved from"};
    if (record_->foreign()) return {Answer::unsent, errc::other_process};
    const Deadline start = record_->runtime().now();
    return told(Verb::adopt, start, acquisition().adopt(lease, start));
}

template <class B>
Outcome GuardState<B>::wait(LeaseClock::duration span, const std::stop_token& stop) noexcept {
    if (inert()) return try_acquire();
    const Deadline start = record_->runtime().now();
    if (span <= LeaseClock::duration::zero() && !stop.stop_requested()) return try_acquire();
    const Deadline until = later(start, span);
    constexpr bool lines_up = requires { requires B::is_shareable; };
    // of our own: an attempt may change the record for another
    const FixedText<max_key_size> key{record_->key()};
    const Wait wait{.runtime = record_->runtime(),
                    .floor = record_->wait_floor(),
                    .cap = record_->wait_cap(),
                    .until = until,
                    .backend = lines_up ? backend_ : nullptr,
                    .key = key.view(),
                    .redirects = RoutedConnection<B>};
    const Outcome outcome = wait.run(stop, [&](auto* holder_left) noexcept {
        const Deadline attempt = record_->runtime().now();
        return told(Verb::acquire, attempt, acquisition().acquire(attempt, until, holder_left));
    });
    return told(Verb::wait, start, outcome);
}

template <class B>
Outcome GuardState<B>::renew() noexcept {
    if (!record_) return {Answer::unsent, errc::not_held};
    Record& record = *record_;
    if (record.foreign()) return {Answer::unsent, errc::other_process};
    const Deadline before_send = record.runtime().now();
    const Deadline end = deadline_at(record, before_send);
    if (end == Deadline{}) {
        const bool ended = record.term().loss() == Loss::expired;
        return told(Verb::renew, before_send,
                    {Answer::unsent, ended ? errc::expired : errc::not_held});
    }
    Outcome outcome = Verbs<B>::renew(*backend_, record.dialect(), view_of(record),
                                      (std::min)(later(before_send, record.timeout()), end));
    const Deadline now = record.runtime().now();
    if (outcome) {
        // a 1 read after the deadline changes nothing
        const Deadline extended = lease_deadline(before_send, record.ttl, record.margin);
        if (!record.term().extend(now, extended)) outcome = {Answer::unknown, errc::too_late};
    }
    const bool lost = outcome.answer == Answer::no;
    if (lost) record.trace = Trace::none;
    const bool first =
        lost && record.term().lose(outcome.cause == errc::taken ? Loss::taken : Loss::gone);
    record.tell(Verb::renew, before_send, outcome);
    if (first && !record.term().ending()) announce_loss(record);
    if (!lost) (void)deadline_at(record, now);
    return outcome;
}

template <class B>
Outcome GuardState<B>::unlock() noexcept {
    if (!record_) return {Answer::unsent, errc::not_held};
    Record& record = *record_;
    if (record.foreign()) return {Answer::unsent, errc::other_process};
    const Deadline start = record.runtime().now();
    (void)deadline_at(record, start); // a lease that has run out is a loss, not a return
    record.term().give_back();
    forget(*record_);
    if (record.trace == Trace::none) {
        return told(Verb::release, start, {Answer::unsent, errc::not_held});
    }
    if (record.trace == Trace::ghost) return acquisition().clean_up(start, (Deadline::max)());

    Outcome outcome = Verbs<B>::release(*backend_, record.dialect(), view_of(record),
                                        later(start, record.timeout()));
    record.trace = Trace::released;
    if (outcome.answer == Answer::yes || outcome.answer == Answer::no) {
        record.trace = Trace::none;
        if (outcome.answer == Answer::no && record.release_unanswered) {
            outcome = {Answer::unknown, errc::unconfirmed};
        }
    }
    record.release_unanswered = record.release_unanswered || outcome.answer == Answer::unknown;
    record.tell(Verb::release, start, outcome);
    return outcome;
}

template <class B>
Lease GuardState<B>::detach() noexcept {
    if (inert() || deadline(record_->runtime().now()) == Deadline{}) return {};
    Record& record = *record_;
#if LEASELOCK_EXCEPTIONS
    try {
#endif
        Lease lease{std::string{record.key()}, std::string{record.value()}, record.ttl};
        record.term().give_back();
        forget(*record_);
        record.trace = Trace::none;
        return lease;
#if LEASELOCK_EXCEPTIONS
    } catch (const std::bad_alloc&) {
        return {};
    }
#endif
}

template <class B>
void GuardState<B>::end() noexcept {
    if (inert()) return;
    forget(*record_);
    if (record_->trace != Trace::none) (void)unlock();
}
#endif

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
