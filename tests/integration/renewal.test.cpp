// SPDX-License-Identifier: MIT
// Renewing a lease, and losing it.
#include "story.hpp"

#include <algorithm>
#include <atomic>
#include <stop_token>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

const std::string key = "lock:report";

void check_lost(const Lock& lock, Loss why, const std::stop_token& told) {
    CHECK_FALSE(lock.owns_lock());
    CHECK(to_string(lock.loss()) == to_string(why));
    CHECK(told.stop_requested());
    CHECK(lock.remaining() == 0ns);
}

/// Renews after a failure, and was never told of a loss.
void check_renewable(Lock& lock, Deadline before, const std::stop_token& told) {
    CHECK(eventually([&] { return static_cast<bool>(lock.renew()); }));
    CHECK(lock.owns_lock());
    CHECK(lock.deadline() > before);
    CHECK(to_string(lock.loss()) == "none");
    CHECK_FALSE(told.stop_requested());
}

} // namespace

TEST_CASE(
    "N7: a renewal without an answer is no loss: the old deadline stands, and it is repeated") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    HiredisConnection redis{proxy.url()};
    LeaseLock lock{redis, key, {.ttl = 60s, .timeout = 500ms}};
    REQUIRE(lock);
    const std::stop_token told = lock.stop_token();
    const Deadline before = lock.deadline();
    const auto fails = [&](Answer answer) {
        const Outcome outcome = lock.renew();
        CHECK(said(outcome.answer) == said(answer));
        CHECK(outcome.cause == condition::unreachable);
        CHECK(lock.owns_lock());
        CHECK(lock.deadline() == before);
        CHECK(to_string(lock.loss()) == "none");
    };

    SECTION("the reply is lost") {
        proxy.drop_replies();
        fails(Answer::unknown);
    }
    SECTION("the request is lost") {
        proxy.drop_requests();
        fails(Answer::unknown);
    }
    SECTION("both are, again and again") {
        proxy.black_hole();
        fails(Answer::unknown);
        fails(Answer::unknown);
        fails(Answer::unknown);
    }
    SECTION("the connection is lost") {
        proxy.on_command("EVALSHA", Fault::cut_reply);
        fails(Answer::unknown);
    }
    SECTION("nobody listens") {
        proxy.refuse();
        proxy.cut();
        REQUIRE(eventually([&] { return lock.renew().answer == Answer::unsent; }));
        fails(Answer::unsent);
        proxy.accept_again();
    }
    proxy.pass();
    check_renewable(lock, before, told);
}

TEST_CASE(
    "A lease is counted from before its command was sent, so that Redis never ends it first") {
    constexpr auto way = 200ms; // each of the two
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(proxy)};
    LeaseLock lock{redis, key, {.ttl = 60s, .timeout = 20s, .margin = 10ms}, std::defer_lock};
    const auto check = [&] {
        const Deadline answered = LeaseClock::now();
        CHECK(lock.deadline() <= answered + 60s - 10ms - 2 * way);
        const auto in_redis = std::chrono::milliseconds{outside.pttl(key)};
        CHECK(lock.remaining() <= in_redis);
    };
    proxy.delay(way);
    REQUIRE(lock.try_acquire());
    check();
    REQUIRE(lock.renew());
    check();
}

