// SPDX-License-Identifier: MIT
#include "connection_contract.hpp"

#include <leaselock/hiredis/multiplexed_connection.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/renewer.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

using namespace leaselock;
using namespace leaselock::test;
using namespace leaselock::test::contract;
using namespace std::chrono_literals;

namespace {

static_assert(SharedConnection<MultiplexedConnection>);
static_assert(!std::is_move_constructible_v<MultiplexedConnection>);

const auto make = [](const std::string& url) {
    return std::make_unique<MultiplexedConnection>(url, system_runtime(), 500ms);
};

} // namespace

// The contract, but for what a shared stream does otherwise: below

TEST_CASE("MultiplexedConnection: answers of every kind") { answers_of_every_kind(make); }
TEST_CASE("MultiplexedConnection: a batch is one round trip, in order") {
    batches_are_one_round_trip_in_order(make);
}
TEST_CASE("MultiplexedConnection: no command, no I/O") { nothing_to_call_is_nothing_done(make); }
TEST_CASE("MultiplexedConnection: a past deadline writes and does not wait") {
    past_deadline_is_written_but_not_waited_for(make);
}
TEST_CASE("X1 MultiplexedConnection: bytes arrive exact") { x1_bytes_arrive_exact(make); }
TEST_CASE("N1 MultiplexedConnection: refused is unsent") { n1_refused(make); }
TEST_CASE("N1 MultiplexedConnection: connects again when the server is back") {
    n1_comes_back(make);
}
TEST_CASE("N2 MultiplexedConnection: connecting keeps the deadline") {
    n2_connect_goes_nowhere(make);
}
TEST_CASE("N5 B52 MultiplexedConnection: a late reply answers nobody") {
    n5_late_reply_answers_nobody(make);
}
TEST_CASE("N9 MultiplexedConnection: one deadline for dripping replies") {
    n9_one_deadline_for_dripping_replies(make);
}
TEST_CASE("N10 MultiplexedConnection: what arrived before the break is kept") {
    n10_what_arrived_is_kept(make);
}
TEST_CASE("N10 MultiplexedConnection: a reset in place of the reply is unknown") {
    n10_reset_in_place_of_the_reply(make);
}
TEST_CASE("N12 MultiplexedConnection: garbage is a protocol error") { n12_garbage(make); }
TEST_CASE("N12 MultiplexedConnection: an endless reply takes bounded memory") {
    n12_endless_reply(make);
}
TEST_CASE("N13 MultiplexedConnection: a reply too many is seen before the next send") {
    n13_reply_too_many(make);
}
TEST_CASE("N13 MultiplexedConnection: nothing is sent into a stream that has ended") {
    n13_closed_while_idle(make);
}
TEST_CASE("N14 MultiplexedConnection: short writes go on") { n14_short_writes(make); }
TEST_CASE("N16 MultiplexedConnection: too many clients is refused") { n16_too_many_clients(make); }
TEST_CASE("N16 MultiplexedConnection: too many clients, behind a proxy, is one command's answer") {
    n16_too_many_clients_behind_a_proxy(make);
}
TEST_CASE("N17 MultiplexedConnection: a killed client connects again") { n17_client_killed(make); }
TEST_CASE("S16 MultiplexedConnection: no password is refused") { s16_no_password(make); }
TEST_CASE("S16 MultiplexedConnection: a wrong password is refused") { s16_wrong_password(make); }
TEST_CASE("P4 MultiplexedConnection: destroyed in the child, the parent's goes on") {
    p4_destroyed_in_the_child(make);
}
TEST_CASE("P6 MultiplexedConnection: closed on exec") { p6_closed_on_exec(make); }
TEST_CASE("P11 MultiplexedConnection: a storm of signals changes nothing") {
    p11_signal_storm(make);
}
TEST_CASE("P13 MultiplexedConnection: no descriptors left") { p13_no_descriptors_left(make); }

// Its own: the stream outlives its callers

TEST_CASE("N3 MultiplexedConnection: a lost reply is unknown, and the silent stream falls") {
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
    proxy.pass(); // the old connection stays mute
    const Reply on_it = call(*c, {"SET", "j", "v", "NX"});
    CHECK(line_of(on_it) == "unknown");
    CHECK(line_of(call(*c, {"GET", "k"})) == "$v");
    CHECK(proxy.traffic().connections == 2);
}

