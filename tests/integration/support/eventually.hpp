// SPDX-License-Identifier: MIT
#pragma once

#include "stopwatch.hpp"

#include <chrono>
#include <concepts>
#include <thread>

namespace leaselock::test {

/// Polls until the predicate holds; false when it did not within the limit.
/// What the predicate throws passes through.
template <std::predicate P>
[[nodiscard]] bool eventually(P&& holds,
                              std::chrono::milliseconds limit = std::chrono::seconds{10}) {
    const Stopwatch watch;
    while (!holds()) {
        if (watch.elapsed() >= limit) {
            return holds(); // this thread may have slept past the limit itself
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{2});
    }
    return true;
}

} // namespace leaselock::test
