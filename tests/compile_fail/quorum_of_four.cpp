// SPDX-License-Identifier: MIT
// A fourth node bears no more failures than three do.
#include "split_nowhere.hpp"

#include <leaselock/lock/quorum.hpp>

void work(SplitNowhere& a, SplitNowhere& b, SplitNowhere& c, SplitNowhere& d) {
#ifdef GOOD
    leaselock::Quorum nodes{a, b, c};
    static_cast<void>(d);
#else
    leaselock::Quorum nodes{a, b, c, d};
#endif
}
