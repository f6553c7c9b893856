// SPDX-License-Identifier: MIT
// Fencing tokens: they grow in the order of ownership, and a counter that cannot be trusted gives
// none.
#include "story.hpp"

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

const std::string key = "lock:ledger";
const std::string counter = "{lock:ledger}:leaselock:fence";
const Options fenced{.ttl = 60s, .fencing = true, .timeout = 20s};

std::uint64_t next_token(HiredisConnection& redis) {
    LeaseLock lock{redis, key, fenced};
    return lock.fencing_token();
}

} // namespace

TEST_CASE("Fencing tokens grow with every acquisition, whoever acquires") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis_a{patient_url(server)};
    HiredisConnection redis_b{patient_url(server)};
    std::uint64_t last = 0;
    int wrong = 0;
    for (int i = 0; i < 400; ++i) {
        const std::uint64_t token = next_token(i % 3 == 0 ? redis_a : redis_b);
        wrong += token > last ? 0 : 1;
        last = token;
    }
    CHECK(wrong == 0);
    CHECK(outside.get(counter) == std::to_string(last));
    CHECK(last < (1ULL << 53U));

    const auto kept = std::chrono::milliseconds{outside.pttl(counter)};
    CHECK(kept > 23h); // a day
    CHECK(kept < 25h);
}

TEST_CASE("A fencing token is issued once per acquisition, and is 0 without a lease") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    Lock lock{redis, key, fenced, std::defer_lock};
    CHECK(lock.fencing_token() == 0);
    REQUIRE(lock.try_acquire());
    const std::uint64_t token = lock.fencing_token();
    CHECK(token > 0);
    REQUIRE(lock.renew());
    CHECK(lock.fencing_token() == token);

    HiredisConnection other{patient_url(server)};
    Lock second{other, key, fenced, std::defer_lock};
    CHECK(said(second.try_acquire()) == said(Answer::no, errc::busy));
    CHECK(second.fencing_token() == 0);
    CHECK(outside.get(counter) == std::to_string(token)); // the busy one took no number

    REQUIRE(lock.unlock());
    CHECK(lock.fencing_token() == 0);
}

TEST_CASE("Fencing tokens grow over a counter that expired, and over a clock that is behind it") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    const std::uint64_t first = next_token(redis);
    REQUIRE(outside.integer({"PEXPIRE", counter, "1"}) == 1); // the idle day is over
    REQUIRE(eventually([&] { return !outside.exists(counter); }));
    const std::uint64_t second = next_token(redis);
    CHECK(second > first);

    // as if this server's clock were an hour behind that of the one that issued the last
    const std::uint64_t ahead = second + 3'600'000'000;
    outside.expect_ok({"SET", counter, std::to_string(ahead)});
    CHECK(next_token(redis) == ahead + 1);
    CHECK(next_token(redis) == ahead + 2);
    const auto kept = std::chrono::milliseconds{outside.pttl(counter)};
    CHECK(kept > 24h); // it outlives the hour as well
    CHECK(kept < 26h);
}

TEST_CASE("A fence counter that is no number gives no token, and the lock is given back") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    for (const std::string content : {"no number", "12345678901234567", "-5", "1e3", "0x10", "",
                                      " 7", "7.5", "9007199254740993x"}) {
        INFO(content);
        outside.expect_ok({"SET", counter, content});
        Lock lock{redis, key, fenced, std::defer_lock};
        const Outcome outcome = lock.try_acquire();
        CHECK(said(outcome) == said(Answer::refused, errc::fence_corrupt));
        CHECK(has(words_of(outcome), "FENCE corrupt"));
        CHECK_FALSE(lock.owns_lock());
        CHECK_FALSE(outside.exists(key));
        CHECK(outside.get(counter) == content); // for a person to look at
    }
    outside.integer({"DEL", counter});
    outside.integer({"LPUSH", counter, "a", "b"});
    Lock lock{redis, key, fenced, std::defer_lock};
    CHECK(said(lock.try_acquire()) == said(Answer::refused, errc::wrong_type));
    CHECK_FALSE(outside.exists(key));
    CHECK_THROWS_AS(Lock(redis, key, fenced), Error);
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE("A fence counter ends before doubles lose count, and says so") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    outside.expect_ok({"SET", counter, "9007199254740990"});
    CHECK(next_token(redis) == 9'007'199'254'740'991);
    Lock lock{redis, key, fenced, std::defer_lock};
    const Outcome outcome = lock.try_acquire();
    CHECK(said(outcome) == said(Answer::refused, errc::fence_overflow));
    CHECK(has(words_of(outcome), "FENCE overflow"));
    CHECK_FALSE(outside.exists(key));
    CHECK(outside.get(counter) == "9007199254740991");
    CHECK(outside.pttl(counter) > 0);
}

TEST_CASE("A fence whose reply is lost leaves no lock and no token") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(proxy)};
    const std::uint64_t before = next_token(redis);
    proxy.on_command("EVALSHA", Fault::cut_reply);
    Lock lock{redis, key, fenced, std::defer_lock};
    const Outcome outcome = lock.try_acquire();
    CHECK_FALSE(outcome);
    CHECK(outcome.cause == condition::unreachable);
    CHECK_FALSE(lock.owns_lock());
    CHECK(lock.fencing_token() == 0);
    CHECK_FALSE(outside.exists(key));
    CHECK(next_token(redis) > before);
}

TEST_CASE(
    "B65: lock and fence counter share a slot, or the lock is refused before anything is sent") {
    RedisServer server{{"--cluster-enabled", "yes"}};
    auto outside = server.client();
    outside.expect_ok({"CLUSTER", "ADDSLOTSRANGE", "0", "16383"});
    REQUIRE(eventually([&] {
        return has(outside.command({"CLUSTER", "INFO"}), "cluster_state:ok");
    }));
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(proxy)};

    const std::map<std::string, std::string> fence_keys{
        {"a", "{a}:leaselock:fence"},
        {"{a}", "{a}leaselock:fence"},
        {"x{y}z", "x{y}z:leaselock:fence"},
        {"a{", "{a{}:leaselock:fence"},
        {"{}{b}", ""},
        {"{}a", ""},
        {"a}b{", ""},
        {"a}b", ""},
        {"{{y}}", "{{y}}:leaselock:fence"},
    };
    for (const auto& [name, fence_key] : fence_keys) {
        INFO(name);
        proxy.reset_traffic();
        Lock lock{redis, name, fenced, std::defer_lock};
        const Outcome outcome = lock.try_acquire();
        if (fence_key.empty()) {
            CHECK(said(outcome) == said(Answer::unsent, errc::invalid_argument));
            CHECK(has(words_of(outcome), "hash tag"));
            CHECK(proxy.traffic().client_bytes == 0);

            LeaseLock plain{redis, name, patient}; // it is a good key all the same
            CHECK(plain.owns_lock());
            CHECK(said(plain.unlock()) == said(Answer::yes));
            continue;
        }
        REQUIRE(said(outcome) == said(Answer::yes));
        CHECK(outside.get(fence_key) == std::to_string(lock.fencing_token()));
        const auto slot = outside.integer({"CLUSTER", "KEYSLOT", name});
        CHECK(outside.integer({"CLUSTER", "KEYSLOT", fence_key}) == slot);
        CHECK(hash_slot(name) == slot);
        CHECK(said(lock.renew()) == said(Answer::yes));
        CHECK(said(lock.unlock()) == said(Answer::yes));
    }
}
