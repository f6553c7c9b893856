// SPDX-License-Identifier: MIT
#include "connection_contract.hpp"
#include "false_node.hpp"
#include "support/dead_name_server.hpp"

#include <leaselock/hiredis/cluster_connection.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/redis/classify.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace leaselock;
using namespace leaselock::test;
using namespace leaselock::test::contract;
using namespace std::chrono_literals;

// Nodes that lie, and clusters that are none: each has a cause of its own, with the server's words,
// within the call's deadline and in bounded memory.

namespace {

using Heard = FalseNode::Words;

const std::string slot_of_foo = "12182";

std::string moved_to(const std::string& address) {
    return "-MOVED " + slot_of_foo + " " + address + "\r\n";
}
std::string ask_at(const std::string& address) {
    return "-ASK " + slot_of_foo + " " + address + "\r\n";
}
bool is_table(const Heard& words) { return words.front() == "CLUSTER"; }

/// Answers everything but CLUSTER SLOTS alike.
FalseNode::Answer always(std::string reply) {
    return [reply = std::move(reply)](const Heard& words) {
        return is_table(words) ? std::string{} : reply;
    };
}

const Words set_foo{"SET", "foo", "token", "NX", "PX", "5000"};
const std::string set_foo_line = "SET foo token NX PX 5000";

std::size_t count(const Heard& lines, std::string_view line) {
    return static_cast<std::size_t>(std::count(lines.begin(), lines.end(), line));
}

} // namespace

TEST_CASE("S26 ClusterConnection: a node that sends to itself is left after five hops") {
    std::atomic<std::uint16_t> port{0};
    FalseNode node{[&](const Heard& words) {
        return is_table(words) ? std::string{} : moved_to("127.0.0.1:" + std::to_string(port));
    }};
    port = node.port();
    ClusterConnection cluster{node.url()};
    const Stopwatch watch;
    const Reply reply = call(cluster, set_foo, 10s);
    CHECK(watch.elapsed() < 5s);
    CHECK(line_of(reply) == "-MOVED 12182 " + node.address() + " (5 redirections were followed)");
    CHECK(classify_failure(reply).answer == Answer::refused);
    CHECK(classify_failure(reply).cause == errc::moved);
    CHECK(count(node.heard(), set_foo_line) == 6);
}

TEST_CASE("S26 S27 ClusterConnection: nodes that send to each other are left after five hops") {
    for (const bool ask : {false, true}) {
        INFO(ask);
        std::atomic<std::uint16_t> first_port{0};
        std::atomic<std::uint16_t> second_port{0};
        const auto redirect = [&](std::uint16_t port) {
            const std::string address = "127.0.0.1:" + std::to_string(port);
            return ask ? ask_at(address) : moved_to(address);
        };
        const auto to = [&](std::atomic<std::uint16_t>& port) {
            return [&](const Heard& words) {
                if (is_table(words)) {
                    return slots_reply({{0, 16383, "127.0.0.1", first_port}});
                }
                return words.front() == "ASKING" ? std::string{"+OK\r\n"} : redirect(port);
            };
        };
        FalseNode first{to(second_port)};
        FalseNode second{to(first_port)};
        first_port = first.port();
        second_port = second.port();
        ClusterConnection cluster{first.url()};
        const Reply reply = call(cluster, set_foo, 10s);
        CHECK(classify_failure(reply).answer == Answer::refused);
        CHECK(classify_failure(reply).cause == (ask ? errc::ask : errc::moved));
        CHECK(count(first.heard(), set_foo_line) == 3);
        CHECK(count(second.heard(), set_foo_line) == 3);
    }
}

