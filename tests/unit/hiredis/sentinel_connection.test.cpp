// SPDX-License-Identifier: MIT

#include <leaselock/hiredis/multiplexed_connection.hpp>
#include <leaselock/hiredis/sentinel_connection.hpp>
#include <leaselock/testing/manual_runtime.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace leaselock::test {
namespace {

using namespace std::chrono_literals;
using testing::ManualRuntime;

static_assert(!SharedConnection<SentinelConnection<>>);
static_assert(SharedConnection<SentinelConnection<MultiplexedConnection>>);
static_assert(!std::is_move_constructible_v<SentinelConnection<>>);
static_assert(!std::is_convertible_v<std::shared_ptr<Resolver>, SentinelConnection<>>);

/// Answers as the test says.
class Scripted {
public:
    using Answerer = std::function<void(std::span<Reply>, Deadline)>;

    Scripted(Endpoint endpoint, Runtime& runtime)
        : endpoint_(std::move(endpoint)), runtime_(runtime) {}

    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        seen.emplace_back();
        for (const Command& command : commands) seen.back().emplace_back(command.argv.front());
        at.push_back(runtime_.now());
        answerer(replies, by);
    }
    Dialect& dialect() noexcept { return dialect_; }
    const Endpoint& endpoint() const noexcept { return endpoint_; }
    friend Runtime& runtime_of(Scripted& c) noexcept { return c.runtime_; }

    // one test at a time
    static inline Answerer answerer;
    static inline std::vector<std::vector<std::string>> seen;
    static inline std::vector<Deadline> at;

private:
    Endpoint endpoint_;
    Runtime& runtime_;
    Dialect dialect_;
};

constexpr std::string_view set_words[] = {"SET", "k", "v"};
constexpr std::string_view script_words[] = {"EVALSHA", "sha", "1", "k"};
const std::array<Command, 2> both{Command{set_words, "k"}, Command{script_words, "k"}};

class SentinelConnectionTest : public ::testing::Test {
protected:
    void SetUp() override {
        Scripted::seen.clear();
        Scripted::at.clear();
    }

    ManualRuntime runtime;
    SentinelConnection<Scripted> redis{nullptr, Endpoint{}, runtime};
    std::array<Reply, 2> replies;
};

constexpr std::string_view readonly = "READONLY You can't write against a read only replica.";

TEST_F(SentinelConnectionTest, AGoodAnswerIsOneCall) {
    Scripted::answerer = [](std::span<Reply> r, Deadline) {
        for (Reply& reply : r) reply.set_text(Reply::status, "OK");
    };
    const Deadline start = runtime.now();
    redis.call(both, replies, start + 1s);
    EXPECT_EQ(Scripted::seen.size(), 1U);
    EXPECT_EQ(runtime.now(), start);
    EXPECT_TRUE(redis.endpoint().must_be_master);
    EXPECT_EQ(&runtime_of(redis), &runtime);
}

TEST_F(SentinelConnectionTest, TheRestIsSentAgainInOrderUntilSomebodyTakesIt) {
    Scripted::answerer = [](std::span<Reply> r, Deadline) {
        if (Scripted::seen.size() == 1) { // demoted behind the first
            r[0].set_text(Reply::status, "OK");
            r[1].set_text(Reply::error, readonly);
        } else if (Scripted::seen.size() < 4) {
            r[0].set_unsent(make_error_code(errc::not_master));
        } else {
            r[0].set_integer(1);
        }
    };
    redis.call(both, replies, runtime.now() + 1s);
    using Calls = std::vector<std::vector<std::string>>;
    EXPECT_EQ(Scripted::seen, (Calls{{"SET", "EVALSHA"}, {"EVALSHA"}, {"EVALSHA"}, {"EVALSHA"}}));
    EXPECT_EQ(replies[0].kind, Reply::status);
    EXPECT_EQ(replies[1].kind, Reply::integer);
    for (std::size_t i = 1; i < Scripted::at.size(); ++i) {
        EXPECT_GE(Scripted::at[i] - Scripted::at[i - 1], 5ms) << "no storm";
    }
}

TEST_F(SentinelConnectionTest, UnknownIsNeverSentAgain) {
    Scripted::answerer = [](std::span<Reply> r, Deadline) {
        for (Reply& reply : r) reply.set_unknown(make_error_code(errc::connection_lost));
    };
    redis.call(both, replies, runtime.now() + 1s);
    EXPECT_EQ(Scripted::seen.size(), 1U);
    EXPECT_EQ(replies[0].kind, Reply::unknown);
}

