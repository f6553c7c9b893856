#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/outcome.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// How long a lease lasts, and how it ended: the deadline and the loss in one atomic, so that an
/// extension and a loss can never both win. Thread-safety: any number of threads.
/// Source: design, "Losing a lease".
class LeaseTerm {
public:
    void reset() noexcept {
        term_.store(0, std::memory_order_relaxed);
        ending_.store(Loss::none, std::memory_order_relaxed);
    }
    void begin(Deadline end) noexcept { term_.store(count(end), std::memory_order_release); }

    /// When the lease ends, or the clock's epoch when it has ended: by what is written down, not by
    /// the clock.
    [[nodiscard]] Deadline deadline() const noexcept {
        const std::int64_t term = term_.load(std::memory_order_acquire);
        return Deadline{LeaseClock::duration{std::max<std::int64_t>(term, 0)}};
    }
    /// Writes down that the deadline has passed, if it has. Whoever finds it so does, and from then
    /// on nobody can extend the lease. @return whether this call did
    bool expire(Deadline now) noexcept {
        std::int64_t term = term_.load(std::memory_order_acquire);
        while (term > 0 && count(now) >= term) {
            const Loss ending = ending_.load(std::memory_order_acquire);
            const Loss why = ending == Loss::none ? Loss::expired : ending;
            if (term_.compare_exchange_weak(term, lost(why))) return true;
        }
        return false;
    }
    /// Moves the deadline, never to an earlier point, unless the lease has ended by `now`.
    /// @return whether it is still held
    bool extend(Deadline now, Deadline end) noexcept {
        std::int64_t term = term_.load(std::memory_order_acquire);
        while (count(now) < term) {
            if (term >= count(end) || term_.compare_exchange_weak(term, count(end))) return true;
        }
        return false;
    }
    /// Ends a lease that is held. @return whether this call did
    bool lose(Loss why) noexcept {
        std::int64_t term = term_.load(std::memory_order_acquire);
        while (term > 0) {
            if (term_.compare_exchange_weak(term, lost(why))) return true;
        }
        return false;
    }
    /// Ends a lease that is given back; a loss stays a loss.
    void give_back() noexcept {
        std::int64_t term = term_.load(std::memory_order_acquire);
        while (term > 0 && !term_.compare_exchange_weak(term, 0)) {
        }
    }
    /// It is renewed no more, for this reason, and runs out.
    void let_run_out(Loss why) noexcept { ending_.store(why, std::memory_order_release); }

    [[nodiscard]] Loss loss() const noexcept {
        const std::int64_t term = term_.load(std::memory_order_acquire);
        if (term == 0) return Loss::none;
        return term < 0 ? static_cast<Loss>(-term) : ending_.load(std::memory_order_acquire);
    }
    /// Whether it runs out, and its holder has been told so, ahead of the deadline.
    [[nodiscard]] bool ending() const noexcept {
        return ending_.load(std::memory_order_acquire) != Loss::none;
    }

private:
    static constexpr std::int64_t count(Deadline at) noexcept {
        return at.time_since_epoch().count();
    }
    static constexpr std::int64_t lost(Loss why) noexcept {
        return -static_cast<std::int64_t>(why);
    }

    /// Above zero: the deadline in ns of the lease clock. Zero: no lease. Below: minus its Loss.
    std::atomic<std::int64_t> term_{0};
    std::atomic<Loss> ending_{Loss::none};
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
