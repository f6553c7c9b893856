// SPDX-License-Identifier: MIT
// Two translation units see all of the library after hostile macros, use it, and are linked together.
#include "system_headers.hpp" // generated: what our headers include themselves

#include "hostile_macros.hpp"

#include "all_headers.hpp" // generated

bool lock_in_the_other_unit(leaselock::testing::MemoryConnection& redis);

#ifdef LEASELOCK_OTHER_UNIT
bool lock_in_the_other_unit(leaselock::testing::MemoryConnection& redis)
#else
bool lock_in_this_unit(leaselock::testing::MemoryConnection& redis)
#endif
{
    leaselock::LeaseLock lock{redis, "lock:hostile", std::chrono::seconds{10}, std::defer_lock};
    return lock.try_acquire() && lock.renew() && lock.unlock();
}

#ifndef LEASELOCK_OTHER_UNIT
int main() {
    leaselock::testing::ManualRuntime runtime;
    leaselock::testing::MemoryRedis server{runtime};
    leaselock::testing::MemoryConnection redis{server};
    return lock_in_this_unit(redis) && lock_in_the_other_unit(redis) ? 0 : 1;
}
#endif
