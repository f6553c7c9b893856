// SPDX-License-Identifier: MIT
// A server that is not there, not ready, or not the right one: refused or unsent, never a loss, and
// well again afterwards.
#include "story.hpp"

#include <memory>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

const std::string key = "lock:import";

/// What a server must answer to all three verbs in a bad state, and that all work again behind it.
/// `mend` ends the state.
void check_refused_then_well(HiredisConnection& redis, RawClient& outside, Lock& held, errc cause,
                             std::string_view text, const std::function<void()>& mend) {
    const Deadline before = held.deadline();
    const auto value = outside.get(std::string{held.key()});
    Lock other{redis, "lock:other", patient, std::defer_lock};

    const Outcome acquired = other.try_acquire();
    CHECK(said(acquired) == said(Answer::refused, cause));
    CHECK(has(words_of(acquired), text));
    CHECK_FALSE(other.owns_lock());
    const Outcome renewed = held.renew();
    CHECK(said(renewed) == said(Answer::refused, cause));
    CHECK(has(words_of(renewed), text));
    CHECK(held.owns_lock());
    CHECK(held.deadline() == before);

    mend();
    CHECK(said(other.try_acquire()) == said(Answer::yes));
    CHECK(said(other.unlock()) == said(Answer::yes));
    CHECK(said(held.renew()) == said(Answer::yes));
    CHECK(held.deadline() > before);
    CHECK(outside.get(std::string{held.key()}) == value);
}

} // namespace

TEST_CASE("N1: where nobody listens nothing is sent, and the guard works once somebody does") {
    RedisServer server;
    HiredisConnection redis{patient_url(server)};
    server.kill_hard();
    Lock lock{redis, key, patient, std::defer_lock};
    const Outcome outcome = lock.try_acquire();
    CHECK(said(outcome) ==
          said(Answer::unsent, std::make_error_code(std::errc::connection_refused)));
    CHECK(outcome.cause == condition::unreachable);
    CHECK(has(words_of(outcome), std::to_string(server.port())));
    CHECK_FALSE(lock.owns_lock());
    CHECK(said(lock.unlock()) == said(Answer::unsent, errc::not_held));

    server.restart();
    CHECK(said(lock.try_acquire()) == said(Answer::yes));
}

TEST_CASE(
    "N16: a server with clients enough refuses with its words, and takes us when one leaves") {
    RedisServer server{{"--maxclients", "2"}};
    auto outside = server.client();
    auto second = server.client();
    REQUIRE(eventually([&] { return second.command({"PING"}) == "PONG"; }));
    REQUIRE(eventually([&] { return outside.command({"PING"}) == "PONG"; }));
    HiredisConnection redis{patient_url(server)};
    Lock lock{redis, key, {.ttl = 60s, .fencing = true, .timeout = 20s}, std::defer_lock};
    for (int i = 0; i < 20; ++i) { // in whichever order commands, error and close meet
        const Outcome outcome = lock.try_acquire();
        REQUIRE(said(outcome) == said(Answer::refused, errc::too_many_clients));
        REQUIRE(has(words_of(outcome), "max number of clients"));
        REQUIRE(outcome.cause == condition::not_ready);
    }
    CHECK_FALSE(outside.exists(key));
    second.disconnect();
    CHECK(eventually([&] { return static_cast<bool>(lock.try_acquire()); }));
    CHECK(outside.exists(key));
}

TEST_CASE("S3: while the server loads its data nothing is lost, and then the lease is renewed") {
    // about two seconds of loading, in which it answers every few milliseconds
    RedisServer server{{"--loading-process-events-interval-bytes", "1024"}};
    auto outside = server.client();
    outside.expect_ok({"DEBUG", "POPULATE", "4000", "filler", "100"});
    outside.config_set("key-load-delay", "500");
    HiredisConnection redis{patient_url(server)};
    LeaseLock lock{redis, key, patient};
    REQUIRE(lock);
    REQUIRE(lock.renew());
    const auto value = outside.get(key);
    {
        const Beside reload{[&] {
            auto other = server.client();
            other.set_timeout(60s);
            static_cast<void>(other.command({"DEBUG", "RELOAD"}));
        }};
        Outcome loading;
        REQUIRE(eventually([&] {
            loading = lock.renew();
            return loading.cause == errc::loading;
        }));
        CHECK(said(loading) == said(Answer::refused, errc::loading));
        CHECK(words_of(loading).starts_with("LOADING "));
        CHECK(lock.owns_lock());
        CHECK(to_string(lock.loss()) == "none");
        CHECK(eventually([&] { return static_cast<bool>(lock.renew()); }, 30s));
    }
    CHECK(lock.owns_lock());
    CHECK(outside.get(key) == value);
    CHECK(said(lock.unlock()) == said(Answer::yes));
}