TEST_CASE("N17: a killed connection is no loss: the guard comes back and renews by its token") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    LeaseLock lock{redis, key, patient};
    REQUIRE(lock);
    const auto value = outside.get(key);
    const std::stop_token told = lock.stop_token();
    for (int i = 0; i < 3; ++i) {
        const Deadline before = lock.deadline();
        REQUIRE(outside.client_kill_normal() == 1);
        CHECK(outside.get(key) == value);
        check_renewable(lock, before, told);
    }
    CHECK(outside.get(key) == value);
    REQUIRE(outside.client_kill_normal() == 1);
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE("S5: a stalled server costs the lease at its deadline, though it renews it afterwards") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    // The server's key outlives the lease by far, so that the late renewal finds it.
    LeaseLock lock{redis, key, {.ttl = 60s, .timeout = 20s, .margin = 58s}};
    REQUIRE(lock);
    REQUIRE(lock.renew()); // from here on the server knows the script
    const std::stop_token told = lock.stop_token();
    outside.reset_stats();

    server.stop_process();
    const Deadline deadline = lock.deadline();
    const Stopwatch watch;
    const Outcome outcome = lock.renew();
    const Deadline now = LeaseClock::now();
    CHECK(watch.elapsed() < 15s); // the lease's end, not the call's
    server.continue_process();
    if (deadline != Deadline{}) { // or so slow a machine that it passed before
        CHECK(said(outcome) == said(Answer::unknown, errc::timed_out));
        CHECK(now >= deadline);
    }
    check_lost(lock, Loss::expired, told);

    CHECK(eventually([&] { return outside.command_stats()["pexpire"] == 1; }));
    check_lost(lock, Loss::expired, told);
    CHECK(said(lock.renew()) == said(Answer::unsent, errc::expired));
    CHECK(outside.exists(key));
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE("S5: an acquire that a stalled server answers too late is not believed, and is deleted") {
    RedisServer server;
    auto outside = server.client();
    std::atomic<bool> over = false;
    Beside stall{[&] { // again and again: a sleep may fall on a release instead
        auto other = server.client();
        for (int i = 0; i < 40 && !over; ++i) {
            static_cast<void>(other.command({"DEBUG", "SLEEP", "0.25"}));
        }
    }};
    HiredisConnection redis{patient_url(server)};
    Lock lock{redis, key, {.ttl = 60s, .timeout = 20s, .margin = 59'900ms}, std::defer_lock};
    // 100 ms of lease: none is left when the sleeping server answers
    const bool stalled = eventually([&] {
        const Outcome outcome = lock.try_acquire();
        CHECK((outcome || !lock.owns_lock()));
        static_cast<void>(lock.unlock());
        return outcome.answer == Answer::unknown || outcome.cause == errc::too_late;
    });
    over = true;
    CHECK(stalled);
    CHECK(eventually([&] {
        static_cast<void>(lock.unlock());
        return !outside.exists(key);
    }));
}

TEST_CASE("S7, B62: a flushed script cache costs one round trip more, each time") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(proxy)};
    LeaseLock lock{redis, key, patient};
    REQUIRE(lock);
    for (int i = 0; i < 3; ++i) {
        REQUIRE(lock.renew());
        outside.expect_ok({"SCRIPT", "FLUSH"});
        proxy.reset_traffic();
        CHECK(said(lock.renew()) == said(Answer::yes));
        CHECK(proxy.traffic().names() == std::vector<std::string>{"EVALSHA", "EVAL"});
        CHECK(proxy.traffic().round_trips == 2);

        proxy.reset_traffic();
        CHECK(said(lock.renew()) == said(Answer::yes));
        CHECK(proxy.traffic().names() == std::vector<std::string>{"EVALSHA"});
    }
    outside.expect_ok({"SCRIPT", "FLUSH"});
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE("B62, S2: after a restart that forgot no data the lease goes on") {
    RedisServer server{{"--appendonly", "yes", "--appendfsync", "always"}};
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(proxy)};
    LeaseLock lock{redis, key, {.ttl = 60s, .fencing = true, .timeout = 20s}};
    REQUIRE(lock);
    REQUIRE(lock.renew());
    const auto value = outside.get(key);
    const std::stop_token told = lock.stop_token();
    const Deadline before = lock.deadline();

    server.kill_hard();
    server.restart();
    proxy.reset_traffic();
    check_renewable(lock, before, told);
    CHECK(outside.get(key) == value);
    // it is asked anew what it lacks
    const std::size_t dialects = server.has_getex() ? 1 : 2;
    CHECK(proxy.traffic().count("EVALSHA") == dialects);
    CHECK(proxy.traffic().count("EVAL") == dialects);

    server.kill_hard();
    server.restart();
    CHECK(eventually([&] { return static_cast<bool>(lock.unlock()); }));
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE("S1: a restart that forgot the lock ends the lease, once, and sets no key again") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    Recorder recorder;
    LeaseLock lock{redis, key, {.ttl = 60s, .timeout = 20s, .observer = &recorder}};
    REQUIRE(lock);
    const std::stop_token told = lock.stop_token();
    int calls = 0;
    const std::stop_callback callback{told, [&] { ++calls; }};

    server.kill_hard();
    CHECK_FALSE(lock.renew());
    CHECK(lock.owns_lock()); // nothing is proved
    server.restart();
    CHECK(said(lock.renew()) == said(Answer::no, errc::gone));
    check_lost(lock, Loss::gone, told);
    CHECK(said(lock.renew()) == said(Answer::unsent, errc::not_held));
    CHECK(said(lock.unlock()) == said(Answer::unsent, errc::not_held));
    CHECK(calls == 1);
    CHECK(outside.integer({"DBSIZE"}) == 0);
    CHECK(outside.command_stats()["set"] == 0);

    CHECK(said(lock.try_acquire()) == said(Answer::yes)); // the next acquisition is another matter
    CHECK_FALSE(lock.stop_token().stop_requested());
}

