// SPDX-License-Identifier: MIT

#include "simulation/checker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Histories of real processes: their threads run at the same time, and may be stopped between a deed and
// its line; servers write down nothing.

namespace leaselock::simulation {
namespace {

/// c0 takes s0:k, has it renewed by another thread, and gives it back; then c1 takes it, and a write of
/// c0's comes late. ttl 1,000 ms, margin 12 ms. Times in ms.
constexpr std::string_view good = R"(0 c0 clock offset=0 ppm=0
0 c1 clock offset=0 ppm=0
1 c0 guard guard=a key=s0:k ttl=1000 margin=12000000 fenced=1 nodes=1
1 c0 call call=1 guard=a verb=acquire limit=100000000
1 c0 send id=1 verb=set key=s0:k token=A ttl=1000 to=s0
3 c0 reply id=1 is=ok
3 c0 event guard=a verb=acquire answer=yes token=A elapsed=2000000 remaining=986000000 late=0
3 c0 return call=1 answer=yes token=A fence=70
4 c0 listen guard=a token=A
5 store register key=s0:k token=A fence=70 ok=1
300 c0 send id=4 verb=expire key=s0:k token=A ttl=1000 to=s0
302 c0 reply id=4 is=1
302 c0 event guard=a verb=renew answer=yes token=A elapsed=2000000 remaining=986000000 late=0
303 c0 owns guard=a token=A is=1 deadline=1288000000 loss=none
304 c0 unlisten guard=a token=A
400 c0 call call=3 guard=a verb=unlock limit=100000000
400 c0 send id=5 verb=delete key=s0:k token=A to=s0
402 c0 reply id=5 is=1
402 c0 event guard=a verb=release answer=yes token=A elapsed=2000000 remaining=0 late=0
402 c0 return call=3 answer=yes token=A fence=0
500 c1 guard guard=b key=s0:k ttl=1000 margin=12000000 fenced=1 nodes=1
500 c1 call call=8 guard=b verb=acquire limit=100000000
500 c1 send id=6 verb=set key=s0:k token=C ttl=1000 to=s0
502 c1 reply id=6 is=ok
502 c1 event guard=b verb=acquire answer=yes token=C elapsed=2000000 remaining=986000000 late=0
502 c1 return call=8 answer=yes token=C fence=80
503 store register key=s0:k token=C fence=80 ok=1
504 store write key=s0:k token=A fence=70 ok=0
)";

struct Change {
    std::string_view from; ///< what is replaced, once; lines may be added to it, or left out
    std::string_view to;
};

struct Case {
    std::string_view name;
    Rule rule;
    std::vector<Change> changes;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

/// With times in ns, in their order.
std::string history_of(const std::vector<Change>& changes) {
    std::string text{good};
    for (const Change& change : changes) {
        const std::size_t at = text.find(change.from);
        if (at == std::string::npos) {
            ADD_FAILURE() << "no " << change.from;
            continue;
        }
        text.replace(at, change.from.size(), change.to);
    }
    std::vector<std::pair<int, std::string>> lines;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at) + 1;
        const std::string line = text.substr(at, end - at);
        const std::size_t space = line.find(' ');
        lines.emplace_back(std::stoi(line), line.substr(0, space) + "000000" + line.substr(space));
        at = end;
    }
    std::stable_sort(lines.begin(), lines.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::string sorted;
    for (const auto& [time, line] : lines)
        sorted += line.starts_with("0000000 ") ? line.substr(6) : line;
    return sorted;
}

Findings check_real(const std::vector<Change>& changes) {
    return check(history_of(changes), {.slack = 2'000'000, .bound = 100'000'000, .real = true});
}

bool breaks(const Findings& findings, Rule rule) {
    return std::any_of(findings.violations.begin(), findings.violations.end(),
                       [rule](const Violation& violation) { return violation.rule == rule; });
}

std::string explain(const Findings& findings) {
    std::string text;
    for (const Violation& violation : findings.violations) {
        text += std::string{to_string(violation.rule)} + ", line " +
                std::to_string(violation.line) + ": " + violation.what + "\n";
    }
    return text;
}

/// c0 does not give it back.
constexpr Change keeps{"400 c0 call call=3 guard=a verb=unlock",
                       "400 c0 call call=3 guard=x verb=unlock"};
constexpr Change keeps_too{"402 c0 return call=3 answer=yes token=A fence=0\n",
                           "402 c0 return call=3 answer=yes\n"};

class RealFails : public ::testing::TestWithParam<Case> {};

TEST_P(RealFails, TheRule) {
    const Findings findings = check_real(GetParam().changes);
    EXPECT_TRUE(breaks(findings, GetParam().rule)) << explain(findings);
}

INSTANTIATE_TEST_SUITE_P(
    Histories, RealFails,
    ::testing::Values(
        Case{"Overlap", Rule::exclusion, {keeps, keeps_too}},
        Case{"OverlapThatAnotherServersFaultDoesNotExplain",
             Rule::exclusion,
             {keeps,
              keeps_too,
              {"500 c1 guard",
               "450 world fault kind=forget lasts=0 breaks=exclusion keys=s1:\n500 c1 guard"}}},
        Case{"OverlapThatAnotherClockDoesNotExplain",
             Rule::exclusion,
             {keeps,
              keeps_too,
              {"500 c1 guard",
               "450 world fault kind=slow-clock lasts=0 breaks=exclusion by=c2\n500 c1 guard"}}},
        Case{"DeadlineFromTheReply",
             Rule::deadline,
             {{"3 c0 event guard=a verb=acquire answer=yes token=A elapsed=2000000 "
               "remaining=986000000",
               "9 c0 event guard=a verb=acquire answer=yes token=A elapsed=8000000 "
               "remaining=988000000"}}},
        Case{"FenceDoesNotGrow",
             Rule::fencing,
             {{"token=C fence=80\n503", "token=C fence=60\n503"}}},
        Case{"OwnedBehindItsReturn",
             Rule::finality,
             {{"500 c1 guard",
               "403 c0 owns guard=a token=A is=1 deadline=1288000000 loss=none\n500 c1 guard"}}},
        Case{"RenewedBehindItsReturn",
             Rule::finality,
             {{"500 c1 guard", "405 c0 event guard=a verb=renew answer=yes token=A "
                               "elapsed=2000000 remaining=986000000 late=1000000\n500 c1 guard"}}},
        Case{"RenewsLongBehindItsEnd",
             Rule::finality,
             {{"504 store", "504 c0 send id=9 verb=expire key=s0:k token=A ttl=1000 to=s0\n504 "
                            "store"}}},
        Case{"SignalledForNoReason",
             Rule::honesty,
             {{"303 c0 owns", "303 c0 signal guard=a token=A\n303 c0 owns"}}},
        Case{"EndedForNoReason",
             Rule::honesty,
             {{"303 c0 owns guard=a token=A is=1 deadline=1288000000",
               "303 c0 owns guard=a token=A is=0 deadline=0"}}},
        Case{"StoreTakesAStaleWrite", Rule::fencing, {{"fence=70 ok=0", "fence=70 ok=1"}}}),
    [](const auto& one) { return std::string{one.param.name}; });

class RealPasses : public ::testing::TestWithParam<Case> {};

TEST_P(RealPasses, TheRule) {
    const Findings findings = check_real(GetParam().changes);
    EXPECT_FALSE(breaks(findings, GetParam().rule)) << explain(findings);
}

INSTANTIATE_TEST_SUITE_P(
    Histories, RealPasses,
    ::testing::Values(
        Case{"OverlapThatItsServersFaultExplains",
             Rule::exclusion,
             {keeps,
              keeps_too,
              {"500 c1 guard",
               "450 world fault kind=forget lasts=0 breaks=exclusion keys=s0:\n500 c1 guard"}}},
        Case{"OverlapThatItsClockExplains",
             Rule::exclusion,
             {keeps,
              keeps_too,
              {"500 c1 guard",
               "450 world fault kind=slow-clock lasts=0 breaks=exclusion by=c0\n500 c1 guard"}}},
        // the thread was stopped before it wrote down what it had been told
        Case{"GrantThatIsWrittenDownLate",
             Rule::deadline,
             {{"3 c0 event guard=a verb=acquire answer=yes token=A elapsed=2000000 "
               "remaining=986000000 late=0",
               "203 c0 event guard=a verb=acquire answer=yes token=A elapsed=2000000 "
               "remaining=986000000 late=200000000"}}},
        // one thread extends, and the other gives back before the first one has told of it
        Case{"RenewalThatIsToldOfLate",
             Rule::finality,
             {{"302 c0 event guard=a verb=renew answer=yes token=A elapsed=2000000 "
               "remaining=986000000 late=0",
               "410 c0 event guard=a verb=renew answer=yes token=A elapsed=2000000 "
               "remaining=878000000 late=108000000"}}},
        Case{"RenewalThatGoesOutLate",
             Rule::finality,
             {{"500 c1 guard", "405 c0 send id=9 verb=expire key=s0:k token=A ttl=1000 to=s0\n500 "
                               "c1 guard"}}},
        // the server has said no to the other thread, which has not told of it yet
        Case{"EndedForAReasonToBeTold",
             Rule::honesty,
             {{"302 c0 reply id=4 is=1", "302 c0 reply id=4 is=0"},
              {"302 c0 event guard=a verb=renew answer=yes", "305 c0 event guard=a verb=renew "
                                                             "answer=no"},
              {"303 c0 owns guard=a token=A is=1 deadline=1288000000",
               "303 c0 owns guard=a token=A is=0 deadline=0"}}},
        Case{"SignalledForAReasonToBeTold",
             Rule::honesty,
             {{"302 c0 reply id=4 is=1", "302 c0 reply id=4 is=0"},
              {"302 c0 event guard=a verb=renew answer=yes", "305 c0 event guard=a verb=renew "
                                                             "answer=no"},
              {"303 c0 owns guard=a token=A is=1 deadline=1288000000 loss=none",
               "303 c0 signal guard=a token=A"}}},
        // c0's SET may have come first, or last: nobody knows
        Case{"WriteOfOneThatMayBeNewer",
             Rule::fencing,
             {keeps,
              keeps_too,
              {"1 c0 call call=1", "499 c0 call call=1"},
              {"1 c0 send", "499 c0 send"},
              {"3 c0 reply", "501 c0 reply"},
              {"3 c0 event", "501 c0 event"},
              {"3 c0 return", "501 c0 return"},
              {"5 store register", "501 store register"}}}),
    [](const auto& one) { return std::string{one.param.name}; });

TEST(Real, PassesAGoodHistory) {
    const Findings findings = check_real({});
    EXPECT_EQ(explain(findings), "");
    EXPECT_EQ(findings.counts.grants, 2U);
    EXPECT_EQ(findings.counts.overlaps, 0U);
}

/// What counts is when the answer came; that its thread was stopped behind that, it cannot know.
TEST(Real, TellsALateAnswerFromAStop) {
    constexpr std::string_view words = "granted behind its deadline";
    const Change short_lease{"margin=12000000", "margin=990000000"};
    const Change stopped{"3 c0 event guard=a verb=acquire answer=yes token=A elapsed=2000000 "
                         "remaining=986000000",
                         "30 c0 event guard=a verb=acquire answer=yes token=A elapsed=29000000 "
                         "remaining=0"};
    EXPECT_EQ(explain(check_real({short_lease, stopped})).find(words), std::string::npos);
    const Change late{"3 c0 reply id=1", "29 c0 reply id=1"};
    EXPECT_NE(explain(check_real({short_lease, stopped, late})).find(words), std::string::npos);
}

TEST(Real, CountsOverlaps) {
    EXPECT_EQ(check_real({keeps, keeps_too}).counts.overlaps, 1U);
    const Findings excused = check_real(
        {keeps,
         keeps_too,
         {"500 c1 guard", "450 world fault kind=forget lasts=0 breaks=exclusion\n500 c1 guard"}});
    EXPECT_EQ(excused.counts.overlaps, 0U);
    EXPECT_EQ(excused.counts.excused, 1U);
}

} // namespace
} // namespace leaselock::simulation