TEST_CASE("S4: a server that is busy with a script is waited for, and no script is killed") {
    RedisServer server;
    auto outside = server.client();
    outside.config_set("lua-time-limit", "20");
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(proxy)};
    LeaseLock lock{redis, key, patient};
    REQUIRE(lock);
    const Deadline before = lock.deadline();
    {
        const Beside endless{[&] {
            auto other = server.client();
            other.set_timeout(60s);
            static_cast<void>(other.eval("while true do end"));
        }};
        Outcome busy;
        const bool refused = eventually([&] {
            busy = lock.renew();
            return busy.cause == errc::script_running;
        });
        CHECK(lock.owns_lock());
        Lock other{redis, "lock:other", patient, std::defer_lock};
        const Outcome acquired = other.try_acquire();
        const std::string killed = outside.command({"SCRIPT", "KILL"}); // by the test
        REQUIRE(refused);
        REQUIRE(killed == "OK");
        CHECK(said(busy) == said(Answer::refused, errc::script_running));
        CHECK(words_of(busy).starts_with("BUSY "));
        CHECK(said(acquired) == said(Answer::refused, errc::script_running));
    }
    CHECK(said(lock.renew()) == said(Answer::yes));
    CHECK(lock.deadline() > before);
    CHECK(proxy.traffic().count("SCRIPT") == 0);
}

TEST_CASE("S8: with memory full no lock is taken, but one that is held is renewed and released") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    LeaseLock lock{redis, key, patient};
    REQUIRE(lock);
    outside.config_set("maxmemory", "1");

    Lock other{redis, "lock:other", patient, std::defer_lock};
    const Outcome refused = other.try_acquire();
    CHECK(said(refused) == said(Answer::refused, errc::out_of_memory));
    CHECK(words_of(refused).starts_with("OOM "));

    const Deadline before = lock.deadline();
    CHECK(said(lock.renew()) == said(Answer::yes));
    CHECK(lock.deadline() > before);
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK_FALSE(outside.exists(key));

    outside.config_set("maxmemory", "0");
    CHECK(said(other.try_acquire()) == said(Answer::yes));
}

