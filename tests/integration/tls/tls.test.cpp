// SPDX-License-Identifier: MIT
#include "tls_story.hpp"

#include "../support/pipe.hpp"

#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/renewer.hpp>

#include <openssl/conf.h>
#include <openssl/err.h>

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace leaselock;
using namespace leaselock::test;
using namespace leaselock::test::contract;
using namespace std::chrono_literals;

namespace {

constexpr Options patient{.ttl = 60s, .timeout = 20s};

std::string words_of(const Reply& reply) { return std::string{reply.text.view()}; }

/// No word has been said to the server but those of the handshake, and none of it is the password.
void check_nothing_was_told(const TlsFront& front) {
    CHECK(front.connections() >= 1);
    CHECK(eventually([&] { return !front.wire().empty(); })); // it did listen
    CHECK(front.received().empty());
    CHECK_FALSE(has(front.wire(), "secret"));
    CHECK_FALSE(has(front.wire(), "AUTH"));
}

/// The server at the other end is not the one that was meant: refused, as denied, before anything
/// is said to it.
void check_refused(const Identity& identity, std::string_view why, const Tls& tls = our_tls(),
                   const std::string& host = "localhost") {
    const RedisServer server{{}, "secret"};
    const TlsFront front{server.port(), identity};
    const auto c = connect_to(front.url(host, ":secret@"), tls);
    for (int i = 0; i < 2; ++i) {
        for (const Reply& reply : call_all(*c, {{"SET", "k", "v"}, {"PING"}})) {
            INFO(words_of(reply));
            CHECK(line_of(reply) == "unsent");
            CHECK(reply.cause == errc::insecure);
            CHECK(reply.cause == condition::denied);
            CHECK(has(words_of(reply), host + ":" + std::to_string(front.port()) + ": TLS: "));
            CHECK(has(words_of(reply), why));
        }
    }
    CHECK(front.handshakes() == 0);
    check_nothing_was_told(front);
}

void check_accepted(const Identity& identity, const std::string& host, const Tls& tls = our_tls()) {
    const RedisServer server;
    const TlsFront front{server.port(), identity};
    const auto c = connect_to(front.url(host), tls);
    const Reply reply = call(*c, {"PING"});
    INFO(host << ": " << words_of(reply));
    CHECK(line_of(reply) == "+PONG");
}

/// What `Tls` says of files that will not do.
std::string complaint_about(const TlsOptions& options) {
    std::shared_ptr<const TransportSecurity> security;
    const Outcome outcome = Tls::load(options, security);
    CHECK(outcome.answer == Answer::unsent);
    CHECK(outcome.cause == errc::invalid_argument);
    CHECK(security == nullptr);
    try {
        const Tls tls{options};
        FAIL("must throw");
    } catch (const Error& error) {
        CHECK(error.code() == outcome.cause);
        CHECK(has(error.what(), outcome.text.view()));
    }
    return std::string{outcome.text.view()};
}

/// Another machine, whose openssl.cnf says this of TLS. A child that is there before any thread:
/// what one of them held of OpenSSL at the fork, it would wait for without end.
class Machine {
public:
    explicit Machine(std::string system_default)
        : system_default_{std::move(system_default)},
          authority_{cast().authority.certificate_file}, child_{[this] { return answer(); }} {}

    /// What a call from there comes to. Once.
    [[nodiscard]] std::string says(const std::string& url) {
        questions_.write_line(url);
        std::string line = answers_.read_line(30s);
        CHECK(child_.wait(30s) == ProcessEnd{.code = 0});
        return line;
    }

private:
    [[nodiscard]] int answer() {
        const std::string url = questions_.read_line(60s);
        const std::string file = cast().certificates.file(std::to_string(getpid()) + "-openssl.cnf",
                                                          "openssl_conf=all\n[all]\nssl_conf=tls\n"
                                                          "[tls]\nsystem_default=all_tls\n"
                                                          "[all_tls]\n" +
                                                              system_default_);
        // what has been read stays in force
        if (CONF_modules_load_file(file.c_str(), nullptr, 0) != 1) return 1;
        const Tls tls{{.ca_file = authority_}};
        const Reply reply = call(*connect_to(url, tls), {"PING"});
        answers_.write_line(line_of(reply) + " " + reply.cause.message() + " " + words_of(reply));
        return 0;
    }