TEST_CASE("N4 MultiplexedConnection: what was lost with the stream is unknown, what waits is not") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    const auto c = make(proxy.url());
    REQUIRE(line_of(call(*c, {"PING"})) == "+PONG");
    proxy.drop_requests();
    Reply first;
    Reply second;
    std::thread leader{[&] { first = call(*c, {"SET", "k", "1"}, 10s); }};
    REQUIRE(eventually([&] { return proxy.traffic().client_bytes > 40; }));
    // it waits for the leader, who waits for the server; then it goes out on a new stream
    std::thread follower{[&] { second = call(*c, {"SET", "k", "2", "NX"}, 10s); }};
    proxy.pass();
    leader.join();
    follower.join();
    CHECK(line_of(first) == "unknown");
    CHECK(line_of(second) == "+OK");
    CHECK(server.client().get("k") == "2");
}

TEST_CASE("B52 MultiplexedConnection: a slot that was left gets its late reply, nobody else") {
    RedisServer server;
    MultiplexedConnection c{server.url(), system_runtime(), 10s};
    const Reply before = call(c, {"CLIENT", "ID"});
    server.stop_process();
    CHECK(line_of(call(c, {"SET", "k", "late"}, 100ms)) == "unknown");
    CHECK(line_of(call(c, {"GET", "k"}, 100ms)) == "unknown");
    server.continue_process();
    CHECK(line_of(call(c, {"ECHO", "mine"})) == "$mine");
    CHECK(call(c, {"CLIENT", "ID"}).number == before.number); // the stream lived on
}

TEST_CASE("MultiplexedConnection: a leader whose time is over hands over in the middle") {
    RedisServer server;
    MultiplexedConnection c{server.url(), system_runtime(), 10s};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    server.stop_process();
    Reply first;
    Reply second;
    std::thread leader{[&] { first = call(c, {"SET", "a", "1"}, 300ms); }};
    std::this_thread::sleep_for(50ms); // it leads by then, or both are in the other order
    std::thread follower{[&] { second = call(c, {"SET", "b", "1"}, 10s); }};
    leader.join();
    CHECK((first.kind == Reply::unknown || first.kind == Reply::unsent));
    server.continue_process();
    follower.join();
    CHECK(line_of(second) == "+OK");
}

TEST_CASE(
    "N14 MultiplexedConnection: what the kernel never took is cut out, half a command is not") {
    RedisServer server;
    MultiplexedConnection c{server.url(), system_runtime(), 10s};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    server.stop_process();
    const std::string big(24'000'000, 'x');
    const auto replies =
        call_all(c, {{"SET", "a", "1"}, {"SET", "b", big}, {"SET", "c", "1"}, {"PING"}}, 300ms);
    CHECK(line_of(replies[0]) == "unknown");
    CHECK(line_of(replies[1]) == "unknown");
    CHECK(line_of(replies[2]) == "unsent");
    CHECK(line_of(replies[3]) == "unsent");
    server.continue_process();
    CHECK(line_of(call(c, {"ECHO", "next"}, 20s)) == "$next");
    CHECK(line_of(call(c, {"EXISTS", "a", "b"})) == ":2");
    CHECK(line_of(call(c, {"EXISTS", "c"})) == ":0");
}

TEST_CASE("B05 MultiplexedConnection: the ghost's deletion goes out behind it") {
    RedisServer server;
    MultiplexedConnection c{server.url(), system_runtime(), 10s};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    server.stop_process();
    {
        LeaseLock lock{c, "k", {.ttl = 60s, .timeout = 150ms}, std::defer_lock};
        CHECK(lock.try_acquire().answer == Answer::unknown);
    }
    server.continue_process();
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    CHECK_FALSE(server.client().exists("k"));
}

TEST_CASE("P4 MultiplexedConnection: in a forked child it sends nothing") {
    const RedisServer server;
    const auto c = make(server.url());
    const Reply before = call(*c, {"CLIENT", "ID"});
    ChildProcess child{[&] {
        const Reply reply = call(*c, {"SET", "child", "1"});
        return reply.kind == Reply::unsent && reply.cause == errc::other_process ? 0 : 1;
    }};
    CHECK(child.wait() == ProcessEnd{.code = 0});
    CHECK(call(*c, {"CLIENT", "ID"}).number == before.number);
    CHECK_FALSE(server.client().exists("child"));
}