TEST_CASE("S26 ClusterConnection: a redirection that is nonsense is an answer, and not followed") {
    for (const std::string line :
         {"MOVED", "MOVED x", "MOVED 12182", "MOVED 12182 nowhere", "MOVED 12182 a:0",
          "MOVED 12182 a:65536", "MOVED 16384 a:1", "MOVED 7 127.0.0.1:1", "MOVED -1 a:1",
          "MOVED 12182 a b:1", "MOVED 12182 %s%n:1", "ASK 12182 127.0.0.1", "ASK 7 127.0.0.1:1"}) {
        INFO(line);
        FalseNode node{always("-" + line + "\r\n")};
        ClusterConnection cluster{node.url()};
        const Stopwatch watch;
        const Reply reply = call(cluster, set_foo, 10s);
        CHECK(watch.elapsed() < 5s);
        CHECK(line_of(reply) == "-" + line);
        CHECK(classify_failure(reply).answer == Answer::refused);
        CHECK(node.heard() == Heard{set_foo_line});
    }
}

TEST_CASE("S26 ClusterConnection: MOVED without a host is to another port of the same one") {
    FalseNode target{always("+OK\r\n")};
    for (const std::string host : {"", "?"}) {
        FalseNode node{always(moved_to(host + ":" + std::to_string(target.port())))};
        ClusterConnection cluster{node.url()};
        CHECK(line_of(call(cluster, set_foo)) == "+OK");
        CHECK(node.heard() == Heard{set_foo_line});
    }
    CHECK(target.heard() == Heard{set_foo_line, set_foo_line}); // the very same bytes
}

TEST_CASE("S26 ClusterConnection: MOVED to a host of 253 bytes") {
    const std::string host(253, 'h');
    FalseNode target{always("+OK\r\n")};
    FalseNode node{always(moved_to(host + ":" + std::to_string(target.port())))};
    const Endpoint seed = Endpoint::from_url(node.url());
    const auto lookup = [](const char* name, std::uint16_t port,
                           leaselock::detail::AddressList& found) {
        if (std::string_view{name} != std::string(253, 'h')) return EAI_NONAME;
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        found.add(reinterpret_cast<const sockaddr*>(&address), sizeof address);
        return 0;
    };
    ClusterConnection cluster{std::span{&seed, 1}, system_runtime(),
                              MultiplexedConnection::default_silence, lookup};
    CHECK(line_of(call(cluster, set_foo)) == "+OK");
    CHECK(target.heard() == Heard{set_foo_line});
}

TEST_CASE("S26 ClusterConnection: MOVED to nowhere is tried and told") {
    const ReservedPort nobody;
    const struct {
        std::string address;
        std::string label;
        bool resolved;
    } places[] = {
        {"127.0.0.1:" + std::to_string(nobody.number()),
         "127.0.0.1:" + std::to_string(nobody.number()), true},
        {"::1:" + std::to_string(nobody.number()), "[::1]:" + std::to_string(nobody.number()),
         true},
        {"nowhere.invalid:7000", "nowhere.invalid:7000", false},
    };
    for (const auto& place : places) {
        INFO(place.address);
        std::atomic<bool> gone = false; // and with it all who know the cluster
        FalseNode node{[&](const Heard& words) -> std::string {
            if (is_table(words)) return gone ? "-ERR gone\r\n" : "";
            gone = true;
            return moved_to(place.address);
        }};
        ClusterConnection cluster{node.url()};
        const Stopwatch watch;
        const Reply reply = call(cluster, set_foo, 20s);
        CHECK(watch.elapsed() < 15s);
        CHECK(line_of(reply) == "unsent");
        CHECK(reply.cause == condition::unreachable);
        CHECK((reply.cause == errc::no_address) == !place.resolved);
        CHECK(reply.text.view().starts_with(place.label));
    }
}

TEST_CASE("S26 ClusterConnection: a cluster that knows nothing but a dead end ends with the time") {
    const ReservedPort nobody;
    FalseNode node{always(moved_to("127.0.0.1:" + std::to_string(nobody.number())))};
    ClusterConnection cluster{node.url()};
    const Stopwatch watch;
    const Reply reply = call(cluster, set_foo, 10s);
    CHECK(watch.elapsed() < 10s + slack);
    CHECK(classify_failure(reply).cause == errc::moved);
    CHECK(count(node.heard(), set_foo_line) <= 6);
}

