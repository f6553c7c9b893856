#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/history.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace leaselock::simulation {

/// What every history has to keep. Source: design, "What is promised".
enum class Rule : std::uint8_t {
    form,      ///< it is a history at all
    exclusion, ///< the intervals in which guards own a key do not overlap
    deadline,  ///< it is the largest, over confirmed sends, of send time + ttl - margin
    honesty,   ///< `owns_lock` says yes before the deadline only, and before any end
    finality,  ///< behind a loss: never owned, no renewal, one signal
    ownership, ///< nothing is changed but by the owner's value; every write leaves a ttl
    answers,   ///< yes, no, refused and unsent are what the servers did
    ghosts,    ///< an unknown token is not believed, not renewed, and deleted
    fencing,   ///< fencing tokens grow, one to a grant; the store takes no stale write
    bounded,   ///< every call ends by its limit
    liveness,  ///< a lock that nobody holds can be had
};
inline constexpr std::size_t rules = static_cast<std::size_t>(Rule::liveness) + 1;
[[nodiscard]] std::string_view to_string(Rule rule) noexcept;

struct Violation {
    Rule rule;
    std::size_t line; ///< from 1
    std::string what;
};

/// How exact the lines of a history are. A simulation writes down when things happen; real processes
/// do so a little earlier or later.
struct Tolerance {
    Time slack = 0;          ///< of the time of a line
    Time bound = 50'000'000; ///< that a call, or a signal, may come later
    /// Threads run at the same time, and may be held up between a deed and its line: what one has done
    /// is written down behind what another did later. Of such a history only what no hold-up explains
    /// is held against anybody.
    bool real = false;
};

/// What was seen, so that one knows that there was something to see.
struct Counts {
    std::uint64_t lines = 0;
    std::uint64_t grants = 0;
    std::uint64_t by_quorum = 0; ///< of the grants
    std::uint64_t renewals = 0;
    std::uint64_t losses = 0;
    std::uint64_t signals = 0;
    std::uint64_t unknown = 0;        ///< attempts without an answer
    std::uint64_t ghosts = 0;         ///< those that had been executed
    std::uint64_t refused_writes = 0; ///< by the store
    std::uint64_t excused = 0;        ///< overlaps that a fault explains
    std::uint64_t overlaps = 0;       ///< others

    Counts& operator+=(const Counts& other) noexcept;
};

struct Findings {
    std::vector<Violation> violations{};
    Counts counts{};
};

/// Checks a history against all rules. Pure. It takes those of the simulation, and those of real
/// processes: rules about what servers did hold where the history has lines of servers.
[[nodiscard]] Findings check(std::string_view history, const Tolerance& tolerance = {});

} // namespace leaselock::simulation