TEST_CASE("S11: a demoted master refuses, takes no lock away, and is well once promoted again") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    LeaseLock lock{redis, key, patient};
    REQUIRE(lock);
    outside.expect_ok({"REPLICAOF", "127.0.0.1", "1"});
    check_refused_then_well(redis, outside, lock, errc::read_only, "READONLY", [&] {
        outside.expect_ok({"REPLICAOF", "NO", "ONE"});
    });
    outside.expect_ok({"REPLICAOF", "127.0.0.1", "1"});
    CHECK(said(lock.unlock()) == said(Answer::refused, errc::read_only));
    CHECK_FALSE(lock.owns_lock());
    CHECK(outside.exists(key));
    outside.expect_ok({"REPLICAOF", "NO", "ONE"});
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE("S12: a replica without the key proves nothing") {
    RedisServer server{with_getex};
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    LeaseLock lock{redis, key, patient};
    REQUIRE(lock);
    REQUIRE(lock.renew());
    const auto value = outside.get(key).value_or("");
    REQUIRE(outside.integer({"DEL", key}) == 1);
    outside.expect_ok({"REPLICAOF", "127.0.0.1", "1"});
    CHECK(said(lock.renew()) == said(Answer::refused, errc::read_only));
    CHECK(lock.owns_lock());
    CHECK(said(lock.unlock()) == said(Answer::refused, errc::read_only));

    outside.expect_ok({"REPLICAOF", "NO", "ONE"}); // the master had it all the time
    outside.expect_ok({"SET", key, value, "PX", "60000"});
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE("S12: where there is no GETEX, a replica without the key ends the lease, and no more") {
    RedisServer server{without_getex};
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    LeaseLock lock{redis, key, patient};
    REQUIRE(lock);
    REQUIRE(lock.renew());
    const auto value = outside.get(key).value_or("");
    const std::stop_token told = lock.stop_token();
    REQUIRE(outside.integer({"DEL", key}) == 1);
    outside.expect_ok({"REPLICAOF", "127.0.0.1", "1"});
    CHECK(said(lock.renew()) == said(Answer::no, errc::gone)); // the safe side, as the README says
    CHECK_FALSE(lock.owns_lock());
    CHECK(told.stop_requested());

    outside.expect_ok({"REPLICAOF", "NO", "ONE"}); // the master had it all the time
    outside.expect_ok({"SET", key, value, "PX", "60000"});
    CHECK(said(lock.renew()) == said(Answer::unsent, errc::not_held));
    CHECK_FALSE(lock.owns_lock());
    CHECK(outside.pttl(key) > 50'000); // it stays until its ttl
}

TEST_CASE("S13: a replica that has lost its master refuses, and is well once it is one") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    LeaseLock lock{redis, key, patient};
    REQUIRE(lock);
    REQUIRE(lock.renew());
    const Deadline before = lock.deadline();
    outside.config_set("replica-serve-stale-data", "no");
    outside.expect_ok({"REPLICAOF", "127.0.0.1", "1"});
    Lock other{redis, "lock:other", patient, std::defer_lock};
    const Outcome acquired = other.try_acquire(); // which of the two is a matter of the version
    CHECK(said(acquired.answer) == said(Answer::refused));
    CHECK(acquired.cause == condition::not_ready);
    const Outcome renewed = lock.renew();
    CHECK(said(renewed.answer) == said(Answer::refused));
    CHECK(renewed.cause == condition::not_ready);
    CHECK(lock.owns_lock());
    outside.expect_ok({"REPLICAOF", "NO", "ONE"});
    CHECK(said(lock.renew()) == said(Answer::yes));
    CHECK(lock.deadline() > before);
}

TEST_CASE("S15: a master with too few replicas refuses, and works once it has enough") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    LeaseLock lock{redis, key, patient};
    REQUIRE(lock);
    outside.config_set("min-replicas-to-write", "1");
    check_refused_then_well(redis, outside, lock, errc::too_few_replicas, "NOREPLICAS",
                            [&] { outside.config_set("min-replicas-to-write", "0"); });
    outside.config_set("min-replicas-to-write", "1");
    CHECK(said(lock.unlock()) == said(Answer::refused, errc::too_few_replicas));
    outside.config_set("min-replicas-to-write", "0");
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE(
    "S16: a missing or wrong password is refused at once, by one question and no storm of them") {
    RedisServer server{{}, "secret"};
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    const std::string at = "@127.0.0.1:" + std::to_string(proxy.port());

    SECTION("missing") {
        HiredisConnection redis{patient_url(proxy)};
        Lock lock{redis, key, patient, std::defer_lock};
        const Outcome outcome = lock.try_acquire();
        CHECK(said(outcome) == said(Answer::refused, errc::not_authenticated));
        CHECK(outcome.cause == condition::denied);
        CHECK(words_of(outcome).starts_with("NOAUTH "));
        CHECK(proxy.traffic().requests.size() == 1);
    }
    SECTION("wrong") {
        HiredisConnection redis{"redis://:guess" + at};
        Lock lock{redis, key, patient, std::defer_lock};
        const Outcome outcome = lock.try_acquire();
        CHECK(said(outcome) == said(Answer::refused, errc::wrong_password));
        CHECK(outcome.cause == condition::denied);
        CHECK(words_of(outcome).starts_with("WRONGPASS "));
        CHECK(proxy.traffic().names() == std::vector<std::string>{"AUTH"});
        CHECK_THROWS_AS(Lock(redis, key, patient), Error);
        CHECK(proxy.traffic().names() == std::vector<std::string>{"AUTH", "AUTH"});
    }
    SECTION("of a user who is switched off while it holds a lock") {
        outside.expect_ok({"ACL", "SETUSER", "worker", "on", ">pass", "~*", "+@all"});
        HiredisConnection redis{"redis://worker:pass" + at};
        LeaseLock lock{redis, key, patient};
        REQUIRE(lock);
        const Deadline before = lock.deadline();
        outside.expect_ok({"ACL", "SETUSER", "worker", "off"});
        outside.client_kill_normal();
        REQUIRE(eventually([&] { return proxy.traffic().open == 0; }));
        proxy.reset_traffic();
        const Outcome renewed = lock.renew();
        CHECK(said(renewed) == said(Answer::refused, errc::wrong_password));
        CHECK(proxy.traffic().names() == std::vector<std::string>{"AUTH"});
        CHECK(lock.owns_lock()); // until its deadline
        CHECK(lock.deadline() == before);
        CHECK(said(lock.unlock()) == said(Answer::refused, errc::wrong_password));
        CHECK(proxy.traffic().names() == std::vector<std::string>{"AUTH", "AUTH"});

        outside.expect_ok({"ACL", "SETUSER", "worker", "on"});
        CHECK(said(lock.unlock()) == said(Answer::yes));
        CHECK_FALSE(outside.exists(key));
    }
}
