// SPDX-License-Identifier: MIT
// Each fault lever has to bite a plain hiredis client, or the tests that pull it prove nothing.
#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/dead_end.hpp"
#include "support/eventually.hpp"
#include "support/false_server.hpp"
#include "support/fault_proxy.hpp"
#include "support/pipe.hpp"
#include "support/raw_client.hpp"
#include "support/redis_cluster.hpp"
#include "support/redis_server.hpp"
#include "support/signal_storm.hpp"

#include <hiredis/hiredis.h>

#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

/// hiredis as it comes, with a time limit for each read.
class PlainClient {
public:
    explicit PlainClient(std::uint16_t port, std::chrono::milliseconds limit = 2s)
        : context_{redisConnectWithTimeout("127.0.0.1", port, timeval_of(limit)), redisFree} {
        if (context_->err == 0) {
            redisSetTimeout(context_.get(), timeval_of(limit));
        }
    }

    /// The reply's text, or "" when there is none.
    std::string operator()(const std::vector<const char*>& words) {
        append(words);
        return next_reply();
    }

    void append(std::vector<const char*> words) {
        redisAppendCommandArgv(context_.get(), static_cast<int>(words.size()), words.data(),
                               nullptr);
    }

    std::string next_reply() {
        void* raw = nullptr;
        if (redisGetReply(context_.get(), &raw) != REDIS_OK) {
            return "";
        }
        const std::unique_ptr<void, decltype(&freeReplyObject)> owner{raw, freeReplyObject};
        const auto& reply = *static_cast<redisReply*>(raw);
        return reply.type == REDIS_REPLY_NIL ? "(nil)" : reply.str;
    }

    [[nodiscard]] bool broken() const { return context_->err != 0; }
    [[nodiscard]] std::string error() const { return context_->errstr; }

private:
    static timeval timeval_of(std::chrono::milliseconds limit) {
        return {static_cast<time_t>(limit.count() / 1000),
                static_cast<suseconds_t>(limit.count() % 1000 * 1000)};
    }

    std::unique_ptr<redisContext, decltype(&redisFree)> context_;
};

bool process_exists(pid_t pid) { return kill(pid, 0) == 0; }

/// What the process has open, by the names in /proc.
std::vector<std::string> open_files(pid_t pid) {
    std::vector<std::string> names;
    for (const auto& entry :
         std::filesystem::directory_iterator{"/proc/" + std::to_string(pid) + "/fd"}) {
        std::error_code closed_meanwhile;
        names.push_back(std::filesystem::read_symlink(entry.path(), closed_meanwhile));
    }
    return names;
}

} // namespace

TEST_CASE("support: a server has a port, a socket and a folder of its own, and leaves nothing") {
    std::filesystem::path folder;
    pid_t pid = 0;
    {
        RedisServer server;
        RedisServer other;
        folder = server.folder();
        pid = server.pid();
        REQUIRE(server.port() != other.port());
        REQUIRE(server.client().command({"SET", "k", "v"}) == "OK");
        REQUIRE(RawClient{server.unix_path()}.get("k") == "v");
        REQUIRE_FALSE(other.client().exists("k"));
        REQUIRE(server.url() == "redis://127.0.0.1:" + std::to_string(server.port()));
        REQUIRE(server.log().find(std::to_string(server.port())) != std::string::npos);
        REQUIRE(RedisServer::major_version() > 0);
    }
    REQUIRE_FALSE(process_exists(pid));
    REQUIRE_FALSE(std::filesystem::exists(folder));
}

TEST_CASE("support: a server restarts on its port, and forgets or not as configured") {
    const bool keeps = GENERATE(false, true);
    RedisServer server{
        keeps ? std::vector<std::string>{"--appendonly", "yes", "--appendfsync", "always"}
              : std::vector<std::string>{}};
    const auto port = server.port();
    auto client = server.client();
    client.expect_ok({"SET", "k", "v"});

    server.kill_hard();
    REQUIRE(PlainClient{port}.broken());
    REQUIRE_THROWS_AS(server.pid(), std::runtime_error);
    REQUIRE_THROWS_AS(client.command({"PING"}), std::runtime_error);

    server.restart();
    REQUIRE(server.port() == port);
    REQUIRE(client.exists("k") == keeps);
    server.restart();
    REQUIRE(client.exists("k") == keeps);
}

