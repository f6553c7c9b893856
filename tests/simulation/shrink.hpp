#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/checker.hpp"
#include "simulation/history.hpp"
#include "simulation/plan.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace leaselock::simulation {

/// A seed, and what is left out of its plan.
struct Selection {
    std::uint64_t seed = 0;
    std::vector<std::size_t> dropped{}; ///< faults, by their numbers in the whole plan
    std::vector<std::size_t> without{}; ///< clients
    std::optional<Time> until{};        ///< an earlier horizon

    [[nodiscard]] Plan plan() const;
    /// As arguments of the program.
    [[nodiscard]] std::string arguments() const;
};

/// What came of a selection.
struct Verdict {
    Findings findings;
    std::string history;

    [[nodiscard]] bool passed() const noexcept { return findings.violations.empty(); }
};

[[nodiscard]] Verdict judge(const Selection& selection);

/// Leaves out whatever can be left out of a selection that fails, with the rest failing still.
[[nodiscard]] Selection shrink(Selection failing,
                               const std::function<bool(const Selection&)>& fails);
/// As long as the same rule is broken.
[[nodiscard]] Selection shrink(Selection failing, Rule rule);

} // namespace leaselock::simulation
