// SPDX-License-Identifier: MIT

#include "chaos/summary.hpp"

#include "simulation/clock.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace leaselock::chaos {
namespace {

std::string in_seconds(Time time) {
    std::array<char, 40> text{};
    std::snprintf(text.data(), text.size(), "%.1f s",
                  static_cast<double>(time) / static_cast<double>(simulation::s));
    return text.data();
}
std::string in_ms(Time time) {
    std::array<char, 40> text{};
    const auto ms = static_cast<double>(time) / static_cast<double>(simulation::ms);
    std::snprintf(text.data(), text.size(), ms < 10 ? "%.2f ms" : "%.0f ms", ms);
    return text.data();
}

using Counted = std::map<std::string, std::uint64_t>;

std::uint64_t all_of(const Counted& counted) {
    std::uint64_t sum = 0;
    for (const auto& [what, count] : counted) sum += count;
    return sum;
}

/// `12 yes, 3 no`; in the order of the words that are given, then whatever else there is.
std::string list(const Counted& counted, const std::vector<std::string>& order = {}) {
    std::string text;
    const auto add = [&](const std::string& what, std::uint64_t count) {
        text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
    };
    for (const std::string& what : order) {
        if (const auto found = counted.find(what); found != counted.end()) {
            add(what, found->second);
        }
    }
    for (const auto& [what, count] : counted) {
        if (std::find(order.begin(), order.end(), what) == order.end()) add(what, count);
    }
    return text.empty() ? "none" : text;
}

std::string spread(const std::vector<Time>& sorted) {
    if (sorted.empty()) return "none";
    const auto at = [&](std::size_t percent) {
        return in_ms(sorted[std::min(sorted.size() - 1, sorted.size() * percent / 100)]);
    };
    return std::to_string(sorted.size()) + ": median " + at(50) + ", p99 " + at(99) + ", longest " +
           in_ms(sorted.back());
}

class Table {
public:
    void row(std::string_view name, const std::string& value) {
        std::string line{"  "};
        line.append(name).append(std::max<std::size_t>(30, name.size() + 1) - name.size(), ' ');
        // long lists go on in the second column
        std::size_t room = 78;
        for (std::size_t at = 0; at < value.size();) {
            std::size_t end = value.find(", ", at);
            end = end == std::string::npos ? value.size() : std::min(end + 2, value.size());
            if (end - at > room && room != 78) {
                line.append("\n").append(32, ' ');
                room = 78;
            }
            line.append(value, at, end - at);
            room -= std::min(room, end - at);
            at = end;
        }
        text_ += line + "\n";
    }
    void title(std::string_view name) { text_.append("\n").append(name).append("\n"); }
    [[nodiscard]] const std::string& text() const noexcept { return text_; }

private:
    std::string text_;
};

const std::vector<std::string> answers{"yes", "no", "refused", "unsent", "unknown"};

void tell_work(Table& table, const Tally& tally) {
    table.title("What the workers did");
    table.row("attempts", list(tally.attempts, answers));
    std::uint64_t answered = 0;
    std::uint64_t busy = 0;
    for (const auto& [answer, count] : tally.attempts) {
        if (answer == "yes" || answer == "no") answered += count;
        if (answer == "no") busy += count;
    }
    table.row("of those answered, busy",
              std::to_string(answered == 0 ? 0 : busy * 100 / answered) + " %");
    table.row("acquired", std::to_string(tally.holds.size()) + ", of them " +
                              std::to_string(tally.adoptions) + " handed over by another process");
    table.row("waited until acquired", spread(tally.waits));
    table.row("renewals", list(tally.renewals, answers));
    table.row("given back", list(tally.releases, answers));
    table.row("lost", list(tally.losses, {"expired", "taken", "gone"}));
    table.row("attempts without an answer",
              list(tally.doubts, {"had been set: deleted", "nothing there to delete"}));
    table.row("killed holder's key held again", spread(tally.after_kills));
    table.row("a call's worst over its limit",
              tally.longest_over == 0 ? "none"
                                      : in_ms(tally.longest_over) + ", " + tally.longest_call);
}

} // namespace

std::string judge(const Result& result, const simulation::Findings& findings) {
    std::string wrong;
    if (!result.may_overlap && result.witnessed != 0) {
        wrong += "exclusion: the witness saw " + std::to_string(result.witnessed) + " overlaps\n";
    }
    if (!result.probed) wrong += "liveness: the keys could not all be had at the end\n";
    for (const simulation::Violation& violation : findings.violations) {
        wrong += std::string{to_string(violation.rule)} + ", line " +
                 std::to_string(violation.line) + " of the history: " + violation.what + "\n";
    }
    return wrong;
}

std::string summarize(const Result& result, const Tally& tally,
                      const simulation::Findings& findings) {
    Table table;
    table.title("What was done to them");
    table.row(std::to_string(all_of(tally.torments)) + " torments in " + in_seconds(tally.span),
              list(tally.torments));
    table.row("processes, one after another", std::to_string(tally.processes));
    tell_work(table, tally);
    table.title("What was found");
    table.row("lines of history, checked", std::to_string(findings.counts.lines));
    table.row(
        "overlaps allowed",
        std::to_string(findings.counts.excused) +
            (result.may_overlap ? " (a clock, a lost write or a failover explains them)" : ""));
    table.row("overlaps forbidden", std::to_string(findings.counts.overlaps));
    table.row("critical sections", std::to_string(result.visits) + " looks inside, " +
                                       std::to_string(result.witnessed) +
                                       " found it claimed by another");
    table.row("store", std::to_string(tally.registered) + " tokens registered, " +
                           std::to_string(tally.written) + " writes taken, " +
                           std::to_string(tally.refused) + " stale ones refused");
    const std::string wrong = judge(result, findings);
    const auto count = std::count(wrong.begin(), wrong.end(), '\n');
    table.row("promises broken", count == 0 ? "none" : std::to_string(count));
    return "chaos, seed " + std::to_string(result.seed) + "\n" + table.text();
}

} // namespace leaselock::chaos
