// SPDX-License-Identifier: MIT
// Real workers, real servers, and what goes wrong between them. See README.md.

#include "chaos/arena.hpp"
#include "chaos/job.hpp"
#include "chaos/merge.hpp"
#include "chaos/plan.hpp"
#include "chaos/summary.hpp"
#include "chaos/tally.hpp"
#include "chaos/timeline.hpp"
#include "chaos/tormentor.hpp"
#include "chaos/witness.hpp"

#include "simulation/checker.hpp"
#include "simulation/clock.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

using namespace leaselock::chaos;
namespace fs = std::filesystem;
using leaselock::simulation::ms;
using leaselock::simulation::s;

namespace {

constexpr std::string_view usage =
    "usage: leaselock_chaos [--seconds N] [--workers N] [--keys N] [--seed N]\n"
    "                       [--faults safe|all|none|NAME,NAME...] [--every MS] [--out DIR]\n"
    "                       [--bound MS] [--picture SECOND] [--plan]\n"
    "\n"
    "  --keys     on each of the two servers: 1 to 20\n"
    "  --every    a torment, on average\n"
    "  --out      a folder for all files of the run; those of an earlier one go\n"
    "  --bound    how much longer than its limit a call may take: a loaded machine is slow\n"
    "  --picture  where the timeline of a long run begins; else at the first thing that is wrong\n"
    "  --plan     prints what is going to be done, and does nothing\n"
    "\n";

struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Settings {
    PlanSettings plan{.seed = std::random_device{}(), .workers = 4, .kinds = {}, .span = 10 * s};
    std::size_t keys = 3;
    fs::path out{"chaos"};
    Time bound = 4 * s;
    Time picture = -1;
    bool only_plan = false;
};

std::uint64_t to_number(const std::string& text, std::uint64_t least, std::uint64_t most) {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc{} || stop != end || number < least || number > most) {
        throw UsageError(text + " is not from " + std::to_string(least) + " to " +
                         std::to_string(most));
    }
    return number;
}
Time to_time(const std::string& text, Time unit) {
    return static_cast<Time>(to_number(text, 0, 1'000'000)) * unit;
}

Settings parse(const std::vector<std::string>& words) {
    Settings settings;
    settings.plan.kinds = *parse_kinds("safe");
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& name = words[i];
        if (name == "--plan") {
            settings.only_plan = true;
            continue;
        }
        if (i + 1 == words.size()) throw UsageError(name + " needs a value");
        const std::string& value = words[++i];
        if (name == "--seconds")
            settings.plan.span = to_time(value, s);
        else if (name == "--workers")
            settings.plan.workers = to_number(value, 1, 32);
        else if (name == "--keys")
            settings.keys = to_number(value, 1, 20);
        else if (name == "--seed")
            settings.plan.seed = to_number(value, 0, ~std::uint64_t{0});
        else if (name == "--every")
            settings.plan.every = to_time(value, ms);
        else if (name == "--out")
            settings.out = value;
        else if (name == "--bound")
            settings.bound = to_time(value, ms);
        else if (name == "--picture")
            settings.picture = to_time(value, s);
        else if (name == "--faults") {
            const auto kinds = parse_kinds(value);
            if (!kinds) throw UsageError("no such fault in " + value);
            settings.plan.kinds = *kinds;
        } else {
            throw UsageError("what is " + name + "?");
        }
    }
    if (settings.plan.every < ms) throw UsageError("--every is at least 1");
    return settings;
}

void sleep_until(const Scribe& scribe, Time at) {
    const Time left = at - scribe.now();
    if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds{left});
}

/// Torments begin and end in the order of the plan; what takes time makes the rest come later.
void torment(Arena& arena, const std::vector<Torment>& plan, Time span) {
    struct Step {
        Time at;
        bool begins;
        const Torment* torment;
    };
    std::vector<Step> steps;
    for (const Torment& torment : plan) {
        steps.push_back({torment.at, true, &torment});
        steps.push_back({torment.at + torment.lasts, false, &torment});
    }
    for (Time at = 0; at < span; at += s) steps.push_back({at, true, nullptr});
    std::stable_sort(steps.begin(), steps.end(),
                     [](const Step& a, const Step& b) { return a.at < b.at; });
    Tormentor tormentor{arena};
    const auto expect_all_alive = [&] {
        if (const auto dead = arena.dead(); !dead.empty()) {
            throw std::runtime_error(dead.front() + " has died of itself: see workers.log");
        }
    };
    for (const Step& step : steps) {
        sleep_until(arena.scribe(), step.at);
        expect_all_alive();
        if (step.torment == nullptr)
            arena.forget_traffic();
        else if (step.begins)
            tormentor.begin(*step.torment);
        else
            tormentor.end(*step.torment);
    }
    sleep_until(arena.scribe(), span);
    expect_all_alive();
}