TEST_CASE("support: a server takes a password and further arguments, and reports bad ones") {
    RedisServer server{{"--maxclients", "1"}, "secret"};
    REQUIRE(server.url() == "redis://:secret@127.0.0.1:" + std::to_string(server.port()));
    auto client = server.client();
    REQUIRE(client.command({"PING"}) == "PONG");
    PlainClient second{server.port()};
    REQUIRE(second({"PING"}) == "ERR max number of clients reached");
    client.config_set("maxclients", "10");
    REQUIRE(RawClient{server.port()}.command({"PING"}).starts_with("(error) NOAUTH"));

    try {
        const RedisServer broken{{"--no-such-setting", "1"}};
        FAIL("a bad argument has to be noticed");
    } catch (const std::runtime_error& error) {
        REQUIRE(std::string{error.what()}.find("no-such-setting") != std::string::npos);
    }
}

TEST_CASE("support: a server can be a node of a cluster") {
    RedisServer server{{"--cluster-enabled", "yes"}};
    REQUIRE(server.client().integer({"CLUSTER", "KEYSLOT", "{a}b"}) == 15495);
}

TEST_CASE("support: a server inherits no descriptor, and dies with the test") {
    const FileDescriptor inheritable{open("/proc/self/status", O_RDONLY)};
    Pipe pipe;
    ChildProcess child{[&] {
        RedisServer server;
        pipe.write_line(std::to_string(server.pid()));
        pipe.write_line(server.folder().string());
        pause();
    }};
    const auto server = static_cast<pid_t>(std::stol(pipe.read_line()));
    const std::filesystem::path folder = pipe.read_line();
    const auto files = open_files(server);
    REQUIRE(std::none_of(files.begin(), files.end(), [](const std::string& name) {
        return name.find("/status") != std::string::npos;
    }));
    child.kill();
    const bool gone = eventually([&] {
        // Nobody may be there to reap it: a dead process without memory will do.
        std::error_code ignored;
        return !process_exists(server) ||
               std::filesystem::read_symlink("/proc/" + std::to_string(server) + "/exe", ignored)
                   .empty();
    });
    REQUIRE(gone);
    std::filesystem::remove_all(folder);
}

TEST_CASE("support: STOP lets a SET land after its client has given up") {
    RedisServer server;
    PlainClient client{server.port(), 100ms};
    server.stop_process();
    REQUIRE(client({"SET", "k", "v"}).empty());
    REQUIRE(client.broken());
    server.continue_process();
    auto outside = server.client();
    REQUIRE(eventually([&] { return outside.exists("k"); }));
}

TEST_CASE("support: the raw client shows what the server says") {
    RedisServer server;
    auto client = server.client();
    const std::string bytes{"a\0b\r\n%s", 8};
    REQUIRE(client.command({"SET", bytes, bytes, "PX", "50000"}) == "OK");
    REQUIRE(client.get(bytes) == bytes);
    REQUIRE(client.pttl(bytes) > 40000);
    REQUIRE(client.pttl("none") == -2);
    REQUIRE_FALSE(client.get("none").has_value());
    REQUIRE(client.command({"GET", "none"}) == "(nil)");
    REQUIRE(client.command({"NOSUCH"}).starts_with("(error) ERR unknown command"));
    REQUIRE(client.eval("return {KEYS[1],ARGV[1],3,false}", {"k"}, {"v"}) ==
            "[k, v, (integer) 3, (nil)]");
    REQUIRE_THROWS_AS(client.integer({"PING"}), std::runtime_error);
    REQUIRE_THROWS_AS(client.config_set("no-such-setting", "1"), std::runtime_error);

    client.reset_stats();
    static_cast<void>(client.get("none"));
    static_cast<void>(client.get("none"));
    auto stats = client.command_stats();
    REQUIRE(stats["get"] == 2);
    REQUIRE(stats.count("set") == 0);
}

