// SPDX-License-Identifier: MIT
#include "connection_contract.hpp"

#include <leaselock/hiredis/borrowed_hiredis_connection.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/lock/lease_lock.hpp>

#include <hiredis/hiredis.h>

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

using namespace leaselock;
using namespace leaselock::test;
using namespace leaselock::test::contract;
using namespace std::chrono_literals;

namespace {

static_assert(Connection<BorrowedHiredisConnection>);
static_assert(!SharedConnection<BorrowedHiredisConnection>);
static_assert(!std::is_move_constructible_v<BorrowedHiredisConnection>);

struct Free {
    void operator()(redisContext* context) const { redisFree(context); }
};
using Context = std::unique_ptr<redisContext, Free>;

Context connect_to(std::uint16_t port) {
    Context context{redisConnect("127.0.0.1", port)};
    REQUIRE(context);
    REQUIRE(context->err == 0);
    return context;
}

/// The caller's context and the loan of it, for the contract.
struct Owner {
    Context context;
    BorrowedHiredisConnection borrowed;

    explicit Owner(const std::string& url)
        : context(connect_to(Endpoint::from_url(url).port)), borrowed(*context) {}
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        borrowed.call(commands, replies, by);
    }
};

const auto make = [](const std::string& url) { return std::make_unique<Owner>(url); };

/// An owner who frees a context that is of no more use, makes another, and borrows that. What was not
/// sent is called again.
class CarefulOwner {
public:
    explicit CarefulOwner(std::string url)
        : url_(std::move(url)), owner_(std::make_unique<Owner>(url_)) {}
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        owner_->call(commands, replies, by);
        const bool nothing_sent = std::all_of(replies.begin(), replies.end(), [](const Reply& r) {
            return r.kind == Reply::unsent && r.cause == errc::connection_lost;
        });
        if (!nothing_sent) return;
        owner_ = std::make_unique<Owner>(url_);
        owner_->call(commands, replies, by);
    }

private:
    std::string url_;
    std::unique_ptr<Owner> owner_;
};
const auto make_careful = [](const std::string& url) {
    return std::make_unique<CarefulOwner>(url);
};

std::string ask(redisContext& context, const char* command) {
    auto* const reply = static_cast<redisReply*>(redisCommand(&context, command));
    if (reply == nullptr) return "no reply: " + std::string{context.errstr};
    std::string text = reply->str != nullptr ? reply->str : std::to_string(reply->integer);
    freeReplyObject(reply);
    return text;
}

} // namespace

// The contract, but for connecting, which is the caller's

TEST_CASE("BorrowedHiredisConnection: answers of every kind") { answers_of_every_kind(make); }
TEST_CASE("BorrowedHiredisConnection: a batch is one round trip, in order") {
    batches_are_one_round_trip_in_order(make);
}
TEST_CASE("X1 BorrowedHiredisConnection: bytes arrive exact") { x1_bytes_arrive_exact(make); }
TEST_CASE("N9 BorrowedHiredisConnection: one deadline for dripping replies") {
    n9_one_deadline_for_dripping_replies(make);
}
TEST_CASE("N14 BorrowedHiredisConnection: short writes go on") { n14_short_writes(make); }
TEST_CASE("P4 BorrowedHiredisConnection: destroyed in the child, the parent's goes on") {
    p4_destroyed_in_the_child(make);
}
TEST_CASE("P11 BorrowedHiredisConnection: a storm of signals changes nothing") {
    p11_signal_storm(make);
}

// The rest of the contract, with an owner who does what the docstring asks for

TEST_CASE("BorrowedHiredisConnection: no command, no I/O") {
    const RedisServer server;
    FaultProxy proxy{server.port()};
    const auto c = make(proxy.url());
    c->call({}, {}, in(1s));
    CHECK(proxy.traffic().client_bytes == 0);
}
TEST_CASE("N3 BorrowedHiredisConnection: a lost reply is unknown") { n3_reply_lost(make_careful); }
TEST_CASE("N4 BorrowedHiredisConnection: a lost request is unknown") {
    n4_request_lost(make_careful);
}
TEST_CASE("N5 B52 BorrowedHiredisConnection: a late reply answers nobody") {
    n5_late_reply_answers_nobody(make_careful);
}
TEST_CASE("N10 BorrowedHiredisConnection: the owner's next context goes on") {
    n10_what_arrived_is_kept(make_careful);
}
TEST_CASE("N10 BorrowedHiredisConnection: a reset in place of the reply is unknown") {
    n10_reset_in_place_of_the_reply(make_careful);
}
TEST_CASE("N12 BorrowedHiredisConnection: garbage is a protocol error") {
    n12_garbage(make_careful);
}
TEST_CASE("N12 BorrowedHiredisConnection: an endless reply takes bounded memory") {
    n12_endless_reply(make_careful);
}
TEST_CASE("N13 BorrowedHiredisConnection: a reply too many is seen before the next send") {
    n13_reply_too_many(make_careful);
}
TEST_CASE("N13 BorrowedHiredisConnection: nothing is sent into a stream that has ended") {
    n13_closed_while_idle(make_careful);
}
TEST_CASE("N14 BorrowedHiredisConnection: what the kernel never took is unsent") {
    n14_what_the_kernel_never_took_is_unsent(make_careful);
}
TEST_CASE("N17 BorrowedHiredisConnection: a killed client's owner connects again") {
    n17_client_killed(make_careful);
}
TEST_CASE("P12 B54 BorrowedHiredisConnection: no SIGPIPE") {
    static volatile std::sig_atomic_t raised = 0;
    struct sigaction mine {};
    struct sigaction before {};
    mine.sa_handler = [](int) { raised = 1; };
    REQUIRE(sigaction(SIGPIPE, &mine, &before) == 0);
    const std::string big(24'000'000, 'x');
    FalseServer server{[](FalseServer::Peer& peer) {
        peer.wait_for_bytes();
        peer.reset();
    }};
    const auto c = make(server.url());
    const Reply reply = call(*c, {"SET", "k", big});
    CHECK(line_of(reply) == "unknown");
    CHECK(reply.cause == condition::unreachable);
    CHECK(raised == 0);
    REQUIRE(sigaction(SIGPIPE, &before, nullptr) == 0);
}
TEST_CASE("BorrowedHiredisConnection: a past deadline writes and does not wait") {
    const RedisServer server;
    const auto c = make(server.url());
    const Stopwatch watch;
    const Reply reply = call(*c, {"SET", "k", "v"}, -1s);
    CHECK(watch.elapsed() < slack);
    CHECK((line_of(reply) == "unknown" || line_of(reply) == "+OK"));
    CHECK(eventually([&] { return server.client().get("k") == "v"; }));
}

