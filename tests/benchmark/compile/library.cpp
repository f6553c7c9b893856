// SPDX-License-Identifier: MIT
// A file of a service that takes a lock with the library.
#include <leaselock/leaselock.hpp>

bool close_orders_once(leaselock::HiredisConnection& redis, void (*work)()) {
    const leaselock::LeaseLock lock{redis, "lock:order-timeout", std::chrono::seconds{10}};
    if (!lock) return false;
    work();
    return lock.owns_lock();
}
