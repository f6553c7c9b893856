// SPDX-License-Identifier: MIT
// Nor is there one to be read.
#include "split_nowhere.hpp"

#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/quorum.hpp>

#include <cstdint>

std::uint64_t work(leaselock::LeaseLock<leaselock::Quorum<SplitNowhere>>& lock) {
#ifdef GOOD
    return lock.owns_lock() ? 1 : 0;
#else
    return lock.fencing_token();
#endif
}