TEST_CASE("support: CLIENT KILL ends the others, and the raw client comes back") {
    RedisServer server;
    auto client = server.client();
    auto victim = server.client();
    REQUIRE(victim.command({"PING"}) == "PONG");
    const auto ids = client.client_ids();
    REQUIRE(ids.size() == 1);
    REQUIRE(client.client_kill_normal() == 1);
    REQUIRE(client.client_ids().empty());
    REQUIRE(victim.command({"PING"}) == "PONG");
    REQUIRE(client.client_ids().size() == 1);
    REQUIRE(client.client_ids() != ids);
}

TEST_CASE("support: the raw client gives up in time, and takes no late reply for the next") {
    RedisServer server;
    auto client = server.client();
    client.set_timeout(100ms);
    const SignalStorm storm{20ms};
    REQUIRE_THROWS_AS(client.command({"DEBUG", "SLEEP", "0.3"}), std::runtime_error);
    client.set_timeout(10s);
    REQUIRE(client.command({"PING"}) == "PONG");
}

TEST_CASE("support: the proxy passes, and counts") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    PlainClient client{proxy.port()};
    client.append({"set", "k", "v"});
    client.append({"GET", "k"});
    REQUIRE(client.next_reply() == "OK");
    REQUIRE(client.next_reply() == "v");
    auto traffic = proxy.traffic();
    REQUIRE(traffic.connections == 1);
    REQUIRE(traffic.open == 1);
    REQUIRE(traffic.reads == 1);
    REQUIRE(traffic.round_trips == 1);
    REQUIRE(traffic.names() == std::vector<std::string>{"SET", "GET"});
    REQUIRE(traffic.requests[0] == std::vector<std::string>{"set", "k", "v"});
    REQUIRE(traffic.count("SET") == 1);
    REQUIRE(traffic.server_bytes == std::string_view{"+OK\r\n$1\r\nv\r\n"}.size());

    REQUIRE(client({"GET", "k"}) == "v");
    REQUIRE(proxy.traffic().round_trips == 2);
    proxy.reset_traffic();
    REQUIRE(proxy.traffic().requests.empty());
    REQUIRE(proxy.traffic().open == 1);

    const std::string large(1'000'000, 'x');
    REQUIRE(client({"SET", "large", large.c_str()}) == "OK");
    const bool arrived_whole = client({"GET", "large"}) == large; // not for a failure's report
    REQUIRE(arrived_whole);
}

TEST_CASE("support: the proxy loses requests, replies, or both") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    auto outside = server.client();
    PlainClient client{proxy.port(), 100ms};
    bool arrives = false;
    SECTION("requests") { proxy.drop_requests(); }
    SECTION("replies") {
        proxy.drop_replies();
        arrives = true;
    }
    SECTION("both") {
        REQUIRE(client({"PING"}) == "PONG");
        proxy.black_hole();
    }
    REQUIRE(client({"SET", "k", "v"}).empty());
    REQUIRE(proxy.traffic().names().back() == "SET");
    REQUIRE(proxy.traffic().open == 1);
    REQUIRE(outside.client_ids().size() == 1);
    REQUIRE(outside.exists("k") == arrives);
    proxy.pass();
    REQUIRE(PlainClient{proxy.port()}({"PING"}) == "PONG");
}

TEST_CASE("support: the proxy slows traffic down") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    PlainClient client{proxy.port()};
    SECTION("a delay counts in both directions") { proxy.delay(60ms); }
    SECTION("a byte at a time") { proxy.drip(20ms); } // +PONG and a line end: 6 waits
    SECTION("one direction") { proxy.delay_requests(120ms); }
    SECTION("the other direction") { proxy.delay_replies(120ms); }
    SECTION("a byte of the request at a time") { proxy.drip_requests(10ms); } // 14 bytes
    const Stopwatch watch;
    REQUIRE(client({"PING"}) == "PONG");
    REQUIRE(watch.elapsed() >= 115ms);
    proxy.pass();
    const Stopwatch fast;
    REQUIRE(client({"PING"}) == "PONG");
    REQUIRE(fast.elapsed() < 100ms);
}

