// SPDX-License-Identifier: MIT
#include "connection_contract.hpp"

#include "support/forwarding_runtime.hpp"

#include <leaselock/hiredis/hiredis_connection.hpp>

#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace leaselock;
using namespace leaselock::test;
using namespace leaselock::test::contract;
using namespace std::chrono_literals;

namespace {

static_assert(SplitConnection<HiredisConnection>);
static_assert(!SharedConnection<HiredisConnection>);
static_assert(!std::is_move_constructible_v<HiredisConnection>);
static_assert(!std::is_copy_constructible_v<HiredisConnection>);
static_assert(!std::is_convertible_v<std::string_view, HiredisConnection>);
static_assert(noexcept(runtime_of(std::declval<HiredisConnection&>())));

const auto make = [](const std::string& url) { return std::make_unique<HiredisConnection>(url); };

/// The number of the socket whose other end is that port of this machine.
int socket_to(std::uint16_t port) {
    for (int number = 3; number < 1024; ++number) {
        sockaddr_in peer{};
        socklen_t size = sizeof peer;
        if (getpeername(number, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
            peer.sin_family == AF_INET && ntohs(peer.sin_port) == port) {
            return number;
        }
    }
    return -1;
}

/// The machine, with a clock that can be moved on, and a thread that can be held where it looks at it.
class HoldingRuntime final : public ForwardingRuntime {
public:
    void leap(LeaseClock::duration span) { ahead_ += span.count(); }
    void hold(std::thread::id thread) { held_ = thread; }
    [[nodiscard]] bool holds() const { return holding_; }

    [[nodiscard]] Deadline now() const noexcept override {
        while (held_.load() == std::this_thread::get_id()) {
            holding_ = true;
            std::this_thread::sleep_for(1ms);
        }
        return ForwardingRuntime::now() + LeaseClock::duration{ahead_.load()};
    }

private:
    std::atomic<LeaseClock::rep> ahead_{0};
    std::atomic<std::thread::id> held_{};
    mutable std::atomic<bool> holding_{false};
};

} // namespace

// The contract

TEST_CASE("HiredisConnection: answers of every kind") { answers_of_every_kind(make); }
TEST_CASE("HiredisConnection: a batch is one round trip, in order") {
    batches_are_one_round_trip_in_order(make);
}
TEST_CASE("HiredisConnection: no command, no I/O") { nothing_to_call_is_nothing_done(make); }
TEST_CASE("HiredisConnection: a past deadline writes and does not wait") {
    past_deadline_is_written_but_not_waited_for(make);
}
TEST_CASE("X1 HiredisConnection: bytes arrive exact") { x1_bytes_arrive_exact(make); }
TEST_CASE("N1 HiredisConnection: refused is unsent") { n1_refused(make); }
TEST_CASE("N1 HiredisConnection: connects again when the server is back") { n1_comes_back(make); }
TEST_CASE("N2 HiredisConnection: connecting keeps the deadline") { n2_connect_goes_nowhere(make); }
TEST_CASE("N3 HiredisConnection: a lost reply is unknown") { n3_reply_lost(make); }
TEST_CASE("N4 HiredisConnection: a lost request is unknown") { n4_request_lost(make); }
TEST_CASE("N5 B52 HiredisConnection: a late reply answers nobody") {
    n5_late_reply_answers_nobody(make);
}
TEST_CASE(
    "N5 B52 HiredisConnection: a reply that comes behind the next command is not its answer") {
    const RedisServer server;
    FaultProxy proxy{server.port()};
    HiredisConnection c{proxy.url()};
    REQUIRE(line_of(call(c, {"SET", "other", "theirs"})) == "+OK");
    proxy.delay(200ms);
    CHECK(line_of(call(c, {"SET", "k", "v"}, 100ms)) == "unknown"); // its reply: at 400 ms
    CHECK(line_of(call(c, {"GET", "other"})) == "$theirs");
}
TEST_CASE("N9 HiredisConnection: one deadline for dripping replies") {
    n9_one_deadline_for_dripping_replies(make);
}
TEST_CASE("N10 HiredisConnection: what arrived before the break is kept") {
    n10_what_arrived_is_kept(make);
}
TEST_CASE("N10 HiredisConnection: a reset in place of the reply is unknown") {
    n10_reset_in_place_of_the_reply(make);
}
TEST_CASE("N12 HiredisConnection: garbage is a protocol error") { n12_garbage(make); }
TEST_CASE("N12 HiredisConnection: an endless reply takes bounded memory") {
    n12_endless_reply(make);
}
TEST_CASE("N13 HiredisConnection: a reply too many is seen before the next send") {
    n13_reply_too_many(make);
}
TEST_CASE("N13 HiredisConnection: nothing is sent into a stream that has ended") {
    n13_closed_while_idle(make);
}
TEST_CASE("N14 HiredisConnection: short writes go on") { n14_short_writes(make); }
TEST_CASE("N14 HiredisConnection: what the kernel never took is unsent") {
    n14_what_the_kernel_never_took_is_unsent(make);
}
TEST_CASE("N16 HiredisConnection: too many clients is refused") { n16_too_many_clients(make); }
TEST_CASE("N16 HiredisConnection: too many clients, behind a proxy, is one command's answer") {
    n16_too_many_clients_behind_a_proxy(make);
}
TEST_CASE("N17 HiredisConnection: a killed client connects again") { n17_client_killed(make); }
TEST_CASE("S16 HiredisConnection: no password is refused") { s16_no_password(make); }
TEST_CASE("S16 HiredisConnection: a wrong password is refused") { s16_wrong_password(make); }
TEST_CASE("P4 HiredisConnection: a forked child has a stream of its own") { p4_fork(make); }
TEST_CASE("P4 HiredisConnection: destroyed in the child, the parent's goes on") {
    p4_destroyed_in_the_child(make);
}
TEST_CASE("P6 HiredisConnection: closed on exec") { p6_closed_on_exec(make); }
TEST_CASE("P11 HiredisConnection: a storm of signals changes nothing") { p11_signal_storm(make); }
TEST_CASE("P12 B54 HiredisConnection: no SIGPIPE") { p12_no_sigpipe(make); }
TEST_CASE("P13 HiredisConnection: no descriptors left") { p13_no_descriptors_left(make); }
TEST_CASE("HiredisConnection: waiting for many at once") { split_calls(make); }
TEST_CASE("HiredisConnection: a call that was given up answers nobody") {
    split_call_given_up(make);
}

// Its own

TEST_CASE("HiredisConnection: a malformed URL throws, and does not tell the password") {
    try {
        const HiredisConnection c{"redis://:se/cret@h"};
        FAIL("must throw");
    } catch (const Error& error) {
        CHECK(error.code() == errc::invalid_argument);
        CHECK(error.answer() == Answer::unsent);
        CHECK(std::string{error.what()}.find("%2F") != std::string::npos);
        CHECK(std::string{error.what()}.find("cret") == std::string::npos);
    }
}

TEST_CASE("HiredisConnection: an endpoint out of its limits is unsent, and says why") {
    HiredisConnection slow{Endpoint{.connect_timeout = std::chrono::milliseconds::max()}};
    CHECK(call(slow, {"PING"}).text.view().starts_with("endpoint: connect_timeout: from 1ms"));
    HiredisConnection c{Endpoint{.host = "not a host"}};
    const Reply reply = call(c, {"PING"});
    CHECK(line_of(reply) == "unsent");
    CHECK(reply.cause == errc::invalid_argument);
    CHECK(reply.text.view().starts_with("endpoint: host: 1 to 253"));
}

TEST_CASE("HiredisConnection: unix socket") {
    RedisServer server;
    HiredisConnection c{"unix://" + server.unix_path() + "?db=2"};
    CHECK(line_of(call(c, {"SET", "k", "v"})) == "+OK");
    server.terminate();
    const Reply gone = call(c, {"PING"});
    CHECK(line_of(gone) == "unsent");
    CHECK(gone.cause == condition::unreachable);
    CHECK(gone.text.view() == "unix:" + server.unix_path());
    server.restart();
    CHECK(line_of(call(c, {"PING"})) == "+PONG");
}

TEST_CASE("HiredisConnection: AUTH and SELECT again after each connect") {
    const RedisServer server{{}, "p@s:s/w%rd"};
    RawClient outside = server.client();
    outside.expect_ok({"ACL", "SETUSER", "worker", "on", ">a@b:c/d%e", "~*", "+@all"});
    const std::string at = "@127.0.0.1:" + std::to_string(server.port());
    for (const std::string& who :
         {std::string{":p%40s%3As%2Fw%25rd"}, std::string{"worker:a%40b%3ac%2fd%25e"}}) {
        HiredisConnection c{"redis://" + who + at + "/7"};
        for (int i = 0; i < 3; ++i) {
            REQUIRE(line_of(call(c, {"SET", "k", "v"})) == "+OK");
            const Reply info = call(c, {"CLIENT", "INFO"});
            CHECK(info.text.view().find(" db=7 ") != std::string_view::npos);
            outside.client_kill_normal();
        }
    }
    CHECK(outside.integer({"DBSIZE"}) == 0);
}

TEST_CASE("HiredisConnection: no command runs in another db, or signed in as somebody else") {
    const RedisServer server;
    RawClient outside = server.client();
    for (const std::string path : {"/99", "/2147483647"}) {
        HiredisConnection c{server.url() + path};
        const Reply reply = call(c, {"SET", "k", "v"});
        CHECK(line_of(reply) == "-ERR DB index is out of range");
        CHECK(classify_failure(reply).answer == Answer::refused);
    }
    HiredisConnection named{"redis://nobody:secret@127.0.0.1:" + std::to_string(server.port())};
    const Reply reply = call(named, {"SET", "k", "v"});
    CHECK(reply.text.view().starts_with("WRONGPASS"));
    CHECK(reply.text.view().find("secret") == std::string_view::npos);
    CHECK(outside.command_stats().count("set") == 0);
}

TEST_CASE("HiredisConnection: the sign-in is answered before a command is sent") {
    FalseServer server{[](FalseServer::Peer& peer) {
        peer.expect_command();
        peer.pause(150ms);
        peer.send("+OK\r\n");
        peer.expect_command();
        peer.send("+OK\r\n");
    }};
    HiredisConnection c{"redis://:x@127.0.0.1:" + std::to_string(server.port())};
    Reply reply;
    const Words words{"SET", "k", "v"};
    const Command command{words, "k"};
    c.start({&command, 1}, in(5s));
    while (server.received().find("AUTH") == std::string::npos) {
        HiredisConnection* const self = &c;
        HiredisConnection::wait_any({&self, 1}, in(10ms));
        REQUIRE_FALSE(c.finish({&reply, 1}));
    }
    CHECK(server.received().find("SET") == std::string::npos);
    while (!c.finish({&reply, 1})) std::this_thread::sleep_for(1ms); // polled, never waited for
    CHECK(line_of(reply) == "+OK");
}

TEST_CASE("HiredisConnection: a sign-in that fails is unsent or an error, never unknown") {
    struct Row {
        std::string answer;
        std::string line;
        std::error_condition cause;
    };
    const Row rows[] = {
        {"-WRONGPASS no\r\n", "-WRONGPASS no", {}},
        {"-LOADING Redis is loading\r\n", "-LOADING Redis is loading", {}},
        {"+OK\r\n-NOPERM no select\r\n", "-NOPERM no select", {}},
        {"-ERR something new\r\n", "unsent", make_error_condition(errc::server_error)},
        {"+OK\r\n:1\r\n", "unsent", make_error_condition(errc::protocol_error)},
        {"+OK\r\n$2\r\nOK\r\n", "unsent", make_error_condition(errc::protocol_error)},
        {"+OK\r\n+OK\r\n+OK\r\n", "unsent", make_error_condition(errc::protocol_error)},
        {"HTTP/1.1 400\r\n", "unsent", make_error_condition(errc::protocol_error)},
        {"+OK\r\n", "unsent", make_error_condition(errc::timed_out)},
    };
    for (const Row& row : rows) {
        INFO(row.answer);
        FalseServer server{std::vector<std::string>{row.answer}};
        HiredisConnection c{"redis://:x@127.0.0.1:" + std::to_string(server.port()) + "/1"};
        for (const Reply& reply : call_all(c, {{"SET", "k", "v"}, {"PING"}}, 200ms)) {
            CHECK(line_of(reply) == row.line);
            if (row.cause) CHECK(reply.cause == row.cause);
            if (row.cause == errc::server_error) CHECK(reply.text.view() == "ERR something new");
        }
        CHECK(server.received().find("SET") == std::string::npos);
        CHECK(server.received().find("PING") == std::string::npos);
    }
}

TEST_CASE("N2 HiredisConnection: connect_timeout ends a connect before the call's deadline") {
    const DeadEnd nowhere;
    HiredisConnection c{"redis://127.0.0.1:" + std::to_string(nowhere.port()) +
                        "?connect_timeout=150ms"};
    const Stopwatch watch;
    const Reply reply = call(c, {"PING"}, 20s);
    CHECK(watch.elapsed() >= 149ms);
    CHECK(watch.elapsed() < 150ms + slack);
    CHECK(line_of(reply) == "unsent");
    CHECK(reply.cause == errc::timed_out);
}

TEST_CASE("N9 HiredisConnection: one deadline for sign-in and command together") {
    const RedisServer server{{}, "secret"};
    FaultProxy proxy{server.port()};
    proxy.drip(80ms); // 5 bytes of +OK take 400 ms, as long as the deadline is away
    HiredisConnection c{"redis://:secret@127.0.0.1:" + std::to_string(proxy.port()) +
                        "?connect_timeout=10s"};
    const Stopwatch watch;
    const Reply reply = call(c, {"ECHO", "0123456789"}, 600ms);
    CHECK(watch.elapsed() >= 599ms);
    CHECK(watch.elapsed() < 600ms + slack);
    CHECK_FALSE(reply.answered());
}

TEST_CASE("N14 HiredisConnection: a tiny send buffer") {
    const RedisServer server;
    HiredisConnection c{server.url()};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    const int tiny = 1; // the kernel makes it its least
    const int socket = socket_to(server.port());
    REQUIRE(socket >= 0);
    REQUIRE(setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &tiny, sizeof tiny) == 0);
    const std::string value(1'000'000, 'x');
    CHECK(line_of(call(c, {"SET", "k", value})) == "+OK");
    CHECK(line_of(call(c, {"STRLEN", "k"})) == ":1000000");
    CHECK(socket_to(server.port()) == socket);
}

