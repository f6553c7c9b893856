// SPDX-License-Identifier: MIT
// Limits: of the arguments, and of the time that a call may take.
#include "story.hpp"

#include "support/dead_end.hpp"

#include <signal.h>
#include <sys/socket.h>

#include <limits>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

const std::string key = "lock:bounds";

} // namespace

TEST_CASE("Bad arguments are refused before anything is sent, and named with their limit") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(proxy)};
    const std::string long_key(1025, 'k');
    const std::string long_label(129, 'x');
    struct Bad {
        std::string key;
        Options options;
        std::string named;
    };
    const std::vector<Bad> table{
        {key, {.ttl = 0ms}, "ttl is 0 ms"},
        {key, {.ttl = -1ms}, "ttl is -1 ms"},
        {key, {.ttl = 2ms}, "margin"},
        {key, {.ttl = 100ms, .margin = 100ms}, "margin"},
        {key, {.ttl = 2'147'483'648ms}, "at most 2147483647"},
        {key, {.ttl = to_ttl(std::chrono::hours::max())}, "at most 2147483647"},
        {key, {.timeout = 0ms}, "timeout"},
        {key, {.margin = -1ms}, "margin is negative"},
        {"", {}, "key is empty"},
        {long_key, {}, "1024"},
        {key, {.owner = long_label}, "128"},
        {"lock:}", {.fencing = true}, "hash tag"},
    };
    for (const auto& [name, options, named] : table) {
        INFO(named);
        Lock lock{redis, name, options, std::defer_lock};
        const Outcome outcome = lock.try_acquire();
        CHECK(said(outcome) == said(Answer::unsent, errc::invalid_argument));
        CHECK(has(words_of(outcome), named));
        CHECK_THROWS_AS(Lock(redis, name, options), Error);
    }
    CHECK_THROWS_AS(Lock(redis, key, std::chrono::hours::max()), Error);
    CHECK_THROWS_AS(Lock(redis, key, std::numeric_limits<double>::quiet_NaN() * 1s), Error);
    CHECK(proxy.traffic().connections == 0);
}

TEST_CASE("The edges of the arguments work") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(proxy)};
    const std::string longest(1024, 'k');
    const std::string label(128, 'o');
    LeaseLock lock{
        redis, longest, {.ttl = max_ttl, .fencing = true, .owner = label, .timeout = 20s}};
    REQUIRE(lock);
    CHECK(outside.pttl(longest) > 2'147'000'000);
    CHECK(outside.get(longest).value_or("").substr(32) == ":" + label);
    CHECK(inspect(redis, longest, 20s).owner.view() == label);
    CHECK(said(lock.renew()) == said(Answer::yes));
    CHECK(said(lock.unlock()) == said(Answer::yes));

    proxy.reset_traffic();
    Lock finer{redis, key, 9'000'001ns, std::defer_lock};
    static_cast<void>(finer.try_acquire());
    CHECK(proxy.traffic().requests.at(0).back() == "10"); // rounded up
    Lock patience{redis, key, {.timeout = std::chrono::milliseconds::max()}, std::defer_lock};
    CHECK(eventually([&] { return static_cast<bool>(patience.try_acquire()); }));
}

TEST_CASE("N2: connecting that goes nowhere ends with the call") {
    const DeadEnd nowhere;
    HiredisConnection redis{patient_url("redis://127.0.0.1:" + std::to_string(nowhere.port()))};
    Lock lock{redis, key, {.ttl = 60s, .timeout = 300ms}, std::defer_lock};
    const Stopwatch watch;
    CHECK(said(lock.try_acquire()) == said(Answer::unsent, errc::timed_out));
    CHECK(watch.elapsed() >= 300ms);
    CHECK(watch.elapsed() < 8s);
}

