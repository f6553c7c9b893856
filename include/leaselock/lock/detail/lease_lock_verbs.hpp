#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/core/token.hpp>
#include <leaselock/lock/detail/backoff.hpp>
#include <leaselock/lock/detail/lineup.hpp>
#include <leaselock/lock/detail/verbs.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/redis/classify.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>

/// What the verbs of the guard do; what they promise stands with their declarations.
namespace leaselock {
inline namespace LEASELOCK_ABI {

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
void LeaseLock<B>::announce_loss(Record& record) noexcept {
    record.tell_loss();
    if (record.keeper == nullptr) record.request_stop(); // else the renewer does: it watches too
}

/// The deadline, or the epoch when the lease has ended by `now`; whoever finds it passed says so.
template <class B>
Deadline LeaseLock<B>::deadline_at(Record& record, Deadline now) noexcept {
    if (record.expire(now) && !record.ending()) announce_loss(record);
    return record.deadline();
}

template <class B>
void LeaseLock<B>::forget() noexcept {
    if (record_->keeper == nullptr) return;
    record_->keeper->forget(*record_);
    std::exchange(record_->keeper, nullptr)->release();
}

template <class B>
Outcome LeaseLock<B>::try_acquire() noexcept {
    if (!record_) return {Answer::unsent, errc::invalid_argument, "the guard was moved from"};
    if (record_->foreign()) return {Answer::unsent, errc::other_process};
    const Deadline start = record_->runtime().now();
    return told(Verb::acquire, start, acquire(start, Deadline::max(), nullptr));
}

/// What comes before every SET and every swap. @return yes: a token has been drawn
template <class B>
Outcome LeaseLock<B>::begin_acquisition(Deadline start, Deadline until) noexcept {
    if (deadline_at(*record_, start) != Deadline{}) return {Answer::unsent, errc::already_held};
    if (record_->flaw() != detail::Flaw::none) {
        return {Answer::unsent, errc::invalid_argument,
                describe(record_->flaw(), record_->ttl(), record_->margin()).view()};
    }
    forget();
    // What an earlier token may have left goes first, and is answered before the next token is
    // drawn: a guard never has more than one stray token about.
    if (record_->trace != Trace::none) {
        const Outcome cleaned = clean_up(start, until);
        if (record_->trace != Trace::none) {
            return {Answer::unsent, cleaned.cause, cleaned.text.view()};
        }
    }
    if (record_->shared()) { // a renewal of the last lease is still on its way
        typename Record::Handle next = record_->renewed();
        if (!next) return {Answer::unsent, std::make_error_code(std::errc::not_enough_memory)};
        record_ = std::move(next);
    }
    Token token;
    if (const std::error_code error = token.draw(record_->runtime())) {
        return {Answer::unsent, error, "no random bytes for a token"};
    }
    record_->set_token(token);
    return {Answer::yes};
}

template <class B>
Outcome
LeaseLock<B>::acquire(Deadline start, Deadline until,
                      std::optional<std::chrono::milliseconds>* holder_left) noexcept {
    if (Outcome ready = begin_acquisition(start, until); !ready) return ready;
    Record& record = *record_;
    const Deadline before_send = record.runtime().now();
    const Deadline end = lease_deadline(before_send, record.ttl(), record.margin());
    // an answer behind the deadline of the lease is worth nothing
    const Deadline by = std::min({later(start, record.timeout()), end, until});
    detail::Attempt attempt = detail::Verbs<B>::acquire(*backend_, record.dialect(), view(),
                                                        holder_left != nullptr, by);
    if (holder_left != nullptr) *holder_left = attempt.holder_left;
    return settle(attempt, end, until);
}

template <class B>
Outcome LeaseLock<B>::try_adopt(const Lease& lease) noexcept {
    if (!record_) return {Answer::unsent, errc::invalid_argument, "the guard was moved from"};
    if (record_->foreign()) return {Answer::unsent, errc::other_process};
    const Deadline start = record_->runtime().now();
    return told(Verb::adopt, start, adopt(lease, start));
}

template <class B>
Outcome LeaseLock<B>::adopt(const Lease& lease, Deadline start) noexcept {
    if (!lease) return {Answer::unsent, errc::invalid_argument, "there is no lease to adopt"};
    if (lease.key() != key()) {
        return {Answer::unsent, errc::invalid_argument, "the lease is of another key"};
    }
    if (Outcome ready = begin_acquisition(start, Deadline::max()); !ready) return ready;
    Record& record = *record_;
    const Deadline before_send = record.runtime().now();
    const Deadline end = lease_deadline(before_send, record.ttl(), record.margin());
    const Deadline by = std::min(later(start, record.timeout()), end);
    const auto swap = [&] {
        return detail::Verbs<B>::adopt(*backend_, record.dialect(), view(), lease.value(), by);
    };
    detail::Attempt attempt = swap();
    // safe to repeat: a swap that did happen takes its own value for the old one
    if (attempt.set == Answer::unknown && record.runtime().now() < by) attempt = swap();
    return settle(attempt, end, Deadline::max());
}

/// What an attempt comes to, in the light of the time at which its answer was read.
template <class B>
Outcome LeaseLock<B>::settle(detail::Attempt& attempt, Deadline end, Deadline until) noexcept {
    Record& record = *record_;
    const Deadline now = record.runtime().now();
    if (attempt.outcome && now < end) {
        record.fencing_token = attempt.fencing_token;
        record.trace = Trace::lease;
        record.begin(end);
        return attempt.outcome;
    }
    if (attempt.set != Answer::yes && attempt.set != Answer::unknown) return attempt.outcome;

    // Not an acquisition, whatever came of it: without an answer it is never believed, and too late,
    // or without the fence that was asked for, it is of no use. Only where the command itself was
    // answered does the confirmed deletion prove that nothing is left or can still come.
    if (attempt.outcome) attempt.outcome = {Answer::unknown, errc::too_late};
    record.trace = Trace::ghost;
    const Outcome cleaned = clean_up(now, until);
    if (attempt.set == Answer::yes) {
        attempt.outcome.answer = cleaned ? Answer::refused : Answer::unknown;
    }
    return attempt.outcome;
}

/// Deletes, by its token, what may be left of it; until that is answered the trace remains. Where the
/// caller's time is over it is written without waiting for the answer.
template <class B>
Outcome LeaseLock<B>::clean_up(Deadline start, Deadline until) noexcept {
    Record& record = *record_;
    const Deadline by = std::min(later(start, record.timeout()), std::max(start, until));
    const Outcome outcome =
        detail::Verbs<B>::clean_up(*backend_, record.dialect(), view(), by);
    if (outcome.answer == Answer::yes || outcome.answer == Answer::no) record.trace = Trace::none;
    return told(Verb::clean_up, start, outcome);
}

template <class B>
Outcome LeaseLock<B>::wait(LeaseClock::duration span, const std::stop_token& stop) noexcept {
    if (inert() || span <= LeaseClock::duration::zero()) return try_acquire();
    Runtime& runtime = record_->runtime();
    const Deadline start = runtime.now();
    const Deadline until = later(start, span);
    Outcome outcome{Answer::unsent, errc::stopped};
    const auto end_as = [&](bool stopped) {
        if (stopped) outcome.cause = make_error_code(errc::stopped);
        return told(Verb::wait, start, outcome);
    };
    detail::Sleeper sleeper{runtime, stop};
    if (sleeper.stopped()) return end_as(true);

    // Whoever is not at the head of the line when time runs out makes its one attempt all the same.
    std::optional<detail::InLine> line;
    std::chrono::nanoseconds lead = std::min(span / 4, LeaseClock::duration{std::chrono::milliseconds{5}});
    if constexpr (requires { requires B::is_shareable; }) {
        line.emplace(backend_, key(), sleeper);
        if (!line->await_turn(later(until, -lead)) && sleeper.stopped()) return end_as(true);
    }
    for (unsigned failed = 1;; ++failed) {
        std::optional<std::chrono::milliseconds> holder_left;
        const Deadline attempt = runtime.now();
        outcome = told(Verb::acquire, attempt, acquire(attempt, until, &holder_left));
        if (outcome || !may_pass_by_waiting(outcome.cause)) return end_as(false);

        const Deadline now = runtime.now();
        lead = detail::last_lead(now - attempt);
        std::uint64_t random = 0;
        (void)runtime.fill_random(std::as_writable_bytes(std::span{&random, 1}));
        const auto pause =
            detail::backoff(record_->wait_floor(), record_->wait_cap(), failed, random);
        const std::optional<Deadline> next =
            detail::next_attempt(now, pause, holder_left, until, lead);
        if (!sleeper.sleep_until(next.value_or(until))) return end_as(true);
        if (!next) return end_as(false);
    }
}

template <class B>
Outcome LeaseLock<B>::renew() noexcept {
    if (!record_) return {Answer::unsent, errc::not_held};
    Record& record = *record_;
    if (record.foreign()) return {Answer::unsent, errc::other_process};
    const Deadline before_send = record.runtime().now();
    const Deadline end = deadline_at(record, before_send);
    if (end == Deadline{}) {
        const bool ended = record.loss() == Loss::expired;
        return told(Verb::renew, before_send,
                    {Answer::unsent, ended ? errc::expired : errc::not_held});
    }
    Outcome outcome =
        detail::Verbs<B>::renew(*backend_, record.dialect(), view(),
                                std::min(later(before_send, record.timeout()), end));
    const Deadline now = record.runtime().now();
    if (outcome) {
        // a 1 read after the deadline changes nothing
        const Deadline extended = lease_deadline(before_send, record.ttl(), record.margin());
        if (!record.extend(now, extended)) outcome = {Answer::unknown, errc::too_late};
    }
    const bool lost = outcome.answer == Answer::no;
    if (lost) record.trace = Trace::none;
    const bool first = lost && record.lose(outcome.cause == errc::taken ? Loss::taken : Loss::gone);
    record.tell(Verb::renew, before_send, outcome);
    if (first && !record.ending()) announce_loss(record);
    else if (!lost) (void)deadline_at(record, now);
    return outcome;
}

template <class B>
Outcome LeaseLock<B>::unlock() noexcept {
    if (!record_) return {Answer::unsent, errc::not_held};
    Record& record = *record_;
    if (record.foreign()) return {Answer::unsent, errc::other_process};
    const Deadline start = record.runtime().now();
    (void)deadline_at(record, start); // a lease that has run out is a loss, not a return
    record.give_back();
    forget();
    if (record.trace == Trace::none) {
        return told(Verb::release, start, {Answer::unsent, errc::not_held});
    }
    if (record.trace == Trace::ghost) return clean_up(start, Deadline::max());

    Outcome outcome = detail::Verbs<B>::release(*backend_, record.dialect(), view(),
                                                later(start, record.timeout()));
    record.trace = Trace::released;
    if (outcome.answer == Answer::yes || outcome.answer == Answer::no) {
        record.trace = Trace::none;
        if (outcome.answer == Answer::no && record.release_unanswered) {
            outcome = {Answer::unknown, errc::unconfirmed};
        }
    }
    record.release_unanswered = record.release_unanswered || outcome.answer == Answer::unknown;
    return told(Verb::release, start, outcome);
}

template <class B>
Lease LeaseLock<B>::detach() noexcept {
    if (!owns_lock()) return {};
    Record& record = *record_;
#if LEASELOCK_EXCEPTIONS
    try {
#endif
        Lease lease{std::string{record.key()}, std::string{record.value()}, record.ttl()};
        record.give_back();
        forget();
        record.trace = Trace::none;
        return lease;
#if LEASELOCK_EXCEPTIONS
    } catch (const std::bad_alloc&) {
        return {};
    }
#endif
}

#if LEASELOCK_EXCEPTIONS
/// Yes is true, no is false; all else throws.
template <class B>
bool LeaseLock<B>::require(const Outcome& outcome, Verb verb) const {
    if (outcome) return true;
    if (outcome.answer == Answer::no) return false;
    throw Error{outcome, to_string(verb), key()};
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
