// SPDX-License-Identifier: MIT
// Looking at a lock from outside.
#include "story.hpp"

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

const std::string key = "lock:import:7";

} // namespace

TEST_CASE("inspect tells free, held with label and ttl, and held without expiry") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};

    Inspection seen = inspect(redis, key, 20s);
    CHECK(said(seen.outcome) == said(Answer::yes));
    CHECK(seen.state == Inspection::State::free);
    CHECK(seen.ttl == 0ms);
    CHECK(seen.owner.empty());

    {
        LeaseLock lock{redis, key, {.ttl = 60s, .owner = "worker-7", .timeout = 20s}};
        REQUIRE(lock);
        seen = inspect(redis, key, 20s);
        CHECK(seen.state == Inspection::State::held);
        CHECK(seen.ttl > 0ms);
        CHECK(seen.ttl <= 60s);
        CHECK(seen.owner.view() == "worker-7");
    }
    {
        LeaseLock lock{redis, key, patient};
        REQUIRE(lock);
        seen = inspect(redis, key, 20s);
        CHECK(seen.state == Inspection::State::held);
        CHECK(seen.owner.empty());
    }
    outside.expect_ok({"SET", key, "by hand"});
    seen = inspect(redis, key, 20s);
    CHECK(seen.state == Inspection::State::held_without_expiry);
    CHECK(seen.owner.empty());

    outside.integer({"DEL", key});
    outside.integer({"HSET", key, "field", "value"});
    seen = inspect(redis, key, 20s);
    CHECK(said(seen.outcome) == said(Answer::yes));
    CHECK(seen.state == Inspection::State::held_without_expiry);
}

TEST_CASE("inspect takes one round trip, and no byte of a token comes with it") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection holder{patient_url(server)};
    LeaseLock lock{holder, key, {.ttl = 60s, .owner = "me", .timeout = 20s}};
    REQUIRE(lock);
    HiredisConnection redis{patient_url(proxy)};
    CHECK(inspect(redis, key, 20s).owner.view() == "me");
    const Traffic traffic = proxy.traffic();
    CHECK(traffic.round_trips == 1);
    CHECK(traffic.names() == std::vector<std::string>{"PTTL", "GETRANGE"});
    CHECK(traffic.server_bytes < 32); // a number, and `$3 :me`
    CHECK(lock.owns_lock());

    outside.expect_ok(
        {"SET", key, std::string(64U << 20U, 'x'), "PX", "60000"}); // of a foreign kind
    CHECK(inspect(redis, key, 20s).state == Inspection::State::held);
    CHECK(proxy.traffic().server_bytes < 1000);
}

TEST_CASE("inspect says when it could not look") {
    RedisServer server{{}, "secret"};
    HiredisConnection stranger{"redis://127.0.0.1:" + std::to_string(server.port())};
    Inspection seen = inspect(stranger, key, 20s);
    CHECK(said(seen.outcome) == said(Answer::refused, errc::not_authenticated));
    CHECK(seen.state == Inspection::State::unknown);

    HiredisConnection redis{server.url()};
    server.stop_process();
    const Stopwatch watch;
    seen = inspect(redis, key, 200ms);
    CHECK(watch.elapsed() >= 200ms);
    CHECK(watch.elapsed() < 8s);
    server.continue_process();
    CHECK_FALSE(seen.outcome);
    CHECK(seen.outcome.cause == condition::unreachable);
    CHECK(seen.state == Inspection::State::unknown);

    server.kill_hard();
    seen = inspect(redis, key, 20s);
    CHECK(said(seen.outcome.answer) == said(Answer::unsent));
    CHECK(said(inspect(redis, "").outcome) == said(Answer::unsent, errc::invalid_argument));
}
