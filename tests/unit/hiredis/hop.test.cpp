// SPDX-License-Identifier: MIT
#include <leaselock/hiredis/detail/hop.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace leaselock::test {
namespace {

using namespace std::chrono_literals;
using detail::Hop;
using detail::keep_order;
using detail::most_hops;
using detail::next_hop;
using detail::Redirect;
using detail::retry_pause;
using detail::Sent;
using detail::shares_slot;

constexpr std::string_view key = "foo"; // slot 12182

Reply line(std::string_view text) {
    Reply reply;
    reply.set_text(Reply::error, text);
    return reply;
}
Reply unsent(std::error_code cause) {
    Reply reply;
    reply.set_unsent(cause);
    return reply;
}
Reply unknown() {
    Reply reply;
    reply.set_unknown(make_error_code(errc::timed_out));
    return reply;
}
Reply number(std::int64_t value) {
    Reply reply;
    reply.set_integer(value);
    return reply;
}

Hop hop(const Reply& reply, unsigned hops = 0, std::string_view of = key) {
    Redirect ignored;
    return next_hop(reply, of, hops, ignored);
}

TEST(NextHop, AnErrorThatAnotherNodeOrMomentMayCure) {
    const struct {
        std::string_view line;
        Hop hop;
    } rows[] = {
        {"MOVED 12182 127.0.0.1:7001", Hop::moved},
        {"ASK 12182 127.0.0.1:7001", Hop::ask},
        {"TRYAGAIN Multiple keys request during rehashing of slot", Hop::stay},
        {"CLUSTERDOWN The cluster is down", Hop::look_up},
        {"CLUSTERDOWN Hash slot not served", Hop::look_up},
        {"LOADING Redis is loading the dataset in memory", Hop::look_up},
        {"READONLY You can't write against a read only replica.", Hop::look_up},
        {"MASTERDOWN Link with MASTER is down", Hop::look_up},
        // what stands by itself, or is the caller's to decide
        {"CROSSSLOT Keys in request don't hash to the same slot", Hop::done},
        {"NOSCRIPT No matching script. Please use EVAL.", Hop::done},
        {"BUSY Redis is busy running a script.", Hop::done},
        {"NOREPLICAS Not enough good replicas to write.", Hop::done},
        {"OOM command not allowed when used memory > 'maxmemory'.", Hop::done},
        {"MISCONF Redis is configured to save RDB snapshots", Hop::done},
        {"NOAUTH Authentication required.", Hop::done},
        {"WRONGPASS invalid username-password pair", Hop::done},
        {"NOPERM this user has no permissions", Hop::done},
        {"ERR This instance has cluster support disabled", Hop::done},
        {"ERR Connection timed out", Hop::done}, // a proxy's: it may have run
        {"nonsense", Hop::done},
        {"", Hop::done},
        // nonsense is not followed
        {"MOVED", Hop::done},
        {"MOVED 12182 nowhere", Hop::done},
        {"MOVED 12183 127.0.0.1:7001", Hop::done}, // another slot
        {"ASK 0 127.0.0.1:7001", Hop::done},
    };
    for (const auto& row : rows) EXPECT_EQ(hop(line(row.line)), row.hop) << row.line;
}

TEST(NextHop, AnAnswerIsFinal) {
    Reply reply;
    reply.set_nil();
    EXPECT_EQ(hop(reply), Hop::done);
    reply.set_integer(1);
    EXPECT_EQ(hop(reply), Hop::done);
    for (const Reply::Kind kind : {Reply::status, Reply::string}) {
        reply.set_text(kind, "MOVED 12182 127.0.0.1:7001"); // a value, no redirection
        EXPECT_EQ(hop(reply), Hop::done);
    }
}

TEST(NextHop, WhatIsUnknownIsNeverSentAgain) {
    for (const errc cause : {errc::timed_out, errc::connection_lost, errc::protocol_error}) {
        Reply reply;
        reply.set_unknown(make_error_code(cause));
        EXPECT_EQ(hop(reply), Hop::done);
    }
}

TEST(NextHop, WhatWasNotSentIsTriedAgainWhereThatMayHelp) {
    EXPECT_EQ(hop(unsent(std::make_error_code(std::errc::connection_refused))), Hop::look_up);
    EXPECT_EQ(hop(unsent(make_error_code(errc::timed_out))), Hop::look_up);
    EXPECT_EQ(hop(unsent(make_error_code(errc::no_address))), Hop::look_up);
    EXPECT_EQ(hop(unsent(make_error_code(errc::not_master))), Hop::look_up);
    EXPECT_EQ(hop(unsent(make_error_code(errc::insecure))), Hop::done);
    EXPECT_EQ(hop(unsent(make_error_code(errc::invalid_argument))), Hop::done);
    EXPECT_EQ(hop(unsent(make_error_code(errc::cross_slot))), Hop::done);
    EXPECT_EQ(hop(unsent(std::make_error_code(std::errc::not_enough_memory))), Hop::done);
}

TEST(NextHop, FiveRedirectionsAreFollowedAndNoSixth) {
    for (const std::string_view text : {"MOVED 12182 a:1", "ASK 12182 a:1"}) {
        for (unsigned hops = 0; hops < most_hops; ++hops) {
            EXPECT_NE(hop(line(text), hops), Hop::done) << text << hops;
        }
        EXPECT_EQ(hop(line(text), most_hops), Hop::done) << text;
    }
    static_assert(most_hops == 5);
}

TEST(NextHop, ACommandWithoutAKeyHasNoSlotToMove) {
    EXPECT_EQ(hop(line("MOVED 0 a:1"), 0, ""), Hop::done);
    EXPECT_EQ(hop(line("CLUSTERDOWN The cluster is down"), 0, ""), Hop::look_up);
}

/// Hops of a round, after `keep_order`.
std::vector<Hop> kept(const std::vector<Reply>& replies, std::vector<std::string_view> keys = {}) {
    keys.resize(replies.size(), key);
    std::vector<Sent> round;
    for (std::size_t i = 0; i < replies.size(); ++i) {
        round.push_back({keys[i], &replies[i], hop(replies[i], 0, keys[i]), {}});
    }
    keep_order(round);
    std::vector<Hop> hops;
    for (const Sent& sent : round) hops.push_back(sent.hop);
    return hops;
}
using Hops = std::vector<Hop>;

TEST(KeepOrder, AllOfAKeyMoveTogether) {
    const Reply moved = line("MOVED 12182 a:1");
    EXPECT_EQ(kept({moved, moved, moved}), (Hops{Hop::moved, Hop::moved, Hop::moved}));
    const Reply ask = line("ASK 12182 a:1");
    const Reply try_again = line("TRYAGAIN Multiple keys request during rehashing of slot");
    EXPECT_EQ(kept({ask, try_again, ask}), (Hops{Hop::ask, Hop::stay, Hop::ask}));
}

TEST(KeepOrder, TheLastOfAKeyMayBeSentAgain) {
    EXPECT_EQ(kept({number(1), line("MOVED 12182 a:1")}), (Hops{Hop::done, Hop::moved}));
    EXPECT_EQ(kept({number(1), line("CLUSTERDOWN x")}), (Hops{Hop::done, Hop::look_up}));
}

TEST(KeepOrder, NothingIsSentBehindOneThatHasRun) {
    // the slot came here between the two
    EXPECT_EQ(kept({line("MOVED 12182 a:1"), number(1)}), (Hops{Hop::done, Hop::done}));
    EXPECT_EQ(kept({line("CLUSTERDOWN x"), number(1)}), (Hops{Hop::done, Hop::done}));
    EXPECT_EQ(kept({unsent(make_error_code(errc::timed_out)), unknown()}),
              (Hops{Hop::done, Hop::done}));
    // an error behind it has not run
    EXPECT_EQ(kept({line("CLUSTERDOWN x"), line("OOM x")}), (Hops{Hop::look_up, Hop::done}));
}

TEST(KeepOrder, TheFenceIsTriedAgainThoughTheTtlBehindItWasRead) {
    const Reply try_again = line("TRYAGAIN Multiple keys request during rehashing of slot");
    EXPECT_EQ(kept({number(1), try_again, number(5)}), (Hops{Hop::done, Hop::stay, Hop::done}));
}

TEST(KeepOrder, NothingIsSentBehindOneThatMayStillRun) {
    EXPECT_EQ(kept({unknown(), unsent(make_error_code(errc::timed_out))}),
              (Hops{Hop::done, Hop::done}));
    EXPECT_EQ(kept({unknown(), line("TRYAGAIN x")}), (Hops{Hop::done, Hop::done}));
}

TEST(KeepOrder, IsOfOneKeyAlone) {
    EXPECT_EQ(kept({line("CLUSTERDOWN x"), number(1)}, {"foo", "bar"}),
              (Hops{Hop::look_up, Hop::done}));
    EXPECT_EQ(kept({unknown(), line("CLUSTERDOWN x")}, {"foo", "bar"}),
              (Hops{Hop::done, Hop::look_up}));
    EXPECT_EQ(kept({line("CLUSTERDOWN x"), number(1)}, {"", ""}), (Hops{Hop::look_up, Hop::done}));
}

TEST(RetryPause, GrowsToALimitWithJitter) {
    const std::chrono::milliseconds ceilings[] = {4ms, 8ms, 16ms, 32ms, 64ms, 64ms, 64ms};
    for (unsigned round = 0; round < std::size(ceilings); ++round) {
        EXPECT_EQ(retry_pause(round, 0), ceilings[round] / 2) << round;
        const auto half =
            static_cast<std::uint64_t>(std::chrono::nanoseconds{ceilings[round] / 2}.count());
        EXPECT_EQ(retry_pause(round, half), ceilings[round]) << round;
        EXPECT_EQ(retry_pause(round, half + 1), ceilings[round] / 2) << round;
        EXPECT_LE(retry_pause(round, UINT64_MAX), ceilings[round]) << round;
    }
    EXPECT_EQ(retry_pause(UINT32_MAX, 0), 32ms);
}

TEST(AnswerTime, IsFourTimesTheLastTryWithinLimits) {
    using detail::answer_time;
    EXPECT_EQ(answer_time(0ms, 1s), 125ms);
    EXPECT_EQ(answer_time(31ms, 1s), 125ms);
    EXPECT_EQ(answer_time(50ms, 1s), 200ms);
    EXPECT_EQ(answer_time(63ms, 1s), 250ms);
    EXPECT_EQ(answer_time(20s, 1s), 250ms);
    EXPECT_EQ(answer_time(std::chrono::nanoseconds::max(), 8ns), 2ns);
    EXPECT_EQ(answer_time(0ms, 0ms), 0ms);
}

bool shares(const std::vector<std::string_view>& words, std::string_view routed = key) {
    return shares_slot({words, routed});
}

TEST(SharesSlot, OfAScriptEachKeyCounts) {
    EXPECT_TRUE(shares({"EVALSHA", "sha", "1", "foo", "value"}));
    EXPECT_TRUE(shares({"EVALSHA", "sha", "2", "foo", "{foo}:leaselock:fence", "value"}));
    EXPECT_TRUE(shares({"EVAL", "text", "2", "foo", "{foo}x"}));
    EXPECT_FALSE(shares({"EVALSHA", "sha", "2", "foo", "bar", "value"}));
    EXPECT_FALSE(shares({"EVAL", "text", "2", "foo", "bar"}));
    EXPECT_FALSE(shares({"EVAL", "text", "3", "foo", "{foo}", "bar"}));
    EXPECT_FALSE(shares({"EVAL", "text", "2", "bar", "{bar}"}));       // routed elsewhere
    EXPECT_TRUE(shares({"EVAL", "text", "2", "foo", "{foo}", "bar"})); // an argument
}

TEST(SharesSlot, OtherCommandsAreTheServersToJudge) {
    EXPECT_TRUE(shares({"SET", "foo", "2", "bar", "NX"}));
    EXPECT_TRUE(shares({"DEL", "foo", "bar"}));
    EXPECT_TRUE(shares({}));
    EXPECT_TRUE(shares({"EVAL"}));
    EXPECT_TRUE(shares({"EVAL", "text", "2", "foo"}));          // too few
    EXPECT_TRUE(shares({"EVAL", "text", "99", "foo", "bar"}));  // likewise
    EXPECT_TRUE(shares({"EVAL", "text", "-1", "foo", "bar"}));  // likewise
    EXPECT_TRUE(shares({"EVAL", "text", "two", "foo", "bar"})); // no number
}

} // namespace
} // namespace leaselock::test
