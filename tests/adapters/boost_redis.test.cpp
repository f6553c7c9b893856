// SPDX-License-Identifier: MIT
#include "connection_contract.hpp"

#include "boost_redis_connection.hpp"

#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/renewer.hpp>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/redis/config.hpp>
#include <boost/redis/logger.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

using namespace leaselock;
using namespace leaselock::test;
using namespace leaselock::test::contract;
using namespace std::chrono_literals;

namespace {

/// What a service that uses Boost.Redis has already: a connection that is kept running by a thread.
class Service {
public:
    explicit Service(const std::string& url) {
        const Endpoint server = Endpoint::from_url(url);
        config_.addr = {server.host, std::to_string(server.port)};
        config_.health_check_interval = 0s; // a test stops the server for longer
        config_.reconnect_wait_interval = 20ms;
        boost::asio::dispatch(context_, [this] { run(); });
        thread_ = std::thread{[this] { context_.run(); }};
    }
    Service(const Service&) = delete;
    Service& operator=(const Service&) = delete;
    ~Service() { stop(); }

    void stop() {
        if (!thread_.joinable()) return;
        context_.stop();
        thread_.join();
    }

    /// The thread does something else for so long.
    void block_for(std::chrono::milliseconds time) {
        boost::asio::post(context_, [time] { std::this_thread::sleep_for(time); });
    }

    [[nodiscard]] BoostRedisConnection adapter() { return BoostRedisConnection{connection_}; }

private:
    /// In Boost 1.88 async_run ends where connecting fails, and leaves a socket that is none.
    void run() {
        connection_.async_run(config_, boost::redis::logger{boost::redis::logger::level::disabled},
                              [this](const boost::system::error_code&) {
                                  connection_.reset_stream();
                                  again_.expires_after(20ms);
                                  again_.async_wait(
                                      [this](const boost::system::error_code& stopped) {
                                          if (!stopped) run();
                                      });
                              });
    }

    boost::asio::io_context context_{1};
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
        context_.get_executor()};
    boost::redis::config config_;
    boost::redis::connection connection_{context_};
    boost::asio::steady_timer again_{context_};
    std::thread thread_;
};

/// The contract expects a connection that connects when it is used. Boost.Redis does so by itself, so
/// this waits for it, and not for anything that has been sent.
struct Connected {
    Service service;
    BoostRedisConnection connection;

    explicit Connected(const std::string& url) : service(url), connection(service.adapter()) {
        REQUIRE(line_of(contract::call(*this, {"PING"}, 20s)) == "+PONG");
    }
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        connection.call(commands, replies, by);
        while (LeaseClock::now() < by && std::all_of(replies.begin(), replies.end(), is_unsent)) {
            std::this_thread::sleep_for(1ms);
            connection.call(commands, replies, by);
        }
    }
    static bool is_unsent(const Reply& reply) { return reply.kind == Reply::unsent; }
};

const auto make = [](const std::string& url) { return std::make_unique<Connected>(url); };

} // namespace

// The contract, but for connecting, which is the service's

TEST_CASE("BoostRedisConnection: answers of every kind") { answers_of_every_kind(make); }
TEST_CASE("X1 BoostRedisConnection: bytes arrive exact") { x1_bytes_arrive_exact(make); }
TEST_CASE("BoostRedisConnection: a batch is one round trip, in order") {
    batches_are_one_round_trip_in_order(make);
}
TEST_CASE("N3 BoostRedisConnection: the reply is lost") { n3_reply_lost(make); }
TEST_CASE("N5 BoostRedisConnection: a late reply answers nobody") {
    n5_late_reply_answers_nobody(make);
}
TEST_CASE("N9 BoostRedisConnection: one deadline for dripping replies") {
    n9_one_deadline_for_dripping_replies(make);
}
TEST_CASE("N10 BoostRedisConnection: what arrived before the break is kept") {
    n10_what_arrived_is_kept(make);
}
TEST_CASE("P11 BoostRedisConnection: a storm of signals changes nothing") {
    p11_signal_storm(make);
}

// The guard over it

