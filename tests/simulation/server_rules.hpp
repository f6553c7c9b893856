#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/checker.hpp"
#include "simulation/history.hpp"
#include "simulation/ledger.hpp"

#include <cstdint>
#include <string_view>

namespace leaselock::simulation::detail {

/// What servers and stores may be seen to do: ownership, the lives of ghosts, fencing.
class ServerRules {
public:
    ServerRules(Ledger& ledger, Report& report) noexcept : ledger_(ledger), report_(report) {}

    void see(const HistoryLine& line);
    void end();

private:
    void see_fault(const HistoryLine& line);
    void see_executed(const HistoryLine& line);
    void see_change(const HistoryLine& line, std::string_view verb);
    void see_fence(const HistoryLine& line, TokenFacts& token);
    void see_store(const HistoryLine& line);
    void take(const HistoryLine& line, TokenFacts& token);
    void note_life(const HistoryLine& line, std::string_view token);

    Ledger& ledger_;
    Report& report_;
};

} // namespace leaselock::simulation::detail
