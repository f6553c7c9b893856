// SPDX-License-Identifier: MIT
#include <leaselock/testing/manual_runtime.hpp>
#include <leaselock/testing/memory_connection.hpp>
#include <leaselock/testing/memory_redis.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace {

using leaselock::Command;
using leaselock::Deadline;
using leaselock::errc;
using leaselock::Reply;
using leaselock::testing::Fault;
using leaselock::testing::MemoryConnection;
using namespace std::chrono_literals;
using Words = std::vector<std::string_view>;

struct Connected : ::testing::Test {
    leaselock::testing::ManualRuntime runtime;
    leaselock::testing::MemoryRedis redis{runtime};
    MemoryConnection connection{redis};
    const Deadline begin = runtime.now();

    static std::vector<Command> commands(const std::vector<Words>& batch) {
        std::vector<Command> result;
        for (const Words& words : batch)
            result.push_back({words, words.size() > 1 ? words[1] : ""});
        return result;
    }
    std::vector<Reply> call(const std::vector<Words>& batch, Deadline by) {
        std::vector<Reply> replies(batch.size());
        connection.call(commands(batch), replies, by);
        return replies;
    }
    std::vector<Reply> call(const std::vector<Words>& batch) {
        return call(batch, runtime.now() + 1s);
    }
    Reply set(std::string_view key) { return call({{"SET", key, "v"}})[0]; }
    auto elapsed() const { return runtime.now() - begin; }
};

void expect_unknown(const Reply& reply, errc cause) {
    EXPECT_EQ(reply.kind, Reply::unknown);
    EXPECT_EQ(reply.cause, cause) << reply.cause.message();
}

TEST_F(Connected, AnswersEachCommandOfABatchInOneRoundTrip) {
    const auto replies = call({{"SET", "k", "v", "PX", "9"},
                               {"GET", "k"},
                               {"GET", "no"},
                               {"PTTL", "k"},
                               {"NONSENSE"},
                               {"TIME"}});
    EXPECT_EQ(replies[0].kind, Reply::status);
    EXPECT_EQ(replies[0].text.view(), "OK");
    EXPECT_EQ(replies[1].kind, Reply::string);
    EXPECT_EQ(replies[1].text.view(), "v");
    EXPECT_EQ(replies[2].kind, Reply::nil);
    EXPECT_EQ(replies[3].kind, Reply::integer);
    EXPECT_EQ(replies[3].number, 9);
    EXPECT_EQ(replies[4].kind, Reply::error);
    EXPECT_TRUE(replies[4].text.view().starts_with("ERR unknown command 'NONSENSE'"));
    expect_unknown(replies[5], errc::protocol_error); // an array has no place in a Reply
    EXPECT_EQ(connection.calls(), 1U);
    EXPECT_EQ(connection.commands(), 6U);
    EXPECT_EQ(elapsed(), 0s);
    connection.reset_counters();
    EXPECT_EQ(connection.calls() + connection.commands(), 0U);
}

TEST_F(Connected, BelongsToTheRuntimeOfItsServer) {
    EXPECT_EQ(&runtime_of(connection), &runtime);
    EXPECT_EQ(&connection.redis(), &redis);
    const MemoryConnection other{redis};
    EXPECT_NE(connection.id(), other.id());
    set("k");
    EXPECT_EQ(redis.log().back().connection, connection.id());
}

TEST_F(Connected, ADeadlineThatHasPassedWritesWithoutWaiting) {
    expect_unknown(call({{"SET", "k", "v"}}, begin)[0], errc::timed_out);
    expect_unknown(call({{"SET", "l", "v"}}, Deadline::min())[0], errc::timed_out);
    EXPECT_EQ(elapsed(), 0s);
    EXPECT_EQ(redis.get("k"), "v");
    EXPECT_EQ(redis.get("l"), "v");
    connection.go_down();
    EXPECT_EQ(call({{"SET", "m", "v"}}, begin)[0].kind, Reply::unsent);
}