TEST_CASE("S27 ClusterConnection: ASK changes nothing but the way of one command") {
    FalseNode target{always("+OK\r\n")};
    FalseNode node{always(ask_at(target.address()))};
    ClusterConnection cluster{node.url()};
    for (int i = 0; i < 2; ++i) CHECK(line_of(call(cluster, set_foo)) == "+OK");
    CHECK(node.heard() == Heard{set_foo_line, set_foo_line});
    CHECK(target.heard() == Heard{"ASKING", set_foo_line, "ASKING", set_foo_line});
    CHECK(node.asked_for_table() == 1);
}

TEST_CASE("S27 ClusterConnection: each command of a batch has an ASKING of its own") {
    FalseNode target{[](const Heard& words) -> std::string {
        return words.front() == "ASKING" ? "+OK\r\n" : "+" + words.front() + "\r\n";
    }};
    FalseNode node{always(ask_at(target.address()))};
    ClusterConnection cluster{node.url()};
    const auto replies = call_all(cluster, {{"SET", "foo", "1"}, {"GET", "foo"}, {"DEL", "foo"}});
    CHECK(line_of(replies[0]) == "+SET");
    CHECK(line_of(replies[1]) == "+GET");
    CHECK(line_of(replies[2]) == "+DEL");
    CHECK(target.heard() == Heard{"ASKING", "SET foo 1", "ASKING", "GET foo", "ASKING", "DEL foo"});
}

TEST_CASE("S27 S28 ClusterConnection: the commands of a key go where the first of them goes") {
    FalseNode target{always("+OK\r\n")};
    FalseNode source{[&](const Heard& words) -> std::string {
        if (is_table(words)) return {};
        if (words.front() == "SET") return ask_at(target.address());
        return "-TRYAGAIN Multiple keys request during rehashing of slot\r\n";
    }};
    ClusterConnection cluster{source.url()};
    for (const Reply& reply : call_all(cluster, {{"SET", "foo", "1"}, {"GET", "foo"}}, 10s)) {
        CHECK(line_of(reply) == "+OK");
    }
    CHECK(source.heard() == Heard{"SET foo 1", "GET foo"}); // not before the SET, nor beside it
    CHECK(target.heard() == Heard{"ASKING", "SET foo 1", "ASKING", "GET foo"});
}

