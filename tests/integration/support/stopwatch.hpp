// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>

namespace leaselock::test {

/// Counts from its construction.
class Stopwatch {
public:
    [[nodiscard]] std::chrono::milliseconds elapsed() const {
        return std::chrono::duration_cast<std::chrono::milliseconds>(
            std::chrono::steady_clock::now() - start_);
    }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

} // namespace leaselock::test