TEST_CASE("MultiplexedConnection: many threads, one stream, every reply to its own") {
    const RedisServer server;
    MultiplexedConnection c{server.url()};
    std::atomic<int> wrong = 0;
    std::atomic<int> inside = 0;
    std::atomic<int> entered = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 16; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 200; ++i) {
                const std::string text = std::to_string(t * 1000 + i);
                if (line_of(call(c, {"ECHO", text}, 20s)) != "$" + text) ++wrong;
                LeaseLock lock{c, "shared", {.ttl = 60s, .timeout = 20s}, std::defer_lock};
                if (!lock.try_acquire()) continue;
                if (++inside != 1) ++wrong;
                ++entered;
                --inside;
                if (!lock.unlock()) ++wrong;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(entered > 0);
    CHECK(server.client().client_ids().size() == 1);
}

TEST_CASE("N17 MultiplexedConnection: killed under many threads, each verdict is right") {
    const RedisServer server;
    MultiplexedConnection c{server.url()};
    std::atomic<int> wrong = 0;
    std::atomic<bool> over = false;
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
            const std::string counter = "counter" + std::to_string(t);
            long long low = 0;  // surely counted
            long long high = 0; // perhaps counted
            while (!over) {
                const Reply reply = call(c, {"INCR", counter}, 20s);
                if (reply.kind == Reply::integer) {
                    ++low;
                    ++high;
                    if (reply.number < low || reply.number > high) ++wrong;
                    low = high = reply.number;
                } else if (reply.kind == Reply::unknown) {
                    ++high;
                } else if (reply.kind != Reply::unsent) {
                    ++wrong;
                }
            }
        });
    }
    RawClient killer = server.client();
    for (int i = 0; i < 20; ++i) {
        killer.client_kill_normal();
        std::this_thread::sleep_for(10ms);
    }
    over = true;
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
}

TEST_CASE("MultiplexedConnection: guards and their renewer share it") {
    const RedisServer server;
    MultiplexedConnection c{server.url()};
    Renewer renewer{c};
    std::vector<LeaseLock<MultiplexedConnection>> locks;
    for (int i = 0; i < 50; ++i) {
        locks.emplace_back(c, "k" + std::to_string(i), 3s);
        renewer.keep(locks.back());
    }
    std::this_thread::sleep_for(3500ms);
    for (const auto& lock : locks) CHECK(lock.owns_lock());
    CHECK(server.client().client_ids().size() == 1);
}

TEST_CASE("N13 MultiplexedConnection: a reply too many is seen by a call without time, too") {
    FalseServer server{[](FalseServer::Peer& peer) {
        (void)peer.expect_command();
        peer.send("+PONG\r\n");
        peer.pause(100ms);    // or it would come along with the answer, and be seen at once
        peer.send("+OK\r\n"); // nobody asked
        (void)peer.expect_command();
        peer.send("$-1\r\n");
        (void)peer.expect_command();
        peer.send("$-1\r\n");
        peer.wait_for_close();
    }};
    MultiplexedConnection c{server.url()};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    std::this_thread::sleep_for(400ms); // it has come, or the test shows nothing
    CHECK(line_of(call(c, {"PING"}, -1ms)) == "unsent");
    CHECK(line_of(call(c, {"SET", "k", "v", "NX"}, 500ms)) != "+OK");
}

TEST_CASE("N2 MultiplexedConnection: a connect that was left behind is no reason to fail later") {
    std::atomic<int> connections = 0;
    FalseServer server{[&](FalseServer::Peer& peer) {
        if (++connections == 1) return peer.wait_for_close(); // its sign-in is never answered
        (void)peer.expect_command();
        peer.send("+OK\r\n");
        (void)peer.expect_command();
        peer.send("+PONG\r\n");
        peer.wait_for_close();
    }};
    MultiplexedConnection c{server.url() + "/1?connect_timeout=300ms"};
    CHECK(line_of(call(c, {"PING"}, 100ms)) == "unsent");
    std::this_thread::sleep_for(400ms);
    const Reply later = call(c, {"PING"});
    CHECK(line_of(later) == "+PONG");
}
