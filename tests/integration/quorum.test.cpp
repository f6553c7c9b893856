// SPDX-License-Identifier: MIT
// A lock over independent masters. Each fault strikes a minority first, which is borne, and then a
// majority, which is not.
#include "story.hpp"
#include "support/dead_end.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <span>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

using Nodes = Quorum<HiredisConnection>;
using Guard = LeaseLock<Nodes>;

const std::string key = "lock:deploy";

/// A server, the way to it, and a client beside it.
struct Node {
    explicit Node(std::vector<std::string> arguments = {}) : server{std::move(arguments)} {}
    RedisServer server;
    FaultProxy proxy{server.port()};
    HiredisConnection redis{proxy.url()};
    RawClient outside{server.client()};
};

/// Behind a silent node a release waits once for its timeout, so that it is not too long here.
const QuorumOptions borne{.ttl = 60s, .timeout = 2s};

struct Field {
    explicit Field(std::size_t count = 3, const std::vector<std::string>& arguments = {}) {
        for (std::size_t i = 0; i < count; ++i) {
            nodes.emplace_back(arguments);
            connections.push_back(&nodes.back().redis);
        }
        quorum.emplace(std::span<HiredisConnection* const>{connections});
    }
    /// Which of those that answer have the key.
    std::string held(std::size_t first = 0) {
        std::string all;
        for (std::size_t i = first; i < nodes.size(); ++i) {
            all += nodes[i].outside.exists(key) ? '1' : '0';
        }
        return all;
    }
    /// Whether the key goes from all nodes: one that is slow is told with the next call at the latest.
    bool is_emptied() {
        Guard next{*quorum, "lock:next", borne, std::defer_lock};
        return eventually([&] {
            static_cast<void>(next.try_acquire());
            static_cast<void>(next.unlock());
            return held() == "000";
        });
    }
    /// All nodes are known and healthy: what comes now is not about the first meeting.
    void meet() {
        Guard lock{*quorum, "met", {.ttl = 60s, .timeout = 20s}};
        REQUIRE(lock);
        REQUIRE(lock.renew());
        REQUIRE(lock.unlock());
    }
    std::deque<Node> nodes;
    std::vector<HiredisConnection*> connections;
    std::optional<Nodes> quorum;
};

std::string count_of(const Outcome& outcome) {
    return std::to_string(outcome.confirmed) + " of " + std::to_string(outcome.nodes);
}

const QuorumOptions struck{.ttl = 60s, .timeout = 300ms};

using Strike = std::function<void(Node&)>;

/// One node of three is struck: all verbs work on the other two.
void check_minority_is_borne(Field& field, const Strike& strike) {
    field.meet();
    strike(field.nodes[2]);
    Guard lock{*field.quorum, key, borne, std::defer_lock};
    CHECK(said(lock.try_acquire()) == said(Answer::yes));
    CHECK(lock.owns_lock());
    const Outcome renewed = lock.renew();
    CHECK(said(renewed) == said(Answer::yes));
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK(field.nodes[0].outside.exists(key) == false);
    CHECK(field.nodes[1].outside.exists(key) == false);
}

/// Two are: there is no lock, and the third keeps nothing of the attempt. A lease that was held runs on
/// to its deadline, and is renewed once they are back.
void check_majority_is_not(Field& field, const Strike& strike, const Strike& mend) {
    field.meet();
    Guard kept{*field.quorum, "lock:kept", struck, std::defer_lock};
    REQUIRE(eventually([&] { return static_cast<bool>(kept.try_acquire()); }));
    const Deadline end = kept.deadline();
    strike(field.nodes[1]);
    strike(field.nodes[2]);

    Guard lock{*field.quorum, key, struck, std::defer_lock};
    const Outcome outcome = lock.try_acquire();
    INFO(words_of(outcome));
    CHECK_FALSE(outcome);
    CHECK(said(outcome.answer) != said(Answer::no));
    CHECK_FALSE(lock.owns_lock());
    CHECK(words_of(outcome).starts_with("1 of 3 nodes; 2: "));
    CHECK(has(words_of(outcome), "; 3: "));
    CHECK_FALSE(field.nodes[0].outside.exists(key));

    const Outcome renewed = kept.renew();
    CHECK_FALSE(renewed);
    CHECK(said(renewed.answer) != said(Answer::no));
    CHECK(kept.owns_lock());
    CHECK(kept.deadline() == end);
    if (mend) {
        mend(field.nodes[1]);
        mend(field.nodes[2]);
        CHECK(eventually([&] { return static_cast<bool>(kept.renew()); }, 30s));
        CHECK(kept.deadline() > end);
    }
}

