// SPDX-License-Identifier: MIT
#include <leaselock/redis/script_call.hpp>
#include <leaselock/testing/manual_runtime.hpp>
#include <leaselock/testing/memory_connection.hpp>
#include <leaselock/testing/memory_redis.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace {

using leaselock::Dialect;
using leaselock::next_step;
using leaselock::Reply;
using leaselock::ScriptCall;
using leaselock::ScriptStep;
using leaselock::testing::Fault;
namespace scripts = leaselock::scripts;
using namespace std::chrono_literals;

std::vector<std::string> words(const leaselock::Command& command) {
    return {command.argv.begin(), command.argv.end()};
}
Reply error(std::string_view line) {
    Reply reply;
    reply.set_text(Reply::error, line);
    return reply;
}

struct ScriptCalls : ::testing::Test {
    leaselock::testing::ManualRuntime runtime;
    leaselock::testing::MemoryRedis redis{runtime};
    leaselock::testing::MemoryConnection connection{redis};
    Reply reply;

    /// The names of the commands that the server has seen.
    std::vector<std::string> names() const {
        std::vector<std::string> result;
        for (const auto& executed : redis.log()) result.push_back(executed.argv.front());
        return result;
    }
    void release() {
        ScriptCall call{scripts::compare_and_delete, "k", {}, {"v"}};
        leaselock::call_script(connection, connection.dialect(), call, reply, runtime.now() + 1s);
    }
};
using Names = std::vector<std::string>;

TEST(ScriptCall, LaysOutOneKey) {
    ScriptCall call{scripts::compare_and_expire, "k", {}, {"v", "1000"}};
    const leaselock::Command command = call.command(Dialect{});
    EXPECT_EQ(words(command), (Names{"EVALSHA", std::string{scripts::compare_and_expire.getex.sha1},
                                     "1", "k", "v", "1000"}));
    EXPECT_EQ(command.key, "k");
    EXPECT_EQ(&call.script(), &scripts::compare_and_expire);
}

TEST(ScriptCall, LaysOutTwoKeys) {
    ScriptCall call{scripts::compare_and_fence, "k", "{k}:f", {"v", "1000"}};
    const leaselock::Command command = call.command(Dialect{}, true);
    EXPECT_EQ(words(command), (Names{"EVAL", std::string{scripts::compare_and_fence.getex.text},
                                     "2", "k", "{k}:f", "v", "1000"}));
    EXPECT_EQ(command.key, "k");
}

TEST(ScriptCall, SpeaksTheDialect) {
    Dialect dialect;
    ScriptCall call{scripts::compare_and_delete, "k", {}, {"v"}};
    dialect.set_lacks_getex();
    EXPECT_EQ(call.command(dialect).argv[1], scripts::compare_and_delete.get.sha1);
    EXPECT_EQ(call.command(dialect, true).argv[1], scripts::compare_and_delete.get.text);
    dialect.set_lacks_evalsha();
    EXPECT_EQ(call.command(dialect).argv[0], "EVAL");
    EXPECT_EQ(call.command(dialect).argv[1], scripts::compare_and_delete.get.text);
    dialect.reset();
    EXPECT_EQ(call.command(dialect).argv[1], scripts::compare_and_delete.getex.sha1);
    EXPECT_FALSE(dialect.lacks_getex() || dialect.lacks_evalsha());
}

TEST(NextStep, Table) {
    struct Row {
        std::string_view line;
        bool lacks_getex, lacks_evalsha;
        ScriptStep step;
    };
    constexpr std::string_view no_evalsha =
        "ERR unknown command 'EVALSHA', with args beginning with: ";
    constexpr std::string_view noperm =
        "NOPERM this user has no permissions to run the 'evalsha' command";
    constexpr std::string_view no_getex =
        "ERR Unknown Redis command called from script script: x, on "
        "@user_script:1.";
    for (const Row& row : {
             Row{"NOSCRIPT No matching script. Please use EVAL.", false, false,
                 ScriptStep::send_text},
             Row{no_getex, false, false, ScriptStep::drop_getex},
             Row{no_getex, false, true, ScriptStep::drop_getex},
             Row{no_getex, true, false, ScriptStep::done},
             Row{"ERR Error running script (call to f_82e0): @user_script:1: @user_script: 1: "
                 "Unknown Redis command called from Lua script ",
                 false, false, ScriptStep::drop_getex},
             Row{no_evalsha, false, false, ScriptStep::drop_evalsha},
             Row{no_evalsha, false, true, ScriptStep::done},
             Row{noperm, false, false, ScriptStep::drop_evalsha},
             Row{noperm, false, true, ScriptStep::done},
             Row{"NOPERM this user has no permissions to run the 'eval' command", false, false,
                 ScriptStep::done},
             Row{"READONLY You can't write against a read only replica.", false, false,
                 ScriptStep::done},
             Row{"ERR Connection timed out", false, false, ScriptStep::done},
         }) {
        Dialect dialect;
        if (row.lacks_getex) dialect.set_lacks_getex();
        if (row.lacks_evalsha) dialect.set_lacks_evalsha();
        ScriptCall call{scripts::compare_and_delete, "k", {}, {"v"}};
        (void)call.command(dialect);
        EXPECT_EQ(next_step(error(row.line), call), row.step) << row.line;
    }
}

