#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/fixed_text.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/core/token.hpp>
#include <leaselock/lock/detail/lease_record.hpp>
#include <leaselock/lock/detail/verbs.hpp>
#include <leaselock/lock/detail/wait.hpp>
#include <leaselock/lock/lease.hpp>
#include <leaselock/lock/options.hpp>
#include <leaselock/redis/connection.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// What a guard does, behind what it promises: the verbs on one record over one backend. The promises
/// stand with `LeaseLock`, whose members these are, one to one.
template <class B>
class GuardState {
public:
    using Record = LeaseRecord;

    GuardState(B& backend, Record::Handle record) noexcept
        : backend_(&backend), record_(std::move(record)) {}

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
    [[nodiscard]] Deadline deadline(Deadline now) const noexcept {
        return inert() ? Deadline{} : deadline_at(*record_, now);
    }

private:
    [[nodiscard]] LeaseView view() const noexcept {
        return {record_->key(),      record_->value(),  record_->fence_key(),
                record_->ttl_text(), &record_->holders, record_->timeout()};
    }
    static Deadline deadline_at(Record& record, Deadline now) noexcept;
    static void announce_loss(Record& record) noexcept;
    [[nodiscard]] Outcome told(Verb verb, Deadline start, const Outcome& outcome) const noexcept {
        record_->tell(verb, start, outcome);
        return outcome;
    }
    [[nodiscard]] Outcome begin_acquisition(Deadline start, Deadline until,
                                            Deadline& before_send) noexcept;
    [[nodiscard]] Outcome acquire(Deadline start, Deadline until,
                                  std::optional<std::chrono::milliseconds>* holder_left) noexcept;
    [[nodiscard]] Outcome adopt(const Lease& lease, Deadline start) noexcept;
    [[nodiscard]] Outcome settle(Attempt& attempt, Deadline end, Deadline until,
                                 std::uint64_t stream_before) noexcept;
    [[nodiscard]] Outcome clean_up(Deadline start, Deadline until) noexcept;
    void forget() noexcept;

    B* backend_;
    Record::Handle record_;
};

template <class B>
void GuardState<B>::announce_loss(Record& record) noexcept {
    record.tell_loss();
    if (record.keeper == nullptr) return record.request_stop();
    record.keeper->lost(record); // the signal is the renewer's to give
}

/// The deadline, or the epoch when the lease has ended by `now`; whoever finds it passed says so.
template <class B>
Deadline GuardState<B>::deadline_at(Record& record, Deadline now) noexcept {
    if (record.term().expire(now) && !record.term().ending()) announce_loss(record);
    return record.term().deadline();
}

template <class B>
void GuardState<B>::forget() noexcept {
    if (record_->keeper == nullptr) return;
    record_->keeper->forget(*record_);
    std::exchange(record_->keeper, nullptr)->release();
}

template <class B>
Outcome GuardState<B>::try_acquire() noexcept {
    if (!record_) return {Answer::unsent, errc::invalid_argument, "the guard was moved from"};
    if (record_->foreign()) return {Answer::unsent, errc::other_process};
    const Deadline start = record_->runtime().now();
    Outcome outcome = acquire(start, Deadline::max(), nullptr);
    record_->tell(Verb::acquire, start, outcome);
    return outcome;
}