/// Both, each on a field of its own.
void check(const Strike& strike, const Strike& mend = {},
           const std::vector<std::string>& arguments = {}) {
    SECTION("a minority") {
        Field field{3, arguments};
        check_minority_is_borne(field, strike);
    }
    SECTION("a majority") {
        Field field{3, arguments};
        check_majority_is_not(field, strike, mend);
    }
}

void pass(Node& node) { node.proxy.pass(); }

} // namespace

TEST_CASE("quorum: five nodes cost one round trip, for acquire, renew, release and adopt") {
    Field field{5};
    const auto check_one = [&](std::size_t commands) {
        for (Node& node : field.nodes) {
            // the slowest answer behind the decision
            REQUIRE(eventually([&] {
                const Traffic traffic = node.proxy.traffic();
                return traffic.requests.size() == commands && traffic.server_bytes != 0;
            }));
            CHECK(node.proxy.traffic().round_trips == 1);
            CHECK(node.proxy.traffic().connections <= 1);
            node.proxy.reset_traffic();
        }
    };
    for (Node& node : field.nodes) {
        if (node.server.has_getex()) continue; // else a stream's first script takes one more
        {
            LeaseLock first{node.redis, "first", patient};
            REQUIRE(first.renew());
        }
        node.proxy.reset_traffic();
    }
    Guard lock{*field.quorum, key, {.ttl = 60s, .timeout = 20s}, std::defer_lock};
    REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
    check_one(2); // who it is, and the SET, in one
    REQUIRE(said(lock.renew()) == said(Answer::yes));
    check_one(1);
    REQUIRE(said(lock.unlock()) == said(Answer::yes));
    check_one(1);
    REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
    check_one(1);
    const Lease lease = lock.detach();
    REQUIRE(said(lock.try_adopt(lease)) == said(Answer::yes));
    check_one(1);
    CHECK(field.held() == "11111");
}

TEST_CASE("quorum: five slow nodes delay an acquire no more than one") {
    Field field{5};
    HiredisConnection one{field.nodes[0].proxy.url()};
    field.meet();
    { const Lock warm{one, "warm", 60s}; }
    for (Node& node : field.nodes) {
        node.proxy.delay(20ms);
    }
    // against a sum: were they asked one after the other, it would take five times as long
    std::chrono::nanoseconds best = 1h;
    std::chrono::nanoseconds alone = 1h;
    for (int i = 0; i < 5; ++i) {
        Guard lock{*field.quorum, key, {.ttl = 60s, .timeout = 20s}, std::defer_lock};
        Deadline start = LeaseClock::now();
        REQUIRE(lock.try_acquire());
        best = std::min<std::chrono::nanoseconds>(best, LeaseClock::now() - start);
        REQUIRE(lock.unlock());
        Lock single{one, "lock:single", patient, std::defer_lock};
        start = LeaseClock::now();
        REQUIRE(single.try_acquire());
        alone = std::min<std::chrono::nanoseconds>(alone, LeaseClock::now() - start);
    }
    CHECK(best >= 40ms);
    CHECK(best < 3 * alone);
}

TEST_CASE(
    "quorum: a stopped node is waited for once, and what it was sent is deleted when it wakes") {
    Field field{5};
    field.nodes[4].server.stop_process();
    Guard lock{*field.quorum, key, {.ttl = 60s, .timeout = 500ms}, std::defer_lock};
    Stopwatch watch;
    REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
    CHECK(watch.elapsed() >= 500ms);
    REQUIRE(said(lock.unlock()) == said(Answer::yes));
    watch = {};
    for (int i = 0; i < 20; ++i) {
        REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
        REQUIRE(said(lock.unlock()) == said(Answer::yes));
    }
    CHECK(watch.elapsed() < 20 * 500ms);
    field.nodes[4].server.continue_process();
    // it runs its SET, and behind that the deletion
    CHECK(eventually([&] { return !field.nodes[4].outside.exists(key); }));
    // and takes part again
    CHECK(eventually([&] {
        REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
        const bool all = field.held() == "11111";
        REQUIRE(said(lock.unlock()) == said(Answer::yes));
        return all;
    }));
}

