#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/plan.hpp"

#include <string>

namespace leaselock::simulation {

/// What came of a run.
struct Run {
    std::string history;
    bool ended = false; ///< all threads did
};

/// Carries a plan out. The same plan gives the same history, to the byte.
[[nodiscard]] Run carry_out(const Plan& plan);

} // namespace leaselock::simulation
