// SPDX-License-Identifier: MIT
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/testing/manual_runtime.hpp>
#include <leaselock/testing/memory_connection.hpp>
#include <leaselock/testing/memory_redis.hpp>

#include <chrono>
#include <mutex>

leaselock::Answer attempt(leaselock::testing::MemoryConnection& redis) {
    leaselock::LeaseLock lock{redis, "key", std::chrono::seconds{10}, std::defer_lock};
    return lock.try_acquire().answer;
}