TEST_CASE("quorum: a dead node is not dialled in every call") {
    Field field;
    field.meet();
    field.nodes[1].proxy.black_hole();
    field.nodes[1].proxy.cut();
    field.nodes[1].proxy.reset_traffic();
    Guard lock{*field.quorum, key, {.ttl = 60s, .timeout = 3s}, std::defer_lock};
    const Deadline end = later(LeaseClock::now(), 1s);
    std::size_t cycles = 0;
    for (; LeaseClock::now() < end || cycles < 50; ++cycles) {
        REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
        REQUIRE(said(lock.unlock()) == said(Answer::yes));
    }
    CHECK(field.nodes[1].proxy.traffic().connections <= 1 + cycles / 10);
}

TEST_CASE("B69 quorum: one dead node of three is borne, two are named") {
    Field field;
    Guard lock{*field.quorum, key, {.ttl = 60s, .timeout = 500ms}, std::defer_lock};
    SECTION("one") {
        field.nodes[2].server.stop_process();
        CHECK(said(lock.try_acquire()) == said(Answer::yes));
        const Outcome renewed = lock.renew();
        CHECK(said(renewed) == said(Answer::yes));
        CHECK(count_of(renewed) == "2 of 3");
        CHECK(said(lock.unlock()) == said(Answer::yes));
        CHECK_FALSE(field.nodes[0].outside.exists(key));
        CHECK_FALSE(field.nodes[1].outside.exists(key));
    }
    SECTION("two") {
        field.nodes[1].server.stop_process();
        field.nodes[2].server.stop_process();
        const Outcome outcome = lock.try_acquire();
        CHECK(said(outcome) == said(Answer::unknown, errc::no_majority));
        for (const std::size_t i : {1U, 2U}) {
            INFO(words_of(outcome));
            CHECK(has(words_of(outcome), "; " + std::to_string(i + 1) + ": 127.0.0.1:" +
                                             std::to_string(field.nodes[i].proxy.port()) + " "));
        }
        CHECK_FALSE(field.nodes[0].outside.exists(key));
    }
}

TEST_CASE("B71 quorum: a minority is given back at once, and another's keys are left alone") {
    Field field;
    for (const std::size_t i : {0U, 1U}) {
        field.nodes[i].outside.expect_ok({"SET", key, "another's", "PX", "60000"});
    }
    Guard lock{*field.quorum, key, {.ttl = 60s, .timeout = 20s}, std::defer_lock};
    CHECK(said(lock.try_acquire()) == said(Answer::no, errc::busy));
    CHECK(field.held() == "110"); // at once, not by and by
    CHECK(field.nodes[0].outside.get(key) == "another's");
    CHECK(field.nodes[1].outside.get(key) == "another's");
}

TEST_CASE("quorum: the same server twice is refused, by its run id") {
    Field field;
    HiredisConnection again{field.nodes[0].server.url()}; // another address of it
    Nodes nodes{field.nodes[0].redis, field.nodes[1].redis, again};
    Guard lock{nodes, key, {.ttl = 60s, .timeout = 20s}, std::defer_lock};
    const Outcome outcome = lock.try_acquire();
    CHECK(said(outcome) == said(Answer::refused, errc::same_server));
    CHECK(has(words_of(outcome), "3: the same server as another"));
    CHECK(field.held() == "000");
}

// --- network

TEST_CASE("N1 quorum: connection refused") {
    check(
        [](Node& node) {
            node.proxy.refuse();
            node.proxy.cut();
        },
        [](Node& node) { node.proxy.accept_again(); });
}

TEST_CASE("N2 quorum: a connect that goes nowhere") {
    Field field;
    DeadEnd end;
    HiredisConnection nowhere{"redis://127.0.0.1:" + std::to_string(end.port())};
    Nodes nodes{field.nodes[0].redis, field.nodes[1].redis, nowhere};
    Guard lock{nodes, key, {.ttl = 60s, .timeout = 500ms}, std::defer_lock};
    CHECK(said(lock.try_acquire()) == said(Answer::yes));
    const Stopwatch watch;
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK(said(lock.try_acquire()) == said(Answer::yes));
    CHECK(watch.elapsed() < 500ms);
}

TEST_CASE("N3 N6 N7 quorum: replies are lost") {
    check([](Node& node) { node.proxy.drop_replies(); }, pass);
}

