// SPDX-License-Identifier: MIT
#include <leaselock/redis/classify.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

namespace {

using leaselock::Answer;
using leaselock::cause_of;
using leaselock::errc;
using leaselock::Outcome;
using leaselock::Reply;
namespace scripts = leaselock::scripts;

static_assert(cause_of("OOM command not allowed") == errc::out_of_memory);

#define SCRIPT_SUFFIX " script: 82e087a07c1b3bc0fafefb4a490fe3f059047cbf, on @user_script:1."

struct Line {
    std::string_view line;
    errc cause;
};
/// As servers say it, each row of the table at least once.
constexpr Line refusals[] = {
    {"MOVED 3999 127.0.0.1:6381", errc::moved},
    {"ASK 3999 127.0.0.1:6381", errc::ask},
    {"TRYAGAIN Multiple keys request during rehashing of slot", errc::try_again},
    {"CLUSTERDOWN The cluster is down", errc::cluster_down},
    {"CLUSTERDOWN Hash slot not served", errc::cluster_down},
    {"ERR This instance has cluster support disabled", errc::no_cluster},
    {"CROSSSLOT Keys in request don't hash to the same slot", errc::cross_slot},
    {"LOADING Redis is loading the dataset in memory", errc::loading},
    {"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
     errc::script_running},
    {"UNKILLABLE Sorry the script already executed write commands against the dataset. You can "
     "either wait the script termination or kill the server in a hard way using the SHUTDOWN "
     "NOSAVE command.",
     errc::script_running},
    {"READONLY You can't write against a read only replica.", errc::read_only},
    {"READONLY You can't write against a read only replica." SCRIPT_SUFFIX, errc::read_only},
    {"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
     errc::master_down},
    {"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to "
     "disk. Commands that may modify the data set are disabled, because this instance is "
     "configured to report errors during writes if RDB snapshotting fails "
     "(stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB "
     "error.",
     errc::snapshot_failing},
    {"NOREPLICAS Not enough good replicas to write.", errc::too_few_replicas},
    {"OOM command not allowed when used memory > 'maxmemory'.", errc::out_of_memory},
    {"NOAUTH Authentication required.", errc::not_authenticated},
    {"DENIED Redis is running in protected mode because protected mode is enabled",
     errc::no_permission},
    {"WRONGPASS invalid username-password pair or user is disabled.", errc::wrong_password},
    {"NOPERM this user has no permissions to run the 'set' command", errc::no_permission},
    {"WRONGTYPE Operation against a key holding the wrong kind of value", errc::wrong_type},
    {"WRONGTYPE Operation against a key holding the wrong kind of value" SCRIPT_SUFFIX,
     errc::wrong_type},
    {"EXECABORT Transaction discarded because of previous errors.", errc::transaction_aborted},
    {"NOSCRIPT No matching script. Please use EVAL.", errc::script_missing},
    {"FENCE corrupt", errc::fence_corrupt},
    {"FENCE overflow", errc::fence_overflow},
    {"ERR max number of clients reached", errc::too_many_clients},
    {"ERR max number of clients + cluster connections reached", errc::too_many_clients},
    {"ERR syntax error", errc::syntax},
    {"ERR wrong number of arguments for 'set' command", errc::syntax},
    {"ERR unknown command 'GETEX', with args beginning with: 'k' ", errc::unknown_command},
    {"ERR unknown command `GETEX`, with args beginning with: `k`, ", errc::unknown_command},
    {"ERR unsupported command", errc::unknown_command},
    {"ERR invalid expire time in 'set' command", errc::invalid_argument},
    {"ERR invalid expire time in set", errc::invalid_argument},
    {"ERR value is not an integer or out of range", errc::invalid_argument},
    {"ERR DB index is out of range", errc::invalid_argument},
    {"ERR invalid DB index", errc::invalid_argument},
    {"ERR SELECT is not allowed in cluster mode", errc::invalid_argument},
    {"ERR invalid password", errc::wrong_password},
    {"ERR AUTH <password> called without any password configured for the default user. Are you "
     "sure your configuration is correct?",
     errc::wrong_password},
    {"ERR Client sent AUTH, but no password is set", errc::wrong_password},
    {"ERR The user executing the script can't run this command or subcommand" SCRIPT_SUFFIX,
     errc::script_not_permitted},
    {"ERR The user executing the script can't access at least one of the keys mentioned in the "
     "command arguments" SCRIPT_SUFFIX,
     errc::script_not_permitted},
    {"ERR ACL failure in script: User worker has no permissions to run the 'del' "
     "command" SCRIPT_SUFFIX,
     errc::script_not_permitted},
    {"ERR Unknown Redis command called from script" SCRIPT_SUFFIX, errc::unknown_command},
    {"ERR Unknown command called from script" SCRIPT_SUFFIX, errc::unknown_command},
    // servers before 7 wrap what a script raises
    {"ERR Error running script (call to f_82e087a07c1b3bc0fafefb4a490fe3f059047cbf): "
     "@user_script:1: @user_script: 1: -READONLY You can't write against a read only replica. ",
     errc::read_only},
    {"ERR Error running script (call to f_82e087a07c1b3bc0fafefb4a490fe3f059047cbf): "
     "@user_script:1: WRONGTYPE Operation against a key holding the wrong kind of value ",
     errc::wrong_type},
    {"ERR Error running script (call to f_82e087a07c1b3bc0fafefb4a490fe3f059047cbf): "
     "@user_script:1: @user_script: 1: Unknown Redis command called from Lua script ",
     errc::unknown_command},
    {"ERR Error running script (call to f_82e087a07c1b3bc0fafefb4a490fe3f059047cbf): "
     "@user_script:2: ERR value is not an integer or out of range ",
     errc::invalid_argument},
};

/// What proves nothing, however familiar it looks.
constexpr std::string_view no_proof[] = {
    "",
    "ERR",
    "ERR Connection timed out", // a proxy's, for a SET that had run
    "ERR server closed connection",
    "BUSYGROUP Consumer Group name already exists",
    "BUSYKEY Target key name already exists.",
    "MOVEDX 1 a:1",
    "moved 3999 127.0.0.1:6381",
    " READONLY You can't write",
    "ERR READONLY something",
    "FENCE",
    "FENCE corrupted",
    "ERR syntax errors",
    "ERR Error running script (call to f_82): @user_script:1: something else",
    "ERR Error running script (call to f_82): nothing behind it",
    "ERR Error running script (call to f_82): @user_script:",
    "syntax error",
    "invalid password",
};

Reply error(std::string_view line) {
    Reply reply;
    reply.set_text(Reply::error, line);
    return reply;
}
Reply integer(std::int64_t value) {
    Reply reply;
    reply.set_integer(value);
    return reply;
}
Reply text(Reply::Kind kind, std::string_view bytes) {
    Reply reply;
    reply.set_text(kind, bytes);
    return reply;
}
Reply nil() {
    Reply reply;
    reply.set_nil();
    return reply;
}
Reply unknown(errc cause) {
    Reply reply;
    reply.set_unknown(make_error_code(cause));
    return reply;
}

TEST(Refusals, EachLineHasItsCause) {
    for (const Line& row : refusals) EXPECT_EQ(cause_of(row.line), row.cause) << row.line;
}

TEST(Refusals, EachRowOfTheTableIsTried) {
    for (const leaselock::RefusalRow& row : leaselock::refusal_rows) {
        bool tried = false;
        for (const Line& line : refusals) {
            tried = tried || (line.line.starts_with(row.prefix) && line.cause == row.cause);
        }
        EXPECT_TRUE(tried) << row.prefix;
    }
}

TEST(Refusals, PrefixesAreWholeWordsAndUnique) {
    std::set<std::string_view> seen;
    for (const leaselock::RefusalRow& row : leaselock::refusal_rows) {
        EXPECT_TRUE(seen.insert(row.prefix).second) << row.prefix;
        if (row.prefix == "ERR max number of clients + cluster connections reached") continue;
        const std::string longer = std::string{row.prefix} + "x";
        EXPECT_EQ(cause_of(longer), errc::server_error) << longer;
    }
}

TEST(Refusals, OtherLinesProveNothing) {
    for (const std::string_view line : no_proof) {
        EXPECT_EQ(cause_of(line), errc::server_error) << line;
        EXPECT_EQ(classify_set(error(line)).answer, Answer::unknown) << line;
    }
}

TEST(Refusals, AreRefusedForEveryVerbWithTheServersWords) {
    std::uint64_t fence = 7;
    for (const Line& row : refusals) {
        const Reply reply = error(row.line);
        for (const Outcome& outcome :
             {classify_set(reply), classify_compare(reply, scripts::compare_and_delete),
              classify_fence(reply, fence)}) {
            EXPECT_EQ(outcome.answer, Answer::refused) << row.line;
            EXPECT_EQ(outcome.cause, row.cause) << row.line;
            EXPECT_TRUE(outcome.text.view().starts_with(
                leaselock::without_arguments(row.line).substr(0, 200)))
                << row.line;
        }
    }
    EXPECT_EQ(fence, 7U);
}

TEST(ClassifySet, OkIsYesNilIsBusy) {
    EXPECT_EQ(classify_set(text(Reply::status, "OK")).answer, Answer::yes);
    const Outcome busy = classify_set(nil());
    EXPECT_EQ(busy.answer, Answer::no);
    EXPECT_EQ(busy.cause, errc::busy);
}

TEST(ClassifySet, WhatIsNotAnAnswerToItIsUnknown) {
    for (const Reply& reply : {integer(1), text(Reply::string, "OK"), text(Reply::status, "QUEUED"),
                               text(Reply::status, "ok"), text(Reply::status, "")}) {
        const Outcome outcome = classify_set(reply);
        EXPECT_EQ(outcome.answer, Answer::unknown);
        EXPECT_EQ(outcome.cause, errc::protocol_error);
    }
}

TEST(ClassifyFailure, UnsentAndUnknownKeepTheirCause) {
    Reply reply;
    reply.set_unsent(std::make_error_code(std::errc::connection_refused));
    EXPECT_EQ(classify_set(reply).answer, Answer::unsent);
    EXPECT_EQ(classify_set(reply).cause, std::errc::connection_refused);
    EXPECT_EQ(classify_set(unknown(errc::timed_out)).answer, Answer::unknown);
    EXPECT_EQ(classify_set(unknown(errc::timed_out)).cause, errc::timed_out);
    EXPECT_EQ(classify_compare(unknown(errc::timed_out), scripts::compare_and_expire).answer,
              Answer::unknown);
}

TEST(ClassifyCompare, OneZeroMinusOne) {
    const auto classify = [](const Reply& reply) {
        return classify_compare(reply, scripts::compare_and_expire);
    };
    EXPECT_EQ(classify(integer(1)).answer, Answer::yes);
    EXPECT_EQ(classify(integer(0)).answer, Answer::no);
    EXPECT_EQ(classify(integer(0)).cause, errc::taken);
    EXPECT_EQ(classify(integer(-1)).answer, Answer::no);
    EXPECT_EQ(classify(integer(-1)).cause, errc::gone);
    for (const Reply& reply :
         {integer(2), integer(-2), nil(), text(Reply::string, "1"), text(Reply::status, "OK")}) {
        EXPECT_EQ(classify(reply).answer, Answer::unknown);
        EXPECT_EQ(classify(reply).cause, errc::protocol_error);
    }
}

TEST(ClassifyCompare, NamesThePermissionsThatAreMissing) {
    const Outcome outcome = classify_compare(
        error("ERR The user executing the script can't run this command or subcommand"),
        scripts::compare_and_delete);
    EXPECT_EQ(outcome.cause, errc::script_not_permitted);
    EXPECT_TRUE(outcome.text.view().ends_with(
        "(the script needs +evalsha +eval +getex +del; before Redis 6.2 +get for +getex)"))
        << outcome.text.view();
    const Outcome noperm =
        classify_compare(error("NOPERM this user has no permissions to run the 'evalsha' command"),
                         scripts::compare_and_expire);
    EXPECT_TRUE(noperm.text.view().ends_with("+getex +pexpire; before Redis 6.2 +get for +getex)"))
        << noperm.text.view();
}

TEST(ClassifyFence, DigitsAreTheFence) {
    std::uint64_t fence = 0;
    EXPECT_EQ(classify_fence(text(Reply::string, "1700000000000000"), fence).answer, Answer::yes);
    EXPECT_EQ(fence, 1'700'000'000'000'000U);
    EXPECT_EQ(classify_fence(text(Reply::string, "1"), fence).answer, Answer::yes);
    EXPECT_EQ(fence, 1U);
}

TEST(ClassifyFence, NotOwnerAndNonsense) {
    std::uint64_t fence = 7;
    EXPECT_EQ(classify_fence(text(Reply::string, "0"), fence).cause, errc::taken);
    EXPECT_EQ(classify_fence(text(Reply::string, "-1"), fence).cause, errc::gone);
    for (const Reply& reply :
         {text(Reply::string, ""), text(Reply::string, "-2"), text(Reply::string, "1.5"),
          text(Reply::string, "1e3"), text(Reply::string, " 1"),
          text(Reply::string, "12345678901234567"), integer(5), nil(), text(Reply::status, "5")}) {
        const Outcome outcome = classify_fence(reply, fence);
        EXPECT_EQ(outcome.answer, Answer::unknown) << reply.text.view();
        EXPECT_EQ(outcome.cause, errc::protocol_error) << reply.text.view();
    }
    EXPECT_EQ(fence, 7U);
}

TEST(Waiting, CuresContentionAndTroubleOnTheWayAlone) {
    using leaselock::may_pass_by_waiting;
    for (const errc e :
         {errc::busy, errc::timed_out, errc::connection_lost, errc::loading, errc::script_running,
          errc::cluster_down, errc::try_again, errc::moved, errc::read_only, errc::too_few_replicas,
          errc::too_many_clients, errc::out_of_memory, errc::no_address, errc::server_error}) {
        EXPECT_TRUE(may_pass_by_waiting(make_error_code(e))) << make_error_code(e).message();
    }
    for (const errc e :
         {errc::not_authenticated, errc::wrong_password, errc::no_permission,
          errc::script_not_permitted, errc::syntax, errc::invalid_argument, errc::cross_slot,
          errc::unknown_command, errc::protocol_error, errc::fence_corrupt, errc::stopped}) {
        EXPECT_FALSE(may_pass_by_waiting(make_error_code(e))) << make_error_code(e).message();
    }
    EXPECT_TRUE(may_pass_by_waiting(std::make_error_code(std::errc::connection_refused)));
    EXPECT_FALSE(may_pass_by_waiting({}));
}

} // namespace
