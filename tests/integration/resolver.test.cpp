// SPDX-License-Identifier: MIT
// What an endpoint asks for beyond an address: a resolver, a master, a name, a keepalive.
#include "connection_contract.hpp"
#include "story.hpp"
#include "support/dead_name_server.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace leaselock;
using namespace leaselock::test;
using namespace leaselock::test::contract;
using namespace std::chrono_literals;

namespace {

ServerAddress there(std::string_view host, std::uint16_t port) { return {host, port}; }

/// Says what the test tells it to, and keeps what it was told.
class Directory final : public Resolver {
public:
    explicit Directory(std::uint16_t port) { name(port); }

    void name(std::uint16_t port) { answer({Answer::yes}, there("127.0.0.1", port)); }
    void answer(Outcome outcome, ServerAddress where = {}) {
        const std::lock_guard guard{mutex_};
        outcome_ = outcome;
        where_ = where;
    }
    void block() {
        const std::lock_guard guard{mutex_};
        blocked_ = true;
    }
    void release() {
        const std::lock_guard guard{mutex_};
        blocked_ = false;
        released_.notify_all();
    }

    Outcome resolve(ServerAddress& where) noexcept override {
        std::unique_lock guard{mutex_};
        ++asked_;
        released_.wait(guard, [&] { return !blocked_; });
        where = where_;
        return outcome_;
    }
    void on_failure(const ServerAddress& where, const std::error_code& cause) noexcept override {
        const std::lock_guard guard{mutex_};
        failures_.emplace_back(where.port, cause);
    }