TEST_CASE("HiredisConnection: the socket's options") {
    const RedisServer server;
    HiredisConnection c{server.url()};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    const int socket = socket_to(server.port());
    int value = 0;
    socklen_t size = sizeof value;
    REQUIRE(getsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &value, &size) == 0);
    CHECK(value != 0);
    REQUIRE(getsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &value, &size) == 0);
    CHECK(value != 0);
    // a receive may wait, but not for long
    timeval limit{};
    size = sizeof limit;
    CHECK((fcntl(socket, F_GETFL) & O_NONBLOCK) == 0);
    REQUIRE(getsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, &size) == 0);
    CHECK(limit.tv_sec == 0);
    CHECK(limit.tv_usec >= 100'000);
    CHECK(limit.tv_usec <= 120'000); // rounded up to ticks of the kernel's
    CHECK((fcntl(socket, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("P4 HiredisConnection: forked in the middle of a call, the child's half is unknown") {
    const RedisServer server;
    HiredisConnection c{server.url()};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    const Words words{"DEBUG", "SLEEP", "0.2"};
    const Command command{words, {}};
    Reply reply;
    c.start({&command, 1}, in(5s));
    ChildProcess child{[&] {
        const bool finished = c.finish({&reply, 1});
        if (!finished || reply.kind != Reply::unknown || reply.cause != errc::other_process)
            return 1;
        return line_of(call(c, {"PING"})) == "+PONG" ? 0 : 2;
    }};
    while (!c.finish({&reply, 1})) {
        HiredisConnection* const self = &c;
        HiredisConnection::wait_any({&self, 1}, in(1s));
    }
    CHECK(line_of(reply) == "+OK");
    CHECK(child.wait() == ProcessEnd{.code = 0});
}

namespace {

std::atomic<pid_t> forked{-1};

/// While it lives, SIGUSR1 forks; its system calls would be restarted, where they can be.
class ForkingHandler {
public:
    ForkingHandler() {
        struct sigaction action {};
        action.sa_handler = [](int) { forked = fork(); };
        action.sa_flags = SA_RESTART;
        sigemptyset(&action.sa_mask);
        REQUIRE(sigaction(SIGUSR1, &action, &before_) == 0);
    }
    ForkingHandler(const ForkingHandler&) = delete;
    ForkingHandler& operator=(const ForkingHandler&) = delete;
    ~ForkingHandler() { sigaction(SIGUSR1, &before_, nullptr); }

private:
    struct sigaction before_ {};
};

} // namespace

TEST_CASE(
    "P4 HiredisConnection: forked by a signal handler inside a call, the child's is unknown") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    HiredisConnection c{proxy.url()};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    server.stop_process();
    const auto before = proxy.traffic().client_bytes;
    const ForkingHandler handler;
    const pthread_t caller = pthread_self();
    int status = -1;
    std::thread other{[&] {
        (void)eventually([&] { return proxy.traffic().client_bytes > before; });
        pthread_kill(caller, SIGUSR1);
        (void)eventually([&] { return forked > 0 && waitpid(forked, &status, WNOHANG) == forked; });
        server.continue_process(); // only now is there a reply, and only one who can take it
    }};
    const Reply reply = call(c, {"ECHO", "mine"}, 20s);
    if (forked == 0) {
        _exit(reply.kind == Reply::unknown && reply.cause == errc::other_process ? 0 : 1);
    }
    other.join();
    CHECK(line_of(reply) == "$mine");
    REQUIRE(forked > 0);
    if (status == -1) { // it still waits
        kill(forked, SIGKILL);
        waitpid(forked, nullptr, 0);
    }
    CHECK(status == 0);
    CHECK(line_of(call(c, {"PING"})) == "+PONG");
}

TEST_CASE("HiredisConnection: what the server lacks is forgotten at each connect") {
    const RedisServer server;
    HiredisConnection c{server.url()};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    c.dialect().set_lacks_getex();
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    CHECK(c.dialect().lacks_getex());
    server.client().client_kill_normal();
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    CHECK_FALSE(c.dialect().lacks_getex());
}

TEST_CASE("HiredisConnection: no call allocates but the first") {
    const RedisServer server;
    HiredisConnection c{server.url()};
    const std::string_view set[] = {"SET", "lock:k", "0123456789abcdef0123456789abcdef", "PX",
                                    "10000"};
    const std::string_view del[] = {"DEL", "lock:k"};
    const Command commands[] = {{set, "lock:k"}, {del, "lock:k"}};
    Reply replies[2];
    c.call(commands, replies, in(5s));
    const auto in_use = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
    const auto before = in_use();
    for (int i = 0; i < 2'000; ++i) {
        c.call(commands, replies, in(5s));
        if (replies[1].number != 1) FAIL("call " << i << ": " << line_of(replies[1]));
    }
    CHECK(in_use() == before); // the buffers stay as they are; a driver under valgrind counts calls
}

// Names

namespace {

/// Lookups that tests play. Global, for a lookup is a plain function.
struct PlayedResolver {
    std::mutex mutex;
    std::condition_variable changed;
    bool answers = true;
    int code = 0;
    int asked = 0;
    int left = 0;
    std::vector<sockaddr_in> addresses;

    static PlayedResolver& instance() {
        static PlayedResolver resolver;
        return resolver;
    }
    void reset(std::vector<std::uint16_t> ports) {
        const std::lock_guard lock{mutex};
        answers = true;
        code = 0;
        asked = left = 0;
        addresses.clear();
        for (const std::uint16_t port : ports) {
            sockaddr_in& address = addresses.emplace_back();
            address.sin_family = AF_INET;
            address.sin_port = htons(port);
            address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        }
    }
    void answer(bool now) {
        const std::lock_guard lock{mutex};
        answers = now;
        changed.notify_all();
    }
    int count(int PlayedResolver::*which) {
        const std::lock_guard lock{mutex};
        return this->*which;
    }
    static int lookup(const char* host, std::uint16_t port, detail::AddressList& found) {
        PlayedResolver& self = instance();
        std::unique_lock lock{self.mutex};
        ++self.asked;
        self.changed.wait(lock, [&] { return self.answers; });
        if (std::string_view{host} != "redis.example" || port != 6379) self.code = EAI_FAIL;
        for (const sockaddr_in& address : self.addresses) {
            found.add(reinterpret_cast<const sockaddr*>(&address), sizeof address);
        }
        ++self.left;
        return self.code;
    }
};

struct ByName {
    explicit ByName(std::vector<std::uint16_t> ports) { resolver.reset(std::move(ports)); }
    ByName(const ByName&) = delete;
    ByName& operator=(const ByName&) = delete;
    ~ByName() {
        resolver.answer(true);
        (void)eventually([&] {
            return resolver.count(&PlayedResolver::asked) == resolver.count(&PlayedResolver::left);
        });
    }
    PlayedResolver& resolver = PlayedResolver::instance();
    HiredisConnection c{Endpoint{.host = "redis.example"}, system_runtime(),
                        PlayedResolver::lookup};
};

} // namespace

TEST_CASE("N15 HiredisConnection: a name server that never answers keeps no deadline waiting") {
    const RedisServer server;
    ByName named{{server.port()}};
    named.resolver.answer(false);
    for (int i = 0; i < 3; ++i) {
        const Stopwatch watch;
        const Reply reply = call(named.c, {"PING"}, 150ms);
        CHECK(watch.elapsed() >= 149ms);
        CHECK(watch.elapsed() < 150ms + slack);
        CHECK(line_of(reply) == "unsent");
        CHECK(reply.cause == errc::timed_out);
        CHECK(reply.text.view() == "redis.example:6379: name lookup");
    }
    CHECK(named.resolver.count(&PlayedResolver::asked) == 1); // threads do not pile up
    named.resolver.answer(true);
    CHECK(line_of(call(named.c, {"PING"})) == "+PONG");
}

TEST_CASE("N15 HiredisConnection: destroyed before the name server answers") {
    {
        ByName named{{}};
        named.resolver.answer(false);
        CHECK(line_of(call(named.c, {"PING"}, 20ms)) == "unsent");
        HiredisConnection other{Endpoint{.host = "redis.example"}, system_runtime(),
                                PlayedResolver::lookup};
        CHECK(line_of(call(other, {"PING"}, 20ms)) == "unsent");
        CHECK(eventually([&] { return named.resolver.count(&PlayedResolver::asked) == 2; }));
    }
    CHECK(PlayedResolver::instance().count(&PlayedResolver::left) == 2);
}

TEST_CASE("N15 HiredisConnection: names are looked up anew at each connect") {
    const RedisServer first;
    const RedisServer second;
    ByName named{{first.port()}};
    REQUIRE(line_of(call(named.c, {"SET", "k", "first"})) == "+OK");
    REQUIRE(line_of(call(named.c, {"GET", "k"})) == "$first");
    CHECK(named.resolver.count(&PlayedResolver::asked) == 1);
    named.resolver.reset({second.port()});
    first.client().client_kill_normal();
    CHECK(line_of(call(named.c, {"GET", "k"})) == "nil");
    CHECK(named.resolver.count(&PlayedResolver::asked) == 1);
}

TEST_CASE("N15 HiredisConnection: addresses are tried in turn inside one deadline") {
    const RedisServer server;
    const ReservedPort nobody;
    const DeadEnd nowhere;
    SECTION("refused, dead, alive") {
        ByName named{{nobody.number(), nowhere.port(), server.port()}};
        const Stopwatch watch;
        CHECK(line_of(call(named.c, {"PING"}, 10s)) == "+PONG"); // connect_timeout is 1 s
        CHECK(watch.elapsed() < 1s + slack);
    }
    SECTION("none of them") {
        ByName named{{nowhere.port(), nobody.number()}};
        const Reply reply = call(named.c, {"PING"}, 300ms);
        CHECK(line_of(reply) == "unsent");
        CHECK(reply.cause == std::errc::connection_refused);
    }
    SECTION("there are none") {
        ByName named{{}};
        const Reply reply = call(named.c, {"PING"});
        CHECK(line_of(reply) == "unsent");
        CHECK(reply.cause == errc::no_address);
    }
    SECTION("the name is unknown") {
        ByName named{{server.port()}};
        named.resolver.code = EAI_NONAME;
        const Reply reply = call(named.c, {"PING"});
        CHECK(line_of(reply) == "unsent");
        CHECK(reply.cause == errc::no_address);
        CHECK(reply.text.view() == "redis.example:6379: Name or service not known");
    }
}

TEST_CASE("N15 HiredisConnection: localhost by the system's own resolver") {
    const RedisServer server;
    HiredisConnection c{"redis://localhost:" + std::to_string(server.port())};
    CHECK(line_of(call(c, {"PING"})) == "+PONG");
}

TEST_CASE("N15 P4 HiredisConnection: forked during a lookup, the child waits for no thread") {
    const RedisServer server;
    ByName named{{server.port()}};
    named.resolver.answer(false);
    CHECK(line_of(call(named.c, {"PING"}, 20ms)) == "unsent");
    ChildProcess child{[&] { // the lookup's thread is the parent's
        named.c.~HiredisConnection();
        new (&named.c) HiredisConnection{server.url()};
        return line_of(call(named.c, {"PING"})) == "+PONG" ? 0 : 1;
    }};
    CHECK(child.wait() == ProcessEnd{.code = 0});
    named.resolver.answer(true);
    CHECK(line_of(call(named.c, {"PING"})) == "+PONG");
}

TEST_CASE("N13 HiredisConnection: a reply to a command that has not gone out answers nobody") {
    FalseServer server{[](FalseServer::Peer& peer) {
        peer.send("+OK\r\n+OK\r\n"); // and reads nothing
        peer.pause(20s);
    }};
    HiredisConnection c{server.url() + "?connect_timeout=20s"};
    const std::string big(64'000'000, 'x');
    const auto replies = call_all(c, {{"SET", "a", big}, {"SET", "k", "v"}}, 20s);
    CHECK(line_of(replies[0]) == "unknown");
    CHECK(line_of(replies[1]) == "unsent");
}

TEST_CASE(
    "S3 HiredisConnection: a sign-in that was refused is not refused again without being asked") {
    FalseServer server{[](FalseServer::Peer& peer) {
        (void)peer.expect_command();
        peer.send("-LOADING Redis is loading the dataset in memory\r\n");
    }};
    HiredisConnection c{server.url() + "/3"};
    CHECK(call(c, {"PING"}).kind == Reply::error);
    const Reply late = call(c, {"PING"}, -1ms);
    CHECK(late.kind == Reply::unsent);
    CHECK(late.cause == errc::timed_out);
}

TEST_CASE("HiredisConnection: a second thread is told so, and takes nobody's reply") {
    RedisServer server;
    HiredisConnection c{server.url()};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    server.stop_process();
    Reply first;
    std::thread other{[&] {
        do first = call(c, {"ECHO", "first"}, 20s);
        while (first.cause == errc::in_use);
    }};
    Reply second;
    CHECK(eventually([&] { // the other one is in its call
        second = call(c, {"PING"}, 1ms);
        return second.cause == errc::in_use;
    }));
    CHECK(second.kind == Reply::unsent);
    server.continue_process();
    other.join();
    CHECK(line_of(first) == "$first");
}

TEST_CASE("C5 HiredisConnection: a second thread is told so even when the first has long been over "
          "its time") {
    const RedisServer server;
    HoldingRuntime runtime;
    HiredisConnection c{server.url(), runtime};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    Reply first;
    std::thread other{[&] {
        runtime.hold(std::this_thread::get_id()); // behind its send: it has no other reason to look
        const Words words{"ECHO", "first"};
        const Command command{words, {}};
        c.call({&command, 1}, {&first, 1}, in(20s));
    }};
    CHECK(eventually([&] { return runtime.holds(); }));
    RawClient outside = server.client();
    CHECK(eventually([&] { return outside.command_stats()["echo"] == 1; }));
    CHECK(outside.command({"PING"}) == "PONG"); // a turn later: the answer has been written
    runtime.leap(1h);                           // the machine was suspended
    const Reply second = call(c, {"ECHO", "second"}, 2h);
    CHECK(line_of(second) == "unsent");
    CHECK(second.cause == errc::in_use);
    runtime.hold({});
    other.join();
    CHECK(line_of(first) == "$first");
}

TEST_CASE("HiredisConnection: a call in halves keeps other threads out, but not for good") {
    RedisServer server;
    HiredisConnection c{server.url()};
    REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
    const Words words{"ECHO", "mine"};
    const Command command{words, {}};
    Reply mine;
    server.stop_process(); // or the answer may come before the other thread does
    c.start({&command, 1}, in(20s));
    Reply theirs;
    Reply theirs_in_halves;
    std::thread{[&] {
        theirs = call(c, {"ECHO", "theirs"}, 1s);
        c.start({&command, 1}, in(1s));
        HiredisConnection* const self = &c;
        HiredisConnection::wait_any({&self, 1}, in(1ms));
        while (!c.finish({&theirs_in_halves, 1})) std::this_thread::yield();
    }}.join();
    for (const Reply& reply : {theirs, theirs_in_halves}) {
        CHECK(line_of(reply) == "unsent");
        CHECK(reply.cause == errc::in_use);
    }
    server.continue_process();
    while (!c.finish({&mine, 1})) std::this_thread::sleep_for(1ms);
    CHECK(line_of(mine) == "$mine");

    c.start({&command, 1}, in(-1s)); // never finished, and its time has long been over
    std::thread{[&] {
        (void)eventually([&] {
            theirs = call(c, {"ECHO", "theirs"});
            return theirs.cause != errc::in_use;
        });
    }}.join();
    CHECK(line_of(theirs) == "$theirs");
}