    std::string system_default_;
    std::string authority_; // the cast is made before the child, which has the same one
    Pipe questions_;
    Pipe answers_;
    ChildProcess child_;
};

} // namespace

// It works

TEST_CASE("TLS: a lock is acquired, renewed and released") {
    const RedisServer server{{}, "secret", server_tls()};
    HiredisConnection redis{our_tls().endpoint(secure_url(server.url()))};
    MultiplexedConnection shared{our_tls().endpoint(secure_url(server.url()))};
    RawClient outside = server.client();
    const auto story = [&](auto& connection, auto& wire) {
        LeaseLock lock{connection, "k", patient, std::defer_lock};
        REQUIRE(lock.try_acquire());
        CHECK(lock.owns_lock());
        REQUIRE(outside.integer({"PEXPIRE", "k", "30000"}) == 1);
        CHECK(lock.renew());
        CHECK(outside.pttl("k") > 30'000);
        REQUIRE(outside.integer({"PEXPIRE", "k", "30000"}) == 1);
        Renewer renewer{wire};
        renewer.keep(lock); // renews at once
        CHECK(eventually([&] { return outside.pttl("k") > 30'000; }));
        CHECK(lock.unlock());
        CHECK_FALSE(outside.exists("k"));
    };
    HiredisConnection for_renewal{redis.endpoint()};
    story(redis, for_renewal);
    story(shared, shared);
    RawClient plain{server.port(), "secret"};
    CHECK_THROWS(plain.command({"PING"})); // it was TLS indeed
}

TEST_CASE("TLS: 1.2 and 1.3") {
    const RedisServer server;
    for (const int newest : {TLS1_2_VERSION, TLS1_3_VERSION}) {
        INFO(newest);
        const TlsFront front{server.port(), cast().server, {.newest = newest}};
        const auto c = connect_to(front.url());
        CHECK(line_of(call(*c, {"ECHO", "x"})) == "$x");
    }
}

TEST_CASE("TLS: an older protocol is refused") {
    const RedisServer server{{}, "secret"};
    const TlsFront front{
        server.port(), cast().server, {.newest = TLS1_1_VERSION, .ciphers = "ALL:@SECLEVEL=0"}};
    const auto c = connect_to(front.url("localhost", ":secret@"));
    const Reply reply = call(*c, {"PING"});
    CHECK(line_of(reply) == "unsent");
    CHECK(reply.cause == errc::protocol_error);
    INFO(words_of(reply));
    CHECK(has(words_of(reply), "protocol"));
    check_nothing_was_told(front);
}

TEST_CASE("TLS: session tickets are no reply") {
    const RedisServer server;
    const TlsFront front{server.port(), cast().server, {.tickets = 20}};
    const auto c = connect_to(front.url());
    MultiplexedConnection shared{our_tls().endpoint(secure_url(front.url()))};
    for (int i = 0; i < 5; ++i) {
        CHECK(line_of(call(*c, {"PING"})) == "+PONG");
        CHECK(line_of(call(shared, {"PING"})) == "+PONG");
        std::this_thread::sleep_for(10ms);
    }
    CHECK(front.connections() == 2);
}

/// They come into the silence behind a reply, as session tickets may.
TEST_CASE("TLS: new keys are agreed on in passing") {
    const RedisServer server;
    const TlsFront front{server.port(), cast().server, {.renews_keys = true}};
    const auto c = connect_to(front.url());
    MultiplexedConnection shared{our_tls().endpoint(secure_url(front.url()))};
    const std::string big(100'000, 'x');
    for (int i = 0; i < 20; ++i) {
        const auto replies = call_all(*c, {{"SET", "k", big}, {"STRLEN", "k"}});
        CHECK(line_of(replies[0]) == "+OK");
        CHECK(line_of(replies[1]) == ":100000");
        CHECK(line_of(call(shared, {"STRLEN", "k"})) == ":100000");
        std::this_thread::sleep_for(5ms); // they have arrived
    }
    CHECK(front.connections() == 2);
}

TEST_CASE("TLS: one Tls serves many threads") {
    const RedisServer server{{}, {}, server_tls()};
    const Tls tls{{.ca_file = cast().authority.certificate_file}};
    std::atomic<int> answered{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 5; ++i) {
                HiredisConnection c{tls.endpoint(secure_url(server.url()))};
                const std::string word = std::to_string(t * 100 + i);
                if (line_of(call(c, {"ECHO", word}, 20s)) == "$" + word) ++answered;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(answered == 40);
}

TEST_CASE("TLS: files are read once, and copies share them") {
    const RedisServer server{{}, {}, server_tls(true)};
    Endpoint endpoint;
    {
        Certificates passing;
        const std::string text = "leaselock";
        for (const auto& [from, to] :
             std::map<std::string, std::string>{{cast().authority.certificate_file, "ca.pem"},
                                                {cast().client.certificate_file, "client.pem"},
                                                {cast().client.key_file, "key.pem"}}) {
            std::filesystem::copy_file(from, passing.folder() / to);
        }
        const Tls tls{{.ca_file = passing.folder() / "ca.pem",
                       .certificate_file = passing.folder() / "client.pem",
                       .key_file = passing.folder() / "key.pem"}};
        const Tls copy{tls};
        endpoint = copy.endpoint(secure_url(server.url()));
    }
    HiredisConnection c{endpoint};
    CHECK(line_of(call(c, {"PING"})) == "+PONG");
}

// X2: the server is not the one that was meant

TEST_CASE("X2 TLS: another host's certificate is refused before AUTH is sent") {
    check_refused(cast().server_named("DNS:other.example.org"),
                  "ostname mismatch, not the certificate of localhost");
}

TEST_CASE("X2 TLS: a certificate of an unknown authority is refused before AUTH is sent") {
    check_refused(cast().certificates.make({.names = "DNS:localhost"}, &cast().other_authority),
                  "unable to get local issuer certificate");
}

TEST_CASE("X2 TLS: an authority of the same name does not help") {
    const Identity impostor = cast().certificates.authority("our authority");
    check_refused(cast().certificates.make({.names = "DNS:localhost"}, &impostor),
                  "certificate signature failure");
}

TEST_CASE("X2 TLS: an expired certificate is refused before AUTH is sent") {
    check_refused(cast().certificates.make({.names = "DNS:localhost", .begins = -48h, .ends = -24h},
                                           &cast().authority),
                  "certificate has expired");
}

TEST_CASE("X2 TLS: a certificate of the future is refused before AUTH is sent") {
    check_refused(cast().certificates.make({.names = "DNS:localhost", .begins = 24h, .ends = 48h},
                                           &cast().authority),
                  "certificate is not yet valid");
}

TEST_CASE("X2 TLS: a certificate signed by itself is refused before AUTH is sent") {
    check_refused(cast().certificates.make({.names = "DNS:localhost"}, nullptr), "self");
}

TEST_CASE("X2 TLS: a certificate for other uses is refused before AUTH is sent") {
    check_refused(cast().certificates.make({.names = "DNS:localhost", .use = "clientAuth"},
                                           &cast().authority),
                  "certificate purpose");
}

TEST_CASE("X2 TLS: one who may sign nothing has signed nothing") {
    check_refused(cast().certificates.make({.names = "DNS:localhost"}, &cast().client),
                  "unable to get local issuer certificate");
}

TEST_CASE("X2 TLS: a server without a certificate is refused, though the machine's openssl.cnf "
          "should allow it") {
    Machine lax{"CipherString=aNULL:@SECLEVEL=0\n"};
    const RedisServer server{{}, "secret"};
    const TlsFront front{
        server.port(), cast().server, {.newest = TLS1_2_VERSION, .ciphers = "aNULL:@SECLEVEL=0"}};
    const std::string url = front.url("localhost", ":secret@");
    CHECK(line_of(call(*connect_to(url), {"PING"})) == "unsent");
    CHECK(front.handshakes() == 0);
    const std::string said = lax.says(url);
    INFO(said);
    CHECK(said.starts_with("unsent authentication by TLS failed"));
    CHECK(has(said, "TLS: the server has no certificate"));
    CHECK(eventually([&] { return front.handshakes() == 1; })); // but for our check it had worked
    check_nothing_was_told(front);
}

TEST_CASE("TLS: 1.2 at least, or what the machine's openssl.cnf demands beyond") {
    const std::string lax = "MinProtocol=TLSv1\nCipherString=ALL:@SECLEVEL=0\n";
    Machine of_old{lax};
    Machine of_today{lax};
    Machine strict{"MinProtocol=TLSv1.3\n"};
    const RedisServer server;
    const TlsFront old{
        server.port(), cast().server, {.newest = TLS1_1_VERSION, .ciphers = "ALL:@SECLEVEL=0"}};
    const TlsFront today{server.port(), cast().server, {.newest = TLS1_2_VERSION}};
    CHECK(of_old.says(old.url()).starts_with("unsent not a Redis reply"));
    CHECK(of_today.says(today.url()).starts_with("+PONG"));
    CHECK(strict.says(today.url()).starts_with("unsent not a Redis reply"));
}

TEST_CASE("X2 TLS: an address has to be in the certificate as one") {
    check_refused(cast().server_named("DNS:localhost"),
                  "IP address mismatch, not the certificate of 127.0.0.1", our_tls(), "127.0.0.1");
    check_refused(cast().server_named("DNS:127.0.0.1"),
                  "IP address mismatch, not the certificate of 127.0.0.1", our_tls(), "127.0.0.1");
    check_refused(cast().server_named("IP:127.0.0.1"),
                  "ostname mismatch, not the certificate of localhost");
    check_accepted(cast().server_named("IP:127.0.0.1"), "127.0.0.1");
}

TEST_CASE("X2 TLS: a wildcard stands for one whole label") {
    const Identity wild = cast().server_named("DNS:*.example.org");
    check_accepted(wild, "redis.example.org");
    check_refused(wild, "ostname mismatch", our_tls(), "example.org");
    check_refused(wild, "ostname mismatch", our_tls(), "a.redis.example.org");
    check_refused(cast().server_named("DNS:red*.example.org"), "ostname mismatch", our_tls(),
                  "redis.example.org");
}

TEST_CASE("X2 TLS: server_name stands for the host, and for it alone") {
    const Tls named{
        {.ca_file = cast().authority.certificate_file, .server_name = "redis.example.org"}};
    check_accepted(cast().server_named("DNS:redis.example.org"), "127.0.0.1", named);
    check_refused(cast().server_named("DNS:localhost"), "not the certificate of redis.example.org",
                  named);
    const Tls at_address{
        {.ca_file = cast().authority.certificate_file, .server_name = "192.0.2.1"}};
    check_accepted(cast().server_named("IP:192.0.2.1"), "localhost", at_address);
}

TEST_CASE("TLS: SNI asks for names, never for addresses") {
    const RedisServer server;
    const TlsFront front{server.port(),
                         cast().server_named("DNS:localhost,DNS:redis.example.org,IP:127.0.0.1")};
    const Tls named{
        {.ca_file = cast().authority.certificate_file, .server_name = "redis.example.org"}};
    CHECK(line_of(call(*connect_to(front.url("localhost")), {"PING"})) == "+PONG");
    CHECK(line_of(call(*connect_to(front.url("127.0.0.1")), {"PING"})) == "+PONG");
    CHECK(line_of(call(*connect_to(front.url("redis.example.org.")), {"PING"})) == "+PONG");
    CHECK(line_of(call(*connect_to(front.url("127.0.0.1"), named), {"PING"})) == "+PONG");
    CHECK(front.asked_for() ==
          std::vector<std::string>{"localhost", "", "redis.example.org", "redis.example.org"});
}

// Whom to trust

TEST_CASE("TLS: authorities in a folder") {
    const Tls ours{{.ca_path = cast().certificates.folder_of(cast().authority)}};
    check_accepted(cast().server, "localhost", ours);
    const Tls theirs{{.ca_path = cast().certificates.folder_of(cast().other_authority)}};
    check_refused(cast().server, "unable to get local issuer certificate", theirs);
    const Tls both{{.ca_file = cast().other_authority.certificate_file,
                    .ca_path = cast().certificates.folder_of(cast().authority)}};
    check_accepted(cast().server, "localhost", both);
}

TEST_CASE("TLS: without a file or a folder it is the system's authorities") {
    check_refused(cast().server, "unable to get local issuer certificate", Tls{});
    setenv("SSL_CERT_FILE", cast().authority.certificate_file.c_str(), 1);
    const Tls system;
    const Tls named{{.ca_file = cast().other_authority.certificate_file}};
    check_accepted(cast().server, "localhost", system);
    check_refused(cast().server, "unable to get local issuer certificate", named);
    unsetenv("SSL_CERT_FILE");
}

// Who we are

TEST_CASE("TLS: a client certificate that is asked for, and missing, is told") {
    const RedisServer backend;
    const TlsFront old{
        backend.port(),
        cast().server,
        {.client_authority = cast().authority.certificate_file, .newest = TLS1_2_VERSION}};
    for (const std::string& password : {std::string{}, std::string{"secret"}}) {
        const RedisServer server{{}, password, server_tls(true)};
        for (const std::string& url :
             {server.url(), old.url("127.0.0.1", password.empty() ? "" : ":secret@")}) {
            INFO(url);
            const auto c = connect_to(url);
            MultiplexedConnection shared{our_tls().endpoint(secure_url(url))};
            for (int i = 0; i < 5; ++i) { // the end of the stream and our own words meet: a race
                for (const Reply& reply : call_all(*c, {{"SET", "k", "v"}, {"PING"}})) {
                    INFO(words_of(reply));
                    REQUIRE(line_of(reply) == "unsent");
                    REQUIRE(reply.cause == errc::insecure);
                    REQUIRE(has(words_of(reply),
                                ": the server asks for a client certificate, and none is set"));
                }
                const Reply reply = call(shared, {"SET", "k", "v"});
                INFO(words_of(reply));
                REQUIRE(line_of(reply) == "unsent");
                REQUIRE(reply.cause == errc::insecure);
            }
        }
    }
    CHECK(old.received().empty());
}

TEST_CASE("TLS: a client certificate of another authority is told") {
    const Identity foreign = cast().certificates.make({}, &cast().other_authority);
    const Tls tls{{.ca_file = cast().authority.certificate_file,
                   .certificate_file = foreign.certificate_file,
                   .key_file = foreign.key_file}};
    const RedisServer server{{}, {}, server_tls(true)};
    const auto c = connect_to(server.url(), tls);
    const Reply reply = call(*c, {"PING"});
    INFO(words_of(reply));
    CHECK(line_of(reply) == "unsent");
    CHECK(reply.cause == errc::insecure);
    CHECK(has(words_of(reply), "unknown ca"));
    CHECK_FALSE(has(words_of(reply), "none is set"));
}

TEST_CASE("TLS: with a client certificate") {
    const std::string both = cast().certificates.file("both.pem", [] {
        std::string text;
        for (const std::string& name : {cast().client.certificate_file, cast().client.key_file}) {
            std::ifstream file{name};
            text.append(std::istreambuf_iterator<char>{file}, {});
        }
        return text;
    }());
    const RedisServer server{{}, {}, server_tls(true)};
    const TlsFront old{
        server.port(),
        cast().server,
        {.client_authority = cast().authority.certificate_file, .newest = TLS1_2_VERSION}};
    const Tls apart{{.ca_file = cast().authority.certificate_file,
                     .certificate_file = cast().client.certificate_file,
                     .key_file = cast().client.key_file}};
    const Tls together{{.ca_file = cast().authority.certificate_file, .certificate_file = both}};
    for (const Tls& tls : {apart, together}) {
        const auto c = connect_to(server.url(), tls);
        CHECK(line_of(call(*c, {"PING"})) == "+PONG");
        CHECK(line_of(call(*c, {"SET", "k", "v"})) == "+OK");
    }
    // behind the sign of life, a server that wants a password says so itself
    const RedisServer closed{{}, "secret", server_tls(true)};
    const auto c = connect_to("redis://127.0.0.1:" + std::to_string(closed.port()), apart);
    CHECK(has(words_of(call(*c, {"GET", "k"})), "NOAUTH"));
}

TEST_CASE("TLS: files that will not do are named, with OpenSSL's reason") {
    const std::string ca = cast().authority.certificate_file;
    const std::string no_pem = cast().certificates.file("no.pem", "no certificate\n");
    const Identity& client = cast().client;
    CHECK(complaint_about({.ca_file = "/nowhere/ca.pem"}) ==
          "tls: ca_file /nowhere/ca.pem: No such file or directory");
    CHECK(has(complaint_about({.ca_file = no_pem}), "tls: ca_file " + no_pem + ": no certificate"));
    CHECK(complaint_about({.ca_path = "/nowhere"}) ==
          "tls: ca_path /nowhere: No such file or directory");
    CHECK(complaint_about({.ca_path = ca}) == "tls: ca_path " + ca + ": Not a directory");
    CHECK(complaint_about({.certificate_file = "/nowhere/c.pem"}) ==
          "tls: certificate_file /nowhere/c.pem: No such file or directory");
    CHECK(complaint_about({.certificate_file = no_pem}) ==
          "tls: certificate_file " + no_pem + ": no start line");
    CHECK(complaint_about({.certificate_file = client.certificate_file}) ==
          "tls: key in certificate_file " + client.certificate_file + ": it holds no private key");
    CHECK(complaint_about(
              {.certificate_file = client.certificate_file, .key_file = "/nowhere/key.pem"}) ==
          "tls: key_file /nowhere/key.pem: No such file or directory");
    CHECK(complaint_about(
              {.certificate_file = client.certificate_file, .key_file = cast().server.key_file}) ==
          "tls: key_file " + cast().server.key_file + ": key values mismatch");
    CHECK(complaint_about({.key_file = client.key_file}) ==
          "tls: key_file " + client.key_file + ": needs certificate_file");
    // and nobody is asked for the pass phrase on a terminal
    const std::string locked = cast().certificates.locked_key(client);
    CHECK(complaint_about({.certificate_file = client.certificate_file, .key_file = locked}) ==
          "tls: key_file " + locked + ": it needs a pass phrase; decrypt it first");
    CHECK(has(complaint_about({.server_name = "not a name"}),
              "tls: server_name not a name: host: 1 to 253"));
    CHECK(ERR_peek_error() == 0);
}

// No plain text

TEST_CASE("TLS: rediss:// without Tls is refused, and so is Tls without rediss://") {
    const RedisServer server{{}, "secret", server_tls()};
    CHECK_THROWS_AS(HiredisConnection{server.url()}, Error);
    CHECK_THROWS_AS(MultiplexedConnection{server.url()}, Error);
    HiredisConnection c{Endpoint::from_url(server.url())};
    const Reply reply = call(c, {"PING"});
    CHECK(line_of(reply) == "unsent");
    CHECK(reply.cause == errc::invalid_argument);
    CHECK(has(words_of(reply), "leaselock/hiredis/tls.hpp, target leaselock::tls"));

    CHECK_THROWS_AS(our_tls().endpoint("redis://127.0.0.1"), Error);
    CHECK_THROWS_AS(our_tls().endpoint("unix:///run/redis.sock"), Error);
    Endpoint plain{.port = server.port(), .password = "secret"};
    plain.security = our_tls().security();
    HiredisConnection d{plain};
    CHECK(has(words_of(call(d, {"PING"})), "rediss://"));
}

TEST_CASE("X2 TLS: a server that speaks plain text is told nothing") {
    for (const std::string_view greeting :
         {"-ERR unknown command\r\n", "HTTP/1.1 400 Bad Request\r\n"}) {
        FalseServer server{[&](FalseServer::Peer& peer) {
            peer.send(greeting);
            peer.wait_for_close();
        }};
        const auto c = connect_to("redis://:secret@127.0.0.1:" + std::to_string(server.port()));
        const Reply reply = call(*c, {"SET", "k", "v"});
        INFO(words_of(reply));
        CHECK(line_of(reply) == "unsent");
        CHECK(reply.cause == errc::protocol_error);
        CHECK(has(words_of(reply), "what answers does not speak TLS"));
        CHECK_FALSE(has(server.received(), "secret"));
    }
    const RedisServer plain{{}, "secret"};
    const auto c = connect_to(plain.url());
    const Stopwatch watch;
    const Reply reply = call(*c, {"SET", "k", "v"}, 500ms);
    CHECK(watch.elapsed() < 500ms + slack);
    CHECK(line_of(reply) == "unsent");
    CHECK_FALSE(plain.client().exists("k"));
}

// Faults on the way

TEST_CASE("TLS: a handshake keeps the deadline, dripping or silent") {
    const RedisServer server{{}, "secret", server_tls()};
    FaultProxy proxy{server.port()};
    proxy.drip(20ms);
    FalseServer silent{[](FalseServer::Peer& peer) { peer.wait_for_close(); }};
    for (const std::uint16_t port : {proxy.port(), silent.port()}) {
        const std::string url = "redis://:secret@127.0.0.1:" + std::to_string(port);
        const auto c = connect_to(url);
        MultiplexedConnection shared{our_tls().endpoint(secure_url(url))};
        const auto check = [&](auto& connection) {
            const Stopwatch watch;
            const Reply reply = call(connection, {"PING"}, 300ms);
            CHECK(watch.elapsed() >= 299ms);
            CHECK(watch.elapsed() < 300ms + slack);
            CHECK(line_of(reply) == "unsent");
            CHECK(reply.cause == errc::timed_out);
        };
        check(*c);
        check(shared);
        HiredisConnection quick{our_tls().endpoint("rediss://127.0.0.1:" + std::to_string(port) +
                                                   "?connect_timeout=100ms")};
        const Reply reply = call(quick, {"PING"});
        CHECK(reply.cause == errc::timed_out);
        CHECK(has(words_of(reply), "TLS handshake"));
    }
    CHECK_FALSE(has(silent.received(), "secret"));
}

TEST_CASE("TLS: a handshake byte by byte is one") {
    const RedisServer server{{}, {}, server_tls()};
    FaultProxy proxy{server.port()};
    proxy.drip(1ms);
    const auto c = connect_to(proxy.url());
    CHECK(line_of(call(*c, {"PING"}, 60s)) == "+PONG");
}

TEST_CASE("TLS: the end of the stream in the handshake") {
    FalseServer server{[](FalseServer::Peer&) {}}; // leaves at once, perhaps with a reset
    const auto c = connect_to(server.url());
    for (int i = 0; i < 5; ++i) {
        const Reply reply = call(*c, {"PING"});
        INFO(words_of(reply));
        CHECK(line_of(reply) == "unsent");
        CHECK(reply.cause == condition::unreachable);
    }
}

/// Redis says why in plain text, and does without where the handshake has not been.
TEST_CASE("N16 TLS: too many clients end the handshake") {
    const RedisServer server{{"--maxclients", "1"}, {}, server_tls()};
    RawClient only = server.client();
    REQUIRE(eventually([&] {
        try {
            return only.command({"PING"}) == "PONG";
        } catch (const std::exception&) {
            return false; // the fixture's own client is still leaving
        }
    }));
    const auto c = connect_to(server.url());
    const Reply reply = call(*c, {"SET", "k", "v"});
    CHECK(line_of(reply) == "unsent");
    CHECK(reply.cause == condition::unreachable);
}

TEST_CASE("TLS: an end without a farewell is a lost connection") {
    FalseServer server{[](FalseServer::Peer& peer) { peer.expect_command(); }};
    for (const bool polite : {true, false}) {
        const TlsFront front{server.port(), cast().server, {.sends_farewell = polite}};
        const auto c = connect_to(front.url());
        const Reply reply = call(*c, {"SET", "k", "v"});
        CHECK(line_of(reply) == "unknown");
        CHECK(reply.cause == errc::connection_lost);
    }
}

TEST_CASE("TLS: damaged bytes are a protocol error, and the stream is not used again") {
    const RedisServer backend;
    const TlsFront front{backend.port(), cast().server, {.damages_third_reply = true}};
    const auto c = connect_to(front.url());
    CHECK(line_of(call(*c, {"SET", "k", "v"})) == "+OK");
    CHECK(line_of(call(*c, {"GET", "k"})) == "$v");
    const Reply reply = call(*c, {"GET", "k"});
    INFO(words_of(reply));
    CHECK(line_of(reply) == "unknown");
    CHECK(reply.cause == errc::protocol_error);
    CHECK(has(words_of(reply), "TLS: "));
    CHECK_FALSE(has(words_of(reply), "does not speak TLS"));
    CHECK(line_of(call(*c, {"GET", "k"})) == "$v");
    CHECK(front.connections() == 2);
}

TEST_CASE("TLS: the application's errors in OpenSSL's queue confuse nobody") {
    const RedisServer server{{}, {}, server_tls()};
    const auto c = connect_to(server.url());
    const auto leave_an_error = [] {
        const std::unique_ptr<BIO, decltype(&BIO_free)> none{BIO_new_file("/nowhere", "r"),
                                                             BIO_free};
        REQUIRE(none == nullptr);
        REQUIRE(ERR_peek_error() != 0);
    };
    const long long id = call(*c, {"CLIENT", "ID"}).number;
    REQUIRE(id > 0);
    for (int i = 0; i < 3; ++i) {
        leave_an_error();
        CHECK(call(*c, {"CLIENT", "ID"}).number == id);
    }
    leave_an_error();
    HiredisConnection stranger{Tls{}.endpoint(secure_url(server.url()))};
    CHECK(call(stranger, {"PING"}).cause == errc::insecure);
    CHECK(ERR_peek_error() == 0);
    ERR_clear_error();
}
