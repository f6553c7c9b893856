#pragma once
// SPDX-License-Identifier: MIT

#include "chaos/torment.hpp"

#include "simulation/clock.hpp"
#include "simulation/history.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace leaselock::chaos {

using simulation::Time;

/// One thing that is done.
struct Torment {
    Time at;
    Kind kind;
    std::size_t worker = 0; ///< of a worker, and of its link
    std::size_t server = 0; ///< of a server, and of a link
    Time lasts = 0;
    int amount = 0; ///< what that is: see `facts`

    bool operator==(const Torment&) const = default;
};

struct PlanSettings {
    std::uint64_t seed = 1;
    std::size_t workers = 4;
    std::vector<Kind> kinds;
    Time span = 0;
    Time every = 250 * simulation::ms; ///< on average
};

/// The server that keeps nothing, and has a replica. Clocks are not stepped there: a fencing counter
/// that is lost grows with the clock.
inline constexpr std::size_t forgetful = 1;
inline constexpr std::size_t servers = 2;

/// Whether the second server is the forgetful one, or keeps all as the first does.
[[nodiscard]] bool forgets(const std::vector<Kind>& kinds) noexcept;

/// What is done, and when, by the seed alone: each kind before any comes
/// a third time; nothing is done to a
/// worker, a link or a server while something is done to it; all of it is over by the end of the span.
[[nodiscard]] std::vector<Torment> draw(const PlanSettings& settings);

/// `safe`, `all`, or names with commas between them. @return nothing for a name that is none
[[nodiscard]] std::optional<std::vector<Kind>> parse_kinds(std::string_view names);

/// `2.310 s stop w1, for 812 ms`
[[nodiscard]] std::string to_string(const Torment& torment);

} // namespace leaselock::chaos
