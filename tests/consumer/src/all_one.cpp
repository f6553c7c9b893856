// SPDX-License-Identifier: MIT
// Two translation units that both include everything: what is not inline is defined twice.
#include <leaselock/leaselock.hpp>

#include <chrono>
#include <mutex>

leaselock::Answer attempt(leaselock::HiredisConnection& redis);

int main() {
    // Nobody listens on port 1: the attempt is answered, at once, and nothing was sent.
    leaselock::HiredisConnection redis{"redis://127.0.0.1:1"};
    leaselock::LeaseLock lock{redis, "key", std::chrono::seconds{10}, std::defer_lock};
    const bool unsent = lock.try_acquire().answer == leaselock::Answer::unsent &&
                        attempt(redis) == leaselock::Answer::unsent;
    return unsent ? 0 : 1;
}
