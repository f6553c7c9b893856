#pragma once
// SPDX-License-Identifier: MIT

#include "chaos/arena.hpp"
#include "chaos/plan.hpp"

#include <map>
#include <string>

namespace leaselock::chaos {

/// Does what the plan says, and writes it down.
class Tormentor {
public:
    explicit Tormentor(Arena& arena) noexcept : arena_(arena) {}

    void begin(const Torment& torment);
    void end(const Torment& torment);

private:
    void begin_at_worker(const Torment& torment);
    void begin_at_link(const Torment& torment);
    void begin_at_server(const Torment& torment);
    void end_at_worker(const Torment& torment);
    void end_at_link(const Torment& torment);
    void end_at_server(const Torment& torment);
    void split(const Torment& torment);
    void promote(const Torment& torment);
    void tell(const Torment& torment, Time from) const;

    Arena& arena_;
    std::map<Time, Time> begun_{};          ///< when, by when it was planned
    std::map<Time, std::string> victims_{}; ///< the process whose leases it concerns
};

} // namespace leaselock::chaos