TEST_CASE("S10, S21: a key that somebody else took away is a lost lease, and is not released") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    const std::vector<std::vector<std::string>> ways{
        {"DEL", key}, {"FLUSHALL"}, {"RENAME", key, "lock:elsewhere"}, {"SWAPDB", "0", "1"}};
    for (const auto& way : ways) {
        INFO(way.front());
        outside.expect_ok({"FLUSHALL"});
        Lock lock{redis, key, patient, std::defer_lock};

        REQUIRE(lock.try_acquire());
        const std::stop_token told = lock.stop_token();
        static_cast<void>(outside.command(way));
        CHECK(lock.owns_lock()); // nobody has told us yet
        CHECK(said(lock.renew()) == said(Answer::no, errc::gone));
        check_lost(lock, Loss::gone, told);
        CHECK(said(lock.unlock()) == said(Answer::unsent, errc::not_held));
        CHECK_FALSE(outside.exists(key));

        outside.expect_ok({"FLUSHALL"});
        REQUIRE(lock.try_acquire());
        static_cast<void>(outside.command(way));
        CHECK(said(lock.unlock()) == said(Answer::no, errc::gone));
        CHECK_FALSE(outside.exists(key));
        CHECK(outside.exists("lock:elsewhere") == (way.front() == "RENAME"));
    }
}

TEST_CASE("B32: a renewal does not touch the key of the next holder") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    LeaseLock lock{redis, key, patient};
    REQUIRE(lock);
    const std::stop_token told = lock.stop_token();
    outside.expect_ok({"SET", key, "next", "PX", "30000"});
    CHECK(said(lock.renew()) == said(Answer::no, errc::taken));
    check_lost(lock, Loss::taken, told);
    CHECK(outside.get(key) == "next");
    CHECK(outside.pttl(key) <= 30'000);
    CHECK(said(lock.unlock()) == said(Answer::unsent, errc::not_held));
    CHECK(outside.get(key) == "next");
}

TEST_CASE("S9: an evicted key is a lost lease") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    for (const char* policy : {"allkeys-lru", "volatile-ttl"}) {
        INFO(policy);
        LeaseLock lock{redis, key, patient};
        REQUIRE(lock);
        const std::stop_token told = lock.stop_token();
        outside.config_set("maxmemory-policy", policy);
        outside.config_set("maxmemory", "1");
        REQUIRE(eventually([&] { return !outside.exists(key); }));
        CHECK(said(lock.renew()) == said(Answer::no, errc::gone));
        check_lost(lock, Loss::gone, told);
        outside.config_set("maxmemory", "0");
    }
}

TEST_CASE("S20: a renewal gives a persisted key its ttl back") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    LeaseLock lock{redis, key, patient};
    REQUIRE(lock);
    REQUIRE(outside.integer({"PERSIST", key}) == 1);
    REQUIRE(outside.pttl(key) == -1);
    CHECK(said(lock.renew()) == said(Answer::yes));
    const auto left = outside.pttl(key);
    CHECK(left > 0);
    CHECK(left <= 60'000);
}
