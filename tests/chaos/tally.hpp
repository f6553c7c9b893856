#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/clock.hpp"
#include "simulation/history.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// What a history tells a person: counts, spans, and who held what. It judges nothing: the checker does.
namespace leaselock::chaos {

using simulation::Time;

/// How a lease ended.
enum class End : std::uint8_t { given_back, lost, ran_out, killed, open };

/// A lease, from the answer that granted it to its end.
struct Hold {
    std::string worker; ///< w1
    std::string actor;  ///< w1.3
    std::string key;
    Time from = 0;
    Time until = 0;
    End end = End::open;
};

/// Something that was done, or happened.
struct Mark {
    Time from = 0;
    Time until = 0;
    std::string kind;
    std::string worker{}; ///< empty: a server's
    std::string server{};
    std::string key{}; ///< of an overlap, or of a write that was refused
};

struct Tally {
    std::uint64_t lines = 0;
    Time span = 0;
    std::map<std::string, std::uint64_t> attempts{}; ///< by answer
    std::map<std::string, std::uint64_t> renewals{}; ///< by answer
    std::map<std::string, std::uint64_t> releases{}; ///< by answer
    std::map<std::string, std::uint64_t> losses{};   ///< by reason
    std::map<std::string, std::uint64_t> torments{}; ///< by kind
    std::map<std::string, std::uint64_t> doubts{};   ///< what became of attempts without an answer
    std::uint64_t adoptions = 0;
    std::uint64_t processes = 0;
    std::uint64_t registered = 0;
    std::uint64_t written = 0;
    std::uint64_t refused = 0;       ///< by the store
    std::vector<Time> waits{};       ///< until a waiting call said yes, sorted
    std::vector<Time> after_kills{}; ///< until a key whose holder was killed was held again, sorted
    Time longest_over =
        0; ///< the longest that a call took beyond its limit, less what it was stopped
    std::string longest_call{};
    std::vector<Hold> holds{};
    std::vector<Mark> marks{};
};

[[nodiscard]] Tally tally(std::string_view history);

} // namespace leaselock::chaos
