// SPDX-License-Identifier: MIT
// Attempts whose answer never came: not believed, and cleaned up by their token.
#include "story.hpp"

#include <atomic>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

const std::string key = "lock:payment";

/// Short enough to wait for, long enough for what still has to succeed in it.
constexpr auto brief = 500ms;

} // namespace

TEST_CASE("N3: an acquire whose reply is lost is unknown, and its key is deleted by its token") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{proxy.url()};
    Recorder recorder;
    Lock lock{redis, key, {.ttl = 60s, .timeout = brief, .observer = &recorder}, std::defer_lock};

    SECTION("in silence") {
        proxy.on_command("SET", Fault::drop_reply);
        const Stopwatch watch;
        CHECK(said(lock.try_acquire()) == said(Answer::unknown, errc::timed_out));
        CHECK(watch.elapsed() >= brief);
    }
    SECTION("with the connection") {
        proxy.on_command("SET", Fault::cut_reply);
        const Outcome outcome = lock.try_acquire();
        CHECK(said(outcome.answer) == said(Answer::unknown));
        CHECK(outcome.cause == condition::unreachable);
    }
    CHECK_FALSE(lock.owns_lock());
    CHECK(lock.fencing_token() == 0);
    CHECK(recorder.of(Verb::clean_up) == std::vector<std::string>{said(Answer::yes)});
    CHECK_FALSE(outside.exists(key));
    CHECK(outside.command_stats()["set"] == 1);
    CHECK(said(lock.unlock()) == said(Answer::unsent, errc::not_held));
}

TEST_CASE("N4: an acquire whose request is lost stays unknown, though its key is not there") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{proxy.url()};
    Recorder recorder;
    Lock lock{redis, key, {.ttl = 60s, .timeout = brief, .observer = &recorder}, std::defer_lock};

    proxy.on_command("SET", Fault::drop_request);
    CHECK(said(lock.try_acquire()) == said(Answer::unknown, errc::timed_out));
    CHECK(recorder.of(Verb::clean_up) == std::vector<std::string>{said(Answer::no, errc::gone)});
    CHECK_FALSE(lock.owns_lock());
    CHECK(outside.command_stats()["set"] == 0);

    CHECK(said(lock.try_acquire()) == said(Answer::yes));
    CHECK(outside.exists(key));
}

TEST_CASE("N5: a SET that runs long after its client gave up is never believed") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{proxy.url()};
    Recorder recorder;
    Lock lock{redis, key, {.ttl = 60s, .timeout = brief, .observer = &recorder}, std::defer_lock};

    proxy.on_command("SET", Fault::hold_request);
    CHECK(said(lock.try_acquire()) == said(Answer::unknown, errc::timed_out));
    REQUIRE(proxy.deliver_held() == 1);
    REQUIRE(eventually([&] { return outside.exists(key); }));
    const auto ghost = outside.get(key);
    REQUIRE(ghost);
    CHECK(ghost->substr(0, 8) == recorder.all.front().fingerprint);

    CHECK_FALSE(lock.owns_lock());
    CHECK(said(lock.renew()) == said(Answer::unsent, errc::not_held));
    CHECK(said(lock.try_acquire()) == said(Answer::no, errc::busy));
    CHECK_FALSE(lock.owns_lock());
    const auto left = outside.pttl(key);
    CHECK(left > 0);
    CHECK(left <= 60'000);
    CHECK(outside.get(key) == ghost);
}

