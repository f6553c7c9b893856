#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/lock/detail/keeper.hpp>
#include <leaselock/lock/detail/lease_record.hpp>

#include <utility>

/// How a lease ends that nobody gives back: noticed by whoever looks first.
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

inline void announce_loss(LeaseRecord& record) noexcept {
    record.tell_loss();
    if (record.keeper == nullptr) return record.request_stop();
    record.keeper->lost(record); // the signal is the renewer's to give
}

/// The deadline, or the epoch when the lease has ended by `now`; whoever finds it passed says so.
[[nodiscard]] inline Deadline deadline_at(LeaseRecord& record, Deadline now) noexcept {
    if (record.term().expire(now) && !record.term().ending()) announce_loss(record);
    return record.term().deadline();
}

/// A renewer that keeps the record keeps it no longer.
inline void forget(LeaseRecord& record) noexcept {
    if (record.keeper == nullptr) return;
    record.keeper->forget(record);
    std::exchange(record.keeper, nullptr)->release();
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
