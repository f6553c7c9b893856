// SPDX-License-Identifier: MIT

#include "chaos/plan.hpp"

#include "chaos/torment.hpp"
#include "simulation/clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace leaselock::chaos {
namespace {

using simulation::s;

PlanSettings settings(std::string_view names, std::uint64_t seed, Time span = 60 * s) {
    return {.seed = seed, .workers = 4, .kinds = *parse_kinds(names), .span = span};
}

std::string target_of(const Torment& torment) {
    switch (facts_of(torment.kind).target) {
    case Target::worker: return "w" + std::to_string(torment.worker);
    case Target::server: return "s" + std::to_string(torment.server);
    case Target::link: break;
    }
    return "w" + std::to_string(torment.worker) + "-s" + std::to_string(torment.server);
}

TEST(Plan, IsTheSeedsAlone) {
    EXPECT_EQ(draw(settings("all", 7)), draw(settings("all", 7)));
    EXPECT_NE(draw(settings("all", 7)), draw(settings("all", 8)));
}

TEST(Plan, DoesOneThingAtATimeToEach) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        std::map<std::string, Time> busy_until;
        for (const Torment& torment : draw(settings("all", seed))) {
            Time& until = busy_until[target_of(torment)];
            EXPECT_GE(torment.at, until) << to_string(torment);
            until = torment.at + torment.lasts;
            EXPECT_LE(until, 60 * s) << to_string(torment);
        }
    }
}

TEST(Plan, HasEveryKindWithinTenSeconds) {
    for (const std::string_view names : {"safe", "all"}) {
        std::set<Kind> done;
        for (const Torment& torment : draw(settings(names, 7, 10 * s))) done.insert(torment.kind);
        EXPECT_EQ(done.size(), parse_kinds(names)->size()) << names;
    }
}

TEST(Plan, MeddlesWithClocksAndMemoryWhereThatWasAskedFor) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        for (const Torment& torment : draw(settings("safe", seed))) {
            EXPECT_TRUE(facts_of(torment.kind).safe);
            EXPECT_EQ(facts_of(torment.kind).breaks, Breaks::nothing);
        }
        // a counter that is lost grows with the clock: that one is not stepped
        for (const Torment& torment : draw(settings("all", seed))) {
            const bool loses = torment.kind == Kind::forget || torment.kind == Kind::promotion;
            const bool steps =
                torment.kind == Kind::clock_back || torment.kind == Kind::clock_forward;
            EXPECT_TRUE(!loses || torment.server == forgetful);
            EXPECT_TRUE(!steps || torment.server != forgetful);
        }
    }
}

TEST(Plan, KeepsAmountsAndSpansWithinTheirTable) {
    for (const Torment& torment : draw(settings("all", 3))) {
        const KindFacts& kind = facts_of(torment.kind);
        EXPECT_GE(torment.amount, kind.least);
        EXPECT_LE(torment.amount, kind.most);
        EXPECT_GE(torment.lasts, kind.least_ms * simulation::ms);
        EXPECT_LE(torment.lasts, kind.most_ms * simulation::ms);
    }
}

TEST(Plan, ReadsNames) {
    EXPECT_EQ(parse_kinds("stop,kill"), (std::vector{Kind::stop, Kind::kill}));
    EXPECT_EQ(parse_kinds("kill,kill,stop"), (std::vector{Kind::kill, Kind::stop}));
    EXPECT_EQ(parse_kinds("all")->size(), kind_count);
    EXPECT_EQ(parse_kinds("none"), std::vector<Kind>{});
    EXPECT_EQ(parse_kinds("safe,promotion")->back(), Kind::promotion);
    EXPECT_FALSE(parse_kinds("stop,flood"));
}

TEST(Plan, SaysWhatItDoes) {
    EXPECT_EQ(to_string({2'310 * simulation::ms, Kind::stop, 1, 0, 812 * simulation::ms}),
              "2.310 s stop w1, for 812 ms");
    EXPECT_EQ(to_string({s, Kind::cut_reply, 1, 1, 0, 12}), "1.000 s cut-reply w1-s1, 12");
    EXPECT_EQ(to_string({s, Kind::script_flush, 0, 1}), "1.000 s script-flush s1");
}

} // namespace
} // namespace leaselock::chaos