TEST_CASE("B05, N5: a failed acquire blocks nobody until the end of its ttl") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{server.url()};
    const auto recovers = [&] {
        // the SET has landed, and the deletion of its token behind it
        REQUIRE(eventually([&] { return outside.command_stats()["set"] == 1; }));
        CHECK(eventually([&] { return !outside.exists(key); }));
        CHECK(outside.command({"SET", key, "next", "NX", "PX", "60000"}) == "OK");
    };

    SECTION("on a connection that was open before") { REQUIRE(inspect(redis, key, 20s).outcome); }
    SECTION("on a new one") {}
    outside.reset_stats();
    server.stop_process();
    {
        Lock lock{redis, key, {.ttl = 60s, .timeout = 300ms}, std::defer_lock};
        const Stopwatch watch;
        CHECK(said(lock.try_acquire()) == said(Answer::unknown, errc::timed_out));
        CHECK(watch.elapsed() >= 300ms);
        CHECK(watch.elapsed() < 10s);
        CHECK_FALSE(lock.owns_lock());
        server.continue_process();
        recovers();
    }
    CHECK(outside.get(key) == "next");
}

TEST_CASE("B05: a clean-up that failed is repeated until it is answered") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{proxy.url()};
    Recorder recorder;
    {
        Lock lock{
            redis, key, {.ttl = 60s, .timeout = brief, .observer = &recorder}, std::defer_lock};
        proxy.on_command("SET", Fault::cut_reply);
        proxy.on_command("EVAL", Fault::cut_request);
        CHECK(said(lock.try_acquire().answer) == said(Answer::unknown));
        const auto ghost = outside.get(key);
        REQUIRE(ghost);
        proxy.reset_traffic();

        SECTION("by the next attempt, in front of its SET") {
            CHECK(said(lock.try_acquire()) == said(Answer::yes));
            CHECK(proxy.traffic().names() == std::vector<std::string>{"EVAL", "SET"});
            CHECK(outside.get(key) != ghost);
        }
        SECTION("by unlock") {
            CHECK(said(lock.unlock()) == said(Answer::yes));
            CHECK_FALSE(outside.exists(key));
        }
        SECTION("by the destructor") {}
        SECTION("and no further token is drawn while it is unanswered") {
            proxy.on_command("EVAL", Fault::cut_request, 2);
            CHECK(said(lock.try_acquire().answer) == said(Answer::unsent));
            CHECK(said(lock.try_acquire().answer) == said(Answer::unsent));
            CHECK(proxy.traffic().count("SET") == 0);
            CHECK(outside.get(key) == ghost);
        }
        SECTION("and it never touches the key of the next holder") {
            outside.expect_ok({"SET", key, "next", "PX", "60000"});
            CHECK(said(lock.try_acquire()) == said(Answer::no, errc::busy));
            CHECK(outside.get(key) == "next");
            outside.integer({"DEL", key});
        }
    }
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE("N10: half a reply, and a reset in its place, are unknown and end the connection") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(proxy)};
    Lock lock{redis, key, patient, std::defer_lock};

    SECTION("while acquiring") {
        proxy.cut_after_reply_bytes(2);
        const Outcome outcome = lock.try_acquire();
        CHECK(said(outcome.answer) == said(Answer::unknown));
        CHECK(outcome.cause == condition::unreachable);
        CHECK_FALSE(lock.owns_lock());
        CHECK_FALSE(outside.exists(key));
        CHECK(proxy.traffic().connections == 2);
        CHECK(said(lock.try_acquire()) == said(Answer::yes));
    }
    SECTION("while renewing") {
        REQUIRE(lock.try_acquire());
        REQUIRE(lock.renew());
        const Deadline before = lock.deadline();
        proxy.cut_after_reply_bytes(2);
        CHECK(said(lock.renew().answer) == said(Answer::unknown));
        CHECK(lock.deadline() == before);
        CHECK(said(lock.renew()) == said(Answer::yes));
        CHECK(lock.deadline() > before);
    }
    SECTION("while releasing") {
        REQUIRE(lock.try_acquire());
        REQUIRE(lock.renew());
        proxy.cut_after_reply_bytes(2);
        CHECK(said(lock.unlock().answer) == said(Answer::unknown));
        CHECK_FALSE(lock.owns_lock());
    }
}

