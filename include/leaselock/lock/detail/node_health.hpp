#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/outcome.hpp>

#include <algorithm>
#include <chrono>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// Whether a node of a quorum is there, and when one that is not is tried again: pure. It goes by the
/// node's last answer, or its absence.
class NodeHealth {
public:
    [[nodiscard]] bool is_down() const noexcept { return failures_ != 0; }
    /// Of a node that is down: whether its pause is over.
    [[nodiscard]] bool may_be_tried(Deadline now) const noexcept { return now >= retry_at_; }
    /// What its vote is as long as it is down.
    [[nodiscard]] const Outcome& why() const noexcept { return why_; }

    void answered() noexcept { failures_ = 0; }
    void failed(const Outcome& why, Deadline now) noexcept {
        why_ = why;
        retry_at_ = later(now, pause(++failures_));
    }

    /// Between two tries: from 100 ms, doubling up to 1.6 s.
    [[nodiscard]] static constexpr std::chrono::milliseconds pause(unsigned failures) noexcept {
        return std::chrono::milliseconds{100} * (1U << (std::min)(failures - 1, 4U));
    }

private:
    unsigned failures_ = 0; ///< in a row
    Deadline retry_at_{};
    Outcome why_;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