    [[nodiscard]] int asked() const {
        const std::lock_guard guard{mutex_};
        return asked_;
    }
    [[nodiscard]] std::vector<std::pair<int, std::error_code>> failures() const {
        const std::lock_guard guard{mutex_};
        return failures_;
    }

private:
    mutable std::mutex mutex_;
    std::condition_variable released_;
    Outcome outcome_;
    ServerAddress where_;
    bool blocked_ = false;
    int asked_ = 0;
    std::vector<std::pair<int, std::error_code>> failures_;
};

Endpoint by(std::shared_ptr<Directory> directory) {
    Endpoint endpoint;
    endpoint.connect_timeout = 20s;
    endpoint.resolver = std::move(directory);
    return endpoint;
}

Endpoint at(const RedisServer& server) {
    Endpoint endpoint;
    endpoint.port = server.port();
    endpoint.connect_timeout = 20s;
    return endpoint;
}

std::ptrdiff_t threads() {
    return std::distance(std::filesystem::directory_iterator{"/proc/self/task"}, {});
}

/// Our end of the connection to that port; -1 when there is none.
int socket_to_port(std::uint16_t port) {
    for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
        const int number = std::stoi(entry.path().filename());
        sockaddr_in peer{};
        socklen_t size = sizeof peer;
        if (getpeername(number, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
            peer.sin_family == AF_INET && ntohs(peer.sin_port) == port) {
            return number;
        }
    }
    return -1;
}

int option_of(int socket, int level, int name) {
    int value = -1;
    socklen_t size = sizeof value;
    return getsockopt(socket, level, name, &value, &size) == 0 ? value : -1;
}

RedisServer& make_replica(RedisServer& server, const RedisServer& master) {
    server.client().expect_ok({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
    return server;
}

} // namespace

TEMPLATE_TEST_CASE("N15 Resolver: it is asked at each connect, and only then", "",
                   HiredisConnection, MultiplexedConnection) {
    RedisServer first;
    RedisServer second;
    const auto directory = std::make_shared<Directory>(first.port());
    TestType c{by(directory)};
    REQUIRE(line_of(call(c, {"SET", "at", "first"})) == "+OK");
    REQUIRE(line_of(call(c, {"GET", "at"})) == "$first");
    CHECK(directory->asked() == 1);

    directory->name(second.port());
    CHECK(line_of(call(c, {"GET", "at"})) == "$first"); // the stream stands
    first.client().client_kill_normal();
    CHECK(line_of(call(c, {"GET", "at"})) == "nil");
    CHECK(directory->asked() == 2);
    CHECK(directory->failures().empty());

    second.kill_hard();
    const Reply gone = call(c, {"GET", "at"});
    CHECK(line_of(gone) == "unsent");
    CHECK(gone.text.view() == "127.0.0.1:" + std::to_string(second.port()));
    REQUIRE(directory->failures().size() == 1);
    CHECK(directory->failures().front().first == second.port());
    CHECK(directory->failures().front().second == std::errc::connection_refused);
}

TEMPLATE_TEST_CASE("N15 Resolver: one that blocks costs no more than the deadline, and one thread",
                   "", HiredisConnection, MultiplexedConnection) {
    RedisServer server;
    const auto directory = std::make_shared<Directory>(server.port());
    TestType c{by(directory)};
    directory->block();
    std::thread{[] {}}.join(); // with the first thread ThreadSanitizer starts one of its own
    const auto before = threads();
    for (int i = 0; i < 4; ++i) {
        const Stopwatch watch;
        const Reply reply = call(c, {"PING"}, 100ms);
        CHECK(watch.elapsed() >= 100ms);
        CHECK(watch.elapsed() < 100ms + slack);
        CHECK(line_of(reply) == "unsent");
        CHECK(reply.cause == errc::timed_out);
        CHECK(threads() == before + 1);
    }
    CHECK(directory->asked() == 1);
    directory->release();
    CHECK(line_of(call(c, {"PING"}, 20s)) == "+PONG");
    CHECK(eventually([&] { return threads() == before; }));
}

TEST_CASE("N15 Resolver: one that still blocks outlives its connection") {
    const auto directory = std::make_shared<Directory>(std::uint16_t{1});
    directory->block();
    {
        HiredisConnection c{by(directory)};
        const Reply reply = call(c, {"PING"}, 50ms);
        CHECK(reply.text.view() == "resolver");
    }
    CHECK(directory.use_count() == 2); // the thread's
    directory->release();
    CHECK(eventually([&] { return directory.use_count() == 1; }));
}

/// Two that no name server can tell us of.
std::vector<Endpoint> unheard_of() {
    return {Endpoint{.host = "a.example"}, Endpoint{.host = "b.example"}};
}

TEST_CASE("N15 ClusterConnection: a dead name server costs a thread for each seed, and no more") {
    const DeadNameServer dns;
    const std::vector<Endpoint> seeds = unheard_of();
    ClusterConnection c{seeds, system_runtime(), MultiplexedConnection::default_silence,
                        DeadNameServer::look_up};
    for (int i = 0; i < 8; ++i) CHECK(line_of(call(c, {"PING"}, 50ms)) == "unsent");
    CHECK(DeadNameServer::askers() <= seeds.size());
    CHECK(eventually([] { return DeadNameServer::askers() != 0; }));
}

TEST_CASE("N15 Sentinel: a dead name server costs a thread for each sentinel, and no more") {
    const DeadNameServer dns;
    Sentinel sentinels{unheard_of(), "mymaster", 50ms, DeadNameServer::look_up};
    ServerAddress where;
    for (int i = 0; i < 8; ++i) CHECK_FALSE(sentinels.resolve(where));
    CHECK(DeadNameServer::askers() <= 2);
    CHECK(eventually([] { return DeadNameServer::askers() == 2; }));
}

TEST_CASE("N15 P4 Sentinel: a forked child does not wait for its parent's lookups") {
    static const pid_t parent = getpid();
    const DeadNameServer dns;
    Sentinel sentinels{unheard_of(), "mymaster", 200ms,
                       [](const char* host, std::uint16_t port, detail::AddressList& found) {
                           if (getpid() != parent) return EAI_NONAME;
                           return DeadNameServer::look_up(host, port, found);
                       }};
    ServerAddress where;
    CHECK(sentinels.resolve(where).cause == errc::timed_out);
    CHECK(eventually([] { return DeadNameServer::askers() == 2; }));
    ChildProcess child{[&] {
        ServerAddress there_too;
        return sentinels.resolve(there_too).cause == errc::no_address ? 0 : 1;
    }};
    CHECK(child.wait() == ProcessEnd{.code = 0});
}

TEMPLATE_TEST_CASE("Resolver: its own cause and words come through", "", HiredisConnection,
                   MultiplexedConnection) {
    const auto directory = std::make_shared<Directory>(std::uint16_t{1});
    TestType c{by(directory)};
    directory->answer({Answer::refused, errc::no_permission, "the directory says no"});
    const Reply reply = call(c, {"PING"});
    CHECK(line_of(reply) == "unsent");
    CHECK(reply.cause == errc::no_permission);
    CHECK(reply.text.view() == "resolver: the directory says no");
}

TEST_CASE("Resolver: what is no host or no port is not connected to") {
    RedisServer server;
    const auto directory = std::make_shared<Directory>(server.port());
    HiredisConnection c{by(directory)};
    const std::string longest(253, 'a');
    for (const ServerAddress& nowhere :
         {ServerAddress{}, there("127.0.0.1", 0), there("", server.port()),
          there({"127.0.0.1\0.example.org", 22}, server.port()), there("127.0.0.1 ", server.port()),
          there("[::1]", server.port()), there(longest + "a", server.port())}) {
        directory->answer({Answer::yes}, nowhere);
        const Reply reply = call(c, {"PING"});
        CHECK(line_of(reply) == "unsent");
        CHECK(reply.cause == errc::no_address);
        CHECK(reply.text.view() == "resolver: no host, or no port");
    }
    directory->answer({Answer::yes}, there("localhost", server.port()));
    CHECK(line_of(call(c, {"PING"})) == "+PONG");
}

TEST_CASE("Resolver: none names a unix socket") {
    Endpoint endpoint = by(std::make_shared<Directory>(std::uint16_t{1}));
    endpoint.unix_path = "/run/redis.sock";
    HiredisConnection c{endpoint};
    const Reply reply = call(c, {"PING"});
    CHECK(reply.cause == errc::invalid_argument);
    CHECK(reply.text.view().starts_with("endpoint: resolver: "));
}

TEMPLATE_TEST_CASE("S24 Endpoint: a replica is not used where it must be a master", "",
                   HiredisConnection, MultiplexedConnection) {
    RedisServer master;
    RedisServer server;
    make_replica(server, master);
    Endpoint endpoint = at(server);
    endpoint.must_be_master = true;
    TestType c{endpoint};
    for (int i = 0; i < 2; ++i) {
        const Reply reply = call(c, {"GET", "k"}); // a replica would answer
        CHECK(line_of(reply) == "unsent");
        CHECK(reply.cause == errc::not_master);
        CHECK(reply.cause == condition::not_ready);
        CHECK(reply.text.view() ==
              "127.0.0.1:" + std::to_string(server.port()) + ": the server found is no master");
    }
    CHECK(server.client().command_stats().count("get") == 0);
    server.client().expect_ok({"REPLICAOF", "NO", "ONE"});
    CHECK(line_of(call(c, {"SET", "k", "v"})) == "+OK");
}

TEMPLATE_TEST_CASE("S11 S13 S15 Resolver: asked anew behind READONLY, MASTERDOWN and NOREPLICAS",
                   "", HiredisConnection, MultiplexedConnection) {
    RedisServer master;
    RedisServer server;
    const auto directory = std::make_shared<Directory>(server.port());
    TestType c{by(directory)};
    REQUIRE(line_of(call(c, {"SET", "k", "v"})) == "+OK");
    RawClient outside = server.client();
    std::string expected = "-READONLY";
    Words words{"SET", "k", "w"};
    SECTION("READONLY") { make_replica(server, master); }
    SECTION("MASTERDOWN") {
        outside.config_set("replica-serve-stale-data", "no");
        outside.expect_ok({"REPLICAOF", "127.0.0.1", "1"}); // nobody's port
        expected = "-MASTERDOWN";
        words = {"GET", "k"};
    }
    SECTION("NOREPLICAS") {
        outside.config_set("min-replicas-to-write", "1");
        expected = "-NOREPLICAS";
    }
    REQUIRE(line_of(call(c, words)).starts_with(expected));
    CHECK(directory->asked() == 1);
    directory->name(master.port());
    CHECK(line_of(call(c, {"SET", "k", "there"})) == "+OK");
    CHECK(directory->asked() == 2);
    CHECK(master.client().get("k") == "there");
}

TEST_CASE("Endpoint: the client's name is set, or done without where that is not permitted") {
    RedisServer server;
    Endpoint endpoint = at(server);
    endpoint.client_name = "orders-7";
    HiredisConnection named{endpoint};
    CHECK(call(named, {"CLIENT", "GETNAME"}).text.view() == "orders-7");
    server.client().client_kill_normal();
    CHECK(call(named, {"CLIENT", "GETNAME"}).text.view() == "orders-7"); // at each connect

    server.client().expect_ok(
        {"ACL", "SETUSER", "worker", "on", ">x", "~*", "+@all", "-client|setname"});
    endpoint.user = "worker";
    endpoint.password = "x";
    HiredisConnection nameless{endpoint};
    CHECK(line_of(call(nameless, {"SET", "k", "v"})) == "+OK");
    const Reply name = call(nameless, {"CLIENT", "GETNAME"});
    CHECK(name.text.view().empty());
}

TEST_CASE("N11 Endpoint: keepalive reaches the socket") {
    RedisServer server;
    Endpoint endpoint = at(server);
    for (const std::chrono::seconds keepalive : {0s, 1s, 15s, 60s, 32'767s}) {
        endpoint.keepalive = keepalive;
        HiredisConnection c{endpoint};
        REQUIRE(line_of(call(c, {"PING"})) == "+PONG");
        const int socket = socket_to_port(server.port());
        REQUIRE(socket >= 0);
        CHECK(option_of(socket, SOL_SOCKET, SO_KEEPALIVE) == (keepalive == 0s ? 0 : 1));
        if (keepalive == 0s) continue;
        CHECK(option_of(socket, IPPROTO_TCP, TCP_KEEPIDLE) == keepalive.count());
        const int interval = option_of(socket, IPPROTO_TCP, TCP_KEEPINTVL);
        const int probes = option_of(socket, IPPROTO_TCP, TCP_KEEPCNT);
        CHECK(interval >= 1);
        CHECK(probes >= 1);
        CHECK(interval * probes <= std::max<std::int64_t>(keepalive.count(), 3));
    }
}