/// The time by which a key whose holder is gone has to be had: the longest ttl, what a clock went back,
/// and a poll, on a slow machine.
constexpr Time free_again = 1200 * ms + 800 * ms + 10 * s;

/// Makes the folder, and takes away what an earlier run has left there, and nothing else.
void clear(const fs::path& folder) {
    fs::create_directories(folder);
    std::vector<fs::path> old;
    for (const auto& entry : fs::directory_iterator{folder}) {
        const fs::path& path = entry.path();
        const bool ours = path.extension() == ".history" || path.extension() == ".clock";
        if (ours) old.push_back(path);
    }
    for (const char* name :
         {"history", "summary.txt", "timeline.svg", "witness", "store.sock", "workers.log"}) {
        old.push_back(folder / name);
    }
    for (const fs::path& path : old) fs::remove(path);
}

Result run(const Settings& settings, const std::vector<Torment>& plan) {
    Result result{.seed = settings.plan.seed};
    clear(settings.out);
    Arena arena{{.folder = fs::absolute(settings.out),
                 .seed = settings.plan.seed,
                 .workers = settings.plan.workers,
                 .keys = settings.keys,
                 .forgets = forgets(settings.plan.kinds)}};
    torment(arena, plan, settings.plan.span);
    // whatever they hold
    for (std::size_t place = 0; place < arena.workers(); ++place) arena.kill_worker(place);
    arena.pass_all();
    result.probed = arena.probe(free_again);
    const Witness witness{arena.witness_path()};
    result.visits = witness.visits();
    result.witnessed = witness.overlaps();
    result.may_overlap = std::any_of(plan.begin(), plan.end(), [](const Torment& torment) {
        return facts_of(torment.kind).breaks == Breaks::exclusion;
    });
    return result;
}

void write(const fs::path& path, std::string_view text) {
    std::ofstream file{path, std::ios::binary};
    file << text;
    if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

/// Of a long run, half a minute.
std::pair<Time, Time> window(const Settings& settings, const Tally& tally, std::string_view history,
                             const leaselock::simulation::Findings& findings) {
    constexpr Time most = 60 * s;
    constexpr Time part = 30 * s;
    if (settings.picture >= 0)
        return {settings.picture, std::min(tally.span, settings.picture + part)};
    if (tally.span <= most) return {0, tally.span};
    Time around = part / 2;
    if (!findings.violations.empty()) {
        leaselock::simulation::HistoryLine line;
        for (std::size_t n = 0; n < findings.violations.front().line; ++n) {
            if (!read_line(history, line)) break;
        }
        around = line.time;
    }
    const Time from = std::max<Time>(0, around - part / 2);
    return {from, std::min(tally.span, from + part)};
}

/// The first lines at which something is wrong.
std::string lines_of(const leaselock::simulation::Findings& findings, std::string_view history) {
    constexpr std::size_t most = 10;
    std::set<std::size_t> wanted;
    for (const auto& violation : findings.violations) {
        if (wanted.size() < most) wanted.insert(violation.line);
    }
    std::string text;
    std::size_t number = 0;
    for (std::size_t at = 0; at < history.size() && !wanted.empty();) {
        const std::size_t end = std::min(history.find('\n', at), history.size() - 1);
        if (wanted.erase(++number) != 0) {
            text += std::to_string(number) + ": ";
            text.append(history.substr(at, end + 1 - at));
        }
        at = end + 1;
    }
    return text;
}

int chaos(const Settings& settings) {
    const std::vector<Torment> plan = draw(settings.plan);
    if (settings.only_plan) {
        for (const Torment& torment : plan) std::cout << to_string(torment) << '\n';
        return 0;
    }
    const Result result = run(settings, plan);
    const std::string history = merge(read_histories(settings.out));
    write(settings.out / "history", history);
    const auto findings = leaselock::simulation::check(
        history, {.slack = 2 * ms, .bound = settings.bound, .real = true});
    const Tally counted = tally(history);
    const auto [from, until] = window(settings, counted, history, findings);
    write(settings.out / "timeline.svg",
          draw_timeline(counted, "leases under chaos, seed " + std::to_string(result.seed), from,
                        until));
    const std::string summary = summarize(result, counted, findings);
    write(settings.out / "summary.txt", summary);
    std::cout << summary << "\nhistory, summary and timeline.svg: " << settings.out.string()
              << '\n';
    const std::string wrong = judge(result, findings);
    if (wrong.empty()) return 0;
    std::cout << "\nFAILED\n" << wrong << lines_of(findings, history);
    return 1;
}

} // namespace

int main(int argc, char** argv) {
    std::vector<std::string> words{argv + 1, argv + argc};
    try {
        if (!words.empty() && words.front() == "--work") {
            words.erase(words.begin());
            return work(Job::from_words(words));
        }
        return chaos(parse(words));
    } catch (const UsageError& error) {
        std::cerr << usage << error.what() << '\n';
    } catch (const std::exception& error) {
        std::cerr << "error: " << error.what() << '\n';
    }
    return 2;
}
