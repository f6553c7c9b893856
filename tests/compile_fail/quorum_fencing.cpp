// SPDX-License-Identifier: MIT
// Fencing tokens of a quorum: counters of independent nodes do not form one order.
#include "split_nowhere.hpp"

#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/quorum.hpp>

#include <chrono>

using namespace std::chrono_literals;

template <class C>
void work(leaselock::Quorum<C>& nodes) {
#ifdef GOOD
    leaselock::LeaseLock lock{nodes, "key", {.ttl = 10s}};
#else
    leaselock::LeaseLock lock{nodes, "key", {.ttl = 10s, .fencing = true}};
#endif
}

template void work(leaselock::Quorum<SplitNowhere>&);
