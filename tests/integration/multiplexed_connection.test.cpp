// SPDX-License-Identifier: MIT
#include "connection_contract.hpp"

#include "support/forwarding_runtime.hpp"

#include <leaselock/hiredis/detail/secure_layer.hpp>
#include <leaselock/hiredis/detail/socket.hpp>
#include <leaselock/hiredis/multiplexed_connection.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/renewer.hpp>

#include <malloc.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
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

/// For servers that take their time without being silent for good.
const auto make_patient = [](const std::string& url) {
    return std::make_unique<MultiplexedConnection>(url, system_runtime(), 20s);
};

using SplitCall = MultiplexedConnection::Call;

/// A command in two halves, with all that has to live as long.
struct Half {
    Half(MultiplexedConnection& over, Words all, std::chrono::milliseconds timeout)
        : connection{over}, words{std::move(all)} {
        over.begin(call, {&command, 1}, {&reply, 1}, in(timeout));
    }
    std::string finish() {
        connection.finish(call);
        return line_of(reply);
    }

    MultiplexedConnection& connection;
    Words words;
    Command command{words, {}};
    Reply reply;
    SplitCall call;
};

/// A layer that behaves like TLS, without its secrets: it holds on to what it was given to send, and to
/// what it has received.
class Layer final : public detail::SecureLayer {
public:
    struct Seen {
        std::atomic<bool> stuck{false}; ///< it takes bytes, and lets none out
        std::atomic<int> misuses{0};    ///< two threads at once, or other bytes behind `again`
    };

    Layer(int socket, Seen& seen) : socket_{socket}, seen_{seen} {}

