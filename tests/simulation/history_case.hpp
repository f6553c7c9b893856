#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/checker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

/// Histories that must pass, and histories that must fail, by one line each that is changed, added or
/// left out. Times are in ms here, and become ns.
namespace leaselock::simulation {

/// A line of the history, by how it begins; its time becomes ns.
inline std::string to_text(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
        const bool zero = line.starts_with("0 ");
        const std::size_t space = line.find(' ');
        text += line.substr(0, space) + (zero ? "" : "000000") + line.substr(space) + "\n";
    }
    return text;
}

inline std::size_t find(const std::vector<std::string>& lines, std::string_view beginning) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (lines[i].starts_with(beginning)) return i;
    }
    ADD_FAILURE() << "no line begins with " << beginning;
    return 0;
}

struct Change {
    std::string_view at;   ///< the first line that begins so …
    std::string_view from; ///< … has this replaced; empty: `to` is a line behind it
    std::string_view to;
};

inline std::vector<std::string> changed(std::vector<std::string> lines,
                                        const std::vector<Change>& changes) {
    for (const Change& change : changes) {
        const std::size_t at = find(lines, change.at);
        if (change.from.empty()) {
            lines.emplace(lines.begin() + static_cast<std::ptrdiff_t>(at) + 1, change.to);
            continue;
        }
        const std::size_t part = lines[at].find(change.from);
        if (part == std::string::npos) {
            ADD_FAILURE() << "no '" << change.from << "' in " << lines[at];
        } else {
            lines[at].replace(part, change.from.size(), change.to);
        }
    }
    std::erase(lines, "");
    return lines;
}

inline std::string explain(const Findings& findings) {
    std::string text;
    for (const Violation& violation : findings.violations) {
        text += std::string{to_string(violation.rule)} + ", line " +
                std::to_string(violation.line) + ": " + violation.what + "\n";
    }
    return text;
}

inline bool breaks(const Findings& findings, Rule rule) {
    return std::any_of(findings.violations.begin(), findings.violations.end(),
                       [rule](const Violation& violation) { return violation.rule == rule; });
}

struct Case {
    std::string_view name;
    Rule rule;
    std::vector<Change> changes;
};

inline void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

} // namespace leaselock::simulation