/// What comes before every SET and every swap.
/// @param before_send set anew where that took time; the lease counts from there
/// @return yes: a token has been drawn
template <class B>
Outcome GuardState<B>::begin_acquisition(Deadline start, Deadline until,
                                         Deadline& before_send) noexcept {
    if (deadline_at(*record_, start) != Deadline{}) return {Answer::unsent, errc::already_held};
    if (record_->flaw() != Flaw::none) {
        return {Answer::unsent, errc::invalid_argument,
                describe(record_->flaw(), record_->ttl, record_->margin).view()};
    }
    forget();
    // What an earlier token may have left goes first, and is answered before the next token is
    // drawn: a guard never has more than one stray token about.
    if (record_->trace != Trace::none) {
        const Outcome cleaned = clean_up(start, until);
        if (record_->trace != Trace::none) {
            return {Answer::unsent, cleaned.cause, cleaned.text.view()};
        }
        before_send = record_->runtime().now();
    }
    if (record_->shared()) { // a renewal of the last lease is still on its way
        Record::Handle next = record_->renewed();
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
Outcome GuardState<B>::acquire(Deadline start, Deadline until,
                               std::optional<std::chrono::milliseconds>* holder_left) noexcept {
    Deadline before_send = start;
    if (Outcome ready = begin_acquisition(start, until, before_send); !ready) return ready;
    Record& record = *record_;
    const Deadline end = lease_deadline(before_send, record.ttl, record.margin);
    const std::uint64_t stream_before = find_stream_number(*backend_);
    // an answer behind the deadline of the lease is worth nothing
    const Deadline by = std::min({later(start, record.timeout()), end, until});
    Attempt attempt =
        Verbs<B>::acquire(*backend_, record.dialect(), view(), holder_left != nullptr, by);
    if (holder_left != nullptr) *holder_left = attempt.holder_left;
    return settle(attempt, end, until, stream_before);
}

template <class B>
Outcome GuardState<B>::try_adopt(const Lease& lease) noexcept {
    if (!record_) return {Answer::unsent, errc::invalid_argument, "the guard was moved from"};
    if (record_->foreign()) return {Answer::unsent, errc::other_process};
    const Deadline start = record_->runtime().now();
    return told(Verb::adopt, start, adopt(lease, start));
}

template <class B>
Outcome GuardState<B>::adopt(const Lease& lease, Deadline start) noexcept {
    if (!lease) return {Answer::unsent, errc::invalid_argument, "there is no lease to adopt"};
    if (lease.key() != record_->key()) {
        return {Answer::unsent, errc::invalid_argument, "the lease is of another key"};
    }
    Deadline before_send = start;
    if (Outcome ready = begin_acquisition(start, Deadline::max(), before_send); !ready)
        return ready;
    Record& record = *record_;
    const Deadline end = lease_deadline(before_send, record.ttl, record.margin);
    const Deadline by = std::min(later(start, record.timeout()), end);
    const std::uint64_t stream_before = find_stream_number(*backend_);
    const auto swap = [&] {
        return Verbs<B>::adopt(*backend_, record.dialect(), view(), lease.value(), by);
    };
    Attempt attempt = swap();
    // safe to repeat: a swap that did happen takes its own value for the old one. What is not answered
    // the second time is as unknown as it was.
    if (attempt.set == Answer::unknown && record.runtime().now() < by) {
        const Attempt again = swap();
        if (again.set == Answer::yes || again.set == Answer::no) attempt = again;
    }
    return settle(attempt, end, Deadline::max(), stream_before);
}

/// What an attempt comes to, in the light of the time at which its answer was read.
template <class B>
Outcome GuardState<B>::settle(Attempt& attempt, Deadline end, Deadline until,
                              std::uint64_t stream_before) noexcept {
    Record& record = *record_;
    const Deadline now = record.runtime().now();
    if (attempt.outcome && now < end) {
        record.fencing_token = attempt.fencing_token;
        record.trace = Trace::lease;
        record.term().begin(end);
        return attempt.outcome;
    }
    if (attempt.set != Answer::yes && attempt.set != Answer::unknown) return attempt.outcome;

    // Not an acquisition, whatever came of it: without an answer it is never believed, and too late,
    // or without the fence that was asked for, it is of no use. Only where the command itself was
    // answered, or went ahead on the same stream, does the confirmed deletion prove that nothing is left
    // or can still come.
    if (attempt.outcome) attempt.outcome = {Answer::unknown, errc::too_late};
    record.trace = Trace::ghost;
    const Outcome cleaned = clean_up(now, until);
    if (attempt.set == Answer::yes ||
        (stream_before != 0 && stream_before == find_stream_number(*backend_))) {
        attempt.outcome.answer = cleaned ? Answer::refused : Answer::unknown;
    }
    return attempt.outcome;
}

/// Deletes, by its token, what may be left of it; until that is answered the trace remains. Where the
/// caller's time is over it is written without waiting for the answer.
template <class B>
Outcome GuardState<B>::clean_up(Deadline start, Deadline until) noexcept {
    Record& record = *record_;
    const Deadline by = std::min(later(start, record.timeout()), std::max(start, until));
    const Outcome outcome = Verbs<B>::clean_up(*backend_, record.dialect(), view(), by);
    if (outcome.answer == Answer::yes || outcome.answer == Answer::no) record.trace = Trace::none;
    return told(Verb::clean_up, start, outcome);
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
                    .key = key.view()};
    const Outcome outcome = wait.run(stop, [&](auto* holder_left) noexcept {
        const Deadline attempt = record_->runtime().now();
        return told(Verb::acquire, attempt, acquire(attempt, until, holder_left));
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
    Outcome outcome = Verbs<B>::renew(*backend_, record.dialect(), view(),
                                      std::min(later(before_send, record.timeout()), end));
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
    forget();
    if (record.trace == Trace::none) {
        return told(Verb::release, start, {Answer::unsent, errc::not_held});
    }
    if (record.trace == Trace::ghost) return clean_up(start, Deadline::max());

    Outcome outcome =
        Verbs<B>::release(*backend_, record.dialect(), view(), later(start, record.timeout()));
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
        forget();
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
    forget();
    if (record_->trace != Trace::none) (void)unlock();
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
