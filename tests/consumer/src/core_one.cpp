// SPDX-License-Identifier: MIT
// Two translation units that both include everything: what is not inline is defined twice.
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/testing/manual_runtime.hpp>
#include <leaselock/testing/memory_connection.hpp>
#include <leaselock/testing/memory_redis.hpp>

#include <chrono>
#include <mutex>

leaselock::Answer attempt(leaselock::testing::MemoryConnection& redis);

int main() {
    leaselock::testing::ManualRuntime runtime;
    leaselock::testing::MemoryRedis server{runtime};
    leaselock::testing::MemoryConnection redis{server};
    leaselock::LeaseLock lock{redis, "key", std::chrono::seconds{10}, std::defer_lock};
    const bool exclusive = lock.try_acquire().answer == leaselock::Answer::yes &&
                           attempt(redis) == leaselock::Answer::no;
    return exclusive ? 0 : 1;
}
