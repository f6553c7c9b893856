// SPDX-License-Identifier: MIT

#include "simulation/checker.hpp"

#include "simulation/good_history.hpp"
#include "simulation/history_case.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace leaselock::simulation {
namespace {

TEST(Checker, PassesAGoodHistory) {
    const Findings findings = check(to_text(good));
    EXPECT_EQ(explain(findings), "");
    EXPECT_EQ(findings.counts.grants, 2U);
    EXPECT_EQ(findings.counts.renewals, 1U);
    EXPECT_EQ(findings.counts.refused_writes, 1U);
    EXPECT_EQ(findings.counts.lines, good.size());
}

TEST(Checker, PassesAnEmptyHistory) { EXPECT_EQ(explain(check("")), ""); }

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

} // namespace
} // namespace leaselock::simulation
