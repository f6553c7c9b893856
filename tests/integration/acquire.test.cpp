// SPDX-License-Identifier: MIT
// Taking a lock: what is sent, who gets it, and what it says to everybody else.
#include "story.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <set>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

const std::string key = "lock:job";

} // namespace

TEST_CASE("B01: a lock is taken by one SET, and by nothing that could be left half done") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    outside.reset_stats();
    LeaseLock lock{redis, key, {.ttl = 60s, .timeout = 20s}};
    REQUIRE(lock.owns_lock());
    CHECK(commands_of(outside) == std::map<std::string, long long>{{"set", 1}});
    const auto left = outside.pttl(key);
    CHECK(left > 0);
    CHECK(left <= 60'000);
}

TEST_CASE("B01, P1: a holder that is killed leaves a key that ends with its ttl") {
    RedisServer server;
    auto outside = server.client();
    Pipe pipe;
    ChildProcess holder{[&] {
        HiredisConnection redis{patient_url(server)};
        LeaseLock lock{redis, key, 1s};
        pipe.write_line(lock ? "held" : "busy");
        pause();
    }};
    REQUIRE(pipe.read_line() == "held");
    holder.kill();

    const Stopwatch watch;
    std::vector<long long> samples;
    const bool free_again = eventually([&] {
        samples.push_back(outside.pttl(key));
        return outside.command({"SET", key, "next", "NX"}) == "OK";
    });
    REQUIRE(free_again);
    CHECK(watch.elapsed() < 6s);
    const bool always_bounded = std::all_of(samples.begin(), samples.end(), [](long long left) {
        return left == -2 || (left >= 0 && left <= 1000); // -2: gone; -1 would be "for ever"
    });
    CHECK(always_bounded);
}

TEST_CASE("A cycle is one SET and one EVALSHA, in two writes and two reads") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(proxy)};
    { // connects, and lets the server know the script
        LeaseLock first{redis, key, patient};
        REQUIRE(first);
    }
    proxy.reset_traffic();
    constexpr int cycles = 20;
    const std::string read = server.has_getex() ? "getex" : "get";
    outside.reset_stats();
    std::vector<std::string> expected;
    for (int i = 0; i < cycles; ++i) {
        LeaseLock lock{redis, key, patient};
        REQUIRE(lock);
        expected.insert(expected.end(), {"SET", "EVALSHA"});
    }
    const Traffic traffic = proxy.traffic();
    CHECK(traffic.names() == expected);
    CHECK(traffic.connections == 0);
    CHECK(traffic.reads == 2 * cycles);
    CHECK(traffic.round_trips == 2 * cycles);
    CHECK(commands_of(outside) ==
          std::map<std::string, long long>{
              {"set", cycles}, {"evalsha", cycles}, {read, cycles}, {"del", cycles}});

    SECTION("a fencing token costs no round trip more") {
        { LeaseLock first{redis, key, {.ttl = 60s, .fencing = true, .timeout = 20s}}; }
        proxy.reset_traffic();
        { LeaseLock lock{redis, key, {.ttl = 60s, .fencing = true, .timeout = 20s}}; }
        CHECK(proxy.traffic().names() == std::vector<std::string>{"SET", "EVALSHA", "EVALSHA"});
        CHECK(proxy.traffic().round_trips == 2);
    }
}

TEST_CASE("B85: while the lock is busy, no way of asking leads into the guarded body") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    HiredisConnection other{patient_url(server)};
    LeaseLock holder{redis, key, patient};
    REQUIRE(holder);

    int entered = 0;
    if (LeaseLock lock{other, key, patient}) {
        ++entered;
    }
    Lock deferred{other, key, patient, std::defer_lock};
    {
        const std::unique_lock guard{deferred, std::try_to_lock};
        entered += guard ? 1 : 0;
    }
    entered += deferred.try_lock() ? 1 : 0;
    entered += deferred.try_acquire() ? 1 : 0;
    entered += deferred ? 1 : 0;
    CHECK(entered == 0);
    CHECK(holder.owns_lock());

    REQUIRE(said(holder.unlock()) == said(Answer::yes));
    {
        const std::unique_lock guard{deferred, std::try_to_lock};
        CHECK(guard.owns_lock());
        CHECK(outside.exists(key));
    }
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE("B85: where the lock cannot be asked for, the throwing forms throw before the body") {
    RedisServer server;
    HiredisConnection redis{server.url()};
    server.kill_hard();

    bool entered = false;
    try {
        LeaseLock lock{redis, key, 10s};
        entered = true;
    } catch (const Error& error) {
        CHECK(said(error.answer()) == said(Answer::unsent));
        CHECK(error.code() == condition::unreachable);
        CHECK(has(error.what(), key));
    }
    Lock deferred{redis, key, 10s, std::defer_lock};
    CHECK_THROWS_AS(deferred.try_lock(), Error);
    const auto by_std = [&] {
        const std::unique_lock guard{deferred, std::try_to_lock};
        entered = true;
    };
    CHECK_THROWS_AS(by_std(), Error);
    CHECK_FALSE(entered);
    CHECK_FALSE(deferred.owns_lock());
}