TEST_CASE("N9: a reply that drips does not stretch a call beyond its time") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    HiredisConnection redis{proxy.url()};
    Lock lock{redis, key, {.ttl = 60s, .timeout = 400ms}, std::defer_lock};
    Lock held{redis, "lock:held", {.ttl = 60s, .timeout = 400ms}, std::defer_lock};
    REQUIRE(eventually([&] { return static_cast<bool>(held.try_acquire()); }));
    const Deadline before = held.deadline();

    proxy.drip(8s); // 24 s and more for the shortest reply
    Stopwatch watch;
    CHECK(said(lock.try_acquire()) == said(Answer::unknown, errc::timed_out));
    CHECK(watch.elapsed() >= 400ms);
    CHECK(watch.elapsed() < 8s);
    CHECK_FALSE(lock.owns_lock());

    watch = Stopwatch{};
    CHECK(said(held.renew()) == said(Answer::unknown, errc::timed_out));
    CHECK(watch.elapsed() >= 400ms);
    CHECK(watch.elapsed() < 8s);
    CHECK(held.deadline() == before);

    watch = Stopwatch{};
    CHECK(said(held.unlock()) == said(Answer::unknown, errc::timed_out));
    CHECK(watch.elapsed() < 8s);
    proxy.pass();
}

TEST_CASE("No verb outlasts its time when the network swallows everything") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    HiredisConnection redis{proxy.url()};
    const auto held_by = [&](std::string_view name) {
        Lock lock{redis, name, {.ttl = 60s, .timeout = 300ms}, std::defer_lock};
        REQUIRE(eventually([&] { return static_cast<bool>(lock.try_acquire()); }));
        return lock;
    };
    Lock renewing = held_by("lock:a");
    Lock releasing = held_by("lock:b");
    auto leaving = std::make_unique<Lock>(held_by("lock:c"));
    Lock acquiring{redis, "lock:d", {.ttl = 60s, .timeout = 300ms}, std::defer_lock};

    const std::map<std::string, std::function<void()>> verbs{
        {"renew", [&] { CHECK_FALSE(renewing.renew()); }},
        {"unlock", [&] { CHECK_FALSE(releasing.unlock()); }},
        {"the destructor", [&] { leaving.reset(); }},
        {"try_acquire", [&] { CHECK_FALSE(acquiring.try_acquire()); }},
    };
    proxy.black_hole();
    for (const auto& [name, verb] : verbs) {
        INFO(name);
        const Stopwatch watch;
        verb();
        CHECK(watch.elapsed() >= 300ms);
        CHECK(watch.elapsed() < 6s);
    }
    CHECK(renewing.owns_lock());
    proxy.pass();
}

TEST_CASE("A call of a short lease waits no longer than the lease lives") {
    RedisServer server;
    HiredisConnection redis{server.url()};
    server.stop_process();
    Lock lock{redis, key, {.ttl = 200ms, .timeout = 1s}, std::defer_lock};
    const Stopwatch watch;
    const Outcome outcome = lock.try_acquire();
    const auto elapsed = watch.elapsed();
    server.continue_process();
    CHECK_FALSE(outcome);
    CHECK(elapsed >= 190ms);
    CHECK(elapsed < 8s);
}

TEST_CASE("N14: commands that the kernel takes in pieces, or not at first, arrive whole") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{"unix://" + server.unix_path() + "?connect_timeout=20s"};
    REQUIRE(inspect(redis, key, 20s).outcome);
    const int socket = socket_to(server.unix_path());
    REQUIRE(socket >= 0);
    REQUIRE(shrink_send_buffer(socket));

    const std::string longest = "{" + std::string(1022, 'k') + "}";
    const std::string label(128, 'o');
    const pid_t pid = server.pid();
    bool full = false;
    // More and more room is taken beforehand: there is enough for all of the commands at first,
    // then for a part of them, then for none.
    for (int lines = 0; !full; ++lines) {
        INFO(lines);
        REQUIRE(lines < 100);
        server.stop_process();
        for (int i = 0; i < lines && !full; ++i) {
            full = !send_empty_line(socket);
        }
        const Beside wakes_it{[pid] {
            std::this_thread::sleep_for(20ms);
            kill(pid, SIGCONT);
        }};
        Lock lock{redis,
                  longest,
                  {.ttl = 60s, .fencing = true, .owner = label, .timeout = 20s},
                  std::defer_lock};
        REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
        CHECK(lock.fencing_token() > 0);
        CHECK(outside.get(longest).value_or("").substr(32) == ":" + label);
        CHECK(said(lock.unlock()) == said(Answer::yes));
    }
    CHECK(socket_to(server.unix_path()) == socket); // all of it on one connection
}
