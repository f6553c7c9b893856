#pragma once
// SPDX-License-Identifier: MIT

#include "chaos/tally.hpp"

#include <string>
#include <string_view>

namespace leaselock::chaos {

/// A picture of a run, as SVG: who held what when, and what was done to whom.
/// @param from what comes before is left out; and so is what comes behind `until`
[[nodiscard]] std::string draw_timeline(const Tally& tally, std::string_view title, Time from,
                                        Time until);

} // namespace leaselock::chaos