TEST_F(SentinelConnectionTest, ItEndsByTheDeadlineWithTheLastAnswer) {
    Scripted::answerer = [](std::span<Reply> r, Deadline) {
        for (Reply& reply : r) reply.set_text(Reply::error, readonly);
    };
    const Deadline by = runtime.now() + 1s;
    redis.call(both, replies, by);
    EXPECT_LT(runtime.now(), by);
    EXPECT_GE(runtime.now(), by - 250ms) << "it gave up too early";
    EXPECT_GT(Scripted::seen.size(), 5U);
    EXPECT_LT(Scripted::seen.size(), 20U) << "no storm";
    EXPECT_EQ(replies[0].text.view(), readonly);
}

TEST_F(SentinelConnectionTest, ATryThatRunsIntoTheDeadlineKeepsTheWordsOfTheOneBefore) {
    Scripted::answerer = [this](std::span<Reply> r, Deadline by) {
        if (Scripted::seen.size() == 1) {
            for (Reply& reply : r) reply.set_text(Reply::error, readonly);
            return;
        }
        runtime.sleep_until(by);
        for (Reply& reply : r) reply.set_unsent(make_error_code(errc::timed_out));
    };
    const Deadline by = runtime.now() + 1s;
    redis.call(both, replies, by);
    EXPECT_EQ(Scripted::seen.size(), 2U);
    EXPECT_EQ(runtime.now(), by);
    EXPECT_EQ(replies[0].text.view(), readonly);
    EXPECT_EQ(replies[1].text.view(), readonly);
}

TEST_F(SentinelConnectionTest, APastDeadlineIsOneCall) {
    Scripted::answerer = [](std::span<Reply> r, Deadline) {
        for (Reply& reply : r) reply.set_unsent(make_error_code(errc::timed_out));
    };
    redis.call(both, replies, runtime.now() - 1ns);
    EXPECT_EQ(Scripted::seen.size(), 1U);
}

TEST(SentinelTest, WhatIsOutOfItsLimitsIsSaid) {
    const std::vector<Endpoint> one(1);
    const std::vector<std::pair<std::shared_ptr<Sentinel>, std::string_view>> rows{
        {std::make_shared<Sentinel>(std::vector<Endpoint>{}, "m"), "1 to 16 sentinels"},
        {std::make_shared<Sentinel>(std::vector<Endpoint>(17), "m"), "1 to 16 sentinels"},
        {std::make_shared<Sentinel>(one, ""), "name of the master"},
        {std::make_shared<Sentinel>(one, "my master"), "name of the master"},
        {std::make_shared<Sentinel>(one, std::string(254, 'm')), "name of the master"},
        {std::make_shared<Sentinel>(one, "m", 0ms), "limit for the sentinels"},
        {std::make_shared<Sentinel>(one, "m", 3'600'001ms), "limit for the sentinels"},
        {std::make_shared<Sentinel>(std::vector<Endpoint>{{.port = 0}}, "m"), "port"},
        {std::make_shared<Sentinel>(std::vector<Endpoint>{{.db = 1}}, "m"), "neither db"},
        {std::make_shared<Sentinel>(std::vector<Endpoint>{{.must_be_master = true}}, "m"),
         "neither db"},
    };
    for (const auto& [sentinel, complaint] : rows) {
        ServerAddress where;
        const Outcome outcome = sentinel->resolve(where);
        EXPECT_EQ(outcome.answer, Answer::unsent);
        EXPECT_EQ(outcome.cause, errc::invalid_argument) << complaint;
        EXPECT_NE(outcome.text.view().find(complaint), std::string_view::npos)
            << outcome.text.view();
        EXPECT_EQ(where.port, 0);
    }
}

#if LEASELOCK_EXCEPTIONS
TEST(SentinelTest, ConstructorsThrow) {
    EXPECT_THROW((Sentinel{{"http://h"}, "m"}), Error);
    EXPECT_THROW((Sentinel{{"redis://h:26379"}, "my master"}), Error);
    EXPECT_THROW((SentinelConnection{{"redis://:se/cret@h"}, "m"}), Error);
    const std::vector<std::string> urls{"redis://h:26379", "redis://i:26379"};
    EXPECT_NE((SentinelConnection{urls, "m"}).endpoint().resolver, nullptr);
    EXPECT_THROW((SentinelConnection{urls, ""}), Error);
    const SentinelConnection redis{{"redis://h:26379", "redis://i:26379"}, "m", {.db = 3}};
    EXPECT_EQ(redis.endpoint().db, 3);
    EXPECT_NE(redis.endpoint().resolver, nullptr);
}
#endif

} // namespace
} // namespace leaselock::test