TEST_CASE("S27 ClusterConnection: on a stream that has said ASKING, nothing else goes out") {
    // a caller that leaves may leave its ASKING alone there, and a stranger's command would be let in
    std::atomic<int> mixed = 0;
    std::atomic<std::uint16_t> source_port{0};
    FalseServer target{[&](FalseServer::Peer& peer) {
        bool asked = false;
        for (bool pair = false;;) {
            const Heard words = peer.expect_command();
            if (words.front() == "CLUSTER") {
                peer.send(slots_reply({{0, 9'999, "127.0.0.1", target.port()},
                                       {10'000, 16'383, "127.0.0.1", source_port}}));
                continue;
            }
            const bool asking = words.front() == "ASKING";
            if (asked && asking == pair) ++mixed;
            asked = asked || asking;
            pair = asking;
            peer.send("+OK\r\n");
        }
    }};
    FalseNode source{always(ask_at("127.0.0.1:" + std::to_string(target.port())))};
    source_port = source.port();
    ClusterConnection cluster{target.url()};
    for (int i = 0; i < 3; ++i) {
        CHECK(line_of(call(cluster, set_foo)) == "+OK");
        CHECK(line_of(call(cluster, {"GET", "bar"})) == "+OK"); // slot 5061: the target's own
    }
    CHECK(mixed == 0);
    CHECK(target.connections() ==
          3); // for the table, for its own slots, for those that are asked for
}

TEST_CASE("S27 ClusterConnection: where ASKING is forbidden, that is what is said") {
    std::atomic<std::uint16_t> source_port{0};
    FalseNode target{[&](const Heard& words) -> std::string {
        if (words.front() == "ASKING") {
            return "-NOPERM this user has no permissions to run the 'asking' command\r\n";
        }
        return moved_to("127.0.0.1:" +
                        std::to_string(source_port)); // as a node says that was not asked
    }};
    FalseNode source{always(ask_at(target.address()))};
    source_port = source.port();
    ClusterConnection cluster{source.url()};
    const Reply reply = call(cluster, set_foo);
    CHECK(classify_failure(reply).answer == Answer::refused);
    CHECK(classify_failure(reply).cause == errc::no_permission);
    CHECK(reply.text.view().find("'asking'") != std::string_view::npos);
    CHECK(source.heard() == Heard{set_foo_line});
}

TEST_CASE("N3 ClusterConnection: what is unknown is not sent again") {
    FalseServer target{[](FalseServer::Peer& peer) {
        (void)peer.expect_command();
        peer.reset();
    }};
    FalseNode node{always(moved_to("127.0.0.1:" + std::to_string(target.port())))};
    ClusterConnection cluster{node.url()};
    const Reply reply = call(cluster, set_foo, 10s);
    CHECK(line_of(reply) == "unknown");
    CHECK(target.connections() == 1);
    CHECK(node.heard() == Heard{set_foo_line});
}

TEST_CASE("S30 ClusterConnection: what passes is tried again inside the call") {
    for (const std::string line :
         {"CLUSTERDOWN The cluster is down", "CLUSTERDOWN Hash slot not served",
          "TRYAGAIN Multiple keys request during rehashing of slot",
          "LOADING Redis is loading the dataset in memory",
          "READONLY You can't write against a read only replica.",
          "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."}) {
        INFO(line);
        std::atomic<int> tries = 0;
        FalseNode node{[&](const Heard& words) -> std::string {
            if (is_table(words)) return {};
            return ++tries < 4 ? "-" + line + "\r\n" : "+OK\r\n";
        }};
        ClusterConnection cluster{node.url()};
        CHECK(line_of(call(cluster, set_foo, 20s)) == "+OK");
        CHECK(tries == 4);
    }
}

TEST_CASE(
    "S30 ClusterConnection: nothing is tried again behind a command of its key that has run") {
    std::atomic<int> sets = 0;
    FalseNode node{[&](const Heard& words) -> std::string {
        if (is_table(words)) return {};
        if (words.front() == "GET") return "$5\r\nother\r\n";
        return ++sets == 1 ? "-CLUSTERDOWN The cluster is down\r\n" : "+OK\r\n";
    }};
    ClusterConnection cluster{node.url()};
    const auto replies = call_all(cluster, {{"SET", "foo", "1"}, {"GET", "foo"}}, 10s);
    CHECK(line_of(replies[0]) == "-CLUSTERDOWN The cluster is down");
    CHECK(line_of(replies[1]) == "$other");
    CHECK(sets == 1);
}

TEST_CASE("ClusterConnection: all nodes of a batch are asked at once") {
    std::atomic<int> asked = 0;
    const auto when_all_are_asked = [&](const Heard& words) -> std::string {
        if (is_table(words)) return {};
        ++asked;
        return eventually([&] { return asked == 2; }, 5s) ? "+OK\r\n" : "-ERR alone\r\n";
    };
    FalseNode low{when_all_are_asked};
    FalseNode high{[&](const Heard& words) {
        if (!is_table(words)) return when_all_are_asked(words);
        return slots_reply(
            {{0, 9'999, "127.0.0.1", low.port()}, {10'000, 16'383, "127.0.0.1", high.port()}});
    }};
    ClusterConnection cluster{high.url()};
    for (const Reply& reply : call_all(cluster, {{"SET", "foo", "1"}, {"SET", "bar", "1"}}, 20s)) {
        CHECK(line_of(reply) == "+OK");
    }
}

TEST_CASE("S5 N2 ClusterConnection: a node that is silent or away takes nothing from the others") {
    FalseServer silent{[](FalseServer::Peer& peer) { peer.wait_for_close(); }};
    const DeadEnd away;
    for (const std::uint16_t port : {silent.port(), away.port()}) {
        INFO((port == away.port()));
        FalseNode node{[&](const Heard& words) {
            if (!is_table(words)) return "+" + words.front() + "\r\n";
            return slots_reply(
                {{0, 9'999, "127.0.0.1", node.port()}, {10'000, 16'383, "127.0.0.1", port}});
        }};
        ClusterConnection cluster{node.url()};
        for (int i = 0; i < 2; ++i) {
            const Stopwatch watch;
            const auto replies = call_all(
                cluster, {{"SET", "foo", "1"}, {"SET", "bar", "1"}, {"GET", "foo"}, {"DEL", "bar"}},
                500ms);
            CHECK(watch.elapsed() < 500ms + slack);
            const std::string verdict = port == away.port() ? "unsent" : "unknown";
            CHECK(line_of(replies[0]) == verdict);
            CHECK(line_of(replies[1]) == "+SET");
            CHECK(line_of(replies[2]) == verdict);
            CHECK(line_of(replies[3]) == "+DEL");
            CHECK(replies[0].cause == errc::timed_out);
        }
    }
}

TEST_CASE("S5 N2 ClusterConnection: nor does it where connecting takes several steps") {
    FalseServer silent{[](FalseServer::Peer& peer) { peer.wait_for_close(); }};
    const DeadEnd away;
    for (const std::uint16_t port : {silent.port(), away.port()}) {
        INFO((port == away.port()));
        FalseNode node{[&](const Heard& words) -> std::string {
            if (!is_table(words)) return words.front() == "AUTH" ? "+OK\r\n" : "+HERE\r\n";
            return slots_reply(
                {{0, 9'999, "127.0.0.1", node.port()}, {10'000, 16'383, "127.0.0.1", port}});
        }};
        const std::vector<Endpoint> seeds{
            Endpoint{.host = "127.0.0.1", .port = node.port(), .password = "secret"}};
        ClusterConnection cluster{seeds};
        const Stopwatch watch;
        const auto replies = call_all(cluster, {{"SET", "foo", "1"}, {"SET", "bar", "1"}}, 500ms);
        CHECK(watch.elapsed() < 500ms + slack);
        CHECK(line_of(replies[0]) == "unsent");
        CHECK(line_of(replies[1]) == "+HERE");
    }
}

TEST_CASE("ClusterConnection: many threads that need the first table ask for it once") {
    FalseNode node{[](const Heard& words) -> std::string {
        if (!is_table(words)) return "+OK\r\n";
        std::this_thread::sleep_for(200ms);
        return {};
    }};
    ClusterConnection cluster{node.url()};
    std::atomic<int> good = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back(
            [&] { good += line_of(call(cluster, set_foo, 20s)) == "+OK" ? 1 : 0; });
    }
    for (auto& thread : threads) thread.join();
    CHECK(good == 8);
    CHECK(node.asked_for_table() == 1);
}

TEST_CASE("ClusterConnection: who waits for another's table keeps its own deadline") {
    FalseServer silent{[](FalseServer::Peer& peer) { peer.wait_for_close(); }};
    ClusterConnection cluster{silent.url() + "?connect_timeout=20s"};
    Reply first;
    std::thread asker{[&] { first = call(cluster, set_foo, 4s); }};
    REQUIRE(eventually([&] { return silent.connections() == 1; }));
    const Stopwatch watch;
    const Reply second = call(cluster, set_foo, 200ms);
    CHECK(watch.elapsed() < 200ms + slack);
    asker.join();
    for (const Reply& reply : {first, second}) {
        CHECK(line_of(reply) == "unsent");
        CHECK(reply.cause == errc::timed_out);
    }
}

TEST_CASE("S30 ClusterConnection: what does not pass ends with the time, and without a storm") {
    FalseNode node{always("-CLUSTERDOWN Hash slot not served\r\n")};
    ClusterConnection cluster{node.url()};
    const Stopwatch watch;
    const Reply reply = call(cluster, set_foo, 2s);
    CHECK(watch.elapsed() < 2s + slack);
    CHECK(line_of(reply) == "-CLUSTERDOWN Hash slot not served");
    CHECK(classify_failure(reply).cause == errc::cluster_down);
    CHECK(node.heard().size() >= 4);
    CHECK(node.heard().size() <= 80);
    CHECK(node.asked_for_table() <= 22); // ten a second, and the first
}

TEST_CASE("S30 ClusterConnection: nothing is tried again that could not be answered in time") {
    FalseNode node{[](const Heard& words) -> std::string {
        if (is_table(words)) return {};
        std::this_thread::sleep_for(300ms);
        return "-CLUSTERDOWN The cluster is down\r\n";
    }};
    ClusterConnection cluster{node.url()};
    const Reply reply = call(cluster, set_foo, 2s);
    CHECK(line_of(reply) == "-CLUSTERDOWN The cluster is down"); // and not unknown
    CHECK(node.heard().size() >= 2);
}

TEST_CASE("S28 ClusterConnection: the fence is tried again, the SET before it is not") {
    std::atomic<int> fences = 0;
    FalseNode node{[&](const Heard& words) -> std::string {
        if (is_table(words)) return {};
        if (words.front() == "SET") return "+OK\r\n";
        if (words[1] != scripts::compare_and_fence.getex.sha1) return ":1\r\n";
        return ++fences < 3 ? "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
                            : "$3\r\n777\r\n";
    }};
    ClusterConnection cluster{node.url()};
    LeaseLock lock{cluster, "foo", {.ttl = 60s, .fencing = true, .timeout = 20s}, std::defer_lock};
    CHECK(lock.try_acquire().answer == Answer::yes);
    CHECK(lock.fencing_token() == 777);
    CHECK(fences == 3);
    CHECK(node.heard().size() == 4);
}

TEST_CASE("S28 ClusterConnection: without a fence the lock is given back") {
    FalseNode node{[&](const Heard& words) -> std::string {
        if (is_table(words)) return {};
        if (words.front() == "SET") return "+OK\r\n";
        const bool fence = words.size() > 3 && words[2] == "2";
        return fence ? "-TRYAGAIN Multiple keys request during rehashing of slot\r\n" : ":1\r\n";
    }};
    ClusterConnection cluster{node.url()};
    LeaseLock lock{cluster, "foo", {.ttl = 60s, .fencing = true, .timeout = 1s}, std::defer_lock};
    const Outcome outcome = lock.try_acquire();
    CHECK(outcome.answer == Answer::refused);
    CHECK(outcome.cause == errc::try_again);
    CHECK_FALSE(lock.owns_lock());
    const Heard heard = node.heard();
    REQUIRE(heard.size() >= 3);
    CHECK(heard.back().starts_with("EVAL ")); // compare-and-delete, as text
    CHECK(heard.back().find("redis.call('del'") != std::string::npos);
}

TEST_CASE("S29 ClusterConnection: keys that share no slot are refused before anything is sent") {
    FalseNode node{always("+OK\r\n")};
    ClusterConnection cluster{node.url()};
    const auto replies = call_all(
        cluster, {{"SET", "foo", "1"}, {"EVAL", "return 1", "2", "foo", "bar"}, {"GET", "foo"}});
    CHECK(line_of(replies[0]) == "+OK");
    CHECK(line_of(replies[1]) == "unsent");
    CHECK(replies[1].cause == errc::cross_slot);
    CHECK(replies[1].cause == condition::misuse);
    CHECK(line_of(replies[2]) == "+OK");
    CHECK(node.heard() == Heard{"SET foo 1", "GET foo"});

    LeaseLock lock{cluster, "a}b", {.ttl = 60s, .fencing = true}, std::defer_lock};
    const Outcome outcome = lock.try_acquire(); // no fence counter can share its slot
    CHECK(outcome.answer == Answer::unsent);
    CHECK(outcome.cause == errc::invalid_argument);
    CHECK(node.heard().size() == 2);
}

TEST_CASE("ClusterConnection: a server without cluster mode is told by its own words, at once") {
    const RedisServer server;
    RawClient outside = server.client();
    ClusterConnection cluster{server.url()};
    outside.reset_stats();
    const Stopwatch watch;
    for (const Reply& reply : call_all(cluster, {set_foo, {"PING"}}, 20s)) {
        CHECK(line_of(reply) == "-ERR This instance has cluster support disabled");
        CHECK(classify_failure(reply).answer == Answer::refused);
        CHECK(classify_failure(reply).cause == errc::no_cluster);
        CHECK_FALSE(may_pass_by_waiting(classify_failure(reply).cause));
    }
    CHECK(watch.elapsed() < 10s);
    const auto stats = outside.command_stats();
    CHECK(stats.count("set") == 0);
    CHECK(stats.at(RedisServer::major_version() >= 7 ? "cluster|slots" : "cluster") == 1);
}

TEST_CASE("ClusterConnection: a table that cannot be believed is told, and nothing is sent") {
    const std::string host = "127.0.0.1";
    const struct {
        std::string reply;
        std::string says;
    } rows[] = {
        {"+OK\r\n", "no array"},
        {":1\r\n", "no array"},
        {"*1\r\n*0\r\n", "an entry without slots"},
        {slots_reply({{0, 16384, host, 1}}), "slots that do not go up from 0 to 16383"},
        {slots_reply({{9, 8, host, 1}}), "slots that do not go up from 0 to 16383"},
        {slots_reply({{-1, 8, host, 1}}), "slots that do not go up from 0 to 16383"},
        {slots_reply({{0, 9, host, 1}, {9, 16383, host, 2}}), "a slot with two masters"},
        {slots_reply({{0, 9, "no host", 1}}), "a node whose host is no host"},
        {slots_reply({{0, 9, host, 0}}), "a node whose port is no port"},
        {"*2000000000\r\n", "131,072 elements"},
        {"HTTP/1.1 400 Bad Request\r\n\r\n", "Protocol error"},
    };
    for (const auto& row : rows) {
        INFO(row.says);
        FalseNode node{[&](const Heard& words) {
            return is_table(words) ? row.reply : std::string{"+OK\r\n"};
        }};
        ClusterConnection cluster{node.url()};
        const Stopwatch watch;
        const Reply reply = call(cluster, set_foo, 10s);
        CHECK(watch.elapsed() < 5s);
        CHECK(line_of(reply) == "unsent");
        CHECK(reply.cause == errc::protocol_error);
        INFO(reply.text.view());
        CHECK(reply.text.view().starts_with(node.address()));
        CHECK(reply.text.view().find(row.says) != std::string_view::npos);
        CHECK(node.heard().empty());
    }
}

TEST_CASE("ClusterConnection: a cluster may name 1,024 nodes, and no more") {
    const std::string host = "127.0.0.1";
    const auto table = [&](int nodes) {
        std::vector<ToldSlots> all;
        for (int i = 0; i < nodes; ++i) {
            all.push_back({i, i, host, static_cast<std::uint16_t>(i + 1)});
        }
        return all;
    };
    {
        FalseNode node{[&](const Heard& words) {
            return is_table(words) ? slots_reply(table(1'025)) : std::string{"+OK\r\n"};
        }};
        ClusterConnection cluster{node.url()};
        rusage before{};
        rusage after{};
        (void)getrusage(RUSAGE_SELF, &before);
        const Reply reply = call(cluster, set_foo, 10s);
        (void)getrusage(RUSAGE_SELF, &after);
        CHECK(line_of(reply) == "unsent");
        CHECK(reply.text.view().find("more than 1,024 nodes") != std::string_view::npos);
        CHECK(after.ru_maxrss - before.ru_maxrss < 16'000); // KiB; sanitizers need their share
        CHECK(node.heard().empty());
    }
    // 1,023 and the node itself: where it sends us is not followed
    FalseNode node{[&](const Heard& words) {
        if (!is_table(words)) return moved_to("127.0.0.1:1024");
        auto all = table(1'023);
        all.push_back({12'182, 12'182, host, node.port()});
        return slots_reply(all);
    }};
    ClusterConnection cluster{node.url()};
    CHECK(line_of(call(cluster, set_foo, 10s)) == "-MOVED 12182 127.0.0.1:1024");
    CHECK(node.heard() == Heard{set_foo_line});
}

TEST_CASE("N15 ClusterConnection: no more nodes are asked for a table than there is time for") {
    std::vector<ToldSlots> table;
    for (int slot = 0; slot < 1'000; ++slot) {
        table.push_back({slot, slot, "node-" + std::to_string(slot) + ".example", 6379});
    }
    table.push_back({1'000, 16'383, "node.example", 6379});
    std::atomic<bool> told{false};
    FalseNode seed{[&](const Heard& words) {
        if (!is_table(words)) return std::string{"-ERR no node\r\n"};
        return told.exchange(true) ? std::string{"-ERR no more\r\n"} : slots_reply(table);
    }};
    const DeadNameServer dns;
    const std::vector<Endpoint> seeds{Endpoint{.host = "127.0.0.1", .port = seed.port()}};
    ClusterConnection cluster{seeds, system_runtime(), MultiplexedConnection::default_silence,
                              DeadNameServer::look_up};
    CHECK(eventually([&] { // a slow machine gets to the second node in a later call
        return line_of(call(cluster, set_foo, 200ms)) == "unsent" && DeadNameServer::askers() > 1;
    }));
    CHECK(told);
    CHECK(DeadNameServer::askers() < 300);
}

TEST_CASE("S16 ClusterConnection: a wrong password is told by the server's words, once a call") {
    const RedisServer server{{"--cluster-enabled", "yes"}, "secret"};
    RawClient outside = server.client();
    ClusterConnection cluster{"redis://:wrong@127.0.0.1:" + std::to_string(server.port())};
    outside.reset_stats();
    const Reply reply = call(cluster, set_foo, 20s);
    CHECK(reply.text.view().starts_with("WRONGPASS"));
    CHECK(classify_failure(reply).answer == Answer::refused);
    CHECK(classify_failure(reply).cause == errc::wrong_password);
    CHECK(outside.command_stats().at("auth") == 1);
}

TEST_CASE("N1 ClusterConnection: when no seed is there, that is said at once") {
    const ReservedPort nobody;
    const ReservedPort no_other;
    ClusterConnection cluster{{url_of_port(nobody.number()), url_of_port(no_other.number())}};
    const Stopwatch watch;
    for (const Reply& reply : call_all(cluster, {set_foo, {"PING"}}, 20s)) {
        CHECK(line_of(reply) == "unsent");
        CHECK(reply.cause == std::errc::connection_refused);
        CHECK(reply.text.view() == "127.0.0.1:" + std::to_string(no_other.number()));
    }
    CHECK(watch.elapsed() < 10s);
}

TEST_CASE("N1 N2 ClusterConnection: one seed that answers is enough") {
    const ReservedPort nobody;
    const DeadEnd nowhere;
    FalseServer silent{[](FalseServer::Peer& peer) { peer.wait_for_close(); }};
    FalseNode node{always("+OK\r\n")};
    ClusterConnection cluster{
        {url_of_port(nobody.number()), url_of_port(nowhere.port()), silent.url(), node.url()}};
    CHECK(line_of(call(cluster, set_foo, 10s)) == "+OK");
    CHECK(node.heard() == Heard{set_foo_line});
}

TEST_CASE("S26 ClusterConnection: the table is asked for again after MOVED, by the next call") {
    FalseNode target{always("+OK\r\n")};
    std::atomic<bool> moved = false;
    FalseNode node{[&](const Heard& words) -> std::string {
        if (is_table(words)) {
            return slots_reply({{0, 16383, "127.0.0.1", moved ? target.port() : node.port()}});
        }
        return moved ? moved_to(target.address()) : "+OK\r\n";
    }};
    ClusterConnection cluster{node.url()};
    REQUIRE(line_of(call(cluster, set_foo)) == "+OK");
    moved = true;
    std::this_thread::sleep_for(150ms); // not more than ten times a second
    CHECK(line_of(call(cluster, set_foo)) == "+OK");
    CHECK(line_of(call(cluster, {"GET", "bar"})) == "+OK"); // its slot has moved, too
    CHECK(node.heard() == Heard{set_foo_line, set_foo_line});
    CHECK(target.heard() == Heard{set_foo_line, "GET bar"});
}
