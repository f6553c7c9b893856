#pragma once
// SPDX-License-Identifier: MIT

#include "chaos/tally.hpp"

#include "simulation/checker.hpp"

#include <cstdint>
#include <string>

namespace leaselock::chaos {

/// What a run came to, besides its history.
struct Result {
    std::uint64_t seed = 0;
    std::uint64_t visits = 0;    ///< to critical sections, as the witness counts
    std::uint64_t witnessed = 0; ///< overlaps
    bool may_overlap = false;    ///< something was done that breaks exclusion
    bool probed = false;         ///< the keys were all had at the end
};

/// For people.
[[nodiscard]] std::string summarize(const Result& result, const Tally& tally,
                                    const simulation::Findings& findings);

/// What is wrong, a line to each; empty: nothing.
[[nodiscard]] std::string judge(const Result& result, const simulation::Findings& findings);

} // namespace leaselock::chaos
