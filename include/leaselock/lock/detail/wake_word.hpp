#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// What threads sleep on that share a mutex: a condition variable by the clock of a `Runtime`.
/// Called with the mutex held.
class WakeWord {
public:
    explicit WakeWord(Runtime& runtime) noexcept : runtime_(runtime) {}

    /// Wakes all that rest; to be called behind the change that they look for. Nothing where nobody
    /// does, or all have been woken and only wait for the mutex.
    void wake() noexcept {
        if (!resting_) return;
        resting_ = false;
        word_.fetch_add(1, std::memory_order_release);
        runtime_.notify_all(word_);
    }
    /// Sleeps until somebody calls `wake`, or until `by`; the mutex is free meanwhile.
    void rest(Deadline by, std::unique_lock<std::mutex>& lock) noexcept {
        resting_ = true;
        const std::uint32_t seen = word_.load(std::memory_order_acquire);
        lock.unlock();
        (void)runtime_.wait_until(word_, seen, by);
        lock.lock();
    }

private:
    Runtime& runtime_;
    std::atomic<std::uint32_t> word_{0};
    bool resting_ = false; ///< somebody may, and has not been woken
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
