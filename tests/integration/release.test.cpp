// SPDX-License-Identifier: MIT
// Giving a lock back: by its token only, once, and bounded whatever happens.
#include "story.hpp"

#include <stdexcept>
#include <type_traits>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

const std::string key = "lock:order-timeout";

} // namespace

TEST_CASE("B12: a late holder does not delete the next one's lock") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis_a{patient_url(server)};
    HiredisConnection redis_b{patient_url(server)};
    Lock a{redis_a, key, {.ttl = 200ms, .timeout = 20s}, std::defer_lock};
    REQUIRE(eventually([&] { return static_cast<bool>(a.try_acquire()); }));

    Lock b{redis_b, key, patient, std::defer_lock}; // A stalls for longer than its lease
    REQUIRE(eventually([&] { return static_cast<bool>(b.try_acquire()); }));
    const auto value = outside.get(key);
    CHECK_FALSE(a.owns_lock());
    CHECK(to_string(a.loss()) == "expired");

    SECTION("by unlock") { CHECK(said(a.unlock()) == said(Answer::no, errc::taken)); }
    SECTION("by its destructor") { Lock{std::move(a)}; }
    SECTION("by a renewal") { CHECK(said(a.renew()) == said(Answer::unsent, errc::expired)); }
    CHECK(outside.get(key) == value);
    CHECK(b.owns_lock());
    CHECK(outside.command({"SET", key, "third", "NX"}) == "(nil)");
    CHECK(said(b.renew()) == said(Answer::yes));
    CHECK(said(b.unlock()) == said(Answer::yes));
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE("B16: gone, unreachable and not held are three ends of a release") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    Lock expired{redis, key, {.ttl = 150ms, .timeout = 20s}, std::defer_lock};
    REQUIRE(eventually([&] { return static_cast<bool>(expired.try_acquire()); }));
    REQUIRE(eventually([&] { return !outside.exists(key); }));
    const Outcome gone = expired.unlock();
    CHECK(said(gone) == said(Answer::no, errc::gone));
    CHECK(gone.cause == condition::not_owner);

    const Outcome again = expired.unlock();
    CHECK(said(again) == said(Answer::unsent, errc::not_held));
    CHECK(again.cause == condition::misuse);

    SECTION("the server has stopped") {
        Lock lock{redis, key, {.ttl = 60s, .timeout = 300ms}, std::defer_lock};
        REQUIRE(eventually([&] { return static_cast<bool>(lock.try_acquire()); }));
        server.stop_process();
        const Outcome unreachable = lock.unlock();
        CHECK(said(unreachable) == said(Answer::unknown, errc::timed_out));
        CHECK(unreachable.cause == condition::unreachable);
        server.continue_process();
    }
    SECTION("the server has gone") {
        LeaseLock lock{redis, key, patient};
        REQUIRE(lock);
        server.kill_hard();
        const Outcome unreachable = lock.unlock();
        CHECK_FALSE(unreachable);
        CHECK(unreachable.cause == condition::unreachable);
    }
}

TEST_CASE("B18: a release that failed is repeated by the same guard") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(proxy)};
    Recorder recorder;
    LeaseLock lock{redis, key, {.ttl = 60s, .timeout = 20s, .observer = &recorder}};
    REQUIRE(lock);
    REQUIRE(lock.renew());
    proxy.refuse();
    REQUIRE(outside.client_kill_normal() == 1);
    REQUIRE(eventually([&] { return proxy.traffic().open == 0; }));
    const Outcome failed = lock.unlock();
    CHECK(said(failed.answer) == said(Answer::unsent));
    CHECK(failed.cause == condition::unreachable);
    CHECK_FALSE(lock.owns_lock());
    CHECK(outside.exists(key));
    CHECK(said(lock.renew()) == said(Answer::unsent, errc::not_held));
    proxy.accept_again();

    SECTION("and then it is released") {
        CHECK(said(lock.unlock()) == said(Answer::yes));
        CHECK_FALSE(outside.exists(key));
        CHECK(said(lock.unlock()) == said(Answer::unsent, errc::not_held));
    }
    SECTION("and a newer token that was stored meanwhile survives") {
        outside.expect_ok({"SET", key, "newer", "PX", "60000"});
        CHECK(said(lock.unlock()) == said(Answer::no, errc::taken));
        CHECK(outside.get(key) == "newer");
    }
    SECTION("by its destructor too") {
        { const Lock end{std::move(lock)}; }
        CHECK_FALSE(outside.exists(key));
    }
    SECTION("by its next attempt too") {
        CHECK(said(lock.try_acquire()) == said(Answer::yes));
        CHECK(outside.exists(key));
    }
}

