// SPDX-License-Identifier: MIT
// Servers that lack something: found out once per connection, and worked around.
#include "story.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

const std::string key = "lock:nightly";
const Options fenced{.ttl = 60s, .fencing = true, .timeout = 20s};

/// Leads to a server of this machine.
struct Signpost final : Resolver {
    explicit Signpost(std::uint16_t to) : port(to) {}
    Outcome resolve(ServerAddress& where) noexcept override {
        where = ServerAddress{std::string_view{"127.0.0.1"}, port};
        return {Answer::yes};
    }
    std::atomic<std::uint16_t> port;
};

} // namespace

TEST_CASE("A server without GETEX, as all were before 6.2, serves the whole cycle") {
    RedisServer server{without_getex};
    auto outside = server.client();
    REQUIRE(outside.command({"GETEX", "k"}).starts_with("(error)"));
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(proxy)};

    std::uint64_t last = 0;
    for (int i = 0; i < 3; ++i) {
        proxy.reset_traffic();
        Lock lock{redis, key, fenced, std::defer_lock};
        REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
        CHECK(lock.fencing_token() > last);
        last = lock.fencing_token();
        CHECK(outside.get("{lock:nightly}:leaselock:fence") == std::to_string(last));
        const auto kept = std::chrono::milliseconds{outside.pttl("{lock:nightly}:leaselock:fence")};
        CHECK(kept > 23h);
        CHECK(kept < 25h);

        REQUIRE(outside.integer({"PEXPIRE", key, "30000"}) == 1);
        CHECK(said(lock.renew()) == said(Answer::yes));
        CHECK(outside.pttl(key) > 30'000);
        CHECK(said(lock.unlock()) == said(Answer::yes));
        CHECK_FALSE(outside.exists(key));
        if (i > 0) { // found out, and not asked again
            CHECK(proxy.traffic().names() ==
                  std::vector<std::string>{"SET", "EVALSHA", "EVALSHA", "EVALSHA"});
        }
    }
}

TEST_CASE("A server without GETEX protects the next holder's key as well") {
    RedisServer server{without_getex};
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    Lock lock{redis, key, patient, std::defer_lock};

    REQUIRE(lock.try_acquire());
    outside.expect_ok({"SET", key, "next", "PX", "30000"});
    CHECK(said(lock.renew()) == said(Answer::no, errc::taken));
    CHECK(outside.pttl(key) <= 30'000);
    CHECK(outside.get(key) == "next");

    outside.integer({"DEL", key});
    REQUIRE(lock.try_acquire());
    outside.expect_ok({"SET", key, "next", "PX", "30000"});
    CHECK(said(lock.unlock()) == said(Answer::no, errc::taken));
    CHECK(outside.get(key) == "next");

    outside.integer({"DEL", key});
    REQUIRE(lock.try_acquire());
    outside.integer({"DEL", key});
    CHECK(said(lock.renew()) == said(Answer::no, errc::gone));
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE("After a reconnect the server may be another one, and is asked anew what it lacks") {
    RedisServer server{without_getex};
    const RedisServer newer{with_getex};
    const auto signpost = std::make_shared<Signpost>(server.port());
    Endpoint endpoint = Endpoint::from_url(patient_url(server));
    endpoint.resolver = signpost;
    HiredisConnection redis{endpoint};
    {
        LeaseLock lock{redis, key, patient};
        REQUIRE(lock.renew());
        CHECK(redis.dialect().lacks_getex());
        server.kill_hard();
        server.restart();
        CHECK(said(lock.renew()) == said(Answer::no, errc::gone));
        CHECK(redis.dialect().lacks_getex());
    }
    server.kill_hard();
    signpost->port = newer.port();
    LeaseLock lock{redis, key, patient};
    REQUIRE(lock.renew());
    CHECK_FALSE(redis.dialect().lacks_getex());
}

TEST_CASE("A server without EVALSHA gets the text") {
    RedisServer server{{"--rename-command", "EVALSHA", ""}};
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(proxy)};
    Lock lock{redis, key, fenced, std::defer_lock};
    REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
    CHECK(lock.fencing_token() > 0);
    proxy.reset_traffic();
    CHECK(said(lock.renew()) == said(Answer::yes));
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK_FALSE(outside.exists(key));
    CHECK(proxy.traffic().names() == std::vector<std::string>{"EVAL", "EVAL"});
}
