// SPDX-License-Identifier: MIT
// Waiting for a lock that another holds.
#include "kept_story.hpp"

#include "support/resources.hpp"

#include <memory>
#include <optional>
#include <stop_token>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

const std::string key = "lock:import";

void hold_from_outside(RawClient& outside, std::chrono::milliseconds ttl) {
    outside.expect_ok({"SET", key, "another's", "PX", std::to_string(ttl.count())});
}

/// Many that wait for one key, each on a thread and a connection of its own.
class Crowd {
public:
    Crowd(const RedisServer& server, std::size_t size, const Options& options,
          std::chrono::milliseconds span) {
        for (std::size_t i = 0; i < size; ++i) {
            threads_.emplace_back([this, url = patient_url(server), options, span] {
                HiredisConnection redis{url};
                Lock lock{redis, key, options, std::defer_lock};
                const Outcome outcome = lock.try_acquire_for(span, stop_.get_token());
                if (outcome) {
                    ++acquired_;
                } else if (outcome.cause != errc::busy && outcome.cause != errc::stopped) {
                    ++failed_;
                }
                ++ended_;
            });
        }
    }
    Crowd(const Crowd&) = delete;
    Crowd& operator=(const Crowd&) = delete;
    ~Crowd() { disperse(); }

    void disperse() {
        stop_.request_stop();
        for (std::thread& thread : threads_) {
            thread.join();
        }
        threads_.clear();
    }
    [[nodiscard]] std::size_t acquired() const { return acquired_; }
    [[nodiscard]] std::size_t failed() const { return failed_; }
    [[nodiscard]] std::size_t ended() const { return ended_; }

private:
    std::stop_source stop_;
    std::atomic<std::size_t> acquired_{0};
    std::atomic<std::size_t> failed_{0};
    std::atomic<std::size_t> ended_{0};
    std::vector<std::thread> threads_;
};

/// The SETs of a window, and the most that waiters may send in it: no pause is below the floor.
struct Window {
    long long sets = 0;
    std::chrono::milliseconds span{};
    std::chrono::microseconds processor{};

    Window(RawClient& outside, std::chrono::milliseconds wait) {
        const auto before = processor_time();
        const Stopwatch watch;
        outside.reset_stats();
        std::this_thread::sleep_for(wait);
        sets = outside.command_stats()["set"];
        span = watch.elapsed();
        processor = processor_time() - before;
    }
    [[nodiscard]] long long at_most(std::size_t waiters, std::chrono::milliseconds floor) const {
        return static_cast<long long>(waiters) * (span / floor + 1);
    }
};

} // namespace

TEST_CASE("B07: a lock that was won after a long wait has its whole lease ahead of it") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    HiredisConnection wire{patient_url(server)};
    Keeper renewer{wire};
    Lock lock{redis, key, {.ttl = 2s, .timeout = 20s}, std::defer_lock};
    constexpr auto lease = 2s - 22ms; // less the margin
    constexpr auto held = 1s;

    const Deadline before = LeaseClock::now();
    hold_from_outside(outside, held);
    REQUIRE(lock.try_lock_for(30s));
    CHECK(LeaseClock::now() >= before + held);
    auto in_redis = std::chrono::milliseconds{outside.pttl(key)};
    CHECK(lock.remaining() <= in_redis);
    CHECK(lock.remaining() <= lease);
    // counted from the attempt that won, neither from an earlier one nor from the wait's beginning
    CHECK(lock.deadline() >= before + held + lease - 500ms);

    const Deadline first = lock.deadline();
    CHECK(said(lock.renew()) == said(Answer::yes));
    CHECK(lock.deadline() > first);

    renewer.keep(lock);
    const Stopwatch watch;
    bool good = true;
    while (good && watch.elapsed() < 2500ms) {
        in_redis = std::chrono::milliseconds{outside.pttl(key)};
        good = in_redis >= 1ms && lock.owns_lock() && lock.remaining() <= in_redis;
        std::this_thread::sleep_for(20ms);
    }
    INFO("PTTL " << in_redis.count() << ", remaining " << lock.remaining().count() << " ns");
    CHECK(good);
}

TEST_CASE("B44: the wait that the call asks for is the one that counts, whatever the options say") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    hold_from_outside(outside, 60s);
    Options options{.timeout = 20s};
    SECTION("as they are") {}
    SECTION("long pauses") { options.wait_floor = options.wait_cap = 30s; }
    SECTION("short pauses") { options.wait_floor = options.wait_cap = 1ms; }
    SECTION("a long lease") { options.ttl = 1h; }
    Lock lock{redis, key, options, std::defer_lock};
    outside.reset_stats();
    std::optional<bool> acquired;
    for (int i = 0; i < 20 && !acquired; ++i) {
        const Stopwatch watch;
        try {
            acquired = lock.try_lock_for(200ms);
        } catch (const Error& error) { // the last attempt had no answer in time: a slow machine
            CHECK(error.outcome().cause == errc::timed_out);
        }
        CHECK(watch.elapsed() >= 200ms);
        CHECK(watch.elapsed() < 10s);
    }
    CHECK(acquired == false);
    CHECK(outside.command_stats()["set"] >= 2); // one at once, and one just before the end
    CHECK(outside.get(key) == "another's");
}