TEST_CASE("N12: whatever is no answer to a SET is not taken for one") {
    using namespace std::string_literals;
    const std::map<std::string, std::string> answers{
        {"garbage", "garbage\r\n"},
        {"another protocol", "HTTP/1.1 400 Bad Request\r\n\r\n"},
        {"a huge string", "$2147483647\r\n"},
        {"a huge array", "*2147483647\r\n"},
        {"a nested array", "*1\r\n*1\r\n*1\r\n+OK\r\n"},
        {"a push", ">2\r\n+invalidate\r\n+OK\r\n"},
        {"a number", ":1\r\n"},
        {"a string", "$2\r\nOK\r\n"},
        {"another status", "+QUEUED\r\n"},
        {"an error that proves nothing", "-ERR Connection timed out\r\n"},
        {"zero bytes", "\0\0\0\0"s},
        {"a line without an end", std::string(1'000'000, '+')},
    };
    for (const auto& [what, answer] : answers) {
        INFO(what);
        FalseServer server{{answer}};
        HiredisConnection redis{server.url()};
        const Stopwatch watch;
        {
            Lock lock{redis, key, {.ttl = 60s, .timeout = 50ms}, std::defer_lock};
            const Outcome outcome = lock.try_acquire();
            CHECK(said(outcome.answer) == said(Answer::unknown));
            CHECK_FALSE(lock.owns_lock());
        }
        CHECK(watch.elapsed() < 10s);
        CHECK(has(server.received(), "DEL") + has(server.received(), "del") > 0);
    }
}

TEST_CASE("N13: a reply too many does not answer the next attempt") {
    // Busy, with the OK of somebody's dreams behind it; from the second connection on, just busy.
    std::atomic<int> connection{0};
    std::atomic<bool> sent{false};
    const bool at_once = GENERATE(true, false);
    FalseServer server{[&](FalseServer::Peer& peer) {
        const bool first = connection++ == 0;
        while (true) {
            static_cast<void>(peer.expect_command());
            peer.send(first && at_once ? "$-1\r\n+OK\r\n" : "$-1\r\n");
            if (first && !at_once) {
                peer.pause(50ms);
                peer.send("+OK\r\n");
            }
            sent = true;
        }
    }};
    HiredisConnection redis{patient_url(server.url())};
    Lock lock{redis, key, patient, std::defer_lock};
    CHECK(said(lock.try_acquire()) == said(Answer::no, errc::busy));
    REQUIRE(eventually([&] { return sent.load(); }));
    CHECK(said(lock.try_acquire()) == said(Answer::no, errc::busy));
    CHECK_FALSE(lock.owns_lock());
    CHECK(server.connections() == 2);
}

TEST_CASE("B52: a late reply does not answer the next command") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{server.url()};
    outside.expect_ok({"SET", key, "somebody"});
    Lock busy{redis, key, {.ttl = 60s, .timeout = 20s}, std::defer_lock};
    REQUIRE(said(busy.try_acquire()) == said(Answer::no, errc::busy));
    const auto before = outside.client_ids();
    REQUIRE(before.size() == 1);

    SECTION("of a renewal") {
        Lock lock{redis, "lock:mine", {.ttl = 60s, .timeout = 100ms}, std::defer_lock};
        REQUIRE(eventually([&] { return static_cast<bool>(lock.try_acquire()); }));
        server.stop_process();
        CHECK(said(lock.renew()) == said(Answer::unknown, errc::timed_out));
        server.continue_process();
        CHECK(said(busy.try_acquire()) == said(Answer::no, errc::busy));
        CHECK(lock.owns_lock());
    }
    SECTION("of an acquire: its OK is not the next one's") {
        Lock lock{redis, "lock:free", {.ttl = 60s, .timeout = 100ms}, std::defer_lock};
        server.stop_process();
        CHECK(said(lock.try_acquire()) == said(Answer::unknown, errc::timed_out));
        server.continue_process();
        CHECK(said(busy.try_acquire()) == said(Answer::no, errc::busy));
    }
    CHECK_FALSE(busy.owns_lock());
    const auto after = outside.client_ids();
    CHECK(after.count(*before.begin()) == 0);
}