TEST_CASE("N4 quorum: requests are lost") {
    check([](Node& node) { node.proxy.drop_requests(); }, pass);
}

TEST_CASE("N11 quorum: half-open connections") {
    check([](Node& node) { node.proxy.black_hole(); }, pass);
}

TEST_CASE("N5 quorum: SETs that run after the caller gave up are never believed") {
    Field field;
    field.meet();
    for (const std::size_t i : {1U, 2U}) {
        field.nodes[i].proxy.on_command("SET", Fault::hold_request);
    }
    const auto deletions = [](Node& node) {
        const auto requests = node.proxy.traffic().requests;
        return std::count_if(requests.begin(), requests.end(), [](const auto& words) {
            return words.size() > 3 && words[0].starts_with("EVAL") && words[3] == key;
        });
    };
    Guard lock{*field.quorum, key, {.ttl = 60s, .timeout = 300ms}, std::defer_lock};
    CHECK(said(lock.try_acquire().answer) == said(Answer::unknown));
    // the deletion has been there before what comes now
    Guard next{*field.quorum, "lock:next", borne, std::defer_lock};
    REQUIRE(eventually([&] {
        static_cast<void>(next.try_acquire());
        static_cast<void>(next.unlock());
        return deletions(field.nodes[1]) != 0 && deletions(field.nodes[2]) != 0;
    }));
    for (const std::size_t i : {1U, 2U}) {
        CHECK(field.nodes[i].proxy.deliver_held() == 1);
    }
    CHECK(eventually([&] { return field.held() == "011"; }));
    CHECK_FALSE(lock.owns_lock());
    CHECK(field.nodes[1].outside.pttl(key) > 0);
}

TEST_CASE("N8 quorum: an old renewal that arrives late does no harm") {
    Field field;
    field.meet();
    Guard lock{*field.quorum, key, borne, std::defer_lock};
    REQUIRE(lock.try_acquire());
    REQUIRE(eventually([&] { return field.held() == "111"; }));
    field.nodes[2].proxy.on_command(key, Fault::hold_request);
    CHECK(said(lock.renew()) == said(Answer::yes));
    CHECK(said(lock.unlock()) == said(Answer::yes));
    field.nodes[2].proxy.deliver_held();
    CHECK(field.is_emptied());
}

TEST_CASE("N9 quorum: replies that drip") {
    check([](Node& node) { node.proxy.drip(400ms); }, pass);
}

TEST_CASE("N10 quorum: the connection breaks in the middle") {
    Field field;
    field.meet();
    for (const char* command : {"SET", "EVALSHA"}) {
        field.nodes[2].proxy.on_command(command, Fault::cut_reply);
        Guard lock{*field.quorum, key, borne, std::defer_lock};
        CHECK(said(lock.try_acquire()) == said(Answer::yes));
        CHECK(said(lock.renew()) == said(Answer::yes));
        CHECK(said(lock.unlock()) == said(Answer::yes));
        CHECK(field.is_emptied());
    }
}