TEST_CASE("B85: of many workers one is inside at a time") {
    RedisServer server;
    constexpr int workers = 4;
    constexpr int rounds = 50;
    std::atomic<int> inside{0};
    std::atomic<int> most{0};
    std::atomic<int> entered{0};
    std::atomic<int> failed{0};
    {
        std::vector<std::thread> threads;
        for (int w = 0; w < workers; ++w) {
            threads.emplace_back([&] {
                HiredisConnection redis{patient_url(server)};
                Lock lock{redis, key, patient, std::defer_lock};
                for (int i = 0; i < rounds;) {
                    const Outcome outcome = lock.try_acquire();
                    if (outcome) {
                        const int now = ++inside;
                        for (int seen = most;
                             seen < now && !most.compare_exchange_weak(seen, now);) {
                        }
                        std::this_thread::yield();
                        --inside;
                        ++entered;
                        ++i;
                        failed += lock.unlock() ? 0 : 1;
                    } else if (outcome.answer != Answer::no) {
                        ++failed;
                        ++i;
                    }
                }
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    }
    CHECK(most == 1);
    CHECK(failed == 0);
    CHECK(entered == workers * rounds);
}

TEST_CASE(
    "B89: a wrong password, a replica, full memory, a stalled server and a busy lock differ") {
    RedisServer server{{}, "secret"};
    auto outside = server.client();
    HiredisConnection redis{server.url()};
    const auto attempt = [&](HiredisConnection& connection, std::chrono::milliseconds timeout) {
        Lock lock{connection, key, {.ttl = 60s, .timeout = timeout}, std::defer_lock};
        Outcome outcome = lock.try_acquire();
        CHECK_FALSE(lock.owns_lock());
        return outcome;
    };

    outside.expect_ok({"SET", key, "somebody"});
    const Outcome busy = attempt(redis, 20s);
    CHECK(said(busy) == said(Answer::no, errc::busy));
    CHECK(busy.cause == condition::contention);
    outside.integer({"DEL", key});

    HiredisConnection intruder{"redis://:wrong@127.0.0.1:" + std::to_string(server.port())};
    const Outcome wrong_password = attempt(intruder, 20s);
    CHECK(said(wrong_password) == said(Answer::refused, errc::wrong_password));
    CHECK(wrong_password.cause == condition::denied);
    CHECK(words_of(wrong_password).starts_with("WRONGPASS"));
    CHECK_FALSE(has(words_of(wrong_password), "wrong@"));

    outside.config_set("maxmemory", "1");
    const Outcome full = attempt(redis, 20s);
    CHECK(said(full) == said(Answer::refused, errc::out_of_memory));
    CHECK(full.cause == condition::not_ready);
    CHECK(words_of(full).starts_with("OOM "));
    outside.config_set("maxmemory", "0");

    outside.expect_ok({"REPLICAOF", "127.0.0.1", "1"});
    const Outcome replica = attempt(redis, 20s);
    CHECK(said(replica) == said(Answer::refused, errc::read_only));
    CHECK(replica.cause == condition::not_ready);
    CHECK(words_of(replica).starts_with("READONLY "));
    outside.expect_ok({"REPLICAOF", "NO", "ONE"});

    REQUIRE(Lock{redis, key, patient}.unlock()); // a stream to the master, as it is one again
    server.stop_process();
    const Outcome stalled = attempt(redis, 300ms);
    server.continue_process();
    CHECK(said(stalled) == said(Answer::unknown, errc::timed_out));
    CHECK(stalled.cause == condition::unreachable);
    CHECK(has(words_of(stalled), std::to_string(server.port())));

    const std::set<std::string> answers{said(busy), said(wrong_password), said(full), said(replica),
                                        said(stalled)};
    CHECK(answers.size() == 5);
}

TEST_CASE(
    "Yes, no, refused, unsent and unknown are told apart, each with its cause and its words") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(proxy)};
    Recorder recorder;
    Lock lock{redis, key, {.ttl = 60s, .timeout = 20s, .observer = &recorder}, std::defer_lock};

    const Outcome yes = lock.try_acquire();
    CHECK(said(yes) == "yes");
    CHECK_FALSE(yes.cause);
    CHECK(words_of(yes).empty());
    REQUIRE(lock.unlock());

    outside.expect_ok({"SET", key, "somebody"});
    const Outcome no = lock.try_acquire();
    CHECK(said(no) == said(Answer::no, errc::busy));
    outside.integer({"DEL", key});

    outside.config_set("min-replicas-to-write", "1");
    const Outcome refused = lock.try_acquire();
    CHECK(said(refused) == said(Answer::refused, errc::too_few_replicas));
    CHECK(words_of(refused).starts_with("NOREPLICAS "));
    outside.config_set("min-replicas-to-write", "0");

    proxy.on_command("SET", Fault::cut_reply);
    const Outcome unknown = lock.try_acquire();
    CHECK(said(unknown.answer) == said(Answer::unknown));
    CHECK(unknown.cause == condition::unreachable);
    CHECK(has(words_of(unknown), std::to_string(proxy.port())));

    proxy.refuse();
    proxy.cut();
    const Outcome unsent = lock.try_acquire();
    CHECK(said(unsent.answer) == said(Answer::unsent));
    CHECK(unsent.cause == std::errc::connection_refused);
    CHECK(has(words_of(unsent), std::to_string(proxy.port())));

    CHECK(recorder.of(Verb::acquire) == std::vector<std::string>{said(yes), said(no), said(refused),
                                                                 said(unknown), said(unsent)});
}

TEST_CASE("X1: keys and labels of any bytes arrive exact, and are renewed and released") {
    using namespace std::string_literals;
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    const std::array<std::string, 6> hostile{"lock:\0nul\0"s,        "lock:\r\nDEL *\r\n"s,
                                             "lock:%s%n%b %d"s,      " lock: \t "s,
                                             "*3\r\n$3\r\nSET\r\n"s, "lock:\xff\xfe\x80{}"s};
    for (const std::string& name : hostile) {
        INFO(name);
        outside.expect_ok({"FLUSHALL"});
        LeaseLock lock{redis, name, {.ttl = 60s, .owner = name, .timeout = 20s}};
        REQUIRE(lock);
        CHECK(lock.key() == name);
        CHECK(outside.integer({"DBSIZE"}) == 1);
        const auto value = outside.get(name);
        REQUIRE(value);
        CHECK(value->substr(32) == ":" + name);
        const Inspection seen = inspect(redis, name, 20s);
        CHECK(seen.owner.view() == name);
        CHECK(said(lock.renew()) == said(Answer::yes));
        CHECK(said(lock.unlock()) == said(Answer::yes));
        CHECK(outside.integer({"DBSIZE"}) == 0);
    }

    const std::string tagged = "lock:{\0\r\n%s}"s;
    LeaseLock fenced{redis, tagged, {.ttl = 60s, .fencing = true, .timeout = 20s}};
    REQUIRE(fenced);
    CHECK(outside.get(tagged + ":leaselock:fence") == std::to_string(fenced.fencing_token()));
}

TEST_CASE("S18: a key of another type is busy, and is not released") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    Lock lock{redis, key, patient, std::defer_lock};
    outside.integer({"HSET", key, "field", "value"});
    CHECK(said(lock.try_acquire()) == said(Answer::no, errc::busy));
    CHECK(outside.command({"HGET", key, "field"}) == "value");

    outside.integer({"DEL", key});
    REQUIRE(lock.try_acquire());
    outside.integer({"DEL", key});
    outside.integer({"HSET", key, "field", "value"});
    const Outcome renewed = lock.renew();
    CHECK(said(renewed) == said(Answer::refused, errc::wrong_type));
    const Outcome released = lock.unlock();
    CHECK(said(released) == said(Answer::refused, errc::wrong_type));
    CHECK(has(words_of(released), "WRONGTYPE"));
    CHECK(outside.command({"HGET", key, "field"}) == "value");
    CHECK(outside.pttl(key) == -1);
}

TEST_CASE("S19: a foreign value without expiry is busy for ever, and is told apart from a lease") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    outside.expect_ok({"SET", key, "by hand"});
    Lock lock{redis, key, patient, std::defer_lock};
    CHECK(said(lock.try_acquire()) == said(Answer::no, errc::busy));
    CHECK(inspect(redis, key, 20s).state == Inspection::State::held_without_expiry);

    outside.expect_ok({"SET", key, "by hand", "PX", "60000"});
    CHECK(said(lock.try_acquire()) == said(Answer::no, errc::busy));
    CHECK(inspect(redis, key, 20s).state == Inspection::State::held);
    CHECK(outside.get(key) == "by hand");
}