TEST_CASE("support: a delay is in the direction that was asked for") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    PlainClient client{proxy.port(), 150ms};
    auto outside = server.client();
    bool arrives = false;
    SECTION("to the server") { proxy.delay_requests(1h); }
    SECTION("to the server, byte by byte") { proxy.drip_requests(1h); }
    SECTION("back from it") {
        proxy.delay_replies(1h);
        arrives = true;
    }
    REQUIRE(client({"SET", "k", "v"}).empty());
    REQUIRE(proxy.traffic().count("SET") == 1);
    REQUIRE(outside.exists("k") == arrives);
    proxy.pass();
    proxy.cut();
    PlainClient again{proxy.port()};
    REQUIRE(again({"PING"}) == "PONG");
}

TEST_CASE("support: a proxy leads new connections to another server") {
    RedisServer server;
    RedisServer other;
    FaultProxy proxy{server.port()};
    PlainClient early{proxy.port()};
    REQUIRE(early({"SET", "k", "v"}) == "OK");
    proxy.forward_to(other.port());
    REQUIRE(early({"GET", "k"}) == "v");
    PlainClient late{proxy.port()};
    REQUIRE(late({"SET", "k", "w"}) == "OK");
    REQUIRE(other.client().get("k") == "w");
    REQUIRE(early({"GET", "k"}) == "v");
}

TEST_CASE("support: a dripped reply outlives the time limit of hiredis") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    PlainClient client{proxy.port(), 60ms};
    proxy.drip(30ms);
    const Stopwatch watch;
    REQUIRE(client({"PING"}) == "PONG");
    REQUIRE(watch.elapsed() > 120ms);
}

TEST_CASE("support: the proxy cuts connections") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    PlainClient client{proxy.port()};
    REQUIRE(client({"SET", "k", "0123456789"}) == "OK");
    SECTION("now") {
        proxy.cut();
        REQUIRE(proxy.traffic().open == 0);
        REQUIRE(client({"GET", "k"}).empty());
    }
    SECTION("in the middle of a reply") {
        proxy.cut_after_reply_bytes(8);
        REQUIRE(client({"GET", "k"}).empty());
    }
    SECTION("behind a byte of a dripped reply") {
        proxy.drip(1ms);
        proxy.cut_after_reply_bytes(1);
        REQUIRE(client({"GET", "k"}).empty());
    }
    REQUIRE(client.error() == "Connection reset by peer");
    auto outside = server.client();
    REQUIRE(eventually([&] { return outside.client_ids().empty(); }));
    REQUIRE(PlainClient{proxy.port()}({"GET", "k"}) == "0123456789");
}

TEST_CASE("support: the proxy refuses new connections for a while") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    PlainClient early{proxy.port()};
    proxy.refuse();
    REQUIRE(PlainClient{proxy.port()}.error() == "Connection refused");
    REQUIRE(early({"PING"}) == "PONG");
    proxy.accept_again();
    REQUIRE(PlainClient{proxy.port()}({"PING"}) == "PONG");
}

TEST_CASE("support: the proxy's rules pick single commands") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    auto outside = server.client();
    PlainClient client{proxy.port(), 150ms};
    const auto attempt = [&] { return client({"SET", "k", "v"}); };
    SECTION("its request is lost, by name") {
        proxy.on_command("set", Fault::drop_request);
        REQUIRE(attempt().empty());
        REQUIRE_FALSE(outside.exists("k"));
    }
    SECTION("its reply is lost, by an argument") {
        proxy.on_command("v", Fault::drop_reply);
        REQUIRE(client({"SET", "other", "w"}) == "OK");
        REQUIRE(attempt().empty());
        REQUIRE(outside.exists("k"));
    }
    SECTION("the connection is cut before it") {
        proxy.on_command("SET", Fault::cut_request);
        REQUIRE(attempt().empty());
        REQUIRE(client.error() == "Connection reset by peer");
        REQUIRE_FALSE(outside.exists("k"));
    }
    SECTION("the connection is cut behind it") {
        proxy.on_command("SET", Fault::cut_reply);
        REQUIRE(attempt().empty());
        REQUIRE(client.error() == "Connection reset by peer");
        REQUIRE(outside.exists("k"));
    }
    SECTION("only one reply of a batch is lost") {
        proxy.on_command("SET", Fault::drop_reply);
        client.append({"PING"});
        client.append({"SET", "k", "v"});
        REQUIRE(client.next_reply() == "PONG");
        REQUIRE(client.next_reply().empty());
        REQUIRE(outside.exists("k"));
    }
    REQUIRE(PlainClient{proxy.port()}({"SET", "k", "v"}) == "OK"); // once
}