TEST_F(Connected, N1_DownIsUnsentAtOnceUntilItComesUp) {
    connection.go_down();
    const Reply reply = set("k");
    EXPECT_EQ(reply.kind, Reply::unsent);
    EXPECT_EQ(reply.cause, std::errc::connection_refused);
    EXPECT_EQ(elapsed(), 0s);
    EXPECT_EQ(redis.log().size(), 0U);
    EXPECT_EQ(connection.calls(), 1U);
    connection.dialect().set_lacks_getex();
    connection.come_up();
    EXPECT_FALSE(connection.dialect().lacks_getex()) << "a new connection knows nothing yet";
    EXPECT_EQ(set("k").kind, Reply::status);
}

TEST_F(Connected, N3_ALostReplyIsUnknownAtTheDeadlineAndTheCommandHasRun) {
    connection.next({Fault::lost_reply});
    expect_unknown(set("k"), errc::timed_out);
    EXPECT_EQ(elapsed(), 1s);
    EXPECT_EQ(redis.get("k"), "v");
    EXPECT_EQ(redis.log().front().time, begin);
    EXPECT_EQ(set("l").kind, Reply::status) << "one call only";
}

TEST_F(Connected, N4_ALostRequestNeverRuns) {
    connection.next({Fault::lost_request});
    expect_unknown(set("k"), errc::timed_out);
    EXPECT_EQ(elapsed(), 1s);
    runtime.advance(1h);
    connection.deliver_held();
    EXPECT_EQ(redis.log().size(), 0U);
}

TEST_F(Connected, N5_AHeldRequestRunsAfterTheClientGaveUp) {
    connection.next({Fault::held});
    expect_unknown(call({{"SET", "k", "late"}, {"PEXPIRE", "k", "100"}})[1], errc::timed_out);
    call({{"SET", "k", "new"}});
    EXPECT_EQ(redis.get("k"), "new");
    runtime.advance(1s);
    connection.deliver_held();
    EXPECT_EQ(redis.get("k"), "late");
    EXPECT_EQ(redis.pttl("k"), 100);
    EXPECT_EQ(redis.log().back().time, begin + 2s);
    connection.deliver_held();
    EXPECT_EQ(redis.log().size(), 3U) << "once";
}

TEST_F(Connected, N10_ACutIsNoticedAtOnce) {
    connection.dialect().set_lacks_getex();
    connection.next({Fault::cut_request});
    expect_unknown(set("k"), errc::connection_lost);
    EXPECT_EQ(redis.get("k"), std::nullopt);
    EXPECT_FALSE(connection.dialect().lacks_getex());
    connection.next({Fault::cut_reply});
    expect_unknown(set("k"), errc::connection_lost);
    EXPECT_EQ(redis.get("k"), "v");
    EXPECT_EQ(elapsed(), 0s);
}

TEST_F(Connected, N12_GarbageIsAProtocolError) {
    connection.next({Fault::garbage});
    expect_unknown(set("k"), errc::protocol_error);
    EXPECT_EQ(redis.get("k"), "v");
    EXPECT_EQ(elapsed(), 0s);
}

TEST_F(Connected, AnErrorReplyStandsForTheCommand) {
    connection.next(
        {.kind = Fault::error, .text = "LOADING Redis is loading the dataset in memory"});
    const auto replies = call({{"SET", "k", "v"}, {"GET", "k"}});
    for (const Reply& reply : replies) {
        EXPECT_EQ(reply.kind, Reply::error);
        EXPECT_EQ(reply.text.view(), "LOADING Redis is loading the dataset in memory");
    }
    EXPECT_EQ(redis.log().size(), 0U);
}

