// SPDX-License-Identifier: MIT

#include "simulation/shrink.hpp"

#include "simulation/checker.hpp"
#include "simulation/plan.hpp"
#include "simulation/simulation.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace leaselock::simulation {
namespace {

std::string join(std::string_view name, const std::vector<std::size_t>& numbers) {
    std::string text;
    for (const std::size_t number : numbers) {
        text += (text.empty() ? std::string{name} + " " : ",") + std::to_string(number);
    }
    return text;
}

bool contains(const std::vector<std::size_t>& numbers, std::size_t number) {
    return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

using Fails = std::function<bool(const Selection&)>;

/// Adds each of `count` numbers that may be added to `left_out`.
bool leave_out(Selection& failing, std::vector<std::size_t> Selection::*left_out, std::size_t count,
               const Fails& fails) {
    bool any = false;
    for (std::size_t number = 0; number < count; ++number) {
        if (contains(failing.*left_out, number)) continue;
        Selection smaller = failing;
        (smaller.*left_out).push_back(number);
        if (!fails(smaller)) continue;
        failing = std::move(smaller);
        any = true;
    }
    return any;
}

} // namespace

Plan Selection::plan() const {
    Plan plan = draw_plan(seed);
    std::vector<Fault> kept;
    for (std::size_t i = 0; i < plan.faults.size(); ++i) {
        if (!contains(dropped, i)) kept.push_back(plan.faults[i]);
    }
    plan.faults = std::move(kept);
    plan.without = without;
    plan.horizon = until.value_or(plan.horizon);
    return plan;
}

std::string Selection::arguments() const {
    std::string text = "--seed " + std::to_string(seed);
    if (!dropped.empty()) text += join(" --drop", dropped);
    if (!without.empty()) text += join(" --without", without);
    if (until) text += " --until " + std::to_string(*until / ms);
    return text;
}

Verdict judge(const Selection& selection) {
    Run run = carry_out(selection.plan());
    Verdict verdict{check(run.history), std::move(run.history)};
    if (!run.ended) {
        verdict.findings.violations.push_back(
            {Rule::bounded, verdict.findings.counts.lines, "the threads do not come to an end"});
    }
    return verdict;
}

Selection shrink(Selection failing, const Fails& fails) {
    const Plan whole = draw_plan(failing.seed);
    bool smaller = true;
    while (smaller) {
        smaller = leave_out(failing, &Selection::dropped, whole.faults.size(), fails);
        smaller = leave_out(failing, &Selection::without, whole.clients, fails) || smaller;
        const Time horizon = failing.until.value_or(whole.horizon) * 3 / 4;
        Selection earlier = failing;
        earlier.until = horizon / ms * ms;
        if (horizon > 100 * ms && fails(earlier)) {
            failing = std::move(earlier);
            smaller = true;
        }
    }
    std::sort(failing.dropped.begin(), failing.dropped.end());
    std::sort(failing.without.begin(), failing.without.end());
    return failing;
}

Selection shrink(Selection failing, Rule rule) {
    return shrink(std::move(failing), [rule](const Selection& selection) {
        const std::vector<Violation> found = judge(selection).findings.violations;
        return std::any_of(found.begin(), found.end(),
                           [rule](const Violation& violation) { return violation.rule == rule; });
    });
}

} // namespace leaselock::simulation