TEST_CASE("BoostRedisConnection: acquired, busy, renewed, kept, released") {
    const RedisServer server;
    Connected redis{server.url()};
    LeaseLock mine{redis.connection, "lock:a", {.ttl = 60s, .fencing = true, .timeout = 20s}};
    REQUIRE(mine);
    CHECK(mine.fencing_token() > 0);
    LeaseLock yours{redis.connection, "lock:a", {.ttl = 60s, .timeout = 20s}, std::defer_lock};
    const Outcome busy = yours.try_acquire();
    CHECK(busy.answer == Answer::no);
    CHECK(busy.cause == errc::busy);
    CHECK(mine.renew());
    {
        Renewer renewer{redis.connection};
        CHECK(renewer.try_keep(mine));
        CHECK(mine.unlock());
    }
    CHECK_FALSE(server.client().exists("lock:a"));
    CHECK(yours.try_acquire());
}

TEST_CASE("BoostRedisConnection: an error reply is the server's own words") {
    const RedisServer server;
    Connected redis{server.url()};
    LeaseLock lock{redis.connection, "lock:a", {.ttl = 60s, .timeout = 20s}};
    REQUIRE(lock);
    server.client().integer({"DEL", "lock:a"});
    server.client().integer({"LPUSH", "lock:a", "x"});
    const Outcome renewed = lock.renew();
    CHECK(renewed.cause == errc::wrong_type);
    CHECK(renewed.text.view().starts_with("WRONGTYPE"));
}

TEST_CASE("BoostRedisConnection: a stopped server costs the time limit: unknown") {
    RedisServer server;
    Connected redis{server.url()};
    LeaseLock lock{redis.connection, "lock:a", {.ttl = 60s, .timeout = 300ms}, std::defer_lock};
    server.stop_process();
    const Stopwatch watch;
    const Outcome outcome = lock.try_acquire();
    CHECK(watch.elapsed() >= 299ms);
    CHECK(watch.elapsed() < 600ms + slack); // the clean-up of what it may have left, too
    CHECK(outcome.answer == Answer::unknown);
    CHECK(outcome.cause == errc::timed_out);
    server.continue_process();
    CHECK(eventually([&] { return static_cast<bool>(lock.try_acquire()); }));
}

TEST_CASE("N1 BoostRedisConnection: a server that is gone is never believed to have answered") {
    RedisServer server;
    Connected redis{server.url()};
    server.kill_hard();
    REQUIRE(eventually([&] { // it may take a moment to see that the stream has ended
        const Reply reply = contract::call(redis.connection, {"SET", "k", "v"}, 200ms);
        REQUIRE_FALSE(reply.answered());
        CHECK(reply.cause == condition::unreachable);
        return reply.kind == Reply::unsent;
    }));
    server.restart();
    CHECK(eventually([&] {
        return line_of(contract::call(redis.connection, {"SET", "k", "v"}, 200ms)) == "+OK";
    }));
}

TEST_CASE("BoostRedisConnection: a call with no time left is written, and not waited for") {
    const RedisServer server;
    Connected redis{server.url()};
    const Stopwatch watch;
    CHECK(line_of(contract::call(redis.connection, {"SET", "k", "1"}, -1s)) != "unsent");
    CHECK(watch.elapsed() < slack);
    CHECK(eventually([&] { return server.client().get("k") == "1"; }));
}

TEST_CASE("BoostRedisConnection: a thread of the service that is blocked keeps nobody") {
    const RedisServer server;
    Connected redis{server.url()};
    redis.service.block_for(3s);
    const Stopwatch watch;
    CHECK(line_of(contract::call(redis.connection, {"SET", "k", "1"}, 100ms)) == "unsent");
    CHECK(watch.elapsed() < 100ms + slack);
    CHECK(line_of(contract::call(redis.connection, {"EXISTS", "k"}, 20s)) == ":0"); // nor later
    redis.service.stop();
    CHECK(line_of(contract::call(redis.connection, {"SET", "k", "1"}, 100ms)) == "unsent");
}

TEST_CASE("BoostRedisConnection: threads share one stream") {
    const RedisServer server;
    Connected redis{server.url()};
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 200; ++i) {
                const std::string text = std::to_string(t * 1'000 + i);
                if (line_of(contract::call(redis.connection, {"ECHO", text}, 20s)) == "$" + text) {
                    ++right;
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(right == 800);
}
