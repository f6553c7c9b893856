// SPDX-License-Identifier: MIT

#include "chaos/tally.hpp"

#include "chaos/merge.hpp"
#include "chaos/summary.hpp"
#include "chaos/timeline.hpp"

#include "simulation/checker.hpp"
#include "simulation/clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace leaselock::chaos {
namespace {

using simulation::ms;

// w0.1 takes s0:k0, is stopped, and finds it lost; w1.1 waited for it, and is killed; w0.1 takes it again.
constexpr std::string_view history =
    "1000000 w0.1 clock offset=0 ppm=0\n"
    "1000000 w1.1 clock offset=0 ppm=0\n"
    "2000000 w0.1 guard guard=a key=s0:k0 ttl=400 margin=6000000 fenced=1 nodes=1 cap=100\n"
    "2000000 w1.1 guard guard=b key=s0:k0 ttl=400 margin=6000000 fenced=1 nodes=1 cap=100\n"
    "3000000 w0.1 call call=1 guard=a verb=acquire limit=500000000\n"
    "4000000 w0.1 event guard=a verb=acquire answer=yes token=A elapsed=1000000 "
    "remaining=393000000 late=0\n"
    "4000000 w0.1 return call=1 answer=yes token=A fence=70\n"
    "5000000 store register key=s0:k0 token=A fence=70 ok=1\n"
    "10000000 w1.1 call call=2 guard=b verb=wait limit=1000000000\n"
    "11000000 w1.1 event guard=b verb=acquire answer=no token=B elapsed=1000000 remaining=0 "
    "late=0\n"
    "20000000 world fault kind=stop worker=w0 span=600000000 amount=0\n"
    "20000000 w0.1 stop\n"
    "410000000 w1.1 event guard=b verb=acquire answer=yes token=C elapsed=1000000 "
    "remaining=393000000 late=0\n"
    "410000000 w1.1 return call=2 answer=yes token=C fence=80\n"
    "411000000 store register key=s0:k0 token=C fence=80 ok=1\n"
    "500000000 w1.1 event guard=b verb=renew answer=yes token=C elapsed=1000000 "
    "remaining=393000000 late=0\n"
    "620000000 w0.1 continue\n"
    "621000000 w0.1 event guard=a verb=lose answer=no token=A elapsed=0 remaining=0 loss=expired\n"
    "622000000 store write key=s0:k0 token=A fence=70 ok=0\n"
    "700000000 w1.1 kill\n"
    "700000000 world fault kind=kill worker=w1 span=1000000 amount=0\n"
    "800000000 w0.1 call call=3 guard=a verb=wait limit=300000000\n"
    "1099000000 w0.1 event guard=a verb=acquire answer=unknown token=D elapsed=1000000 remaining=0 "
    "late=0\n"
    "1110000000 w0.1 event guard=a verb=clean_up answer=yes token=D elapsed=1 remaining=0 late=0\n"
    "1120000000 w0.1 event guard=a verb=acquire answer=yes token=E elapsed=1000000 "
    "remaining=393000000 late=0\n"
    "1120000000 w0.1 return call=3 answer=yes token=E fence=90\n"
    "1200000000 w0.1 call call=4 guard=a verb=unlock limit=250000000\n"
    "1201000000 w0.1 event guard=a verb=release answer=yes token=E elapsed=1000000 remaining=0 "
    "late=0\n"
    "1201000000 w0.1 return call=4 answer=yes\n";

TEST(Tally, CountsWhatHappened) {
    const Tally counted = tally(history);
    EXPECT_EQ(counted.attempts.at("yes"), 3U);
    EXPECT_EQ(counted.attempts.at("no"), 1U);
    EXPECT_EQ(counted.renewals.at("yes"), 1U);
    EXPECT_EQ(counted.losses.at("expired"), 1U);
    EXPECT_EQ(counted.releases.at("yes"), 1U);
    EXPECT_EQ(counted.doubts.at("had been set: deleted"), 1U);
    EXPECT_EQ(counted.torments.at("stop"), 1U);
    EXPECT_EQ(counted.registered, 2U);
    EXPECT_EQ(counted.refused, 1U);
    EXPECT_EQ(counted.waits, (std::vector<Time>{320 * ms, 400 * ms}));
    EXPECT_EQ(counted.after_kills, (std::vector<Time>{420 * ms}));
    EXPECT_EQ(counted.longest_over, 20 * ms);
    EXPECT_EQ(counted.longest_call, "wait of a");
}

TEST(Tally, KnowsWhoHeldWhatUntilWhen) {
    const Tally counted = tally(history);
    ASSERT_EQ(counted.holds.size(), 3U);
    // stopped over its deadline: held no longer than that
    EXPECT_EQ(counted.holds[0].until, 397 * ms);
    EXPECT_EQ(counted.holds[0].end, End::lost);
    EXPECT_EQ(counted.holds[0].worker, "w0");
    EXPECT_EQ(counted.holds[1].until, 700 * ms);
    EXPECT_EQ(counted.holds[1].end, End::killed);
    EXPECT_EQ(counted.holds[2].from, 1120 * ms);
    EXPECT_EQ(counted.holds[2].until, 1200 * ms);
    EXPECT_EQ(counted.holds[2].end, End::given_back);
}

TEST(Tally, ReckonsWithTheHoldersClock) {
    // slow by half: 394 ms by its clock are 788 ms
    std::string slow{history};
    slow.replace(slow.find("ppm=0"), 5, "ppm=-500000");
    const Hold hold = tally(slow).holds.at(0);
    EXPECT_GE(hold.until, 621 * ms);
    EXPECT_EQ(tally(slow).longest_over, 0);
}

TEST(Merge, SortsByTimeAndKeepsTheOrderOfEach) {
    EXPECT_EQ(merge({"1 a x\n3 a y\n2 a z\n", "2 b x\n", "3 c half"}),
              "1 a x\n2 a z\n2 b x\n3 a y\n");
    EXPECT_EQ(merge({"1 a x\nnonsense\n2 a y\n"}), "1 a x\nnonsense\n2 a y\n");
}

TEST(Summary, SaysWhatIsWrong) {
    Result result{.seed = 7, .visits = 10, .probed = true};
    simulation::Findings findings;
    EXPECT_EQ(judge(result, findings), "");
    result.witnessed = 2;
    EXPECT_EQ(judge(result, findings), "exclusion: the witness saw 2 overlaps\n");
    result.may_overlap = true;
    EXPECT_EQ(judge(result, findings), "");
    result.probed = false;
    EXPECT_NE(judge(result, findings), "");
    result.probed = true;
    findings.violations.push_back({simulation::Rule::fencing, 12, "stale"});
    EXPECT_EQ(judge(result, findings), "fencing, line 12 of the history: stale\n");
}

TEST(Summary, HasARowForEverything) {
    const std::string text = summarize({.seed = 7, .probed = true}, tally(history), {});
    for (const std::string_view part :
         {"seed 7", "3 yes, 1 no, 1 unknown", "1 expired", "1 had been set: deleted",
          "2: median 400 ms, p99 400 ms, longest 400 ms", "20 ms, wait of a", "1 kill, 1 stop",
          "2 tokens registered, 0 writes taken, 1 stale ones refused", "none"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
    }
}

/// Tags that open and close each other, and no attribute twice in one.
std::string find_flaw(std::string_view xml) {
    std::vector<std::string> open;
    for (std::size_t at = xml.find('<'); at != std::string_view::npos; at = xml.find('<', at + 1)) {
        const std::size_t end = xml.find('>', at);
        const std::string tag{xml.substr(at + 1, end - at - 1)};
        const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
        if (tag.front() == '/') {
            if (open.empty() || "/" + open.back() != tag) return "closes " + tag;
            open.pop_back();
            continue;
        }
        std::vector<std::string> attributes;
        for (std::size_t equals = tag.find("=\""); equals != std::string::npos;
             equals = tag.find("=\"", tag.find('"', equals + 2))) {
            const std::size_t start = tag.rfind(' ', equals) + 1;
            attributes.push_back(tag.substr(start, equals - start));
        }
        std::sort(attributes.begin(), attributes.end());
        if (std::adjacent_find(attributes.begin(), attributes.end()) != attributes.end())
            return "an attribute twice in " + tag;
        if (tag.back() != '/') open.push_back(name);
    }
    return open.empty() ? "" : "leaves open " + open.back();
}

TEST(Timeline, IsAPictureOfIt) {
    const Tally counted = tally(history);
    const std::string picture = draw_timeline(counted, "a <title>", 0, counted.span);
    EXPECT_EQ(find_flaw(picture), "");
    EXPECT_NE(find_flaw("<svg><a b=\"1\" b=\"2\"/></svg>"), "");
    EXPECT_NE(find_flaw("<svg><a></svg>"), "");
    for (const std::string_view part :
         {"a &lt;title&gt;", ">w0<", ">w1<", "s0:k0, w0.1, 393.0 ms: lost",
          "s0:k0, w1.1, 290.0 ms: its holder was killed", "SIGSTOP, and SIGCONT later",
          "the store refuses a stale write to s0:k0"}) {
        EXPECT_NE(picture.find(part), std::string::npos) << part;
    }
}

TEST(Timeline, LeavesOutWhatIsOutside) {
    const Tally counted = tally(history);
    const std::string picture = draw_timeline(counted, "", 1150 * ms, 1300 * ms);
    EXPECT_EQ(picture.find("w1.1, "), std::string::npos);
    EXPECT_NE(picture.find("s0:k0, w0.1, 80.0 ms: given back"), std::string::npos);
}

} // namespace
} // namespace leaselock::chaos