TEST_CASE("support: a held request arrives when it is told to") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    auto outside = server.client();
    proxy.on_command("SET", Fault::hold_request);
    SECTION("to a client that waits") {
        PlainClient client{proxy.port()};
        client.append({"SET", "k", "v"});
        client.append({"GET", "k"});
        auto replies = std::async(std::launch::async, [&] {
            return std::vector{client.next_reply(), client.next_reply()};
        });
        REQUIRE(eventually([&] { return proxy.held() == 1; }));
        REQUIRE_FALSE(outside.exists("k"));
        REQUIRE(proxy.deliver_held() == 1);
        REQUIRE(replies.get() == std::vector<std::string>{"OK", "v"});
    }
    SECTION("though its client has left") {
        REQUIRE(PlainClient{proxy.port(), 50ms}({"SET", "k", "v"}).empty());
        REQUIRE(eventually([&] { return proxy.traffic().open == 0; }));
        REQUIRE(proxy.held() == 1);
        REQUIRE_FALSE(outside.exists("k"));
        REQUIRE(proxy.deliver_held() == 1);
        REQUIRE(eventually([&] { return outside.exists("k"); }));
        REQUIRE(eventually([&] { return outside.client_ids().empty(); }));
    }
    REQUIRE(proxy.held() == 0);
}

TEST_CASE("support: a false server says what it is told to") {
    SECTION("one reply per command, for every connection") {
        FalseServer server{{"+OK\r\n", "$1\r\nv\r\n"}};
        for (int i = 0; i < 2; ++i) {
            PlainClient client{server.port(), 100ms};
            REQUIRE(client({"SET", "k", "v"}) == "OK");
            REQUIRE(client({"GET", "k"}) == "v");
            REQUIRE(client({"GET", "k"}).empty());
            REQUIRE(client.broken());
        }
        REQUIRE(server.connections() == 2);
        REQUIRE(server.received().find("$3\r\nSET\r\n") != std::string::npos);
    }
    SECTION("garbage") {
        FalseServer server{{"HTTP/1.1 400 Bad Request\r\n\r\n"}};
        PlainClient client{server.port()};
        REQUIRE(client({"PING"}).empty());
        REQUIRE(client.error().find("Protocol error") != std::string::npos);
    }
    SECTION("a reply too many, which hiredis takes for the next command's") {
        FalseServer server{{"+OK\r\n+PONG\r\n"}};
        PlainClient client{server.port()};
        REQUIRE(client({"SET", "k", "v"}) == "OK");
        REQUIRE(client({"SET", "k", "w"}) == "PONG");
    }
    SECTION("a script: drip, half a reply, reset") {
        FalseServer server{[](FalseServer::Peer& peer) {
            const auto words = peer.expect_command();
            peer.drip("+" + words.at(1) + "\r\n", 10ms);
            peer.expect_command();
            peer.send("$10\r\nhal");
            peer.reset();
        }};
        PlainClient client{server.port()};
        const Stopwatch watch;
        REQUIRE(client({"ECHO", "words"}) == "words");
        REQUIRE(watch.elapsed() >= 60ms);
        REQUIRE(client({"PING"}).empty());
        REQUIRE(client.error() == "Connection reset by peer");
    }
    SECTION("nothing: it can be destroyed in the middle of a script") {
        Stopwatch watch;
        {
            FalseServer server{[](FalseServer::Peer& peer) { peer.pause(1h); }};
            const PlainClient client{server.port()};
            REQUIRE(eventually([&] { return server.connections() == 1; }));
        }
        REQUIRE(watch.elapsed() < 5s);
    }
}

