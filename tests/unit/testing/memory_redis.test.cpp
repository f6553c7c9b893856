// SPDX-License-Identifier: MIT
#include <leaselock/redis/script.hpp>
#include <leaselock/testing/manual_runtime.hpp>
#include <leaselock/testing/memory_redis.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

// The wording of the answers is compared with a real server's in integration/memory_parity.test.cpp.
// Here: time, switches, the log.
namespace {

using leaselock::testing::MemoryRedis;
using leaselock::testing::MemoryReply;
namespace scripts = leaselock::scripts;
using namespace std::chrono_literals;

struct InMemory : ::testing::Test {
    leaselock::testing::ManualRuntime runtime;
    MemoryRedis redis{runtime};

    std::string run(std::initializer_list<std::string_view> words) {
        return to_string(redis.execute(words));
    }
};

TEST_F(InMemory, AKeyLivesThroughItsLastMillisecond) {
    EXPECT_EQ(run({"SET", "k", "v", "NX", "PX", "1000"}), "OK");
    EXPECT_EQ(run({"PTTL", "k"}), "(integer) 1000");
    runtime.advance(1s);
    EXPECT_EQ(run({"PTTL", "k"}), "(integer) 0");
    EXPECT_EQ(run({"SET", "k", "w", "NX", "PX", "1000"}), "(nil)");
    runtime.advance(999us);
    EXPECT_EQ(run({"GET", "k"}), "v");
    runtime.advance(1us);
    EXPECT_EQ(run({"GET", "k"}), "(nil)");
    EXPECT_EQ(run({"SET", "k", "w", "NX", "PX", "1000"}), "OK");
}

TEST_F(InMemory, PlainSetTakesTheTtlAway) {
    EXPECT_EQ(run({"SET", "k", "v", "PX", "1000"}), "OK");
    EXPECT_EQ(run({"SET", "k", "w"}), "OK");
    EXPECT_EQ(redis.pttl("k"), -1);
    runtime.advance(24h);
    EXPECT_EQ(redis.get("k"), "w");
}

TEST_F(InMemory, C1_AServerClockThatJumpsAheadExpiresEarly) {
    redis.set("k", "v", 10s);
    redis.set_clock_offset(60s);
    EXPECT_EQ(redis.pttl("k"), -2);
}

TEST_F(InMemory, C2_AServerClockThatJumpsBackExpiresLate) {
    redis.set("k", "v", 10s);
    redis.set_clock_offset(-60s);
    EXPECT_EQ(redis.pttl("k"), 70'000);
    redis.set_clock_offset(0s);
    EXPECT_EQ(redis.pttl("k"), 10'000);
}

TEST_F(InMemory, TimeIsTheClockOfTheRuntime) {
    const auto before = redis.clock();
    runtime.advance(1s + 250us);
    EXPECT_EQ(redis.clock() - before, 1s + 250us);
    const std::string seconds = std::to_string(redis.clock().count() / 1'000'000);
    EXPECT_EQ(run({"TIME"}), "[" + seconds + ", 250]");
    EXPECT_GE(redis.clock(), MemoryRedis::epoch);
}

TEST_F(InMemory, LooksBehindTheBackOfClients) {
    EXPECT_EQ(redis.get("k"), std::nullopt);
    EXPECT_EQ(redis.pttl("k"), -2);
    EXPECT_FALSE(redis.del("k"));
    redis.set("k", "v");
    EXPECT_EQ(redis.get("k"), "v");
    EXPECT_EQ(redis.pttl("k"), -1);
    redis.set("k", "v", 5s);
    EXPECT_EQ(redis.pttl("k"), 5000);
    EXPECT_TRUE(redis.del("k"));
    redis.plant_hash("h");
    EXPECT_EQ(run({"GET", "h"}),
              "(error) WRONGTYPE Operation against a key holding the wrong kind of value");
    EXPECT_EQ(redis.log().size(), 1U) << "only clients are logged";
}

TEST_F(InMemory, S1_ARestartForgets) {
    redis.set("k", "v");
    run({"SCRIPT", "LOAD", scripts::compare_and_delete.getex.text});
    redis.restart(MemoryRedis::Restart::keeping_data);
    EXPECT_EQ(redis.get("k"), "v");
    EXPECT_EQ(run({"SCRIPT", "EXISTS", scripts::compare_and_delete.getex.sha1}), "[(integer) 0]");
    redis.restart();
    EXPECT_EQ(redis.get("k"), std::nullopt);
}

TEST_F(InMemory, S7_FlushedScriptsAreUnknownUntilTheirTextComes) {
    const std::string_view sha1 = scripts::compare_and_delete.getex.sha1;
    const std::string no_script = "(error) NOSCRIPT No matching script. Please use EVAL.";
    EXPECT_EQ(run({"EVALSHA", sha1, "1", "k", "v"}), no_script);
    EXPECT_EQ(run({"EVAL", scripts::compare_and_delete.getex.text, "1", "k", "v"}), "(integer) -1");
    EXPECT_EQ(run({"EVALSHA", sha1, "1", "k", "v"}), "(integer) -1");
    redis.flush_scripts();
    EXPECT_EQ(run({"EVALSHA", sha1, "1", "k", "v"}), no_script);
}

TEST_F(InMemory, AScriptOfOthersIsAClearError) {
    for (const auto& reply : {redis.execute({"EVAL", "return 1", "0"}),
                              redis.execute({"SCRIPT", "LOAD", "return 1"})}) {
        EXPECT_EQ(reply.kind, MemoryReply::error);
        EXPECT_NE(reply.text.find("leaselock's own scripts"), std::string::npos) << reply.text;
    }
}

TEST_F(InMemory, AServerBefore62HasNeitherGetexNorPxat) {
    redis.set_lacks_getex(true);
    redis.set("k", "v", 10s);
    EXPECT_EQ(run({"GETEX", "k"}),
              "(error) ERR unknown command 'GETEX', with args beginning with: 'k' ");
    EXPECT_EQ(run({"SET", "k", "v", "PXAT", "9999999999999"}), "(error) ERR syntax error");
    EXPECT_EQ(run({"EVAL", scripts::compare_and_delete.getex.text, "1", "k", "v"}),
              "(error) ERR Unknown Redis command called from script script: " +
                  std::string{scripts::compare_and_delete.getex.sha1} + ", on @user_script:1.");
    EXPECT_EQ(run({"EVAL", scripts::compare_and_delete_anywhere.get.text, "1", "k", "other"}),
              "(integer) 0");
    EXPECT_EQ(run({"EVAL", scripts::compare_and_fence.get.text, "2", "k", "f", "v", "1000"}),
              std::to_string(redis.clock().count()));
    EXPECT_EQ(run({"EVAL", scripts::compare_and_delete.get.text, "1", "k", "v"}), "(integer) 1");
    redis.set_lacks_getex(false);
    EXPECT_EQ(run({"GETEX", "k"}), "(nil)");
}

TEST_F(InMemory, S11_AReplicaRefusesScriptsThatReadWithGetex) {
    redis.set("k", "v", 10s);
    redis.set_read_only(true);
    const std::string suffix =
        " script: " + std::string{scripts::compare_and_delete.getex.sha1} + ", on @user_script:1.";
    const std::string read_only = "(error) READONLY You can't write against a read only replica.";
    EXPECT_EQ(run({"SET", "k", "v", "NX"}), read_only);
    EXPECT_EQ(run({"EVAL", scripts::compare_and_delete.getex.text, "1", "k", "other"}),
              read_only + suffix);
    EXPECT_EQ(run({"EVAL", scripts::compare_and_delete_anywhere.getex.text, "1", "k", "other"}),
              read_only +
                  " script: " + std::string{scripts::compare_and_delete_anywhere.getex.sha1} +
                  ", on @user_script:3.");
    EXPECT_EQ(run({"EVAL", scripts::compare_and_delete.get.text, "1", "k", "other"}), "(integer) 0")
        << "S12: the older variant is fooled";
    EXPECT_EQ(run({"GET", "k"}), "v");
}

TEST_F(InMemory, S8_FullMemoryRefusesSetAndNothingElse) {
    redis.set("k", "v", 10s);
    redis.set_out_of_memory(true);
    EXPECT_EQ(run({"SET", "l", "v", "NX", "PX", "10"}),
              "(error) OOM command not allowed when used memory > 'maxmemory'.");
    EXPECT_EQ(run({"EVAL", scripts::compare_and_expire.getex.text, "1", "k", "v", "20000"}),
              "(integer) 1");
    EXPECT_EQ(redis.pttl("k"), 20'000);
    EXPECT_EQ(run({"EVAL", scripts::compare_and_delete.getex.text, "1", "k", "v"}), "(integer) 1");
}

TEST_F(InMemory, FencesGrowWithTheClockAndWithoutIt) {
    redis.set("k", "v", 1h);
    const auto fence = [&] {
        return run({"EVAL", scripts::compare_and_fence.getex.text, "2", "k", "f", "v", "1000"});
    };
    const std::int64_t begin = redis.clock().count();
    EXPECT_EQ(fence(), std::to_string(begin));
    EXPECT_EQ(fence(), std::to_string(begin + 1));
    EXPECT_EQ(fence(), std::to_string(begin + 2));
    runtime.advance(5us);
    EXPECT_EQ(fence(), std::to_string(begin + 5));
    redis.set_clock_offset(-500ms); // a step back does not take it back
    EXPECT_EQ(fence(), std::to_string(begin + 6));
    EXPECT_EQ(redis.pttl("f"), 1501); // its expiry derives from the value: 1 ms + 1 s behind that
    redis.set_clock_offset(0s);
    runtime.advance(1001ms);
    EXPECT_EQ(redis.pttl("f"), 0);
    runtime.advance(1ms);
    EXPECT_EQ(redis.pttl("f"), -2);
    EXPECT_EQ(fence(), std::to_string(redis.clock().count())) << "ahead of all it has issued";
}

TEST_F(InMemory, LogsWhatClientsDid) {
    runtime.advance(1s);
    const std::string_view argv[] = {"set", "k", "v"};
    redis.execute(argv, 7);
    run({"GET", "k"});
    run({"SET", "k"});
    const auto log = redis.log();
    ASSERT_EQ(log.size(), 3U);
    EXPECT_EQ(log[0].time, runtime.now());
    EXPECT_EQ(log[0].connection, 7U);
    EXPECT_EQ(log[0].argv, (std::vector<std::string>{"set", "k", "v"}));
    EXPECT_EQ(to_string(log[0].reply), "OK");
    EXPECT_EQ(log[1].connection, 0U);
    EXPECT_EQ(to_string(log[1].reply), "v");
    EXPECT_EQ(log[2].reply.kind, MemoryReply::error);
    EXPECT_EQ(redis.count("Set"), 2U);
    EXPECT_EQ(redis.count("DEL"), 0U);
    redis.clear_log();
    EXPECT_TRUE(redis.log().empty());
}

TEST_F(InMemory, WhatIsOnItsWayHappensAtItsTime) {
    const auto late = std::make_shared<leaselock::testing::MemoryBatch>();
    late->connection = 3;
    late->commands = {{"SET", "k", "late", "PX", "1000"}};
    const auto early = std::make_shared<leaselock::testing::MemoryBatch>();
    early->commands = {{"SET", "k", "early"}, {"GET", "k"}};
    const leaselock::Deadline begin = runtime.now();
    redis.deliver(late, begin + 5s);
    redis.deliver(early, begin + 2s);
    EXPECT_EQ(redis.get("k"), std::nullopt);
    runtime.advance(3s);
    EXPECT_TRUE(redis.has_executed(*early));
    EXPECT_FALSE(redis.has_executed(*late));
    EXPECT_EQ(redis.get("k"), "early");
    runtime.advance(2500ms); // its ttl has counted since it arrived
    EXPECT_EQ(redis.pttl("k"), 500);
    const auto log = redis.log();
    ASSERT_EQ(log.size(), 3U);
    EXPECT_EQ(log[0].time, begin + 2s);
    EXPECT_EQ(log[2].time, begin + 5s);
    EXPECT_EQ(log[2].connection, 3U);
}

TEST_F(InMemory, ARestartDropsWhatIsOnItsWay) {
    const auto batch = std::make_shared<leaselock::testing::MemoryBatch>();
    batch->commands = {{"SET", "k", "v"}};
    redis.deliver(batch, runtime.now() + 1s);
    redis.restart();
    runtime.advance(2s);
    EXPECT_FALSE(redis.has_executed(*batch));
    EXPECT_EQ(redis.get("k"), std::nullopt);
}

TEST_F(InMemory, ServesManyThreads) {
    constexpr int rounds = 500;
    std::vector<std::thread> threads;
    std::atomic<int> grants{0};
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            const std::string token = std::to_string(t);
            for (int i = 0; i < rounds; ++i) {
                if (run({"SET", "k", token, "NX", "PX", "1000"}) != "OK") continue;
                ++grants;
                EXPECT_EQ(run({"EVAL", scripts::compare_and_delete.getex.text, "1", "k", token}),
                          "(integer) 1");
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_GT(grants, 0);
    EXPECT_EQ(redis.get("k"), std::nullopt);
    EXPECT_EQ(redis.count("SET"), 4U * rounds);
}

} // namespace
