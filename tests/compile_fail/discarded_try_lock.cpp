// SPDX-License-Identifier: MIT
// Nobody would know whether the lock was taken.
#include "nowhere.hpp"

#include <leaselock/lock/lease_lock.hpp>

#include <chrono>
#include <mutex>

using namespace std::chrono_literals;

template <leaselock::Connection B>
void work(B& redis) {
    leaselock::LeaseLock lock{redis, "key", 10s, std::defer_lock};
#ifdef GOOD
    if (lock.try_lock()) lock.unlock();
#else
    lock.try_lock();
#endif
}

template void work(Nowhere&);