TEST_CASE("N6: a release whose reply is lost is tried again, and a 0 then proves nothing") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{proxy.url()};
    LeaseLock lock{redis, key, {.ttl = 60s, .timeout = 500ms}};
    REQUIRE(lock);
    REQUIRE(lock.renew());
    { // the script is known to the server
        LeaseLock other{redis, "lock:other", {.ttl = 60s, .timeout = 500ms}};
        REQUIRE(other);
    }
    SECTION("it had been released") {
        proxy.on_command("EVALSHA", Fault::drop_reply);
        CHECK(said(lock.unlock()) == said(Answer::unknown, errc::timed_out));
        CHECK_FALSE(lock.owns_lock());
        CHECK_FALSE(outside.exists(key));
        outside.expect_ok({"SET", key, "newer", "PX", "60000"});
        CHECK(said(lock.unlock()) == said(Answer::unknown, errc::unconfirmed));
        CHECK(outside.get(key) == "newer");
    }
    SECTION("it had not") {
        proxy.on_command("EVALSHA", Fault::drop_request);
        CHECK(said(lock.unlock()) == said(Answer::unknown, errc::timed_out));
        CHECK(outside.exists(key));
        CHECK(said(lock.unlock()) == said(Answer::yes));
        CHECK_FALSE(outside.exists(key));
    }
    CHECK(said(lock.unlock()) == said(Answer::unsent, errc::not_held));
}

TEST_CASE("P7: an exception that leaves the section releases the lock") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    const auto work = [&] {
        LeaseLock lock{redis, key, patient};
        REQUIRE(lock);
        REQUIRE(outside.exists(key));
        throw std::logic_error("the section failed");
    };
    CHECK_THROWS_AS(work(), std::logic_error);
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE("P17: moves, swaps and double unlocks delete once") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    outside.reset_stats();
    {
        LeaseLock a{redis, "lock:a", patient};
        LeaseLock b{std::move(a)};
        LeaseLock c{redis, "lock:c", patient};
        REQUIRE(b);
        REQUIRE(c);
        swap(b, c);
        CHECK(b.key() == "lock:c");
        b = std::move(c);
        CHECK(b.key() == "lock:a");
        CHECK(b.owns_lock());
        CHECK_FALSE(outside.exists("lock:c")); // assignment gives back what was held
        CHECK(outside.exists("lock:a"));
        CHECK(said(b.unlock()) == said(Answer::yes));
        CHECK(said(b.unlock()) == said(Answer::unsent, errc::not_held));
        CHECK(said(a.unlock()) ==
              said(Answer::unsent, errc::not_held)); // NOLINT(bugprone-use-after-move)
        outside.expect_ok({"SET", "lock:a", "next"});
    }
    CHECK(outside.get("lock:a") == "next");
    CHECK(outside.command_stats()["del"] == 2);
}

TEST_CASE("B14, P8: leaving the scope while the server is down is bounded, silent and heard of") {
    static_assert(std::is_nothrow_destructible_v<Lock>);
    static_assert(std::is_nothrow_move_assignable_v<Lock>);
    RedisServer server;
    Pipe to_child;
    Pipe from_child;
    ChildProcess child{[&] {
        HiredisConnection redis{patient_url(server)};
        Recorder recorder;
        Stopwatch watch;
        {
            LeaseLock lock{redis, key, {.ttl = 60s, .timeout = 1s, .observer = &recorder}};
            from_child.write_line(lock ? "held" : "busy");
            static_cast<void>(to_child.read_line(20s));
            watch = Stopwatch{};
        }
        const auto elapsed = watch.elapsed();
        const auto releases = recorder.of(Verb::release);
        from_child.write_line(std::to_string(elapsed.count()));
        from_child.write_line(std::to_string(releases.size()));
        from_child.write_line(releases.empty() ? "nothing" : releases.front());
    }};
    REQUIRE(from_child.read_line() == "held");
    std::string answer;
    bool waits = false;
    SECTION("stopped") {
        server.stop_process();
        answer = said(Answer::unknown, errc::timed_out);
        waits = true;
    }
    SECTION("ended") {
        server.kill_hard();
        answer = said(Answer::unsent, std::make_error_code(std::errc::connection_refused));
    }
    to_child.write_line("leave");
    const auto elapsed = std::stoll(from_child.read_line(20s));
    CHECK(elapsed >= (waits ? 1000 : 0));
    CHECK(elapsed < 9000);
    CHECK(from_child.read_line() == "1");
    CHECK(from_child.read_line() == answer);
    CHECK(child.wait() == ProcessEnd{0, 0});
}