TEST_CASE("support: connecting to a dead end goes nowhere") {
    const DeadEnd end;
    const Stopwatch watch;
    const PlainClient client{end.port(), 100ms};
    REQUIRE(client.broken());
    REQUIRE(client.error() != "Connection refused");
    REQUIRE(watch.elapsed() >= 100ms);
}

TEST_CASE("support: a child process tells how it ended") {
    REQUIRE(ChildProcess{[] {}}.wait() == ProcessEnd{0, 0});
    REQUIRE(ChildProcess{[] { return 7; }}.wait() == ProcessEnd{7, 0});
    REQUIRE(ChildProcess{[] { std::raise(SIGTERM); }}.wait() == ProcessEnd{-1, SIGTERM});
    REQUIRE(ChildProcess{[] { throw std::runtime_error("on purpose"); }}.wait() ==
            ProcessEnd{ChildProcess::exception_code, 0});
    const auto time_limit = [] {
        ChildProcess sleeper{[] { pause(); }};
        sleeper.wait(20ms);
    };
    REQUIRE_THROWS_AS(time_limit(), std::runtime_error);
}

TEST_CASE("support: a child process stops, goes on and dies on demand") {
    Pipe pipe;
    ChildProcess child{[&] {
        for (;;) {
            pipe.write_line("tick");
            usleep(1000);
        }
    }};
    REQUIRE(pipe.read_line() == "tick");
    child.stop();
    const auto drain = [&] {
        for (;;) {
            static_cast<void>(pipe.read_line(50ms));
        }
    };
    REQUIRE_THROWS_WITH(drain(), "no line came through the pipe within 50 ms");
    REQUIRE(child.running());
    child.resume();
    REQUIRE(pipe.read_line() == "tick");
    child.kill();
    REQUIRE(child.wait() == ProcessEnd{-1, SIGKILL});
    pipe.close_write();
    REQUIRE_THROWS_WITH(drain(), "the pipe ended before a line was complete");
}

TEST_CASE("support: a signal storm interrupts, and ends") {
    const auto interrupted = [](std::chrono::milliseconds time) {
        const timespec span{0, static_cast<long>(std::chrono::nanoseconds{time}.count())};
        return nanosleep(&span, nullptr) != 0 && errno == EINTR;
    };
    const auto alarm_action = [] {
        struct sigaction now {};
        sigaction(SIGALRM, nullptr, &now);
        return now;
    };
    {
        const SignalStorm storm{10ms};
        REQUIRE(interrupted(900ms));
        REQUIRE(interrupted(900ms));
        REQUIRE((alarm_action().sa_flags & SA_RESTART) == 0);
    }
    REQUIRE_FALSE(interrupted(50ms));
    REQUIRE(alarm_action().sa_handler == SIG_DFL);
}

TEST_CASE("support: eventually gives up at its limit") {
    const Stopwatch watch;
    REQUIRE_FALSE(eventually([] { return false; }, 30ms));
    REQUIRE(watch.elapsed() >= 30ms);
}

TEST_CASE("LEASELOCK_TEST_WITHOUT_GETEX takes GETEX away, but where a story is about it") {
    constexpr const char* name = "LEASELOCK_TEST_WITHOUT_GETEX";
    const char* before = std::getenv(name);
    const std::string kept = before != nullptr ? before : "";
    for (const bool wanted : {true, false}) {
        INFO(wanted);
        REQUIRE(setenv(name, wanted ? "1" : "", 1) == 0);
        CHECK(RedisServer{}.has_getex() == !wanted);
        CHECK(RedisServer{{"--maxmemory", "100mb"}, "secret"}.has_getex() == !wanted);
        CHECK(RedisServer{with_getex}.has_getex());
        CHECK_FALSE(RedisServer{without_getex}.has_getex());
        const RedisCluster cluster{{.masters = 1}};
        CHECK(cluster.client(0).command({"GETEX"}).starts_with("(error) ERR unknown command") ==
              wanted);
    }
    REQUIRE(setenv(name, kept.c_str(), 1) == 0);
}
