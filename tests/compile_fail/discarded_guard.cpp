// SPDX-License-Identifier: MIT
// A guard without a name is unlocked again before the next line.
#include "nowhere.hpp"

#include <leaselock/lock/lease_lock.hpp>

#include <chrono>
#include <mutex>

using namespace std::chrono_literals;

template <leaselock::Connection B>
void work(B& redis) {
#ifdef GOOD
    leaselock::LeaseLock lock{redis, "key", 10s};
#else
    leaselock::LeaseLock{redis, "key", 10s};
#endif
}

template void work(Nowhere&);
