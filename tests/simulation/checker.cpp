// SPDX-License-Identifier: MIT

#include "simulation/checker.hpp"

#include "simulation/holder_rules.hpp"
#include "simulation/ledger.hpp"
#include "simulation/server_rules.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace leaselock::simulation {

std::string_view to_string(Rule rule) noexcept {
    switch (rule) {
    case Rule::form: return "form";
    case Rule::exclusion: return "exclusion";
    case Rule::deadline: return "deadline";
    case Rule::honesty: return "honesty";
    case Rule::finality: return "finality";
    case Rule::ownership: return "ownership";
    case Rule::answers: return "answers";
    case Rule::ghosts: return "ghosts";
    case Rule::fencing: return "fencing";
    case Rule::bounded: return "bounded";
    case Rule::liveness: return "liveness";
    }
    return "?";
}

Counts& Counts::operator+=(const Counts& other) noexcept {
    lines += other.lines;
    grants += other.grants;
    by_quorum += other.by_quorum;
    renewals += other.renewals;
    losses += other.losses;
    signals += other.signals;
    unknown += other.unknown;
    ghosts += other.ghosts;
    refused_writes += other.refused_writes;
    excused += other.excused;
    overlaps += other.overlaps;
    return *this;
}

Findings check(std::string_view history, const Tolerance& tolerance) {
    Findings findings;
    detail::Ledger ledger;
    detail::Report report{findings, 0};
    detail::ServerRules servers{ledger, report};
    detail::HolderRules holders{ledger, report, tolerance};
    HistoryLine line;
    Time before = 0;
    while (read_line(history, line)) {
        ++report.line;
        if (line.time < before) report.add(Rule::form, "time goes backwards");
        before = line.time;
        servers.see(line);
        holders.see(line);
    }
    if (!history.empty()) {
        ++report.line;
        report.add(Rule::form,
                   "not a line: " +
                       std::string{history.substr(0, history.find('\n')).substr(0, 80)});
    }
    servers.end();
    holders.end();
    findings.counts.lines = report.line;
    return findings;
}

} // namespace leaselock::simulation
