#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/observer.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/core/token.hpp>
#include <leaselock/lock/detail/lease_end.hpp>
#include <leaselock/lock/detail/lease_record.hpp>
#include <leaselock/lock/detail/verbs.hpp>
#include <leaselock/lock/lease.hpp>
#include <leaselock/lock/options.hpp>
#include <leaselock/redis/connection.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <system_error>
#include <utility>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

[[nodiscard]] inline LeaseView view_of(LeaseRecord& record) noexcept {
    return {record.key(),      record.value(),  record.fence_key(),
            record.ttl_text(), &record.holders, record.timeout()};
}

/// How a guard comes by a lease: by SET or by a swap, and what an answer that was lost, or came too late,
/// leaves to be cleaned up.
template <class B>
class Acquisition {
public:
    /// Refers to both; it may put another record in place of the guard's.
    Acquisition(B& backend, LeaseRecord::Handle& record) noexcept
        : backend_(backend), record_(record) {}

    /// One attempt, which may take until `until`.
    /// @param holder_left not null where the caller waits: set to what the holder's key has to live
    [[nodiscard]] Outcome acquire(Deadline start, Deadline until,
                                  std::optional<std::chrono::milliseconds>* holder_left) noexcept;
    [[nodiscard]] Outcome adopt(const Lease& lease, Deadline start) noexcept;
    [[nodiscard]] Outcome clean_up(Deadline start, Deadline until) noexcept;

private:
    [[nodiscard]] Outcome begin_acquisition(Deadline start, Deadline until,
                                            Deadline& before_send) noexcept;
    [[nodiscard]] Outcome settle(Attempt& attempt, Deadline end, Deadline until,
                                 std::uint64_t stream_before) noexcept;

    B& backend_;
    LeaseRecord::Handle& record_;
};

/// What comes before every SET and every swap.
/// @param before_send set anew where that took time; the lease counts from there
/// @return yes: a token has been drawn
template <class B>
Outcome Acquisition<B>::begin_acquisition(Deadline start, Deadline until,
                                          Deadline& before_send) noexcept {
    if (deadline_at(*record_, start) != Deadline{}) return {Answer::unsent, errc::already_held};
    if (record_->flaw() != Flaw::none) {
        return {Answer::unsent, errc::invalid_argument,
                describe(record_->flaw(), record_->ttl, record_->margin).view()};
    }
    forget(*record_);
    // What an earlier token may have left goes first, and is answered before the next token is
    // drawn: a guard never has more than one stray token about.
    if (record_->trace != Trace::none) {
        const Outcome cleaned = clean_up(start, until);
        if (record_->trace != Trace::none) {
            const bool known = cleaned.answer == Answer::yes || cleaned.answer == Answer::no;
            return {Answer::unsent, known ? make_error_code(errc::timed_out) : cleaned.cause,
                    cleaned.text.view()};
        }
        before_send = record_->runtime().now();
    }
    if (record_->shared()) { // a renewal of the last lease is still on its way
        LeaseRecord::Handle next = record_->renewed();
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
Outcome Acquisition<B>::acquire(Deadline start, Deadline until,
                                std::optional<std::chrono::milliseconds>* holder_left) noexcept {
    Deadline before_send = start;
    if (Outcome ready = begin_acquisition(start, until, before_send); !ready) return ready;
    LeaseRecord& record = *record_;
    const Deadline end = lease_deadline(before_send, record.ttl, record.margin);
    const std::uint64_t stream_before = find_stream_number(backend_);
    // an answer behind the deadline of the lease is worth nothing
    const Deadline by = (std::min)({later(start, record.timeout()), end, until});
    Attempt attempt = Verbs<B>::acquire(backend_, record.dialect(), view_of(*record_),
                                        holder_left != nullptr, by);
    if (holder_left != nullptr) *holder_left = attempt.holder_left;
    if (!RoutedConnection<B> && attempt.outcome.answer == Answer::refused &&
        attempt.outcome.cause == errc::moved) {
        attempt.outcome.text.append(" (a node of a cluster: that takes a ClusterConnection)");
    }
    return settle(attempt, end, until, stream_before);
}

template <class B>
Outcome Acquisition<B>::adopt(const Lease& lease, Deadline start) noexcept {
    if (!lease) return {Answer::unsent, errc::invalid_argument, "there is no lease to adopt"};
    if (lease.key() != record_->key()) {
        return {Answer::unsent, errc::invalid_argument, "the lease is of another key"};
    }
    Deadline before_send = start;
    if (Outcome ready = begin_acquisition(start, (Deadline::max)(), before_send); !ready)
        return ready;
    LeaseRecord& record = *record_;
    const Deadline end = lease_deadline(before_send, record.ttl, record.margin);
    const Deadline by = (std::min)(later(start, record.timeout()), end);
    const std::uint64_t stream_before = find_stream_number(backend_);
    const auto swap = [&] {
        return Verbs<B>::adopt(backend_, record.dialect(), view_of(*record_), lease.value(), by);
    };
    Attempt attempt = swap();
    // safe to repeat: a swap that did happen takes its own value for the old one. What is not answered
    // the second time is as unknown as it was.
    if (attempt.set == Answer::unknown && record.runtime().now() < by) {
        const Attempt again = swap();
        if (again.set == Answer::yes || again.set == Answer::no) attempt = again;
    }
    return settle(attempt, end, (Deadline::max)(), stream_before);
}

/// What an attempt comes to, in the light of the time at which its answer was read.
template <class B>
Outcome Acquisition<B>::settle(Attempt& attempt, Deadline end, Deadline until,
                               std::uint64_t stream_before) noexcept {
    LeaseRecord& record = *record_;
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
        (stream_before != 0 && stream_before == find_stream_number(backend_))) {
        attempt.outcome.answer = cleaned ? Answer::refused : Answer::unknown;
    }
    return attempt.outcome;
}

/// Deletes, by its token, what may be left of it; until that is answered, and every node of a quorum that
/// may have it has been told, the trace remains. Where the caller's time is over it is written without
/// waiting for the answer.
template <class B>
Outcome Acquisition<B>::clean_up(Deadline start, Deadline until) noexcept {
    LeaseRecord& record = *record_;
    const Deadline by = (std::min)(later(start, record.timeout()), (std::max)(start, until));
    Outcome outcome = Verbs<B>::clean_up(backend_, record.dialect(), view_of(*record_), by);
    const bool answered = outcome.answer == Answer::yes || outcome.answer == Answer::no;
    if (answered && record.holders == 0) record.trace = Trace::none;
    record.tell(Verb::clean_up, start, outcome);
    return outcome;
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