TEST_F(Connected, ABatchThatBreaksInTheMiddleKeepsWhatArrived) {
    const std::vector<Words> batch{{"SET", "a", "v"}, {"SET", "b", "v"}, {"SET", "c", "v"}};
    struct Row {
        Fault::Kind kind;
        Reply::Kind heard;
        bool executed;
        std::chrono::milliseconds took;
    };
    for (const Row& row : {
             Row{Fault::refused, Reply::unsent, false, 0ms},
             Row{Fault::lost_request, Reply::unknown, false, 1000ms},
             Row{Fault::lost_reply, Reply::unknown, true, 1000ms},
             Row{Fault::held, Reply::unknown, false, 1000ms},
             Row{Fault::cut_request, Reply::unknown, false, 0ms},
             Row{Fault::cut_reply, Reply::unknown, true, 0ms},
             Row{Fault::garbage, Reply::unknown, true, 0ms},
             Row{Fault::error, Reply::error, false, 0ms},
         }) {
        redis.restart();
        const Deadline before = runtime.now();
        connection.next({.kind = row.kind, .text = "ERR", .after = 1});
        const auto replies = call(batch);
        EXPECT_EQ(replies[0].kind, Reply::status) << row.kind;
        EXPECT_EQ(replies[1].kind, row.heard) << row.kind;
        EXPECT_EQ(replies[2].kind, row.heard) << row.kind;
        EXPECT_EQ(redis.get("a").has_value(), true) << row.kind;
        EXPECT_EQ(redis.get("b").has_value(), row.executed) << row.kind;
        EXPECT_EQ(redis.get("c").has_value(), row.executed) << row.kind;
        EXPECT_EQ(runtime.now() - before, row.took) << row.kind;
    }
}

TEST_F(Connected, AFaultWaitsForItsCommand) {
    connection.on("evalsha", {Fault::lost_reply});
    connection.on("SET", {.kind = Fault::error, .text = "OOM command not allowed"});
    EXPECT_EQ(call({{"GET", "k"}})[0].kind, Reply::nil);
    auto replies = call({{"GET", "k"}, {"set", "k", "v"}, {"EXISTS", "k"}});
    EXPECT_EQ(replies[1].kind, Reply::error);
    EXPECT_EQ(replies[2].number, 0) << "those behind an error reply go on";
    replies = call({{"EXISTS", "k"}, {"EVALSHA", "x", "0"}, {"SET", "k", "v"}});
    EXPECT_EQ(replies[0].kind, Reply::integer);
    expect_unknown(replies[1], errc::timed_out);
    expect_unknown(replies[2], errc::timed_out); // the stream keeps its order
    EXPECT_EQ(redis.get("k"), "v");
}

TEST_F(Connected, FaultsOfCallsQueueUpBeforeTheLastingOne) {
    connection.always({Fault::cut_request});
    connection.next({Fault::refused});
    connection.next({Fault::garbage});
    EXPECT_EQ(set("k").kind, Reply::unsent);
    expect_unknown(set("k"), errc::protocol_error);
    expect_unknown(set("k"), errc::connection_lost);
    expect_unknown(set("k"), errc::connection_lost);
    connection.heal();
    EXPECT_EQ(set("k").kind, Reply::status);
}

TEST_F(Connected, DelayMovesTheClockThereAndBack) {
    connection.set_delay(30ms, 20ms);
    EXPECT_EQ(set("k").kind, Reply::status);
    EXPECT_EQ(elapsed(), 50ms);
    EXPECT_EQ(redis.log().front().time, begin + 30ms);
    connection.set_delay(0s, 0s);
    connection.next({.kind = Fault::slow, .there = 5ms, .back = 5ms});
    set("k");
    EXPECT_EQ(elapsed(), 60ms);
    set("k");
    EXPECT_EQ(elapsed(), 60ms);
}

TEST_F(Connected, ADelayUpToTheDeadlineIsJustInTime) {
    connection.set_delay(600ms, 400ms);
    EXPECT_EQ(set("k").kind, Reply::status);
    EXPECT_EQ(elapsed(), 1s);
}

TEST_F(Connected, ADelayPastTheDeadlineEndsThereAndTheCommandHasRunIfItFittedIn) {
    connection.set_delay(600ms, 401ms);
    expect_unknown(set("k"), errc::timed_out);
    EXPECT_EQ(elapsed(), 1s);
    EXPECT_EQ(redis.get("k"), "v");
    EXPECT_EQ(redis.log().front().time, begin + 600ms);
}

TEST_F(Connected, N5_ARequestThatIsStillOnItsWayArrivesInItsOwnTime) {
    connection.set_delay(3s, 0s);
    expect_unknown(set("k"), errc::timed_out);
    EXPECT_EQ(elapsed(), 1s);
    EXPECT_EQ(redis.get("k"), std::nullopt);
    runtime.advance(2s);
    EXPECT_EQ(redis.get("k"), "v");
    EXPECT_EQ(redis.log().front().time, begin + 3s);
}