TEST_CASE("B46: a timed wait ends by its time with Redis down, and says why") {
    RedisServer server;
    HiredisConnection redis{server.url()};
    Lock lock{redis, key, {}, std::defer_lock};
    const Stopwatch watch;
    SECTION("it hangs") {
        server.stop_process();
        const Outcome outcome = lock.try_acquire_for(200ms);
        CHECK(outcome.answer != Answer::yes);
        CHECK(outcome.answer != Answer::no);
        CHECK(outcome.cause == errc::timed_out);
        server.continue_process();
    }
    SECTION("it is gone") {
        server.kill_hard();
        const Outcome outcome = lock.try_acquire_for(200ms);
        CHECK(said(outcome.answer) == said(Answer::unsent));
        // refused, or on a slow machine a last attempt that had no time to hear it
        CHECK(outcome.cause == condition::unreachable);
        CHECK(has(words_of(outcome), std::to_string(server.port())));
    }
    SECTION("it is gone, and the form is one that throws") {
        server.kill_hard();
        CHECK_THROWS_AS(static_cast<void>(lock.try_lock_for(200ms)), Error);
    }
    CHECK(watch.elapsed() >= 200ms);
    CHECK(watch.elapsed() < 10s);
    CHECK_FALSE(lock.owns_lock());
}

TEST_CASE("B46: a server that comes back inside the wait is asked, and the lock is taken") {
    RedisServer server;
    Hearsay hearsay;
    HiredisConnection redis{patient_url(server)};
    Lock lock{redis, key, {.ttl = 60s, .timeout = 20s, .observer = &hearsay}, std::defer_lock};
    server.kill_hard();
    Outcome outcome;
    {
        const Beside waiter{[&] { outcome = lock.try_acquire_for(60s); }};
        CHECK(eventually([&] { return hearsay.count(Verb::acquire) >= 2; }));
        server.restart();
    }
    CHECK(said(outcome) == said(Answer::yes));
    CHECK(lock.owns_lock());
    CHECK(hearsay.of(Verb::wait) == std::vector{said(Answer::yes)});
}

TEST_CASE("A stop request ends a wait at once, in a pause as behind an attempt") {
    RedisServer server;
    auto outside = server.client();
    hold_from_outside(outside, 600s);
    HiredisConnection redis{patient_url(server)};
    Hearsay hearsay;
    const Options options{
        .timeout = 20s, .observer = &hearsay, .wait_floor = 300s, .wait_cap = 300s};
    Lock lock{redis, key, options, std::defer_lock};
    std::stop_source stop;
    Outcome outcome;
    {
        const Beside waiter{[&] { outcome = lock.try_acquire_for(600s, stop.get_token()); }};
        CHECK(eventually([&] { return hearsay.count(Verb::acquire) == 1; }));
        stop.request_stop();
    } // joined
    CHECK(said(outcome) == said(Answer::no, errc::stopped));
    outside.reset_stats();
    CHECK(said(lock.try_acquire_for(600s, stop.get_token())) ==
          said(Answer::unsent, errc::stopped));
    CHECK_FALSE(lock.try_lock_for(600s, stop.get_token()));
    CHECK(outside.command_stats().count("set") == 0);
}

TEST_CASE("B48: fifty that wait for a lock leave server and processor alone") {
    RedisServer server;
    auto outside = server.client();
    hold_from_outside(outside, 600s);
    const Options options{.timeout = 20s, .wait_floor = 100ms, .wait_cap = 500ms};
    Crowd crowd{server, 50, options, 600s};
    CHECK(eventually([&] { return outside.command_stats()["set"] > 50; }));
    const Window window{outside, 3s};
    INFO(window.sets << " SETs in " << window.span.count() << " ms, of "
                     << window.at_most(50, 100ms) << " at most; processor time "
                     << window.processor.count() << " us");
    CHECK(window.sets <= window.at_most(50, 100ms));
    CHECK(window.sets > 50); // and nobody sleeps for longer than the cap
    CHECK(window.processor < window.span);

    const Stopwatch watch;
    REQUIRE(outside.integer({"DEL", key}) == 1);
    CHECK(eventually([&] { return crowd.acquired() > 0; })); // the cap, and much to spare
    INFO("the first acquired " << watch.elapsed().count() << " ms behind the release");
    crowd.disperse();
    CHECK(crowd.failed() == 0);
    CHECK(crowd.ended() == 50);
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE("X3: a flood of a thousand waiters keeps to floor and cap") {
    // a descriptor for each, here and in the server
    const std::size_t size = raise_descriptor_limit() >= 3000 ? 1000 : 300;
    RedisServer server;
    auto outside = server.client();
    hold_from_outside(outside, 600s);
    const Options options{.timeout = 20s, .wait_floor = 500ms, .wait_cap = 2s};
    Crowd crowd{server, size, options, 600s};
    CHECK(eventually([&] { return outside.command_stats()["set"] > static_cast<long long>(size); },
                     60s));
    const Window window{outside, 3s};
    INFO(window.sets << " SETs in " << window.span.count() << " ms, of "
                     << window.at_most(size, 500ms) << " at most; processor time "
                     << window.processor.count() << " us");
    CHECK(window.sets <= window.at_most(size, 500ms));
    CHECK(window.sets > 0);
    REQUIRE(outside.integer({"DEL", key}) == 1);
    CHECK(eventually([&] { return crowd.acquired() > 0; }, 30s));
    crowd.disperse();
    CHECK(crowd.failed() == 0);
    CHECK(crowd.ended() == size);
    CHECK_FALSE(outside.exists(key));
}
