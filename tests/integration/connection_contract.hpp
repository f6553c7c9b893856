// SPDX-License-Identifier: MIT
#pragma once

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/dead_end.hpp"
#include "support/eventually.hpp"
#include "support/false_server.hpp"
#include "support/fault_proxy.hpp"
#include "support/raw_client.hpp"
#include "support/redis_server.hpp"
#include "support/reserved_port.hpp"
#include "support/signal_storm.hpp"
#include "support/sockets.hpp"
#include "support/stopwatch.hpp"

#include <leaselock/core/runtime.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/connection.hpp>

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <concepts>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

/// What every connection has to do: each function is one test case, over a function that makes a
/// connection from a URL. They are run on the main thread, against servers of their own.
///
/// A connection's tests are then lines such as
/// `TEST_CASE("N1 MyConnection: refused is unsent") { contract::n1_refused(make); }`
namespace leaselock::test::contract {

using namespace std::chrono_literals;
using namespace std::string_view_literals;

template <class M>
concept MakesConnections = requires(const M& make, std::string url) {
    requires Connection<std::remove_reference_t<decltype(*make(url))>>;
};

/// Real clocks are late, sanitizers and two busy cores make them later: this late is no failure.
inline constexpr std::chrono::milliseconds slack{1'500};

using Words = std::vector<std::string_view>;

[[nodiscard]] inline Deadline in(std::chrono::milliseconds time) {
    return LeaseClock::now() + time;
}

template <Connection C>
[[nodiscard]] std::vector<Reply> call_all(C& connection, const std::vector<Words>& all,
                                          std::chrono::milliseconds timeout = 5s) {
    std::vector<Command> commands;
    for (const Words& words : all) {
        commands.push_back({words, words.size() > 1 ? words[1] : std::string_view{}});
    }
    std::vector<Reply> replies(all.size());
    connection.call(commands, replies, in(timeout));
    return replies;
}

template <Connection C>
[[nodiscard]] Reply call(C& connection, const Words& words,
                         std::chrono::milliseconds timeout = 5s) {
    return call_all(connection, {words}, timeout).front();
}

/// A reply as a line, for comparisons that print well: `+OK`, `:1`, `$text`, `nil`, `-ERR ...`,
/// `unsent`, `unknown`.
[[nodiscard]] inline std::string line_of(const Reply& reply) {
    const std::string text{reply.text.view()};
    switch (reply.kind) {
    case Reply::unsent: return "unsent";
    case Reply::unknown: return "unknown";
    case Reply::nil: return "nil";
    case Reply::status: return "+" + text;
    case Reply::integer: return ":" + std::to_string(reply.number);
    case Reply::string: return "$" + text;
    case Reply::error: return "-" + text;
    }
    return "?";
}

[[nodiscard]] inline std::string url_of_port(std::uint16_t port) {
    return "redis://127.0.0.1:" + std::to_string(port);
}

// The server answers

template <MakesConnections M>
void answers_of_every_kind(const M& make) {
    const RedisServer server;
    const auto c = make(server.url());
    CHECK(line_of(call(*c, {"SET", "k", "v"})) == "+OK");
    CHECK(line_of(call(*c, {"SET", "k", "w", "NX"})) == "nil");
    CHECK(line_of(call(*c, {"GET", "k"})) == "$v");
    CHECK(line_of(call(*c, {"DEL", "k", "x"})) == ":1");
    CHECK(line_of(call(*c, {"EVAL", "return -1", "0"})) == ":-1");
    CHECK(line_of(call(*c, {"EVAL", "return ''", "0"})) == "$");
    CHECK(line_of(call(*c, {"SET", "k"})) == "-ERR wrong number of arguments for 'set' command");
    const Reply longer = call(*c, {"EVAL", "return string.rep('x',281)", "0"});
    CHECK(line_of(longer) == "$" + std::string(280, 'x'));
    CHECK(longer.text.truncated());
    CHECK(server.client().integer({"DBSIZE"}) == 0);
}

template <MakesConnections M>
void x1_bytes_arrive_exact(const M& make) {
    const RedisServer server;
    const auto c = make(server.url());
    std::string every_byte;
    for (int byte = 0; byte < 256; ++byte) every_byte.push_back(static_cast<char>(byte));
    RawClient outside = server.client();
    for (const std::string& bytes :
         {every_byte, std::string{"\0"sv}, std::string{"a\r\nSET b c\r\n"}, std::string{"%s%n%d"},
          std::string{" "}, std::string{"*1\r\n$8\r\nFLUSHALL\r\n"}}) {
        const std::string key = "key:" + bytes;
        REQUIRE(line_of(call(*c, {"SET", key, bytes})) == "+OK");
        CHECK(outside.get(key) == bytes);
        CHECK(line_of(call(*c, {"GET", key})) == "$" + bytes);
    }
    CHECK(outside.integer({"DBSIZE"}) == 6);
}

template <MakesConnections M>
void batches_are_one_round_trip_in_order(const M& make) {
    const RedisServer server;
    FaultProxy proxy{server.port()};
    const auto c = make(proxy.url());
    REQUIRE(line_of(call(*c, {"PING"})) == "+PONG");
    proxy.reset_traffic();
    const auto replies = call_all(
        *c,
        {{"SET", "k", "1"}, {"INCR", "k"}, {"LPUSH", "k", "x"}, {"INCR", "k"}, {"GET", "none"}});
    CHECK(line_of(replies[0]) == "+OK");
    CHECK(line_of(replies[1]) == ":2");
    CHECK(cause_of(replies[2].text.view()) == errc::wrong_type);
    CHECK(line_of(replies[3]) == ":3");
    CHECK(line_of(replies[4]) == "nil");
    CHECK(proxy.traffic().round_trips == 1);
    CHECK(proxy.traffic().names() ==
          std::vector<std::string>{"SET", "INCR", "LPUSH", "INCR", "GET"});

    std::vector<Words> many(1'000, Words{"INCR", "k"});
    long long expected = 3;
    for (const Reply& reply : call_all(*c, many)) REQUIRE(reply.number == ++expected);
}

template <MakesConnections M>
void nothing_to_call_is_nothing_done(const M& make) {
    const ReservedPort nobody;
    const auto c = make(url_of_port(nobody.number()));
    c->call({}, {}, in(1s));
    CHECK(line_of(call(*c, {"PING"})) == "unsent");
}

// Nobody there

template <MakesConnections M>
void n1_refused(const M& make) {
    const ReservedPort nobody;
    const auto c = make(url_of_port(nobody.number()));
    for (int i = 0; i < 3; ++i) {
        const auto replies = call_all(*c, {{"SET", "k", "v"}, {"PING"}});
        for (const Reply& reply : replies) {
            CHECK(line_of(reply) == "unsent");
            CHECK(reply.cause == std::errc::connection_refused);
            CHECK(reply.cause == condition::unreachable);
            CHECK(reply.text.view() == "127.0.0.1:" + std::to_string(nobody.number()));
        }
    }
}

template <MakesConnections M>
void n1_comes_back(const M& make) {
    RedisServer server;
    const auto c = make(server.url());
    REQUIRE(line_of(call(*c, {"PING"})) == "+PONG");
    server.kill_hard();
    CHECK(line_of(call(*c, {"PING"})) == "unsent");
    server.restart();
    CHECK(line_of(call(*c, {"PING"})) == "+PONG");
}

template <MakesConnections M>
void n2_connect_goes_nowhere(const M& make) {
    const DeadEnd nowhere;
    const auto c = make(url_of_port(nowhere.port()));
    const Stopwatch watch;
    const Reply reply = call(*c, {"PING"}, 200ms);
    CHECK(watch.elapsed() >= 199ms);
    CHECK(watch.elapsed() < 200ms + slack);
    CHECK(line_of(reply) == "unsent");
    CHECK(reply.cause == errc::timed_out);
    CHECK(reply.text.view() == "127.0.0.1:" + std::to_string(nowhere.port()));
}

// Lost on the way

template <MakesConnections M>
void n3_reply_lost(const M& make) {
    const RedisServer server;
    FaultProxy proxy{server.port()};
    const auto c = make(proxy.url());
    REQUIRE(line_of(call(*c, {"PING"})) == "+PONG");
    proxy.drop_replies();
    const Stopwatch watch;
    const Reply reply = call(*c, {"SET", "k", "v"}, 200ms);
    CHECK(watch.elapsed() >= 199ms);
    CHECK(watch.elapsed() < 200ms + slack);
    CHECK(line_of(reply) == "unknown");
    CHECK(reply.cause == errc::timed_out);
    CHECK(server.client().get("k") == "v");
    proxy.pass();
    CHECK(line_of(call(*c, {"GET", "k"})) == "$v");
    CHECK(proxy.traffic().connections == 2);
}

template <MakesConnections M>
void n4_request_lost(const M& make) {
    const RedisServer server;
    FaultProxy proxy{server.port()};
    const auto c = make(proxy.url());
    REQUIRE(line_of(call(*c, {"PING"})) == "+PONG");
    proxy.drop_requests();
    const Reply reply = call(*c, {"SET", "k", "v"}, 200ms);
    CHECK(line_of(reply) == "unknown");
    CHECK(reply.cause == errc::timed_out);
    CHECK_FALSE(server.client().exists("k"));
    proxy.pass();
    CHECK(line_of(call(*c, {"GET", "k"})) == "nil");
}

/// hiredis issue 306: the reply to a call that was given up answered the next one.
template <MakesConnections M>
void n5_late_reply_answers_nobody(const M& make) {
    RedisServer server;
    const auto c = make(server.url());
    REQUIRE(line_of(call(*c, {"SET", "other", "theirs"})) == "+OK");
    server.stop_process();
    CHECK(line_of(call(*c, {"SET", "k", "v"}, 150ms)) == "unknown");
    server.continue_process();
    CHECK(line_of(call(*c, {"GET", "other"})) == "$theirs");
    CHECK(line_of(call(*c, {"SET", "other", "mine", "NX"})) == "nil");
    CHECK(eventually([&] { return server.client().get("k") == "v"; })); // it does land
}

template <MakesConnections M>
void n9_one_deadline_for_dripping_replies(const M& make) {
    const RedisServer server;
    FaultProxy proxy{server.port()};
    const auto c = make(proxy.url());
    REQUIRE(line_of(call(*c, {"PING"})) == "+PONG");
    proxy.drip(150ms);
    const Stopwatch watch;
    const auto replies = call_all(*c, {{"ECHO", "0123456789"}, {"ECHO", "0123456789"}}, 400ms);
    CHECK(watch.elapsed() >= 399ms);
    CHECK(watch.elapsed() < 400ms + slack);
    for (const Reply& reply : replies) CHECK(line_of(reply) == "unknown");
}

template <MakesConnections M>
void n10_what_arrived_is_kept(const M& make) {
    const RedisServer server;
    FaultProxy proxy{server.port()};
    const auto c = make(proxy.url());
    REQUIRE(line_of(call(*c, {"PING"})) == "+PONG");
    proxy.cut_after_reply_bytes("+OK\r\n:2\r\n$3\r\nab"sv.size());
    const auto replies =
        call_all(*c, {{"SET", "k", "1"}, {"INCR", "k"}, {"ECHO", "abc"}, {"INCR", "k"}});
    CHECK(line_of(replies[0]) == "+OK");
    CHECK(line_of(replies[1]) == ":2");
    for (const Reply& reply : {replies[2], replies[3]}) {
        CHECK(line_of(reply) == "unknown");
        CHECK(reply.cause == condition::unreachable);
    }
    CHECK(line_of(call(*c, {"ECHO", "next"})) == "$next");
    CHECK(proxy.traffic().connections == 2);
}

template <MakesConnections M>
void n10_reset_in_place_of_the_reply(const M& make) {
    FalseServer server{[](FalseServer::Peer& peer) {
        peer.expect_command();
        peer.reset();
    }};
    const auto c = make(server.url());
    const Reply reply = call(*c, {"SET", "k", "v"});
    CHECK(line_of(reply) == "unknown");
    CHECK(reply.cause == condition::unreachable);
}

// False servers

template <MakesConnections M>
void n12_garbage(const M& make) {
    const std::string garbage[] = {"HTTP/1.1 400 Bad Request\r\n\r\n",
                                   "nonsense",
                                   std::string{"\0\0\0\0"sv},
                                   ":12x\r\n",
                                   "$-2\r\n",
                                   "$5\r\nhelloXX",
                                   "*0\r\n",
                                   "*1\r\n*1\r\n*1\r\n:1\r\n",
                                   "*2147483647\r\n",
                                   ">2\r\n+message\r\n+x\r\n",
                                   "%1\r\n+a\r\n:1\r\n",
                                   "_\r\n"};
    for (const std::string& bytes : garbage) {
        INFO(bytes);
        FalseServer server{std::vector<std::string>{"+OK\r\n" + bytes}};
        const auto c = make(server.url());
        const auto replies = call_all(*c, {{"SET", "k", "v"}, {"PING"}});
        CHECK(line_of(replies[0]) == "+OK");
        CHECK(line_of(replies[1]) == "unknown");
        CHECK(replies[1].cause == errc::protocol_error);
        CHECK(replies[1].text.view().starts_with("127.0.0.1:"));
        CHECK(line_of(call(*c, {"PING"})) == "+OK");
        CHECK(server.connections() == 2); // G1
    }
}

template <MakesConnections M>
void n12_endless_reply(const M& make) {
    for (const std::string_view head : {"$1000000000\r\n", "+", "-ERR "}) {
        INFO(head);
        FalseServer server{[&](FalseServer::Peer& peer) {
            peer.expect_command();
            peer.send(head);
            const std::string chunk(100'000, 'x');
            for (;;) peer.send(chunk); // until the client leaves
        }};
        const auto c = make(server.url());
        rusage before{};
        rusage after{};
        (void)getrusage(RUSAGE_SELF, &before);
        const Stopwatch watch;
        const Reply reply = call(*c, {"PING"}, 10s);
        (void)getrusage(RUSAGE_SELF, &after);
        CHECK(watch.elapsed() < 10s);
        CHECK(line_of(reply) == "unknown");
        CHECK(reply.cause == errc::protocol_error);
        CHECK(after.ru_maxrss - before.ru_maxrss < 32'000); // KiB; sanitizers need their share
    }
}

/// @param fronted something between passes on what the server says: it is there when it has arrived
template <MakesConnections M>
void n13_reply_too_many(const M& make, bool fronted = false) {
    // with the last reply, and behind it: into the silence between two calls
    for (const auto late : {0ms, 50ms}) {
        std::atomic<int> surplus{0};
        FalseServer server{[&](FalseServer::Peer& peer) {
            for (;;) {
                const auto words = peer.expect_command();
                const std::string answer = "+" + words.back() + "\r\n";
                if (late == 0ms) {
                    peer.send(answer + "+surplus\r\n");
                } else {
                    peer.send(answer);
                    peer.pause(late);
                    peer.send("+surplus\r\n");
                }
                ++surplus;
            }
        }};
        const auto c = make(server.url());
        int calls = 0;
        for (const std::string_view word : {"first", "second", "third"}) {
            CHECK(line_of(call(*c, {"ECHO", word})) == "+" + std::string{word});
            ++calls;
            // with the last reply it is read at once
            REQUIRE(eventually([&] {
                return surplus >= calls &&
                       (late == 0ms || input_waits(fronted ? server.port() : std::uint16_t{0}));
            }));
        }
        CHECK(server.connections() == 3);
    }
}

template <MakesConnections M>
void n13_closed_while_idle(const M& make) {
    FalseServer server{[](FalseServer::Peer& peer) {
        peer.expect_command();
        peer.send("+OK\r\n");
    }};
    const auto c = make(server.url());
    for (int i = 0; i < 3; ++i) {
        CHECK(line_of(call(*c, {"SET", "k", "v"})) == "+OK");
        std::this_thread::sleep_for(20ms); // the end has arrived: nothing must be sent into it
    }
    CHECK(server.connections() == 3);
}

// Verdicts

template <MakesConnections M>
void n14_short_writes(const M& make) {
    const RedisServer server;
    const auto c = make(server.url());
    const std::string big(24'000'000, 'x'); // beyond what any socket buffer takes at once
    const auto replies = call_all(*c, {{"SET", "k", big}, {"STRLEN", "k"}, {"PING"}}, 30s);
    CHECK(line_of(replies[0]) == "+OK");
    CHECK(line_of(replies[1]) == ":24000000");
    CHECK(line_of(replies[2]) == "+PONG");
    CHECK(line_of(call(*c, {"STRLEN", "k"})) == ":24000000");
}

template <MakesConnections M>
void n14_what_the_kernel_never_took_is_unsent(const M& make) {
    RedisServer server;
    const auto c = make(server.url());
    REQUIRE(line_of(call(*c, {"PING"})) == "+PONG");
    server.stop_process();
    const std::string big(24'000'000, 'x');
    const Stopwatch watch;
    const auto replies =
        call_all(*c, {{"SET", "a", "1"}, {"SET", "b", big}, {"SET", "c", "1"}, {"PING"}}, 300ms);
    CHECK(watch.elapsed() < 300ms + slack);
    CHECK(line_of(replies[0]) == "unknown");
    CHECK(line_of(replies[1]) == "unknown"); // cut in the middle
    CHECK(line_of(replies[2]) == "unsent");
    CHECK(line_of(replies[3]) == "unsent");
    for (const Reply& reply : replies) CHECK(reply.cause == errc::timed_out);
    server.continue_process();
    CHECK(line_of(call(*c, {"GET", "a"})) == "$1");
    CHECK(eventually([&] { return server.client().client_ids().size() <= 1; }));
    CHECK(line_of(call(*c, {"EXISTS", "b", "c"})) == ":0"); // half a command does not run
}

template <MakesConnections M>
void past_deadline_is_written_but_not_waited_for(const M& make) {
    const RedisServer server;
    const auto c = make(server.url());
    const Reply before = call(*c, {"SET", "k", "0"}, -1s);
    CHECK(line_of(before) == "unsent"); // no stream, and no time to open one
    CHECK(before.cause == errc::timed_out);
    REQUIRE(line_of(call(*c, {"PING"})) == "+PONG");
    const Stopwatch watch;
    CHECK(line_of(call(*c, {"SET", "k", "1"}, -1s)) != "unsent");
    CHECK(watch.elapsed() < slack);
    CHECK(eventually([&] { return server.client().get("k") == "1"; }));
    CHECK(line_of(call(*c, {"GET", "k"})) == "$1");
    Reply reply;
    const Words words{"PING"};
    const Command command{words, {}};
    for (const Deadline by : {Deadline::min(), Deadline{}, Deadline::max()}) {
        c->call({&command, 1}, {&reply, 1}, by);
    }
    CHECK(line_of(reply) == "+PONG");
    CHECK(watch.elapsed() < slack);
}

// The server says no

template <MakesConnections M>
void n16_too_many_clients(const M& make) {
    const RedisServer server{{"--maxclients", "2"}};
    RawClient first = server.client();
    RawClient second = server.client();
    REQUIRE(eventually([&] {
        try {
            return first.command({"PING"}) == "PONG" && second.command({"PING"}) == "PONG";
        } catch (const std::exception&) {
            return false; // the fixture's own client is still leaving
        }
    }));
    const auto c = make(server.url());
    for (int i = 0; i < 20; ++i) { // the server closes at once: a race that must not matter
        for (const Reply& reply : call_all(*c, {{"SET", "k", "v"}, {"PING"}})) {
            REQUIRE(line_of(reply) == "-ERR max number of clients reached");
            REQUIRE(classify_failure(reply).answer == Answer::refused);
        }
    }
    CHECK_FALSE(first.exists("k"));
    second.disconnect();
    CHECK(eventually([&] { return line_of(call(*c, {"PING"})) == "+PONG"; }));
}

/// The same words behind a proxy, whose other servers go on: they speak for one command alone.
template <MakesConnections M>
void n16_too_many_clients_behind_a_proxy(const M& make) {
    FalseServer server{
        std::vector<std::string>{"-ERR max number of clients reached\r\n", "+OK\r\n"}};
    const auto c = make(server.url());
    const auto replies = call_all(*c, {{"SET", "k", "v"}, {"SET", "l", "v"}, {"PING"}}, 500ms);
    CHECK(line_of(replies[0]) == "-ERR max number of clients reached");
    CHECK(line_of(replies[1]) == "+OK");
    CHECK(line_of(replies[2]) == "unknown");
}

template <MakesConnections M>
void n17_client_killed(const M& make) {
    const RedisServer server;
    const auto c = make(server.url());
    RawClient outside = server.client();
    REQUIRE(line_of(call(*c, {"SET", "k", "v"})) == "+OK");
    for (int i = 0; i < 3; ++i) {
        REQUIRE(outside.client_kill_normal() == 1);
        CHECK(line_of(call(*c, {"GET", "k"})) == "$v");
    }
}

template <MakesConnections M>
void s16_no_password(const M& make) {
    const RedisServer server{{}, "secret"};
    const auto c = make(url_of_port(server.port()));
    const Reply reply = call(*c, {"SET", "k", "v"});
    CHECK(reply.text.view().starts_with("NOAUTH"));
    CHECK(classify_failure(reply).answer == Answer::refused);
    CHECK(classify_failure(reply).cause == condition::denied);
}

template <MakesConnections M>
void s16_wrong_password(const M& make) {
    const RedisServer server{{}, "secret"};
    RawClient outside = server.client();
    const auto c = make("redis://:wrong@127.0.0.1:" + std::to_string(server.port()));
    outside.reset_stats();
    for (const Reply& reply : call_all(*c, {{"SET", "k", "v"}, {"PING"}})) {
        CHECK(reply.text.view().starts_with("WRONGPASS"));
        CHECK(classify_failure(reply).answer == Answer::refused);
        CHECK(classify_failure(reply).cause == errc::wrong_password);
    }
    const auto stats = outside.command_stats();
    CHECK(stats.count("set") == 0);
    CHECK(stats.count("ping") == 0);
    CHECK(stats.at("auth") == 1); // one try a call, no storm
}

// Processes, signals, descriptors

template <MakesConnections M>
void p4_fork(const M& make) {
    const RedisServer server;
    const auto c = make(server.url());
    const long long before = call(*c, {"CLIENT", "ID"}).number;
    REQUIRE(before > 0);
    const auto is_another_stream = [&] {
        const Reply id = call(*c, {"CLIENT", "ID"});
        return id.kind == Reply::integer && id.number != before;
    };
    ChildProcess alone{[&] { return is_another_stream() ? 0 : 1; }};
    CHECK(alone.wait() == ProcessEnd{.code = 0});
    ChildProcess child{[&] {
        if (!is_another_stream()) return 1;
        if (line_of(call(*c, {"SET", "child", "1"})) != "+OK") return 2;
        return 0;
    }};
    // at the same time, on the parent's stream: a child that touched it would spoil this
    for (int i = 0; i < 200; ++i) {
        REQUIRE(line_of(call(*c, {"ECHO", std::to_string(i)})) == "$" + std::to_string(i));
    }
    CHECK(child.wait() == ProcessEnd{.code = 0});
    CHECK(call(*c, {"CLIENT", "ID"}).number == before);
    CHECK(server.client().get("child") == "1");
}

template <MakesConnections M>
void p4_destroyed_in_the_child(const M& make) {
    const RedisServer server;
    auto c = make(server.url());
    const long long before = call(*c, {"CLIENT", "ID"}).number;
    ChildProcess child{[&] { c.reset(); }};
    CHECK(child.wait() == ProcessEnd{.code = 0});
    CHECK(call(*c, {"CLIENT", "ID"}).number == before);
}

template <MakesConnections M>
void p6_closed_on_exec(const M& make) {
    const RedisServer server;
    const auto c = make(server.url());
    REQUIRE(line_of(call(*c, {"PING"})) == "+PONG");
    std::FILE* const listing = ::popen("ls -l /proc/self/fd", "re");
    REQUIRE(listing != nullptr);
    std::string text;
    for (int byte = std::fgetc(listing); byte != EOF; byte = std::fgetc(listing)) {
        text.push_back(static_cast<char>(byte));
    }
    REQUIRE(::pclose(listing) == 0);
    INFO(text);
    CHECK(text.find("-> ") != std::string::npos);
    CHECK(text.find("socket:") == std::string::npos);
}

template <MakesConnections M>
void p11_signal_storm(const M& make) {
    RedisServer server;
    const auto c = make(server.url());
    const SignalStorm storm{1ms};
    for (int i = 0; i < 300; ++i) {
        REQUIRE(line_of(call(*c, {"ECHO", std::to_string(i)})) == "$" + std::to_string(i));
    }
    const Reply slow = call(*c, {"DEBUG", "SLEEP", "0.2"});
    CHECK(line_of(slow) == "+OK"); // interrupted some hundred times, and no failure
    server.stop_process();
    const Stopwatch watch;
    const Reply reply = call(*c, {"PING"}, 300ms);
    CHECK(watch.elapsed() >= 299ms);
    CHECK(watch.elapsed() < 300ms + slack);
    CHECK(line_of(reply) == "unknown");
    CHECK(reply.cause == errc::timed_out);
}

template <MakesConnections M>
void p12_no_sigpipe(const M& make) {
    static volatile std::sig_atomic_t raised = 0;
    raised = 0;
    struct sigaction mine {};
    struct sigaction before {};
    mine.sa_handler = [](int) { raised = 1; };
    REQUIRE(sigaction(SIGPIPE, &mine, &before) == 0);
    const std::string big(24'000'000, 'x');
    const Words words{"SET", "k", big};
    const Command command{words, "k"};
    Reply reply;
    for (const bool orderly : {true, false}) { // EPIPE and ECONNRESET
        INFO(orderly);
        FalseServer server{[&](FalseServer::Peer& peer) {
            if (!orderly) peer.pause(20ms);
            if (!orderly) peer.reset();
        }};
        const auto c = make(server.url());
        c->start({&command, 1}, in(5s));
        // what is sent after the peer's end of the stream makes it reset the connection
        if (orderly) std::this_thread::sleep_for(50ms);
        while (!c->finish({&reply, 1})) std::this_thread::sleep_for(1ms);
        CHECK(line_of(reply) == "unknown");
        CHECK(reply.cause == condition::unreachable);
    }
    CHECK(raised == 0);
    struct sigaction after {};
    REQUIRE(sigaction(SIGPIPE, &before, &after) == 0);
    CHECK(after.sa_handler == mine.sa_handler);
}

template <MakesConnections M>
void p13_no_descriptors_left(const M& make) {
    const RedisServer server;
    const auto open = make(server.url());
    REQUIRE(line_of(call(*open, {"PING"})) == "+PONG");
    const auto closed = make(server.url());
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    const Reply going_on = call(*open, {"SET", "k", "v"});
    const Reply refused = call(*closed, {"SET", "k", "w"});
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(line_of(going_on) == "+OK");
    CHECK(line_of(refused) == "unsent");
    CHECK(refused.cause == std::errc::too_many_files_open);
    CHECK(line_of(call(*closed, {"GET", "k"})) == "$v");
}

// Waiting for many at once

template <MakesConnections M>
void split_calls(const M& make) {
    using C = std::remove_reference_t<decltype(*make(std::string{}))>;
    static_assert(SplitConnection<C>);
    const RedisServer server;
    FaultProxy proxy{server.port()};
    const DeadEnd nowhere;
    const ReservedPort nobody;
    const auto quick = make(server.url());
    const auto slow = make(proxy.url());
    const auto dead = make(url_of_port(nowhere.port()));
    const auto refused = make(url_of_port(nobody.number()));
    REQUIRE(line_of(call(*slow, {"PING"})) == "+PONG");
    proxy.delay(100ms);

    const std::vector<C*> all{quick.get(), slow.get(), dead.get(), refused.get()};
    std::vector<Reply> replies(all.size());
    std::vector<std::chrono::milliseconds> took(all.size(), -1ms);
    const Words words{"PING"};
    const Command command{words, {}};
    const Stopwatch watch;
    const Deadline by = in(500ms);
    for (C* const c : all) c->start({&command, 1}, by);
    CHECK(watch.elapsed() < 400ms); // start does not wait
    std::size_t rounds = 0;
    for (std::size_t missing = all.size(); missing != 0; ++rounds) {
        REQUIRE(watch.elapsed() < 500ms + slack);
        C::wait_any(all, by);
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (took[i] >= 0ms || !all[i]->finish({&replies[i], 1})) continue;
            took[i] = watch.elapsed();
            --missing;
        }
    }
    CHECK(line_of(replies[0]) == "+PONG");
    CHECK(took[0] < 400ms);
    CHECK(line_of(replies[1]) == "+PONG");
    CHECK(took[1] >= 99ms);
    CHECK(line_of(replies[2]) == "unsent");
    CHECK(replies[2].cause == errc::timed_out);
    CHECK(took[2] >= 499ms);
    CHECK(line_of(replies[3]) == "unsent");
    CHECK(took[3] < 400ms);
    CHECK(rounds < 50); // it waits, it does not spin
}

/// A quorum that has its majority starts anew: what comes late belongs to nobody.
template <MakesConnections M>
void split_call_given_up(const M& make) {
    const RedisServer server;
    const auto c = make(server.url());
    REQUIRE(line_of(call(*c, {"PING"})) == "+PONG");
    const Words words{"DEBUG", "SLEEP", "0.1"};
    const Command command{words, {}};
    for (int i = 0; i < 2; ++i) {
        c->start({&command, 1}, in(5s));
        if (i == 1) std::this_thread::sleep_for(150ms); // the reply waits in the socket
        CHECK(line_of(call(*c, {"ECHO", "next"})) == "$next");
    }
    c->start({&command, 1}, in(5s));
    c->start({}, in(5s));
    CHECK(c->finish({}));
    CHECK(line_of(call(*c, {"ECHO", "last"})) == "$last");
}

} // namespace leaselock::test::contract