    Handshake shake_hands() noexcept override { return Handshake::done; }
    detail::Io send(std::string_view bytes) noexcept override {
        const Inside inside{*this};
        if (held_.empty()) {
            held_ = bytes.substr(0, 16'384);
            return {};
        }
        if (!bytes.starts_with(held_)) ++seen_.misuses;
        if (seen_.stuck) return {};
        const detail::Io io = detail::send_some(socket_, held_);
        if (io.state != detail::IoState::moved) return io;
        if (io.bytes != held_.size()) ++seen_.misuses; // not in these stories
        held_.clear();
        return io;
    }
    detail::Io receive(std::span<char> room) noexcept override {
        const Inside inside{*this};
        if (hoard_.empty()) {
            std::array<char, 16'384> chunk{};
            const detail::Io io = detail::receive_some(socket_, chunk);
            if (io.state != detail::IoState::moved) return io;
            hoard_.assign(chunk.data(), io.bytes);
        }
        const std::size_t size = std::min({room.size(), hoard_.size(), std::size_t{3}});
        hoard_.copy(room.data(), size);
        hoard_.erase(0, size);
        return {detail::IoState::moved, size};
    }
    bool may_yet_be_refused() const noexcept override { return false; }
    bool is_silent() noexcept override {
        const Inside inside{*this};
        return hoard_.empty() && detail::is_silent(socket_);
    }
    short events() const noexcept override { return held_.empty() || seen_.stuck ? 0 : POLLOUT; }
    std::error_code error() const noexcept override {
        return std::make_error_code(std::errc::connection_reset);
    }
    std::string_view complaint() const noexcept override { return {}; }

private:
    struct Inside {
        explicit Inside(Layer& of) : layer{of} {
            if (layer.inside_.exchange(true)) ++layer.seen_.misuses;
        }
        Inside(const Inside&) = delete;
        Inside& operator=(const Inside&) = delete;
        ~Inside() { layer.inside_ = false; }
        Layer& layer;
    };

    int socket_;
    Seen& seen_;
    std::string held_;
    std::string hoard_;
    std::atomic<bool> inside_{false};
};

class Layers final : public TransportSecurity {
public:
    explicit Layers(Layer::Seen& seen) : seen_{seen} {}
    std::unique_ptr<detail::SecureLayer> secure(int socket, std::string_view,
                                                std::error_code&) const noexcept override {
        return std::make_unique<Layer>(socket, seen_);
    }

private:
    Layer::Seen& seen_;
};

Endpoint layered(const RedisServer& server, Layer::Seen& seen) {
    Endpoint endpoint = Endpoint::from_url(server.url());
    endpoint.tls = true;
    endpoint.security = std::make_shared<Layers>(seen);
    return endpoint;
}

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
TEST_CASE("N14 MultiplexedConnection: short writes go on") { n14_short_writes(make_patient); }
TEST_CASE("N16 MultiplexedConnection: too many clients is refused") { n16_too_many_clients(make); }
namespace {

/// The machine, with a thread that is slow wherever it looks at the clock.
class SlowRuntime final : public ForwardingRuntime {
public:
    [[nodiscard]] Deadline now() const noexcept override {
        std::this_thread::sleep_for(2ms);
        return ForwardingRuntime::now();
    }
};

} // namespace

TEST_CASE("N16 MultiplexedConnection: too many clients, said before anything was sent") {
    FalseServer server{[](FalseServer::Peer& peer) {
        peer.send("-ERR max number of clients reached\r\n");
        peer.wait_for_bytes(); // and hangs up, with the command unread
    }};
    SlowRuntime slow;
    MultiplexedConnection c{server.url(), slow};
    const Reply reply = call(c, {"SET", "k", "v"}, 2s);
    CHECK(line_of(reply) == "-ERR max number of clients reached");
    CHECK(server.connections() == 1);
}

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
    p11_signal_storm(make_patient);
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

TEST_CASE("B05 MultiplexedConnection: a deletion confirmed on the same stream is proof") {
    RedisServer server;
    MultiplexedConnection c{server.url(), system_runtime(), 60s};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    CHECK(c.stream_number() == 1);
    LeaseLock lock{c, "k", {.ttl = 60s, .timeout = 1s}, std::defer_lock};
    // The SET takes a second, and so does the clean-up.
    const auto attempt = [&](std::chrono::milliseconds stopped) {
        server.stop_process();
        std::thread later{[&] {
            std::this_thread::sleep_for(stopped);
            server.continue_process();
        }};
        const Outcome outcome = lock.try_acquire();
        later.join();
        CHECK_FALSE(lock.owns_lock());
        return outcome.answer;
    };
    SECTION("answered") {
        // on a slow machine the clean-up may go unanswered, too, and nothing is proven
        CHECK(eventually([&] { return attempt(1'400ms) == Answer::refused; }));
        CHECK_FALSE(server.client().exists("k"));
    }
    SECTION("unanswered") { CHECK(attempt(3s) == Answer::unknown); }
    CHECK(c.stream_number() == 1);
}

TEST_CASE("B05 MultiplexedConnection: on another stream a deletion proves nothing") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    MultiplexedConnection c{proxy.url(), system_runtime(), 60s};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    proxy.on_command("SET", Fault::cut_reply);
    LeaseLock lock{c, "k", {.ttl = 60s, .timeout = 20s}, std::defer_lock};
    CHECK(lock.try_acquire().answer == Answer::unknown);
    CHECK_FALSE(server.client().exists("k"));
    CHECK(c.stream_number() == 2);
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

TEST_CASE("B05 MultiplexedConnection: a call without time goes out behind the last leader") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    MultiplexedConnection c{proxy.url(), system_runtime(), 10s};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    server.stop_process();
    const auto before = proxy.traffic().client_bytes;
    Reply first;
    std::thread leader{[&] { first = call(c, {"ECHO", "first"}, 20s); }};
    CHECK(eventually([&] { return proxy.traffic().client_bytes > before; }));
    CHECK(line_of(call(c, {"SET", "k", "1"}, -1ms)) == "unknown");
    server.continue_process();
    leader.join();
    CHECK(line_of(first) == "$first");
    CHECK(eventually([&] { return server.client().get("k") == "1"; }));
}

TEST_CASE("MultiplexedConnection: calls without time leave no memory behind") {
    const RedisServer server;
    const auto c = make(server.url());
    REQUIRE(line_of(call(*c, {"PING"})) == "+PONG");
    const auto used = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
    const std::size_t before = used();
    for (int i = 0; i < 20'000; ++i) (void)call(*c, {"PING"}, -1ms);
    CHECK(used() < before + std::size_t{256} * 1024);
    CHECK(line_of(call(*c, {"PING"})) == "+PONG");
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

TEST_CASE("N14 MultiplexedConnection: a stream that takes bytes is not silent") {
    constexpr std::size_t count = 5;
    FalseServer server{[&](FalseServer::Peer& peer) {
        for (std::size_t i = 0; i < count; ++i) {
            (void)peer.expect_command();
            peer.pause(1s); // all together longer than it may be silent
        }
        for (std::size_t i = 0; i < count; ++i) peer.send("+OK\r\n");
        peer.wait_for_close();
    }};
    MultiplexedConnection c{server.url(), system_runtime(), 3s};
    const std::string big(12'000'000, 'x'); // beyond what any socket buffer takes at once
    for (const Reply& reply : call_all(c, std::vector<Words>(count, {"SET", "k", big}), 60s)) {
        CHECK(line_of(reply) == "+OK");
    }
}

// Many threads: who leads, and for how long

TEST_CASE("MultiplexedConnection: a leader does no more than its own call needs") {
    std::atomic<bool> returned = false;
    std::atomic<bool> in_time = false;
    FalseServer server{[&](FalseServer::Peer& peer) {
        (void)peer.expect_command();
        peer.pause(50ms); // the others come meanwhile
        peer.send("+first\r\n");
        for (int i = 0; i < 3; ++i) (void)peer.expect_command();
        // The others are not answered before the first has its answer: should it wait for theirs, it
        // waits for ever.
        in_time = eventually([&] { return returned.load(); });
        peer.send("+x\r\n+x\r\n+x\r\n");
        peer.wait_for_close();
    }};
    MultiplexedConnection c{server.url(), system_runtime(), 60s};
    Reply first;
    std::thread leader{[&] {
        first = call(c, {"PING"}, 60s);
        returned = true;
    }};
    REQUIRE(eventually([&] { return server.received().size() > 10; }));
    std::vector<std::thread> others;
    std::atomic<int> answered = 0;
    for (int i = 0; i < 3; ++i) {
        others.emplace_back([&] {
            if (line_of(call(c, {"ECHO", "x"}, 60s)) == "+x") ++answered;
        });
    }
    leader.join();
    for (auto& thread : others) thread.join();
    CHECK(line_of(first) == "+first");
    CHECK(in_time);
    CHECK(answered == 3);
}

TEST_CASE("MultiplexedConnection: nobody is overtaken by more than the batches ahead") {
    constexpr int threads = 24;
    const RedisServer server;
    MultiplexedConnection c{server.url()};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    // Long enough that a batch takes two of them: there are always some that wait for the next.
    const std::string padding(40'000, 'x');
    const Words count{"EVAL", "return redis.call('incr','n')", "0", padding};
    std::atomic<long long> served = 0; // the latest answer that anybody has seen
    std::atomic<long long> longest = 0;
    std::atomic<int> wrong = 0;
    std::vector<std::thread> all;
    for (int t = 0; t < threads; ++t) {
        all.emplace_back([&] {
            const auto raise = [](std::atomic<long long>& to, long long value) {
                long long now = to;
                while (now < value && !to.compare_exchange_weak(now, value)) {
                }
            };
            for (int i = 0; i < 50; ++i) {
                Half half{c, count, 60s};
                const long long before = served; // it has come in by now
                half.finish();
                if (half.reply.kind != Reply::integer) ++wrong;
                raise(longest, half.reply.number - before);
                raise(served, half.reply.number);
            }
        });
    }
    for (auto& thread : all) thread.join();
    CHECK(wrong == 0);
    // Each of the others has a call ahead at most, and one whose answer it has not told yet.
    CHECK(longest <= 2 * threads);
    CHECK(longest > 1); // or they were not there at the same time
}

// Calls in two halves

TEST_CASE("MultiplexedConnection: calls to many servers, finished behind a silent one") {
    RedisServer silent;
    const RedisServer good;
    const RedisServer other;
    const auto a = make(silent.url());
    const auto b = make(good.url());
    const auto c = make(other.url());
    SECTION("on open streams") {
        for (auto* const open : {a.get(), b.get(), c.get()}) {
            REQUIRE(line_of(call(*open, {"PING"})) == "+PONG");
        }
    }
    SECTION("on new ones") {}
    silent.stop_process();
    const Stopwatch watch;
    Half first{*a, {"SET", "k", "1"}, 400ms};
    Half second{*b, {"SET", "k", "2"}, 400ms};
    Half third{*c, {"SET", "k", "3"}, 400ms};
    CHECK(watch.elapsed() < 300ms); // begin does not wait
    CHECK(first.finish() == "unknown");
    CHECK(first.reply.cause == errc::timed_out);
    CHECK(watch.elapsed() >= 399ms);
    CHECK(second.finish() == "+OK"); // behind its deadline
    CHECK(third.finish() == "+OK");
    CHECK(watch.elapsed() < 400ms + slack);
    CHECK(good.client().get("k") == "2");
    silent.continue_process();
    CHECK(line_of(call(*b, {"GET", "k"})) == "$2");
    CHECK(line_of(call(*c, {"GET", "k"})) == "$3");
}

TEST_CASE(
    "MultiplexedConnection: an answer that came in time is there, however late it is asked for") {
    const RedisServer server;
    MultiplexedConnection c{server.url(), system_runtime(), 50ms};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    Half half{c, {"ECHO", "early"}, 50ms};
    std::this_thread::sleep_for(200ms); // longer than its time, and than the stream may be silent
    CHECK(half.finish() == "$early");
    CHECK(half.finish() == "$early"); // once is enough, twice does no harm
}

TEST_CASE("MultiplexedConnection: a large batch that was answered in time is there as a whole") {
    const RedisServer server;
    const auto c = make(server.url());
    REQUIRE(line_of(call(*c, {"PING"})) == "+PONG");
    const std::array<std::string_view, 1> ping{"PING"};
    const std::vector<Command> commands(1'000, Command{ping, {}});
    std::vector<Reply> replies(commands.size());
    MultiplexedConnection::Call half;
    c->begin(half, commands, replies, system_runtime().now() + 50ms);
    std::this_thread::sleep_for(200ms);
    c->finish(half);
    CHECK(std::all_of(replies.begin(), replies.end(),
                      [](const Reply& reply) { return line_of(reply) == "+PONG"; }));
}

TEST_CASE("MultiplexedConnection: split calls that are given up answer nobody else") {
    const RedisServer server;
    const auto c = make(server.url());
    const Reply before = call(*c, {"CLIENT", "ID"});
    { const Half left{*c, {"INCR", "n"}, 10s}; }
    CHECK(line_of(call(*c, {"ECHO", "mine"})) == "$mine");
    Half half{*c, {"INCR", "n"}, 10s};
    Reply again;
    const Words words{"ECHO", "again"};
    const Command command{words, {}};
    c->begin(half.call, {&command, 1}, {&again, 1}, in(10s));
    c->finish(half.call);
    CHECK(line_of(again) == "$again");
    CHECK(line_of(call(*c, {"GET", "n"})) == "$2"); // they had gone out
    CHECK(call(*c, {"CLIENT", "ID"}).number == before.number);
    Half late{*c, {"INCR", "n"}, -1ms};
    CHECK(late.finish() == "unknown");
    SplitCall unused;
    c->finish(unused);
}

TEST_CASE("MultiplexedConnection: split calls and others of many threads share the stream") {
    const RedisServer server;
    MultiplexedConnection c{server.url()};
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 200; ++i) {
                const std::string text = std::to_string(t * 1000 + i);
                if (t % 2 == 0) {
                    if (line_of(call(c, {"ECHO", text}, 60s)) != "$" + text) ++wrong;
                    continue;
                }
                Half one{c, {"ECHO", text}, 60s};
                Half two{c, {"ECHO", "x"}, 60s};
                if (i % 3 == 0) continue; // given up
                if (two.finish() != "$x") ++wrong;
                if (one.finish() != "$" + text) ++wrong;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(server.client().client_ids().size() == 1);
}

TEST_CASE("P4 MultiplexedConnection: a split call is its own process's") {
    const RedisServer server;
    const auto c = make(server.url());
    REQUIRE(line_of(call(*c, {"PING"})) == "+PONG");
    Half half{*c, {"ECHO", "parent"}, 10s};
    ChildProcess child{[&] {
        const Half fresh{*c, {"ECHO", "child"}, 10s};
        if (line_of(fresh.reply) != "unsent") return 1;
        return half.finish() == "unknown" ? 0 : 2;
    }};
    CHECK(child.wait() == ProcessEnd{.code = 0});
    CHECK(half.finish() == "$parent");
}

// A server that is no master any more

TEST_CASE("S11 MultiplexedConnection: a demoted server's stream is left") {
    const RedisServer master;
    const RedisServer server;
    const auto c = make(server.url());
    const Reply before = call(*c, {"CLIENT", "ID"});
    server.client().expect_ok({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
    const Reply reply = call(*c, {"SET", "k", "v"});
    CHECK(cause_of(reply.text.view()) == errc::read_only);
    CHECK(eventually([&] { return server.client().client_ids().count(before.number) == 0; }));
    const Reply after = call(*c, {"CLIENT", "ID"});
    REQUIRE(after.kind == Reply::integer);
    CHECK(after.number != before.number);
}

TEST_CASE("S11 MultiplexedConnection: behind a READONLY nothing new goes out on the stream") {
    std::atomic<int> connections = 0;
    FalseServer server{[&](FalseServer::Peer& peer) {
        if (++connections == 1) {
            for (int i = 0; i < 2; ++i) (void)peer.expect_command();
            peer.send("-READONLY You can't write against a read only replica.\r\n");
            peer.pause(100ms); // the other call comes meanwhile
            peer.send("+la");  // a round in which it could be written
            peer.pause(100ms);
            peer.send("st\r\n");
            (void)peer.expect_command(); // there is none
            peer.send("+wrong stream\r\n");
        } else {
            (void)peer.expect_command();
            peer.send("+new stream\r\n");
        }
        peer.wait_for_close();
    }};
    MultiplexedConnection c{server.url(), system_runtime(), 20s};
    std::vector<Reply> replies;
    std::thread first{[&] { replies = call_all(c, {{"SET", "k", "v"}, {"PING"}}, 20s); }};
    REQUIRE(eventually([&] { return server.received().find("PING") != std::string::npos; }));
    std::this_thread::sleep_for(20ms); // the error has come
    const Reply other = call(c, {"ECHO", "x"}, 20s);
    first.join();
    CHECK(cause_of(replies[0].text.view()) == errc::read_only);
    CHECK(line_of(replies[1]) == "+last");
    CHECK(line_of(other) == "+new stream");
}

// Streams with a layer of their own

TEST_CASE("MultiplexedConnection: what a secure layer holds back is not forgotten") {
    const RedisServer server;
    Layer::Seen seen;
    MultiplexedConnection c{layered(server, seen), system_runtime(), 20s};
    const auto replies =
        call_all(c, {{"SET", "k", "v"}, {"GET", "k"}, {"ECHO", "a longer text"}}, 20s);
    CHECK(line_of(replies[0]) == "+OK");
    CHECK(line_of(replies[1]) == "$v");
    CHECK(line_of(replies[2]) == "$a longer text");
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 100; ++i) {
                const std::string text = std::to_string(t * 1000 + i);
                if (i % 10 == 0) (void)call(c, {"INCR", "posted"}, -1ms);
                if (line_of(call(c, {"ECHO", text}, 60s)) != "$" + text) ++wrong;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(seen.misuses == 0);
    CHECK(server.client().client_ids().size() == 1);
}

TEST_CASE("MultiplexedConnection: what a secure layer has taken will go out, and is unknown") {
    const RedisServer server;
    Layer::Seen seen;
    MultiplexedConnection c{layered(server, seen), system_runtime(), 20s};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    seen.stuck = true;
    CHECK(line_of(call(c, {"SET", "k", "v"}, 100ms)) == "unknown");
    CHECK(line_of(call(c, {"SET", "j", "v"}, 100ms)) != "+OK");
    seen.stuck = false;
    CHECK(line_of(call(c, {"GET", "k"}, 20s)) == "$v");
    CHECK(seen.misuses == 0);
    CHECK(server.client().client_ids().size() == 1);
}