TEST_CASE("N12 quorum: what answers is no Redis") {
    Field field;
    FalseServer server{[](FalseServer::Peer& peer) {
        for (;;) {
            static_cast<void>(peer.expect_command());
            peer.send("HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    }};
    HiredisConnection web{server.url()};
    Nodes nodes{field.nodes[0].redis, web, field.nodes[1].redis};
    Guard lock{nodes, key, borne, std::defer_lock};
    CHECK(said(lock.try_acquire()) == said(Answer::yes));
    const Outcome renewed = lock.renew();
    CHECK(said(renewed) == said(Answer::yes));
    CHECK(has(words_of(renewed), "2 of 3 nodes; 2: "));
}

TEST_CASE("N16 quorum: a node has too many clients") {
    check(
        [](Node& node) {
            node.outside.config_set("maxclients", "1");
            node.proxy.cut();
        },
        [](Node& node) { node.outside.config_set("maxclients", "100"); });
}

TEST_CASE("N17 quorum: CLIENT KILL on all nodes leaves the lease alone") {
    Field field;
    Guard lock{*field.quorum, key, {.ttl = 60s, .timeout = 20s}};
    REQUIRE(lock);
    for (Node& node : field.nodes) {
        node.outside.client_kill_normal();
    }
    CHECK(eventually([&] { return static_cast<bool>(lock.renew()); }));
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK(field.is_emptied());
}

// --- server

TEST_CASE("S1 quorum: a node that restarts empty is heard of, and its key is not set again") {
    Field field{5};
    Guard lock{*field.quorum, key, {.ttl = 60s, .timeout = 20s}};
    REQUIRE(lock);
    const auto confirmed_by = [&](int count) {
        Outcome renewed;
        const bool so = eventually([&] {
            renewed = lock.renew();
            return renewed.confirmed == count;
        });
        INFO(words_of(renewed));
        CHECK(so);
        return words_of(renewed);
    };
    REQUIRE(eventually([&] { return field.held() == "11111"; }));
    for (const std::size_t i : {1U, 3U}) {
        field.nodes[i].server.kill_hard();
        field.nodes[i].server.restart();
    }
    CHECK(has(confirmed_by(3), "of 5 nodes"));
    // all five have answered once it says so of both
    CHECK(eventually(
        [&] {
            const std::string text = words_of(lock.renew());
            return has(text, "2: the key is absent") && has(text, "4: the key is absent");
        },
        30s));
    CHECK(lock.owns_lock());
    CHECK(field.held() == "10101");
    field.nodes[0].server.kill_hard();
    field.nodes[0].server.restart();
    Outcome last;
    CHECK(eventually([&] {
        last = lock.renew();
        return !lock.owns_lock();
    }));
    CHECK(said(last) == said(Answer::no, errc::gone));
    CHECK(to_string(lock.loss()) == "gone");
    CHECK(field.held() == "00101");
}

TEST_CASE("S2 quorum: a node that restarts with what it had goes on") {
    Field field{3, {"--appendonly", "yes", "--appendfsync", "always"}};
    Guard lock{*field.quorum, key, {.ttl = 60s, .timeout = 20s}};
    REQUIRE(lock);
    REQUIRE(eventually([&] { return field.held() == "111"; }));
    for (Node& node : field.nodes) {
        node.server.kill_hard();
        node.server.restart();
    }
    CHECK(eventually([&] { return static_cast<bool>(lock.renew()); }));
    CHECK(said(lock.unlock()) == said(Answer::yes));
}

TEST_CASE("S3 quorum: a node that loads its data") {
    // about two seconds of loading, in which it answers every few milliseconds
    Field field{3, {"--loading-process-events-interval-bytes", "1024"}};
    field.meet();
    Guard lock{*field.quorum, key, borne, std::defer_lock};
    REQUIRE(lock.try_acquire());
    Node& node = field.nodes[2];
    node.outside.expect_ok({"DEBUG", "POPULATE", "4000", "filler", "100"});
    node.outside.config_set("key-load-delay", "500");
    HiredisConnection direct{patient_url(node.server)};
    Lock witness{direct, "lock:witness", patient, std::defer_lock};
    {
        const Beside reload{[&] {
            auto other = node.server.client();
            other.set_timeout(60s);
            static_cast<void>(other.command({"DEBUG", "RELOAD"}));
        }};
        bool always = true;
        CHECK(eventually([&] {
            const bool loading = witness.try_acquire().cause == errc::loading;
            always = always && lock.renew();
            static_cast<void>(witness.unlock());
            return loading;
        }));
        CHECK(always);
    }
    REQUIRE(node.outside.pttl(key) < 59'000);
    CHECK(eventually([&] { return lock.renew() && node.outside.pttl(key) > 59'000; }));
}

TEST_CASE("S4 quorum: a node that is busy with a script") {
    check(
        [](Node& node) {
            node.outside.config_set("lua-time-limit", "20");
            RawClient other{node.server.client()};
            other.set_timeout(100ms);
            try {
                static_cast<void>(other.eval("while true do end"));
            } catch (const std::runtime_error&) { // as it should be
            }
        },
        [](Node& node) {
            static_cast<void>(node.outside.command({"SCRIPT", "KILL"}));
        });
}

TEST_CASE("S5 quorum: nodes that stall") {
    check([](Node& node) { node.server.stop_process(); },
          [](Node& node) { node.server.continue_process(); });
}

TEST_CASE("S6 quorum: nodes whose writes are paused") {
    check(
        [](Node& node) {
            node.outside.expect_ok({"CLIENT", "PAUSE", "60000", "WRITE"});
        },
        [](Node& node) {
            node.outside.expect_ok({"CLIENT", "UNPAUSE"});
        });
}

TEST_CASE(
    "S5 quorum: a stall of a majority ends the lease at its deadline, though they come back") {
    Field field;
    Guard lock{*field.quorum, key, {.ttl = 1s, .timeout = 300ms}};
    REQUIRE(lock);
    for (const std::size_t i : {0U, 1U}) {
        field.nodes[i].server.stop_process();
    }
    while (lock.owns_lock()) {
        static_cast<void>(lock.renew());
    }
    for (const std::size_t i : {0U, 1U}) {
        field.nodes[i].server.continue_process();
    }
    CHECK(to_string(lock.loss()) == "expired");
    CHECK(said(lock.renew()) == said(Answer::unsent, errc::expired));
    CHECK_FALSE(lock.owns_lock());
}

TEST_CASE("S7 quorum: SCRIPT FLUSH on all nodes") {
    Field field;
    field.meet();
    Guard lock{*field.quorum, key, {.ttl = 60s, .timeout = 20s}};
    REQUIRE(lock);
    for (Node& node : field.nodes) {
        node.outside.expect_ok({"SCRIPT", "FLUSH"});
    }
    CHECK(said(lock.renew()) == said(Answer::yes));
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK(field.is_emptied());
}

TEST_CASE("S8 quorum: nodes are out of memory: no new lock, but a held one is kept") {
    Field field;
    field.meet();
    Guard lock{*field.quorum, key, {.ttl = 60s, .timeout = 20s}};
    REQUIRE(lock);
    field.nodes[0].outside.config_set("maxmemory", "1");
    Guard other{*field.quorum, "lock:other", borne, std::defer_lock};
    CHECK(said(other.try_acquire()) == said(Answer::yes));
    field.nodes[1].outside.config_set("maxmemory", "1");
    Guard none{*field.quorum, "lock:none", borne, std::defer_lock};
    const Outcome outcome = none.try_acquire();
    CHECK(said(outcome) == said(Answer::refused, errc::no_majority));
    CHECK(has(words_of(outcome), "1: OOM "));
    CHECK_FALSE(field.nodes[2].outside.exists("lock:none"));
    CHECK(said(lock.renew()) == said(Answer::yes));
    CHECK(said(lock.unlock()) == said(Answer::yes));
}

TEST_CASE("S9 S10 S21 quorum: keys that are evicted, deleted or renamed") {
    Field field{5};
    Guard lock{*field.quorum, key, {.ttl = 60s, .timeout = 20s}};
    REQUIRE(lock);
    REQUIRE(eventually([&] { return field.held() == "11111"; }));
    CHECK(field.nodes[0].outside.integer({"DEL", key}) == 1);
    field.nodes[1].outside.expect_ok({"RENAME", key, "elsewhere"});
    CHECK(said(lock.renew()) == said(Answer::yes));
    CHECK(lock.owns_lock());
    field.nodes[2].outside.expect_ok({"FLUSHALL"});
    CHECK(said(lock.renew()) == said(Answer::no, errc::gone));
    CHECK_FALSE(lock.owns_lock());
    CHECK(field.nodes[1].outside.exists("elsewhere")); // not ours any more
}

TEST_CASE("S11 S12 S13 quorum: nodes that are replicas do not count, in either direction") {
    check(
        [](Node& node) {
            node.outside.expect_ok({"REPLICAOF", "127.0.0.1", "1"});
        },
        [](Node& node) {
            node.outside.expect_ok({"REPLICAOF", "NO", "ONE"});
        });
}

TEST_CASE("S14 S15 quorum: nodes that refuse writes") {
    check([](Node& node) { node.outside.config_set("min-replicas-to-write", "1"); },
          [](Node& node) { node.outside.config_set("min-replicas-to-write", "0"); });
}

TEST_CASE(
    "S16 quorum: a wrong password on a majority ends a wait at once, on a minority it does not") {
    Field field;
    RedisServer closed{{}, "secret"};
    RedisServer closed_too{{}, "secret"};
    HiredisConnection b{"redis://:wrong@127.0.0.1:" + std::to_string(closed.port())};
    HiredisConnection c{"redis://:wrong@127.0.0.1:" + std::to_string(closed_too.port())};
    {
        Nodes nodes{field.nodes[0].redis, field.nodes[1].redis, b};
        Guard lock{nodes, key, borne, std::defer_lock};
        CHECK(said(lock.try_acquire()) == said(Answer::yes));
    }
    Nodes nodes{field.nodes[0].redis, b, c};
    Guard lock{nodes, key, borne, std::defer_lock};
    const Outcome outcome = lock.try_acquire_for(60s);
    CHECK(said(outcome) == said(Answer::refused, errc::wrong_password));
    CHECK(has(words_of(outcome), "1 of 3 nodes; 2: WRONGPASS"));
    CHECK_FALSE(has(words_of(outcome), "secret"));
    CHECK(field.held() == "000");
}

TEST_CASE("S18 S19 quorum: foreign values are busy, and stay") {
    Field field;
    field.nodes[0].outside.integer({"HSET", key, "field", "value"});
    field.nodes[1].outside.expect_ok({"SET", key, "somebody"});
    Guard lock{*field.quorum, key, borne, std::defer_lock};
    CHECK(said(lock.try_acquire()) == said(Answer::no, errc::busy));
    const Stopwatch watch;
    CHECK_FALSE(lock.try_acquire_for(200ms)); // its last attempt may have had too little time
    CHECK(watch.elapsed() >= 200ms);
    CHECK(field.held() == "110");
}

TEST_CASE("S20 quorum: PERSIST on a node is mended by the next renewal") {
    Field field;
    Guard lock{*field.quorum, key, {.ttl = 60s, .timeout = 20s}};
    REQUIRE(lock);
    REQUIRE(eventually([&] { return field.held() == "111"; }));
    CHECK(field.nodes[0].outside.integer({"PERSIST", key}) == 1);
    CHECK(eventually([&] { return lock.renew() && field.nodes[0].outside.pttl(key) > 0; }));
}

// --- processes

TEST_CASE("P4 quorum: a forked child is inert, and its own guards work") {
    std::deque<RedisServer> servers(3); // no proxies: a child has none of their threads
    std::deque<HiredisConnection> ways;
    std::vector<HiredisConnection*> pointers;
    for (RedisServer& server : servers) {
        pointers.push_back(&ways.emplace_back(patient_url(server)));
    }
    Nodes nodes{std::span<HiredisConnection* const>{pointers}};
    Guard lock{nodes, key, {.ttl = 60s, .timeout = 20s}};
    REQUIRE(lock);
    ChildProcess child{[&] {
        if (lock.owns_lock() || lock.unlock()) return 1;
        Guard own{nodes, "lock:child", {.ttl = 60s, .timeout = 20s}, std::defer_lock};
        return own.try_acquire() && own.renew() && own.unlock() ? 0 : 2;
    }};
    CHECK(child.wait() == ProcessEnd{0, 0});
    CHECK(said(lock.renew()) == said(Answer::yes));
    for (RedisServer& server : servers) {
        CHECK(server.client().exists(key));
    }
}

TEST_CASE("P8 quorum: a destructor is bounded while all nodes are stopped") {
    Field field;
    field.meet();
    const Stopwatch watch;
    {
        Guard lock{*field.quorum, key, struck, std::defer_lock};
        REQUIRE(eventually([&] { return static_cast<bool>(lock.try_acquire()); }));
        for (Node& node : field.nodes) {
            node.server.stop_process();
        }
    }
    CHECK(watch.elapsed() < 20s);
}

// --- a renewer

TEST_CASE("quorum: a renewer keeps leases through the death of a minority, and tells the end") {
    Field field{5};
    std::deque<HiredisConnection> wires;
    std::vector<HiredisConnection*> pointers;
    for (Node& node : field.nodes) {
        pointers.push_back(&wires.emplace_back(node.server.url()));
    }
    Nodes wire{std::span<HiredisConnection* const>{pointers}};
    Renewer renewer{wire};
    Guard lock{*field.quorum, key, {.ttl = 3s, .timeout = 500ms}};
    REQUIRE(lock);
    renewer.keep(lock);
    const std::stop_token told = lock.stop_token();
    field.nodes[0].server.kill_hard();
    field.nodes[1].server.stop_process();
    const Deadline before = lock.deadline();
    CHECK(eventually([&] { return lock.deadline() > later(before, 3s); }, 30s));
    CHECK_FALSE(told.stop_requested());
    field.nodes[2].server.kill_hard();
    CHECK(eventually([&] { return told.stop_requested(); }, 30s));
    CHECK_FALSE(lock.owns_lock());
    CHECK(to_string(lock.loss()) == "expired");
}
