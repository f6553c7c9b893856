#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>

#include <atomic>
#include <chrono>
#include <thread>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// Whose call a connection is in that serves one thread at a time. Two threads at once would take each
/// other's replies: that is said to the second, where it is seen, and not done.
class Occupancy {
public:
    /// @param by until when it may take, where nobody may ever come to end it
    /// @return false: another thread's is under way
    [[nodiscard]] bool enter(const Runtime& runtime, Deadline by) noexcept {
        const std::thread::id self = std::this_thread::get_id();
        std::thread::id owner{};
        if (!owner_.compare_exchange_strong(owner, self, std::memory_order_acquire) &&
            owner != self) {
            // what was begun in halves and never finished keeps nobody out for good
            if (runtime.now() < until_.load(std::memory_order_relaxed)) return false;
            if (!owner_.compare_exchange_strong(owner, self, std::memory_order_acquire)) {
                return false;
            }
        }
        until_.store(later(by, std::chrono::seconds{1}), std::memory_order_relaxed);
        return true;
    }
    [[nodiscard]] bool is_mine() const noexcept {
        return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id();
    }
    void leave() noexcept { owner_.store({}, std::memory_order_release); }

private:
    std::atomic<std::thread::id> owner_{};
    std::atomic<Deadline> until_{(Deadline::max)()};
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
