// SPDX-License-Identifier: MIT

#include "simulation/checker.hpp"
#include "simulation/plan.hpp"
#include "simulation/shrink.hpp"

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace leaselock::simulation;

constexpr std::string_view usage =
    "leaselock_simulation [--seeds N] [--first N] [--seconds N] [--jobs N]\n"
    "    runs N seeds (300, or LEASELOCK_SIMULATION_SEEDS), or as many as fit into N seconds\n"
    "leaselock_simulation --seed N [--drop FAULT,...] [--without CLIENT,...] [--until MS] "
    "[--print]\n"
    "    runs one, less what is left out; prints its plan, and its history\n"
    "both with --rule NAME: looks at that one alone\n";

struct Arguments {
    std::uint64_t seeds = 300;
    std::uint64_t first = 0;
    std::uint64_t seconds = 0;
    std::uint64_t jobs = 1;
    std::optional<Selection> one{};
    std::optional<Rule> rule{};
    bool print = false;
    bool valid = true;
};

bool parse(std::string_view text, std::uint64_t& number) {
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    return error == std::errc{} && stop == end;
}

bool parse(std::string_view text, std::vector<std::size_t>& numbers) {
    while (!text.empty()) {
        const std::size_t comma = text.find(',');
        std::uint64_t number = 0;
        if (!parse(text.substr(0, comma), number)) return false;
        numbers.push_back(static_cast<std::size_t>(number));
        text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    }
    return true;
}

bool take(Arguments& arguments, std::string_view name, std::string_view value) {
    std::uint64_t number = 0;
    Selection selection = arguments.one.value_or(Selection{});
    if (name == "--seeds") return parse(value, arguments.seeds);
    if (name == "--first") return parse(value, arguments.first);
    if (name == "--seconds") return parse(value, arguments.seconds);
    if (name == "--jobs") return parse(value, arguments.jobs) && arguments.jobs != 0;
    if (name == "--rule") {
        for (std::size_t i = 0; i < rules && !arguments.rule; ++i) {
            if (to_string(static_cast<Rule>(i)) == value) arguments.rule = static_cast<Rule>(i);
        }
        return arguments.rule.has_value();
    }
    if (name == "--seed") {
        if (!parse(value, selection.seed)) return false;
    } else if (name == "--drop") {
        if (!parse(value, selection.dropped)) return false;
    } else if (name == "--without") {
        if (!parse(value, selection.without)) return false;
    } else if (name == "--until") {
        if (!parse(value, number)) return false;
        selection.until = static_cast<Time>(number) * ms;
    } else {
        return false;
    }
    arguments.one = selection;
    return true;
}

Arguments read(const std::vector<std::string_view>& words) {
    Arguments arguments;
    if (const char* const wanted = std::getenv("LEASELOCK_SIMULATION_SEEDS")) {
        arguments.valid = parse(wanted, arguments.seeds);
    }
    for (std::size_t i = 0; i < words.size() && arguments.valid; ++i) {
        if (words[i] == "--print") {
            arguments.print = true;
        } else {
            arguments.valid = i + 1 < words.size() && take(arguments, words[i], words[i + 1]);
            ++i;
        }
    }
    return arguments;
}

Verdict judge(const Selection& selection, const Arguments& arguments) {
    Verdict verdict = leaselock::simulation::judge(selection);
    std::erase_if(verdict.findings.violations, [&](const Violation& violation) {
        return arguments.rule && violation.rule != *arguments.rule;
    });
    return verdict;
}

void print_plan(const Selection& selection) {
    const Plan plan = selection.plan();
    std::cout << "  " << describe(plan) << '\n';
    for (const Fault& fault : plan.faults) std::cout << "  " << describe(fault) << '\n';
}

void print_violation(const Violation& violation) {
    std::cout << "  " << to_string(violation.rule) << ", line " << violation.line
              << " of the history: " << violation.what << '\n';
}

int run_one(const Arguments& arguments) {
    const Verdict verdict = judge(*arguments.one, arguments);
    print_plan(*arguments.one);
    if (arguments.print) std::cout << verdict.history;
    for (const Violation& violation : verdict.findings.violations) print_violation(violation);
    std::cout << (verdict.passed() ? "passed\n" : "failed\n");
    return verdict.passed() ? 0 : 1;
}

