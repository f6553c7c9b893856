// SPDX-License-Identifier: MIT

// What people get wrong, and what strangers answer: each shows as a cause of its own with the words of
// whoever refused, and a call that waits does not go on where waiting cures nothing.

#include "story.hpp"

#include <chrono>
#include <string>
#include <string_view>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

/// Takes the lock by waiting for it, where waiting would cure nothing.
void expect_an_end(const std::string& url, const std::string& expected, std::string_view text) {
    INFO(expected);
    HiredisConnection redis{url};
    Lock lock{redis, "k", patient, std::defer_lock};
    const Stopwatch watch;
    const Outcome outcome = lock.try_acquire_for(60s);
    CHECK(watch.elapsed() < 30s);
    CHECK(said(outcome) == expected);
    CHECK(has(words_of(outcome), text));
    CHECK_FALSE(has(words_of(outcome), "secret"));
    CHECK_FALSE(lock.owns_lock());
}

std::string with(const RedisServer& server, const std::string& userinfo,
                 const std::string& rest = {}) {
    return "redis://" + userinfo + "127.0.0.1:" + std::to_string(server.port()) + rest;
}

} // namespace

TEST_CASE("Bad input: what the server will not have is told in its own words, once") {
    const RedisServer server{{}, "right"};
    RawClient outside = server.client();
    outside.expect_ok({"ACL", "SETUSER", "weak", "on", ">secret", "~*", "-@all", "+get"});
    outside.expect_ok({"ACL", "SETUSER", "off", "off", ">secret", "~*", "+@all"});
    outside.reset_stats();

    expect_an_end(with(server, ""), said(Answer::refused, errc::not_authenticated), "NOAUTH");
    expect_an_end(with(server, ":secret@"), said(Answer::refused, errc::wrong_password),
                  "WRONGPASS");
    expect_an_end(with(server, "nobody:secret@"), said(Answer::refused, errc::wrong_password),
                  "WRONGPASS");
    expect_an_end(with(server, "off:secret@"), said(Answer::refused, errc::wrong_password),
                  "WRONGPASS");
    expect_an_end(with(server, "weak:secret@"), said(Answer::refused, errc::no_permission),
                  "'set'");
    expect_an_end(with(server, "weak:secret@", "/3"), said(Answer::refused, errc::no_permission),
                  "'select'");
    expect_an_end(with(server, ":right@", "/16"), said(Answer::refused, errc::invalid_argument),
                  "DB index is out of range");

    auto calls = outside.command_stats();
    CHECK(calls["auth"] == 6); // one for each that has a name or a password: no storm
}

TEST_CASE("Bad input: what is no Redis is told from a Redis that is not well") {
    struct Stranger {
        std::string_view says;
        std::string expected;
        std::string_view text;
    };
    const std::string protocol_error = said(Answer::unknown, errc::protocol_error);
    std::string nested;
    for (int i = 0; i < 40; ++i) nested += "*1\r\n";
    const Stranger strangers[] = {
        {"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", protocol_error, "127.0.0.1:"},
        {"220 mail.example ESMTP\r\n", protocol_error, "127.0.0.1:"},
        {"SSH-2.0-OpenSSH_9.2\r\n", protocol_error, "127.0.0.1:"},
        {"\x15\x03\x01", protocol_error, "127.0.0.1:"},                            // a TLS alert
        {"$2147483648\r\n", said(Answer::unknown, errc::timed_out), "127.0.0.1:"}, // and no more
        {nested, protocol_error, "no lock command has"},
        {"+QUEUED\r\n", protocol_error, ""},
        {":1\r\n", protocol_error, ""},
        {"-ERR\r\n", said(Answer::unknown, errc::server_error), "ERR"},
        {"-ERR unknown command 'SET', with args beginning with: \r\n",
         said(Answer::refused, errc::unknown_command), "unknown command"},
        {"-DENIED Redis is running in protected mode\r\n",
         said(Answer::refused, errc::no_permission), "protected mode"},
    };
    for (const Stranger& stranger : strangers) {
        INFO(stranger.says);
        FalseServer server{[&](FalseServer::Peer& peer) {
            peer.expect_command();
            peer.send(stranger.says);
            if (stranger.says.size() == 3) return; // and hangs up
            peer.wait_for_close();
        }};
        HiredisConnection redis{server.url()};
        Lock lock{redis, "k", Options{.ttl = 60s, .timeout = 2s}, std::defer_lock};
        const Outcome outcome = lock.try_acquire();
        CHECK(said(outcome) == stranger.expected);
        CHECK(has(words_of(outcome), stranger.text));
    }
}

TEST_CASE("Bad input: a server that repeats what it does not understand repeats no secret to us") {
    const RedisServer server{{"--rename-command", "AUTH", "HIDDEN"}};
    HiredisConnection redis{with(server, "user:topsecret@")};
    Lock lock{redis, "k", patient, std::defer_lock};
    const Outcome outcome = lock.try_acquire();
    CHECK(said(outcome) == said(Answer::refused, errc::unknown_command));
    CHECK(words_of(outcome) == "ERR unknown command 'AUTH'");

    FalseServer echo{[](FalseServer::Peer& peer) {
        std::string line = "-ERR what is";
        for (const std::string& word : peer.expect_command()) line += " " + word;
        peer.send(line + "\r\n");
        peer.wait_for_close();
    }};
    HiredisConnection to_echo{"redis://user:topsecret@127.0.0.1:" + std::to_string(echo.port())};
    Lock other{to_echo, "k", patient, std::defer_lock};
    const Outcome echoed = other.try_acquire();
    CHECK(words_of(echoed) == "ERR what is AUTH user ");
}
