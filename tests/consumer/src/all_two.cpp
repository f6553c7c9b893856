// SPDX-License-Identifier: MIT
#include <leaselock/leaselock.hpp>

#include <chrono>
#include <mutex>

leaselock::Answer attempt(leaselock::HiredisConnection& redis) {
    leaselock::LeaseLock lock{redis, "key", std::chrono::seconds{10}, std::defer_lock};
    return lock.try_acquire().answer;
}
