// SPDX-License-Identifier: MIT

#include "simulation/checker.hpp"

#include "simulation/history_case.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace leaselock::simulation {
namespace {

/// Three nodes. c0 takes k0 on s0 and s1, its SET to s2 is lost; c1 gets a vote of s2, and gives it back;
/// c0 has its lease renewed by a quorum of its renewer's, with one node that lacks it, and unlocks; c1
/// takes k0 on all three. ttl 1,000 ms, margin 12 ms.
const std::vector<std::string> votes = {
    "0 c0 clock offset=0 ppm=0",
    "0 c1 clock offset=0 ppm=0",
    "1 c0 guard guard=a key=k0 ttl=1000 margin=12000000 fenced=0 nodes=3",
    "1 c0 call call=1 guard=a verb=acquire limit=100000000",
    "1 c0 send id=1 verb=set key=k0 token=A ttl=1000 to=s0 via=q1 slot=0 asked=1000000",
    "1 c0 send id=2 verb=set key=k0 token=A ttl=1000 to=s1 via=q1 slot=1 asked=1000000",
    "2 c0 send id=3 verb=set key=k0 token=A ttl=1000 to=s2 via=q1 slot=2 asked=1000000",
    "3 s0 exec id=1 verb=set token=A is=ok before=- after=A left=1000 ttl=1000 clock=3",
    "3 s1 exec id=2 verb=set token=A is=ok before=- after=A left=1000 ttl=1000 clock=3",
    "4 c0 reply id=1 is=ok",
    "4 c0 reply id=2 is=ok",
    "4 c0 event guard=a verb=acquire answer=yes token=A elapsed=3000000 remaining=985000000",
    "4 c0 return call=1 answer=yes token=A deadline=989000000",
    "4 c0 call call=2 guard=a verb=keep limit=0",
    "4 c0 return call=2 answer=yes token=A deadline=989000000",
    "6 c1 guard guard=b key=k0 ttl=1000 margin=12000000 fenced=0 nodes=3",
    "6 c1 send id=11 verb=set key=k0 token=B ttl=1000 to=s0 via=q3 slot=0",
    "6 c1 send id=12 verb=set key=k0 token=B ttl=1000 to=s1 via=q3 slot=1",
    "6 c1 send id=13 verb=set key=k0 token=B ttl=1000 to=s2 via=q3 slot=2",
    "7 s0 exec id=11 verb=set token=B is=nil before=A after=A left=996 ttl=1000 clock=7",
    "7 s1 exec id=12 verb=set token=B is=nil before=A after=A left=996 ttl=1000 clock=7",
    "7 s2 exec id=13 verb=set token=B is=ok before=- after=B left=1000 ttl=1000 clock=7",
    "8 c1 reply id=11 is=nil",
    "8 c1 reply id=12 is=nil",
    "8 c1 reply id=13 is=ok",
    "8 c1 send id=14 verb=delete key=k0 token=B to=s0 via=q3 slot=0",
    "8 c1 send id=15 verb=delete key=k0 token=B to=s1 via=q3 slot=1",
    "8 c1 send id=16 verb=delete key=k0 token=B to=s2 via=q3 slot=2",
    "9 s0 exec id=14 verb=delete token=B is=0 before=A after=A left=994 clock=9",
    "9 s1 exec id=15 verb=delete token=B is=0 before=A after=A left=994 clock=9",
    "9 s2 exec id=16 verb=delete token=B is=1 before=B after=- left=-2 clock=9",
    "10 c1 reply id=14 is=0",
    "10 c1 reply id=15 is=0",
    "10 c1 reply id=16 is=1",
    "10 c1 event guard=b verb=clean_up answer=yes token=B elapsed=2000000",
    "10 c1 event guard=b verb=acquire answer=no token=B elapsed=4000000 remaining=0",
    "60 c0 reply id=3 is=unknown",
    "300 c0 send id=21 verb=expire token=A ttl=1000 to=s0 via=q2 slot=0 asked=300000000",
    "301 c0 send id=22 verb=expire token=A ttl=1000 to=s1 via=q2 slot=1 asked=300000000",
    "301 c0 send id=23 verb=expire token=A ttl=1000 to=s2 via=q2 slot=2 asked=301000000",
    "302 s0 exec id=21 verb=expire token=A is=1 before=A after=A left=1000 ttl=1000 clock=302",
    "302 s1 exec id=22 verb=expire token=A is=1 before=A after=A left=1000 ttl=1000 clock=302",
    "302 s2 exec id=23 verb=expire token=A is=-1 before=- after=- left=-2 clock=302",
    "303 c0 reply id=21 is=1",
    "303 c0 reply id=22 is=1",
    "303 c0 reply id=23 is=-1",
    "303 c0 event guard=a verb=renew answer=yes token=A elapsed=3000000 remaining=985000000",
    "304 c0 owns guard=a token=A is=1 deadline=1288000000 loss=none",
    "400 c0 call call=3 guard=a verb=unlock limit=100000000",
    "400 c0 send id=31 verb=delete key=k0 token=A to=s0 via=q1 slot=0",
    "400 c0 send id=32 verb=delete key=k0 token=A to=s1 via=q1 slot=1",
    "400 c0 dial id=33 verb=delete key=k0 token=A via=q1 slot=2",
    "401 s0 exec id=31 verb=delete token=A is=1 before=A after=- left=-2 clock=401",
    "401 s1 exec id=32 verb=delete token=A is=1 before=A after=- left=-2 clock=401",
    "402 c0 reply id=31 is=1",
    "402 c0 reply id=32 is=1",
    "402 c0 event guard=a verb=release answer=yes token=A elapsed=2000000 remaining=0",
    "402 c0 return call=3 answer=yes token=A deadline=0",
    "403 c0 owns guard=a token=A is=0 deadline=0 loss=none",
    "404 c0 call call=4 guard=a verb=end limit=100000000",
    "404 c0 return call=4 answer=yes",
    "450 c0 reply id=33 is=unsent",
    "500 c1 send id=41 verb=set key=k0 token=C ttl=1000 to=s0 via=q3 slot=0",
    "500 c1 send id=42 verb=set key=k0 token=C ttl=1000 to=s1 via=q3 slot=1",
    "500 c1 send id=43 verb=set key=k0 token=C ttl=1000 to=s2 via=q3 slot=2",
    "501 s0 exec id=41 verb=set token=C is=ok before=- after=C left=1000 ttl=1000 clock=501",
    "501 s1 exec id=42 verb=set token=C is=ok before=- after=C left=1000 ttl=1000 clock=501",
    "501 s2 exec id=43 verb=set token=C is=ok before=- after=C left=1000 ttl=1000 clock=501",
    "502 c1 reply id=41 is=ok",
    "502 c1 reply id=42 is=ok",
    "502 c1 reply id=43 is=ok",
    "502 c1 event guard=b verb=acquire answer=yes token=C elapsed=2000000 remaining=986000000",
};

TEST(QuorumChecker, PassesAGoodHistory) {
    const Findings findings = check(to_text(votes));
    EXPECT_EQ(explain(findings), "");
    EXPECT_EQ(findings.counts.grants, 2U);
    EXPECT_EQ(findings.counts.by_quorum, 2U);
    EXPECT_EQ(findings.counts.renewals, 1U);
}

TEST(QuorumChecker, TakesHistoriesWithoutServersAndWithoutConnections) {
    std::vector<std::string> lines = votes;
    std::erase_if(lines,
                  [](const std::string& line) { return line.find(" exec ") != std::string::npos; });
    lines[find(lines, "400 c0 dial")] = "400 c0 send id=33 verb=delete key=k0 token=A to=s2";
    for (std::string& line : lines) line = line.substr(0, line.find(" via="));
    EXPECT_EQ(explain(check(to_text(lines))), "");
}

class QuorumCheckerFails : public ::testing::TestWithParam<Case> {};

TEST_P(QuorumCheckerFails, TheRule) {
    const Findings findings = check(to_text(changed(votes, GetParam().changes)));
    EXPECT_TRUE(breaks(findings, GetParam().rule)) << explain(findings);
}

class QuorumCheckerPasses : public ::testing::TestWithParam<Case> {};

TEST_P(QuorumCheckerPasses, TheRule) {
    const Findings findings = check(to_text(changed(votes, GetParam().changes)));
    EXPECT_FALSE(breaks(findings, GetParam().rule)) << explain(findings);
}

/// c0 does not give its lease back, and c1 is granted the key all the same.
std::vector<Change> overlap_with(std::vector<Change> more) {
    std::vector<Change> changes = {{"400 c0 call", "guard=a", "guard=x"},
                                   {"404 c0 call", "guard=a", "guard=x"}};
    changes.insert(changes.end(), more.begin(), more.end());
    return changes;
}
Change fault_at(std::string_view line) { return {"404 c0 return", "", line}; }
constexpr std::string_view s0_forgets =
    "450 world fault kind=forget lasts=0 breaks=exclusion target=s0";
constexpr std::string_view s1_forgets =
    "450 world fault kind=forget lasts=0 breaks=exclusion target=s1";
constexpr std::string_view s2_forgets =
    "450 world fault kind=forget lasts=0 breaks=exclusion target=s2";

INSTANTIATE_TEST_SUITE_P(
    Histories, QuorumCheckerFails,
    ::testing::Values(
        Case{"GrantedByAMinority", Rule::answers, {{"4 c0 reply id=2", "is=ok", "is=unknown"}}},
        Case{"GrantedByOneServerTwice",
             Rule::answers,
             {{"1 c0 send id=2", "to=s1", "to=s0"}, {"3 s1 exec id=2", "3 s1", "3 s0"}}},
        Case{"GrantedWithoutExecution", Rule::answers, {{"3 s1 exec id=2", "is=ok", "is=nil"}}},
        Case{"AddsUpTwoTries",
             Rule::answers,
             {{"301 c0 send id=22", "asked=300000000", "asked=200000000"}}},
        Case{"AddsUpTheGuardsAndTheRenewers",
             Rule::answers,
             {{"301 c0 send id=22", "via=q2", "via=q1"}}},
        Case{"RenewalCountsAZero",
             Rule::answers,
             {{"302 s1 exec id=22", "is=1 before=A after=A", "is=0 before=B after=B"},
              {"303 c0 reply id=22", "is=1", "is=0"}}},
        Case{"LostAtTheFirstZero", Rule::answers, {{"303 c0 event", "answer=yes", "answer=no"}}},
        Case{"LossAtTheFirstZero",
             Rule::honesty,
             {{"304 c0 owns", "",
               "304 c0 event guard=a verb=lose answer=no token=A remaining=0 loss=gone"}}},
        Case{"BusyByOneNode", Rule::answers, {{"8 c1 reply id=12", "is=nil", "is=unknown"}}},
        Case{"CleanedUpByOneNode",
             Rule::answers,
             {{"10 c1 reply id=14", "is=0", "is=unknown"},
              {"10 c1 reply id=15", "is=0", "is=unknown"}}},
        Case{"ReleasedByOneNode", Rule::answers, {{"402 c0 reply id=32", "is=1", "is=unknown"}}},
        Case{"RefusedAndAMajorityHasIt",
             Rule::answers,
             {{"502 c1 event", "answer=yes", "answer=refused"}}},
        Case{"UnsentButExecutedOnANode",
             Rule::answers,
             {{"502 c1 event", "answer=yes", "answer=unsent"}}},
        Case{"AdoptedByOneNode",
             Rule::answers,
             {{"500 c1 send id=41", "set key=k0 token=C", "adopt key=k0 token=X heir=C"},
              {"500 c1 send id=42", "set key=k0 token=C", "adopt key=k0 token=X heir=C"},
              {"502 c1 reply id=41", "is=ok", "is=1"},
              {"502 c1 reply id=42", "is=ok", "is=0"},
              {"502 c1 event", "acquire", "adopt"}}},
        Case{"CountsFromTheLastSend",
             Rule::deadline,
             {{"4 c0 event", "remaining=985000000", "remaining=986000000"}}},
        Case{"RenewalCountsFromTheLastSend",
             Rule::deadline,
             {{"304 c0 owns", "deadline=1288000000", "deadline=1289000000"}}},
        Case{"RenewedByAMinority", Rule::deadline, {{"303 c0 reply id=22", "is=1", "is=unknown"}}},
        Case{"MinorityIsLeft",
             Rule::ghosts,
             {{"8 c1 send id=14", "delete", "other"},
              {"8 c1 send id=15", "delete", "other"},
              {"8 c1 send id=16", "delete", "other"}}},
        Case{"SilentNodeIsNotTold",
             Rule::ghosts,
             {{"8 c1 reply id=13", "is=ok", "is=unknown"}, {"8 c1 send id=16", "delete", "other"}}},
        Case{"ReleaseDoesNotTellASilentNode",
             Rule::ghosts,
             {{"400 c0 dial", "400 c0 dial id=33 verb=delete key=k0 token=A via=q1 slot=2", ""}}},
        Case{"RenewalBehindTheEnd",
             Rule::finality,
             {{"403 c0 owns", "",
               "403 c0 send id=24 verb=expire token=A ttl=1000 to=s0 via=q2 slot=0 "
               "asked=403000000"}}},
        Case{"SetTwiceByOneConnection",
             Rule::ownership,
             {{"401 s0 exec", "",
               "401 s0 exec id=1 verb=set token=A is=ok before=- after=A left=1000 ttl=1000 "
               "clock=401"}}},
        Case{"Overlap", Rule::exclusion, overlap_with({})},
        Case{"OverlapAndANodeThatIsDown", Rule::exclusion,
             overlap_with({fault_at("450 world fault kind=pause lasts=9000000 target=s1")})},
        Case{"OverlapAndOneOfTwoForgets", Rule::exclusion, overlap_with({fault_at(s0_forgets)})},
        Case{"OverlapAndANodeThatDidNotBackItForgets", Rule::exclusion,
             overlap_with({fault_at(s2_forgets), {"502 c1 reply id=41", "is=ok", "is=unknown"}})}),
    [](const auto& one) { return std::string{one.param.name}; });

INSTANTIATE_TEST_SUITE_P(
    Histories, QuorumCheckerPasses,
    ::testing::Values(Case{"OverlapAfterBothForgot", Rule::exclusion,
                           overlap_with({fault_at(s0_forgets), fault_at(s1_forgets)})},
                      // C has its majority from s1 and s2, and of these only s1 had a vote for A
                      Case{"OverlapAfterTheOneInCommonForgot", Rule::exclusion,
                           overlap_with({fault_at(s1_forgets),
                                         {"502 c1 reply id=41", "is=ok", "is=unknown"}})},
                      Case{"RenewalThatOtherNodesHaveYetToAnswer",
                           Rule::finality,
                           {{"304 c0 owns", "",
                             "399 c0 send id=24 verb=expire token=A ttl=1000 to=s0 via=q2 slot=0 "
                             "asked=399000000"},
                            {"403 c0 owns", "",
                             "403 c0 send id=25 verb=expire token=A ttl=1000 to=s1 via=q2 slot=1 "
                             "asked=403000000"}}},
                      Case{"ReleaseFindsANodeThatHasYetToAnswer",
                           Rule::ghosts,
                           {{"400 c0 dial", "delete", "other"}}},
                      Case{"OneServerIsBusyWithTheTokenItself",
                           Rule::answers,
                           {{"6 c1 send id=13", "to=s2", "to=s1"},
                            {"7 s1 exec id=12", "before=A after=A", "before=B after=B"}}},
                      Case{"OneServerHearsOfADeletionTwice",
                           Rule::answers,
                           {{"8 c1 send id=15", "to=s1", "to=s0"},
                            {"9 s1 exec id=15", "9 s1", "9 s0"},
                            {"10 c1 reply id=16", "is=1", "is=unknown"},
                            {"10 c1 event guard=b verb=clean_up", "answer=yes", "answer=no"}}}),
    [](const auto& one) { return std::string{one.param.name}; });

} // namespace
} // namespace leaselock::simulation
