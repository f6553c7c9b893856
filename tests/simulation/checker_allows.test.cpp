// SPDX-License-Identifier: MIT

#include "simulation/clock.hpp"
#include "simulation/good_history.hpp"
#include "simulation/history_case.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace leaselock::simulation {
namespace {

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