void report_failure(std::uint64_t seed, const Violation& violation) {
    std::cout << "seed " << seed << " fails:\n";
    print_violation(violation);
    const Selection small = shrink({seed}, violation.rule);
    std::cout << "shrunk to:\n";
    print_plan(small);
    for (const Violation& left : judge(small).findings.violations) {
        if (left.rule == violation.rule) {
            print_violation(left);
            break;
        }
    }
    std::cout << "replay: leaselock_simulation " << small.arguments() << " --print\n" << std::flush;
}

struct Tally {
    Counts counts{};
    std::uint64_t seeds = 0;
    std::uint64_t repeated = 0;
    bool passed = true;
};

/// Runs every `jobs`th seed from `first` on, up to the first that fails.
Tally run_many(const Arguments& arguments, std::uint64_t first) {
    using Watch = std::chrono::steady_clock;
    constexpr std::uint64_t sample = 50; // so many seeds to one that is run twice
    const Watch::time_point end = Watch::now() + std::chrono::seconds{arguments.seconds};
    Tally tally;
    for (std::uint64_t seed = first;; seed += arguments.jobs) {
        if (arguments.seconds != 0 ? Watch::now() >= end
                                   : seed >= arguments.first + arguments.seeds) {
            return tally;
        }
        const Verdict verdict = judge({seed}, arguments);
        tally.counts += verdict.findings.counts;
        ++tally.seeds;
        if (!verdict.passed()) {
            report_failure(seed, verdict.findings.violations.front());
            tally.passed = false;
            return tally;
        }
        if (seed % sample != 0) continue;
        ++tally.repeated;
        if (judge({seed}, arguments).history != verdict.history) {
            std::cout << "seed " << seed << " fails: two runs of it differ\n";
            tally.passed = false;
            return tally;
        }
    }
}

/// The same in a process for each job.
Tally run_jobs(const Arguments& arguments) {
    if (arguments.jobs == 1) return run_many(arguments, arguments.first);
    int ends[2] = {-1, -1};
    if (::pipe(ends) != 0) return {.passed = false};
    for (std::uint64_t job = 0; job < arguments.jobs; ++job) {
        const pid_t child = ::fork();
        if (child != 0) continue;
        const Tally tally = run_many(arguments, arguments.first + job);
        const bool told = ::write(ends[1], &tally, sizeof tally) == ssize_t{sizeof tally};
        std::cout << std::flush;
        ::_exit(told ? 0 : 1);
    }
    (void)::close(ends[1]);
    Tally all;
    Tally one;
    std::uint64_t heard = 0;
    for (; ::read(ends[0], &one, sizeof one) == ssize_t{sizeof one}; ++heard) {
        all.counts += one.counts;
        all.seeds += one.seeds;
        all.repeated += one.repeated;
        all.passed = all.passed && one.passed;
    }
    (void)::close(ends[0]);
    while (::wait(nullptr) > 0) {
    }
    all.passed = all.passed && heard == arguments.jobs; // else one has died
    return all;
}

} // namespace

int main(int argc, char** argv) {
    const Arguments arguments = read({argv + 1, argv + argc});
    if (!arguments.valid) {
        std::cerr << usage;
        return 2;
    }
    if (arguments.one) return run_one(arguments);
    const auto start = std::chrono::steady_clock::now();
    const Tally tally = run_jobs(arguments);
    const auto took = std::chrono::duration<double>{std::chrono::steady_clock::now() - start};
    const Counts& counts = tally.counts;
    std::cout << tally.seeds << " seeds from " << arguments.first << " in " << took.count()
              << " s, " << static_cast<double>(tally.seeds) / took.count() << " a second; "
              << tally.repeated << " of them twice, to the byte\n"
              << counts.lines << " lines of history, " << counts.grants << " grants ("
              << counts.by_quorum << " by a quorum), " << counts.renewals << " renewals, "
              << counts.losses << " losses, " << counts.signals << " signals, " << counts.unknown
              << " unknown (" << counts.ghosts << " of them ghosts), " << counts.refused_writes
              << " stale writes refused, " << counts.excused
              << " overlaps under a fault that explains them\n"
              << (tally.passed ? "passed\n" : "failed\n");
    return tally.passed ? 0 : 1;
}