TEST(NextStep, AnEvalIsNotAnsweredByAnother) {
    ScriptCall call{scripts::compare_and_delete, "k", {}, {"v"}};
    (void)call.command(Dialect{}, true);
    EXPECT_EQ(next_step(error("NOSCRIPT No matching script. Please use EVAL."), call),
              ScriptStep::done);
}

TEST(NextStep, AnythingButAnErrorIsFinal) {
    const ScriptCall call{scripts::compare_and_delete, "k", {}, {"v"}};
    Reply reply;
    reply.set_integer(1);
    EXPECT_EQ(next_step(reply, call), ScriptStep::done);
    reply.set_unknown(make_error_code(leaselock::errc::timed_out));
    EXPECT_EQ(next_step(reply, call), ScriptStep::done);
    reply.set_text(Reply::string, "NOSCRIPT");
    EXPECT_EQ(next_step(reply, call), ScriptStep::done);
}

TEST_F(ScriptCalls, S7_ATextIsSentOnceThenItsSha) {
    release();
    EXPECT_EQ(reply.number, -1);
    EXPECT_EQ(names(), (Names{"EVALSHA", "EVAL"}));
    release();
    EXPECT_EQ(names(), (Names{"EVALSHA", "EVAL", "EVALSHA"}));
    redis.flush_scripts();
    release();
    EXPECT_EQ(reply.number, -1);
    EXPECT_EQ(names(), (Names{"EVALSHA", "EVAL", "EVALSHA", "EVALSHA", "EVAL"}));
}

TEST_F(ScriptCalls, AServerWithoutGetexGetsTheOtherVariant) {
    redis.set_lacks_getex(true);
    redis.set("k", "v");
    release();
    EXPECT_EQ(reply.number, 1);
    EXPECT_TRUE(connection.dialect().lacks_getex());
    EXPECT_EQ(names(), (Names{"EVALSHA", "EVAL", "EVALSHA", "EVAL"}));
    release();
    EXPECT_EQ(reply.number, -1);
    EXPECT_EQ(names().size(), 5U) << "what was learnt is remembered";
}

TEST_F(ScriptCalls, WhereEvalshaIsForbiddenEvalIsSentFromThenOn) {
    connection.on("evalsha", {.kind = Fault::error,
                              .text = "NOPERM this user has no permissions to run the 'evalsha' "
                                      "command"});
    release();
    EXPECT_EQ(reply.number, -1);
    release();
    EXPECT_EQ(reply.number, -1);
    EXPECT_EQ(names(), (Names{"EVAL", "EVAL"}));
    EXPECT_TRUE(connection.dialect().lacks_evalsha());
}

TEST_F(ScriptCalls, TheWorstServerStillEnds) {
    redis.set_lacks_getex(true);
    connection.on("EVALSHA", {.kind = Fault::error,
                              .text = "ERR unknown command 'EVALSHA', with args beginning with: "});
    release();
    EXPECT_EQ(reply.kind, Reply::integer) << reply.text.view();
    EXPECT_EQ(names(), (Names{"EVAL", "EVAL"}));

    for (int i = 0; i < 20; ++i) {
        connection.on("EVAL", {.kind = Fault::error, .text = "NOSCRIPT for ever"});
    }
    connection.reset_counters();
    release();
    EXPECT_EQ(reply.kind, Reply::error);
    EXPECT_LE(connection.calls(), 5U);
}

TEST_F(ScriptCalls, ALostReplyIsNotAskedForAgain) {
    release();
    connection.next({Fault::lost_reply});
    connection.reset_counters();
    release();
    EXPECT_EQ(reply.kind, Reply::unknown);
    EXPECT_EQ(connection.calls(), 1U);
}

TEST(FindDialect, TheConnectionsElseTheCallers) {
    struct Plain {
    } plain;
    Dialect own;
    EXPECT_EQ(&leaselock::detail::find_dialect(plain, own), &own);
    leaselock::testing::ManualRuntime runtime;
    leaselock::testing::MemoryRedis redis{runtime};
    leaselock::testing::MemoryConnection connection{redis};
    EXPECT_EQ(&leaselock::detail::find_dialect(connection, own), &connection.dialect());
}

} // namespace