TEST_F(Connected, ARestartUnderWayBreaksTheCall) {
    connection.set_delay(500ms, 0s);
    const std::vector<Words> batch{{"SET", "k", "v"}};
    connection.start(commands(batch), begin + 1s);
    redis.restart();
    runtime.advance(500ms);
    Reply reply;
    EXPECT_TRUE(connection.finish({&reply, 1}));
    expect_unknown(reply, errc::connection_lost);
}

TEST_F(Connected, TheSplitFormAsksManyAtOnce) {
    leaselock::testing::MemoryRedis other_redis{runtime};
    MemoryConnection other{other_redis};
    connection.set_delay(100ms, 100ms);
    other.set_delay(30ms, 20ms);
    const std::vector<Words> batch{{"SET", "k", "v"}};
    connection.start(commands(batch), begin + 1s);
    other.start(commands(batch), begin + 1s);
    MemoryConnection* const all[] = {&connection, &other};
    Reply slow;
    Reply fast;
    EXPECT_FALSE(connection.finish({&slow, 1}));
    EXPECT_FALSE(other.finish({&fast, 1}));
    MemoryConnection::wait_any(all, begin + 1s);
    EXPECT_EQ(elapsed(), 50ms);
    EXPECT_FALSE(connection.finish({&slow, 1}));
    ASSERT_TRUE(other.finish({&fast, 1}));
    EXPECT_EQ(fast.kind, Reply::status);
    MemoryConnection::wait_any(all, begin + 120ms);
    EXPECT_EQ(elapsed(), 120ms) << "never past the deadline";
    MemoryConnection::wait_any(all, begin + 1s);
    EXPECT_EQ(elapsed(), 200ms);
    ASSERT_TRUE(connection.finish({&slow, 1}));
    EXPECT_EQ(slow.kind, Reply::status);
    MemoryConnection::wait_any({}, begin + 9s);
    EXPECT_EQ(elapsed(), 200ms);
}

TEST_F(Connected, TheSplitFormEndsAtItsDeadline) {
    connection.next({Fault::lost_reply});
    const std::vector<Words> batch{{"SET", "k", "v"}};
    connection.start(commands(batch), begin + 1s);
    MemoryConnection* const all[] = {&connection};
    MemoryConnection::wait_any(all, begin + 5s);
    EXPECT_EQ(elapsed(), 1s);
    Reply reply;
    ASSERT_TRUE(connection.finish({&reply, 1}));
    expect_unknown(reply, errc::timed_out);
    EXPECT_TRUE(connection.finish({&reply, 1})) << "nothing under way";
    EXPECT_EQ(reply.kind, Reply::unsent);
}

TEST_F(Connected, IsSharedByThreads) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            const std::string key = std::to_string(t);
            for (int i = 0; i < 200; ++i) {
                const auto replies = call({{"SET", key, key}, {"GET", key}});
                EXPECT_EQ(replies[1].text.view(), key);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(connection.calls(), 800U);
    EXPECT_EQ(redis.count("GET"), 800U);
}

TEST_F(Connected, AThreadOfTheRuntimeWaitsOutItsDelay) {
    connection.set_delay(1s, 1s);
    struct Job {
        Connected& test;
        Deadline done{};
    } job{*this};
    leaselock::ThreadHandle handle;
    ASSERT_FALSE(runtime.start_thread(
        handle,
        [](void* argument) -> void* {
            Job& j = *static_cast<Job*>(argument);
            EXPECT_EQ(j.test.call({{"SET", "k", "v"}}, j.test.begin + 10s)[0].kind, Reply::status);
            j.done = j.test.runtime.now();
            return nullptr;
        },
        &job));
    runtime.advance(1500ms);
    EXPECT_EQ(redis.get("k"), "v");
    EXPECT_EQ(job.done, Deadline{});
    runtime.advance(500ms);
    EXPECT_EQ(job.done, begin + 2s);
    runtime.join(handle);
}

} // namespace