// Its own

TEST_CASE("BorrowedHiredisConnection: the context is as it was behind a call") {
    const RedisServer server;
    const Context context = connect_to(server.port());
    REQUIRE(ask(*context, "SELECT 3") == "OK");
    const int flags = ::fcntl(context->fd, F_GETFL);
    const int descriptor = context->fd;
    {
        BorrowedHiredisConnection borrowed{*context};
        LeaseLock lock{borrowed, "k", 10s};
        REQUIRE(lock);
        CHECK(ask(*context, "EXISTS k") == "1"); // the same database, and in between
        CHECK(lock.unlock());
    }
    CHECK(::fcntl(context->fd, F_GETFL) == flags);
    CHECK(context->fd == descriptor);
    CHECK(context->err == 0);
    CHECK(ask(*context, "PING") == "PONG"); // not closed
}

TEST_CASE("B52 BorrowedHiredisConnection: behind a timeout the context is poisoned") {
    RedisServer server;
    const Context context = connect_to(server.port());
    BorrowedHiredisConnection borrowed{*context};
    REQUIRE(line_of(call(borrowed, {"PING"})) == "+PONG");
    server.stop_process();
    CHECK(line_of(call(borrowed, {"SET", "k", "v"}, 150ms)) == "unknown");
    server.continue_process();
    CHECK(eventually([&] { return server.client().exists("k"); }));
    CHECK(line_of(call(borrowed, {"GET", "k"})) == "unsent");
    CHECK(ask(*context, "PING").find("left without its reply") != std::string::npos);
    CHECK(context->fd >= 0);
}

TEST_CASE("N10 BorrowedHiredisConnection: what arrived before the break is kept") {
    const RedisServer server;
    FaultProxy proxy{server.port()};
    const Context context = connect_to(proxy.port());
    BorrowedHiredisConnection borrowed{*context};
    proxy.cut_after_reply_bytes(7); // +OK, and half of what comes behind it
    const auto replies = call_all(borrowed, {{"SET", "k", "v"}, {"GET", "k"}, {"PING"}});
    CHECK(line_of(replies[0]) == "+OK");
    CHECK(line_of(replies[1]) == "unknown");
    CHECK(line_of(replies[2]) == "unknown");
    CHECK(line_of(call(borrowed, {"PING"})) == "unsent");
}

TEST_CASE("BorrowedHiredisConnection: a context that is not idle is not used") {
    RedisServer server;
    const Context context = connect_to(server.port());
    BorrowedHiredisConnection borrowed{*context};
    REQUIRE(redisAppendCommand(context.get(), "PING") == REDIS_OK);
    CHECK(line_of(call(borrowed, {"PING"})) == "unsent"); // something is to be sent
    int done = 0;
    while (done == 0) REQUIRE(redisBufferWrite(context.get(), &done) == REDIS_OK);
    pollfd answer{context->fd, POLLIN, 0};
    REQUIRE(::poll(&answer, 1, 10'000) == 1);
    CHECK(line_of(call(borrowed, {"PING"})) == "unsent"); // … or read
    void* reply = nullptr;
    REQUIRE(redisGetReply(context.get(), &reply) == REDIS_OK);
    freeReplyObject(reply);
    CHECK(line_of(call(borrowed, {"PING"})) == "+PONG");
    server.terminate();
    CHECK(eventually([&] { return line_of(call(borrowed, {"PING"})) == "unsent"; }));
}

TEST_CASE("BorrowedHiredisConnection: reconnected by its owner, it goes on") {
    const RedisServer server;
    const Context context = connect_to(server.port());
    BorrowedHiredisConnection borrowed{*context};
    REQUIRE(line_of(call(borrowed, {"PING"})) == "+PONG");
    server.client().client_kill_normal();
    CHECK(eventually([&] { return line_of(call(borrowed, {"PING"})) == "unsent"; }));
    REQUIRE(redisReconnect(context.get()) == REDIS_OK);
    CHECK(line_of(call(borrowed, {"PING"})) == "+PONG");
}

TEST_CASE("P4 BorrowedHiredisConnection: in a forked child it sends nothing") {
    const RedisServer server;
    const Context context = connect_to(server.port());
    BorrowedHiredisConnection borrowed{*context};
    ChildProcess child{[&] {
        const Reply reply = call(borrowed, {"SET", "child", "1"});
        return reply.kind == Reply::unsent && reply.cause == errc::other_process ? 0 : 1;
    }};
    CHECK(child.wait() == ProcessEnd{.code = 0});
    CHECK(line_of(call(borrowed, {"EXISTS", "child"})) == ":0");
}
