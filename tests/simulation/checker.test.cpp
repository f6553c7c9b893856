// SPDX-License-Identifier: MIT

#include "simulation/checker.hpp"
#include "simulation/clock.hpp"
#include "simulation/history.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

// Histories that must pass, and histories that must fail, by one line each that is changed, added or
// left out. Times are in ms here, and become ns.

namespace leaselock::simulation {
namespace {

/// A history that keeps all rules: c0 takes k0, has it renewed, is refused nothing, and gives it back;
/// c1 finds it busy, and takes it then. ttl 1,000 ms, margin 12 ms.
const std::vector<std::string> good = {
    "0 c0 clock offset=0 ppm=0",
    "0 c1 clock offset=0 ppm=0",
    "1 c0 guard guard=a key=k0 ttl=1000 margin=12000000 fenced=1 nodes=1",
    "1 c0 call call=1 guard=a verb=acquire limit=100000000",
    "1 c0 send id=1 verb=set key=k0 token=A ttl=1000 to=s0",
    "1 c0 send id=2 verb=fence key=k0 token=A to=s0",
    "2 s0 exec id=1 verb=set key=k0 token=A is=ok before=- after=A left=1000 ttl=1000 clock=2",
    "2 s0 exec id=2 verb=fence key=k0 token=A is=70 before=A after=A left=1000 counter_left=9 "
    "clock=2",
    "3 c0 reply id=1 is=ok",
    "3 c0 reply id=2 is=70",
    "3 c0 event guard=a verb=acquire answer=yes token=A elapsed=2000000 remaining=986000000",
    "3 c0 return call=1 answer=yes token=A deadline=989000000 fence=70",
    "4 c0 call call=2 guard=a verb=keep limit=0",
    "4 c0 return call=2 answer=yes token=A deadline=989000000",
    "4 c0 listen guard=a token=A",
    "5 store register key=k0 token=A fence=70 ok=1",
    "6 c1 guard guard=b key=k0 ttl=1000 margin=12000000 fenced=1 nodes=1",
    "6 c1 send id=3 verb=set key=k0 token=B ttl=1000 to=s0",
    "7 s0 exec id=3 verb=set key=k0 token=B is=nil before=A after=A left=995 ttl=1000 clock=7",
    "8 c1 reply id=3 is=nil",
    "8 c1 event guard=b verb=acquire answer=no token=B elapsed=2000000 remaining=0",
    "300 c0 send id=4 verb=expire key=k0 token=A ttl=1000 to=s0 asked=300000000",
    "301 s0 exec id=4 verb=expire key=k0 token=A is=1 before=A after=A left=1000 ttl=1000 "
    "clock=301",
    "302 c0 reply id=4 is=1",
    "302 c0 event guard=a verb=renew answer=yes token=A elapsed=2000000 remaining=986000000",
    "303 c0 owns guard=a token=A is=1 deadline=1288000000 loss=none",
    "304 store write key=k0 token=A fence=70 ok=1",
    "305 c0 unlisten guard=a token=A",
    "400 c0 call call=3 guard=a verb=unlock limit=100000000",
    "400 c0 send id=5 verb=delete key=k0 token=A to=s0",
    "401 s0 exec id=5 verb=delete key=k0 token=A is=1 before=A after=- left=-2 clock=401",
    "402 c0 reply id=5 is=1",
    "402 c0 event guard=a verb=release answer=yes token=A elapsed=2000000 remaining=0",
    "402 c0 return call=3 answer=yes token=A deadline=0",
    "403 c0 owns guard=a token=A is=0 deadline=0 loss=none",
    "404 c0 call call=4 guard=a verb=end limit=100000000",
    "404 c0 return call=4 answer=yes",
    "500 c1 send id=6 verb=set key=k0 token=C ttl=1000 to=s0",
    "500 c1 send id=7 verb=fence key=k0 token=C to=s0",
    "501 s0 exec id=6 verb=set key=k0 token=C is=ok before=- after=C left=1000 ttl=1000 clock=501",
    "501 s0 exec id=7 verb=fence key=k0 token=C is=80 before=C after=C left=1000 counter_left=9 "
    "clock=501",
    "502 c1 reply id=6 is=ok",
    "502 c1 reply id=7 is=80",
    "502 c1 event guard=b verb=acquire answer=yes token=C elapsed=2000000 remaining=986000000",
    "503 store register key=k0 token=C fence=80 ok=1",
    "504 store write key=k0 token=A fence=70 ok=0",
};

/// A line of the history, by how it begins; its time becomes ns.
std::string to_text(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
        const bool zero = line.starts_with("0 ");
        const std::size_t space = line.find(' ');
        text += line.substr(0, space) + (zero ? "" : "000000") + line.substr(space) + "\n";
    }
    return text;
}

std::size_t find(const std::vector<std::string>& lines, std::string_view beginning) {
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

std::vector<std::string> changed(std::vector<std::string> lines,
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

std::string explain(const Findings& findings) {
    std::string text;
    for (const Violation& violation : findings.violations) {
        text += std::string{to_string(violation.rule)} + ", line " +
                std::to_string(violation.line) + ": " + violation.what + "\n";
    }
    return text;
}

bool breaks(const Findings& findings, Rule rule) {
    return std::any_of(findings.violations.begin(), findings.violations.end(),
                       [rule](const Violation& violation) { return violation.rule == rule; });
}

TEST(Checker, PassesAGoodHistory) {
    const Findings findings = check(to_text(good));
    EXPECT_EQ(explain(findings), "");
    EXPECT_EQ(findings.counts.grants, 2U);
    EXPECT_EQ(findings.counts.renewals, 1U);
    EXPECT_EQ(findings.counts.refused_writes, 1U);
    EXPECT_EQ(findings.counts.lines, good.size());
}

TEST(Checker, PassesAnEmptyHistory) { EXPECT_EQ(explain(check("")), ""); }

struct Case {
    std::string_view name;
    Rule rule;
    std::vector<Change> changes;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class CheckerFails : public ::testing::TestWithParam<Case> {};

TEST_P(CheckerFails, TheRule) {
    const Findings findings = check(to_text(changed(good, GetParam().changes)));
    EXPECT_TRUE(breaks(findings, GetParam().rule)) << explain(findings);
}

INSTANTIATE_TEST_SUITE_P(
    Histories, CheckerFails,
    ::testing::Values(
        Case{"NoHistory", Rule::form, {{"1 c0 guard", "1 c0", "one c0"}}},
        Case{"FieldWithoutName", Rule::form, {{"1 c0 guard", "key=k0", "=k0"}}},
        Case{"TimeGoesBackwards", Rule::form, {{"4 c0 listen", "4 c0", "2 c0"}}},
        Case{"ReplyToNothing", Rule::form, {{"3 c0 reply id=1", "id=1", "id=99"}}},
        // c1 is granted the key while c0, which never gave it back, has 788 ms left
        Case{"Overlap",
             Rule::exclusion,
             {{"400 c0 call", "400 c0 call call=3 guard=a verb=unlock",
               "400 c0 call call=3 guard=x verb=unlock"},
              {"404 c0 call", "404 c0 call call=4 guard=a verb=end",
               "404 c0 call call=4 guard=x verb=end"}}},
        // a flush before either of them was executed explains nothing
        Case{"OverlapLongAfterAFlush",
             Rule::exclusion,
             {{"0 c1 clock", "", "0 world fault kind=flush lasts=0 breaks=exclusion"},
              {"400 c0 call", "guard=a", "guard=x"},
              {"404 c0 call", "guard=a", "guard=x"}}},
        Case{"ChildOwns",
             Rule::exclusion,
             {{"303 c0 owns", "", "303 c0f owns guard=a token=A is=1 deadline=1288000000"}}},
        Case{"GrantedTooLong",
             Rule::deadline,
             {{"3 c0 event", "remaining=986000000", "remaining=986000001"}}},
        Case{"RenewedTooLong",
             Rule::deadline,
             {{"303 c0 owns", "deadline=1288000000", "deadline=1290000000"}}},
        Case{"RenewedTooShort",
             Rule::deadline,
             {{"303 c0 owns", "deadline=1288000000", "deadline=989000000"}}},
        Case{"RenewalWithoutReply", Rule::deadline, {{"302 c0 reply", "is=1", "is=unknown"}}},
        Case{"OwnedBehindTheDeadline",
             Rule::honesty,
             {{"302 c0 reply", "is=1", "is=unknown"},
              {"303 c0 owns", "303 c0", "303 c0"},
              {"305 c0 unlisten", "", "990 c0 owns guard=a token=A is=1 deadline=1288000000"}}},
        Case{"NeverGranted",
             Rule::honesty,
             {{"8 c1 event", "", "9 c1 owns guard=b token=B is=1 deadline=994000000"}}},
        Case{"EndedForNoReason", Rule::honesty, {{"303 c0 owns", "is=1", "is=0"}}},
        Case{"GrantedTooLate",
             Rule::honesty,
             {{"3 c0 event", "remaining=986000000", "remaining=0"}}},
        Case{"SignalWithoutLoss",
             Rule::honesty,
             {{"303 c0 owns", "", "303 c0 signal guard=a token=A"}}},
        Case{"OwnedBehindUnlock",
             Rule::finality,
             {{"403 c0 owns", "is=0 deadline=0", "is=1 deadline=1288000000"}}},
        Case{
            "OwnedBehindLoss",
            Rule::finality,
            {{"302 c0 event", "", "302 c0 event guard=a verb=lose answer=no token=A remaining=0"}}},
        Case{
            "LostTwice",
            Rule::finality,
            {{"304 store", "", "305 c0 event guard=a verb=lose answer=no token=A remaining=0"},
             {"305 c0 event", "", "305 c0 event guard=a verb=lose answer=no token=A remaining=0"}}},
        Case{"SignalledTwice",
             Rule::finality,
             {{"304 store", "", "305 c0 event guard=a verb=lose answer=no token=A remaining=0"},
              {"305 c0 event", "", "305 c0 signal guard=a token=A"},
              {"305 c0 signal", "", "305 c0 signal guard=a token=A"}}},
        Case{"LostWithoutSignal",
             Rule::finality,
             {{"303 c0 owns", "", "303 c0 event guard=a verb=lose answer=no token=A remaining=0"},
              {"304 store", "304 store", "354 store"},
              {"305 c0 unlisten", "305", "354"}}},
        Case{"RunOutWithoutSignal",
             Rule::finality,
             {{"504 store", "", "1400 c0 unlisten guard=a token=A"},
              {"400 c0 call", "guard=a", "guard=x"},
              {"404 c0 call", "guard=a", "guard=x"}}},
        Case{"RenewedBehindUnlock",
             Rule::finality,
             {{"403 c0 owns", "",
               "403 c0 send id=9 verb=expire key=k0 token=A ttl=1000 asked=403000000"}}},
        Case{"RenewedBehindLoss",
             Rule::finality,
             {{"8 c1 event", "", "9 c0 event guard=a verb=renew answer=no token=A elapsed=0"}}},
        Case{"RawDelete", Rule::ownership, {{"401 s0 exec", "verb=delete", "verb=DEL"}}},
        Case{"RawExpireKeepsTheValue",
             Rule::ownership,
             {{"401 s0 exec", "verb=delete", "verb=GETDEL"}}},
        Case{"DeletesAnothers", Rule::ownership, {{"401 s0 exec", "before=A", "before=B"}}},
        Case{"RenewsAnothers",
             Rule::ownership,
             {{"301 s0 exec", "before=A after=A", "before=B after=B"}}},
        Case{"RenewalSetsAKey", Rule::ownership, {{"301 s0 exec", "before=A", "before=-"}}},
        Case{
            "SetTakesAnothersKey", Rule::ownership, {{"501 s0 exec id=6", "before=-", "before=A"}}},
        Case{"SetLeavesNoTtl", Rule::ownership, {{"2 s0 exec id=1", "left=1000", "left=-1"}}},
        Case{"RenewalLeavesNoTtl", Rule::ownership, {{"301 s0 exec", "left=1000", "left=-1"}}},
        Case{"CounterWithoutTtl",
             Rule::ownership,
             {{"2 s0 exec id=2", "counter_left=9", "counter_left=-1"}}},
        Case{"FenceForAnothers",
             Rule::ownership,
             {{"2 s0 exec id=2", "before=A after=A", "before=B after=B"}}},
        Case{"SetTwice",
             Rule::ownership,
             {{"401 s0 exec", "",
               "401 s0 exec id=1 verb=set key=k0 token=A is=ok before=- after=A left=1000 ttl=1000 "
               "clock=401"}}},
        Case{"AdoptTakesAnothers",
             Rule::ownership,
             {{"401 s0 exec", "",
               "401 s0 exec id=9 verb=adopt key=k0 token=X heir=Y is=1 before=Z after=Y left=1000 "
               "ttl=1000 clock=401"}}},
        Case{"SendsAnothersToken",
             Rule::ownership,
             {{"8 c1 event", "", "9 c1 send id=9 verb=delete key=k0 token=A"}}},
        Case{"ChildUnlocks",
             Rule::ownership,
             {{"303 c0 owns", "", "303 c0f call call=9 guard=a verb=unlock limit=0"},
              {"303 c0f call", "", "303 c0f return call=9 answer=yes"}}},
        Case{"YesWithoutExecution", Rule::answers, {{"301 s0 exec", "is=1", "is=-1"}}},
        Case{"YesToTheWrongReply", Rule::answers, {{"402 c0 reply", "is=1", "is=0"}}},
        Case{"GrantedWithoutReply", Rule::answers, {{"3 c0 reply id=1", "is=ok", "is=unknown"}}},
        Case{"NoMajority", Rule::answers, {{"1 c0 guard", "nodes=1", "nodes=3"}}},
        Case{
            "NoWithoutAnotherHolder", Rule::answers, {{"402 c0 event", "answer=yes", "answer=no"}}},
        Case{"RefusedButExecuted",
             Rule::answers,
             {{"502 c1 event", "answer=yes", "answer=refused"}}},
        Case{"RenewalRefusedWithoutProof",
             Rule::answers,
             {{"302 c0 event", "answer=yes", "answer=refused"}}},
        Case{"UnsentButExecuted",
             Rule::answers,
             {{"402 c0 event", "answer=yes", "answer=unsent"},
              {"4 c0 return", "answer=yes", "answer=unsent"}}},
        Case{"RenewsAnUnknown",
             Rule::ghosts,
             {{"8 c1 event", "", "9 c1 send id=9 verb=expire key=k0 token=B ttl=1000"}}},
        Case{"LivesBeyondItsTtl", Rule::ghosts, {{"401 s0 exec", "clock=401", "clock=1302"}}},
        Case{"LeftBehind",
             Rule::ghosts,
             {{"400 c0 call", "guard=a", "guard=x"},
              {"402 c0 reply", "is=1", "is=unknown"},
              {"402 c0 event", "answer=yes", "answer=unknown"}}},
        Case{"FenceDoesNotGrow", Rule::fencing, {{"501 s0 exec id=7", "is=80", "is=70"}}},
        Case{"GrantedWithoutFence", Rule::fencing, {{"501 s0 exec id=7", "is=80", "is=0"}}},
        Case{"SecondFence",
             Rule::fencing,
             {{"301 s0 exec", "",
               "301 s0 exec id=9 verb=fence key=k0 token=A is=75 before=A after=A left=1000 "
               "counter_left=9 clock=301"}}},
        Case{"StoreTakesASmallerOne", Rule::fencing, {{"504 store", "ok=0", "ok=1"}}},
        Case{"StoreTakesAStaleWrite",
             Rule::fencing,
             {{"501 s0 exec id=7", "is=80", "is=60"},
              {"503 store", "fence=80", "fence=60"},
              {"5 store", "5 store register key=k0", "5 store register key=k1"},
              {"304 store", "key=k0", "key=k1"},
              {"504 store", "ok=0", "ok=1"}}},
        Case{"FenceOfNobody", Rule::fencing, {{"304 store", "fence=70", "fence=71"}}},
        Case{"TakesTooLong",
             Rule::bounded,
             {{"402 c0 return", "402 c0 return call=3 answer=yes token=A deadline=0",
               "402 c0 listen guard=a token=A"},
              {"504 store", "", "551 c0 return call=3 answer=yes token=A deadline=0"}}},
        Case{"DoesNotReturn",
             Rule::bounded,
             {{"402 c0 return", "402 c0 return call=3 answer=yes token=A deadline=0",
               "402 c0 listen guard=a token=A"}}},
        Case{"WaitsWithoutAsking",
             Rule::liveness,
             {{"6 c1 guard", "nodes=1", "nodes=1 cap=100"},
              {"6 c1 guard", "", "6 c1 call call=8 guard=b verb=wait limit=600000000"}}},
        Case{"LostBeforeItsDeadline",
             Rule::honesty,
             {{"303 c0 owns", "",
               "303 c0 event guard=a verb=lose answer=no token=A remaining=0 loss=expired"}}},
        Case{"TakenAndNobodySaidSo",
             Rule::honesty,
             {{"303 c0 owns", "",
               "303 c0 event guard=a verb=lose answer=no token=A remaining=0 loss=taken"}}},
        Case{"RenewedWithoutAMajority",
             Rule::deadline,
             {{"1 c0 guard", "nodes=1", "nodes=3"},
              {"1 c0 send id=1", "", "1 c0 send id=11 verb=set key=k0 token=A ttl=1000 to=s1"},
              {"3 c0 reply id=1", "", "3 c0 reply id=11 is=ok"}}},
        Case{"RefusedButLeftOnANode",
             Rule::answers,
             {{"8 c1 event", "answer=no", "answer=refused"},
              {"7 s0 exec", "",
               "7 s1 exec id=13 verb=set key=k0 token=B is=ok before=- after=B left=1000 ttl=1000 "
               "clock=7"}}},
        Case{"NotFreeInTime",
             Rule::liveness,
             {{"504 store", "", "600 c1 call call=9 guard=b verb=wait limit=1000000000 must=yes"},
              {"600 c1 call", "", "700 c1 return call=9 answer=no"}}}),
    [](const auto& one) { return std::string{one.param.name}; });

class CheckerPasses : public ::testing::TestWithParam<Case> {};

TEST_P(CheckerPasses, TheRule) {
    const Findings findings = check(to_text(changed(good, GetParam().changes)));
    EXPECT_FALSE(breaks(findings, GetParam().rule)) << explain(findings);
}

/// c0 does not give its lease back, and c1 is granted the key all the same: why that may be.
std::vector<Change> overlap_with(std::vector<Change> more) {
    std::vector<Change> changes = {{"400 c0 call", "guard=a", "guard=x"},
                                   {"404 c0 call", "guard=a", "guard=x"}};
    changes.insert(changes.end(), more.begin(), more.end());
    return changes;
}

INSTANTIATE_TEST_SUITE_P(
    Histories, CheckerPasses,
    ::testing::Values(
        Case{"OverlapAfterAFlush", Rule::exclusion,
             overlap_with({{"404 c0 return", "",
                            "450 world fault kind=flush lasts=0 breaks=exclusion"}})},
        Case{"OverlapDuringAFailover", Rule::exclusion,
             overlap_with({{"0 c1 clock", "",
                            "0 world fault kind=failover lasts=2000000 breaks=exclusion"}})},
        // c1's SET runs first, and is answered last
        Case{"OverlapOfOneThatWasToldLate", Rule::exclusion,
             overlap_with(
                 {{"0 c1 clock", "", "0 c1 send id=6 verb=set key=k0 token=C ttl=1000 to=s0"},
                  {"0 c1 send", "",
                   "0 s0 exec id=6 verb=set key=k0 token=C is=ok before=- after=C left=1000 "
                   "ttl=1000 clock=0"},
                  {"0 s0 exec", "", "1 world fault kind=flush lasts=0 breaks=exclusion"}})},
        Case{"HolderIsDead", Rule::exclusion, overlap_with({{"404 c0 return", "", "450 c0 kill"}})},
        Case{"HolderHasBeenTold", Rule::exclusion,
             overlap_with({{"404 c0 return", "",
                            "450 c0 event guard=a verb=lose answer=no token=A remaining=0"}})},
        Case{
            "StoppedMeanwhile",
            Rule::bounded,
            {{"402 c0 return", "402 c0 return call=3 answer=yes token=A deadline=0", "402 c0 stop"},
             {"504 store", "", "900 c0 continue"},
             {"900 c0 continue", "", "905 c0 return call=3 answer=yes token=A deadline=0"}}},
        Case{"KilledMeanwhile",
             Rule::bounded,
             {{"402 c0 return", "402 c0 return call=3 answer=yes token=A deadline=0",
               "402 c0 kill"}}},
        Case{"SignalledAtItsLoss",
             Rule::finality,
             {{"304 store", "", "305 c0 event guard=a verb=lose answer=no token=A remaining=0"},
              {"305 c0 event", "", "305 c0 signal guard=a token=A"}}},
        Case{"HeldForLongEnough",
             Rule::finality,
             {{"302 c0 event", "",
               "302 c0 event guard=a verb=lose answer=no token=A remaining=986000000"}}},
        Case{"RenewalThatWasOnItsWay",
             Rule::finality,
             {{"403 c0 owns", "",
               "403 c0 send id=9 verb=expire key=k0 token=A ttl=1000 asked=399000000"}}},
        Case{"RenewalInAnotherForm",
             Rule::finality,
             {{"305 c0 unlisten", "",
               "399 c0 send id=8 verb=expire key=k0 token=A ttl=1000 asked=399000000"},
              {"403 c0 owns", "", "403 c0 reply id=8 is=error:NOSCRIPT"},
              {"403 c0 reply", "",
               "403 c0 send id=9 verb=expire key=k0 token=A ttl=1000 asked=403000000"}}},
        Case{"RefusedAndDeleted",
             Rule::answers,
             {{"502 c1 event", "answer=yes", "answer=refused"},
              {"504 store", "",
               "600 s0 exec id=9 verb=delete key=k0 token=C is=1 before=C after=- left=-2 "
               "clock=600"}}},
        Case{"Majority",
             Rule::answers,
             {{"1 c0 guard", "nodes=1", "nodes=3"},
              {"1 c0 send id=1", "", "1 c0 send id=11 verb=set key=k0 token=A ttl=1000 to=s1"},
              {"2 s0 exec id=1", "",
               "2 s1 exec id=11 verb=set key=k0 token=A is=ok before=- after=A left=1000 "
               "ttl=1000 clock=2"},
              {"3 c0 reply id=1", "", "3 c0 reply id=11 is=ok"},
              {"300 c0 send", "",
               "300 c0 send id=14 verb=expire key=k0 token=A ttl=1000 to=s1 asked=300000000"},
              {"301 s0 exec", "",
               "301 s1 exec id=14 verb=expire key=k0 token=A is=1 before=A after=A left=1000 "
               "ttl=1000 clock=301"},
              {"302 c0 reply", "", "302 c0 reply id=14 is=1"},
              {"400 c0 send", "", "400 c0 send id=15 verb=delete key=k0 token=A to=s1"},
              {"401 s0 exec", "",
               "401 s1 exec id=15 verb=delete key=k0 token=A is=1 before=A after=- left=-2 "
               "clock=401"},
              {"402 c0 reply", "", "402 c0 reply id=15 is=1"}}},
        Case{"SecondFenceBeforeTheGrant",
             Rule::fencing,
             {{"3 c0 reply id=1", "",
               "3 s0 exec id=9 verb=fence key=k0 token=A is=75 before=A after=A left=1000 "
               "counter_left=9 clock=3"},
              {"5 store", "fence=70", "fence=75"},
              {"304 store", "fence=70", "fence=75"}}},
        Case{"AsksAgainInTime",
             Rule::liveness,
             {{"6 c1 guard", "nodes=1", "nodes=1 cap=100"},
              {"6 c1 guard", "", "6 c1 call call=8 guard=b verb=wait limit=600000000"},
              {"8 c1 event", "",
               "109 c1 event guard=b verb=acquire answer=no token=B elapsed=1000000"},
              {"109 c1 event", "", "110 c1 return call=8 answer=no"}}},
        Case{"TakenAsTheServerSaid",
             Rule::honesty,
             {{"302 c0 reply", "is=1", "is=0"},
              {"302 c0 reply", "",
               "302 c0 event guard=a verb=lose answer=no token=A remaining=0 loss=taken"}}}),
    [](const auto& one) { return std::string{one.param.name}; });

TEST(Clock, FindsTheFirstMomentOfAReading) {
    for (const std::int64_t ppm : {-4'000, -1, 0, 1, 4'000}) {
        const Clock clock{123'456'789, ppm};
        for (const Time time : {Time{0}, Time{1}, 999'999 * us, 3 * s + 1, 1'000 * s}) {
            const Time reading = clock.at(time);
            EXPECT_GE(clock.at(clock.when(reading)), reading);
            EXPECT_LT(clock.at(clock.when(reading) - 1), reading);
        }
    }
}

TEST(Checker, AllowsForWhatATolerancePermits) {
    const std::vector<std::string> late = changed(
        good, {{"305 c0 unlisten", "", "305 c0 owns guard=a token=A is=1 deadline=1290000000"}});
    EXPECT_TRUE(breaks(check(to_text(late)), Rule::deadline));
    EXPECT_EQ(explain(check(to_text(late), {.slack = 5'000'000})), "");
}

TEST(Checker, TakesHistoriesWithoutServers) {
    std::vector<std::string> lines = good;
    std::erase_if(lines, [](const std::string& line) {
        return line.find(" s0 exec") != std::string::npos ||
               line.find(" store ") != std::string::npos;
    });
    EXPECT_EQ(explain(check(to_text(lines))), "");
}

} // namespace
} // namespace leaselock::simulation
