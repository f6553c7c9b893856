// SPDX-License-Identifier: MIT
// Through Sentinel: to whoever is the master, and to nobody else.
#include "connection_contract.hpp"
#include "kept_story.hpp"
#include "support/sentinel_group.hpp"

#include <array>
#include <atomic>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace leaselock;
using namespace leaselock::test;
using contract::call;
using contract::line_of;
using contract::slack;
using namespace std::chrono_literals;
using namespace std::string_literals;

namespace {

using SentinelLock = LeaseLock<SentinelConnection<>>;
using Urls = std::vector<std::string>;

/// A sentinel that names whatever port it is told to.
class PlayedSentinel {
public:
    explicit PlayedSentinel(std::uint16_t port) : named_{port} {}

    void name(std::uint16_t port) { named_ = port; }
    [[nodiscard]] std::string url() const { return server_.url(); }
    [[nodiscard]] std::uint16_t port() const { return server_.port(); }
    [[nodiscard]] std::size_t asked() const { return server_.connections(); }

private:
    std::atomic<std::uint16_t> named_;
    FalseServer server_{[this](FalseServer::Peer& peer) {
        peer.expect_command();
        const std::string port = std::to_string(named_);
        peer.send("*2\r\n$9\r\n127.0.0.1\r\n$" + std::to_string(port.size()) + "\r\n" + port +
                  "\r\n");
        peer.wait_for_close();
    }};
};

/// All that was written before has reached so many replicas.
void await_replicas(const RedisServer& master, int replicas) {
    RawClient outside = master.client();
    (void)outside.integer({"INCR", "written"}); // WAIT counts from the last write of its own client
    REQUIRE(outside.integer({"WAIT", std::to_string(replicas), "30000"}) == replicas);
}

/// A master, and a replica of it that has all that the master has.
struct Pair {
    Pair() {
        replica.client().expect_ok({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
        follow(replica);
    }
    static void follow(RedisServer& server) {
        REQUIRE(
            eventually([&] { return has(server.client().command({"ROLE"}), "connected"); }, 30s));
    }
    /// Master and replica change places. Nobody is disconnected.
    void swap_roles() {
        replica.client().expect_ok({"REPLICAOF", "NO", "ONE"});
        master.client().expect_ok({"REPLICAOF", "127.0.0.1", std::to_string(replica.port())});
        follow(master);
    }

    RedisServer master{std::vector<std::string>{"--repl-diskless-sync-delay", "0"}};
    RedisServer replica{std::vector<std::string>{"--repl-diskless-sync-delay", "0"}};
};

bool mentions(const Outcome& outcome, std::string_view part) {
    return has(words_of(outcome), part);
}

std::size_t times_in(const std::string& text, std::string_view part) {
    std::size_t count = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
}

} // namespace

// What it is for

TEST_CASE("S24 SentinelConnection: a guard acquires, renews and releases through three sentinels") {
    SentinelGroup group;
    RawClient outside = group.server(0).client();
    SentinelConnection redis{group.urls(), SentinelGroup::name};
    {
        SentinelLock lock{redis, "lock:a", patient, std::defer_lock};
        REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
        CHECK(outside.exists("lock:a"));
        CHECK(said(lock.renew()) == said(Answer::yes));
        CHECK(said(lock.unlock()) == said(Answer::yes));
        CHECK_FALSE(outside.exists("lock:a"));
    }

    // one sentinel dead, one silent: the third is found, and asked first from then on
    group.sentinel(0).kill_hard();
    group.sentinel(1).stop_process();
    std::vector<Endpoint> endpoints;
    for (const std::string& url : group.urls()) {
        endpoints.push_back(Endpoint::from_url(url + "?connect_timeout=20s"));
    }
    const auto sentinel = std::make_shared<Sentinel>(endpoints, SentinelGroup::name, 6s);
    SentinelConnection second{sentinel, Endpoint{.connect_timeout = 20s}};
    {
        const Stopwatch watch;
        SentinelLock lock{second, "lock:a", patient, std::defer_lock};
        CHECK(said(lock.try_acquire()) == said(Answer::yes));
        CHECK(watch.elapsed() >= 2900ms); // the share of the silent one: half of what is left
        CHECK(watch.elapsed() < 6s);
    }
    outside.client_kill_normal();
    {
        const Stopwatch watch;
        SentinelLock lock{second, "lock:a", patient, std::defer_lock};
        CHECK(said(lock.try_acquire()) == said(Answer::yes));
        CHECK(watch.elapsed() < 2900ms);
    }

    // all of them silent or dead
    group.sentinel(2).stop_process();
    outside.client_kill_normal();
    {
        const Stopwatch watch;
        SentinelLock lock{redis, "lock:a", {.ttl = 60s, .timeout = 300ms}, std::defer_lock};
        const Outcome outcome = lock.try_acquire();
        CHECK(watch.elapsed() < 300ms + slack);
        CHECK(said(outcome) == said(Answer::unsent, errc::timed_out));
    }
    {
        const Stopwatch watch;
        SentinelLock lock{redis, "lock:a", {.ttl = 60s, .timeout = 3s}, std::defer_lock};
        const Outcome outcome = lock.try_acquire();
        INFO(words_of(outcome));
        CHECK(watch.elapsed() < 3s + slack);
        CHECK(said(outcome.answer) == said(Answer::unsent));
        CHECK(outcome.cause == condition::unreachable);
    }
}

TEST_CASE("S24 SentinelConnection: all sentinels down is told in time, and waited out") {
    const RedisServer server;
    std::array<ReservedPort, 3> ports;
    std::vector<std::string> urls;
    for (const ReservedPort& port : ports) urls.push_back(contract::url_of_port(port.number()));
    SentinelConnection redis{urls, SentinelGroup::name};
    SentinelLock lock{redis, "lock:a", {.ttl = 60s, .timeout = 400ms}, std::defer_lock};
    const Stopwatch watch;
    const Outcome outcome = lock.try_acquire();
    CHECK(watch.elapsed() >= 150ms); // it looked for one for as long as there was time
    CHECK(watch.elapsed() < 400ms + slack);
    CHECK(said(outcome.answer) == said(Answer::unsent));
    CHECK(outcome.cause == std::errc::connection_refused);
    CHECK(mentions(outcome, "no sentinel told where 'mymaster' is: 127.0.0.1:"));
    CHECK(times_in(words_of(outcome), "Connection refused") == 3);
}

TEST_CASE("S24 SentinelConnection: a name that no sentinel knows ends a wait at once") {
    FalseServer stranger{std::vector<std::string>{"*-1\r\n"}};
    FalseServer other{std::vector<std::string>{"*-1\r\n"}};
    const std::vector<std::string> urls{stranger.url(), other.url()};
    SentinelConnection redis{urls, "yourmaster"};
    SentinelLock lock{redis, "lock:a", patient, std::defer_lock};
    const Stopwatch watch;
    const Outcome outcome = lock.try_acquire_for(60s);
    CHECK(watch.elapsed() < 20s);
    CHECK(said(outcome) == said(Answer::unsent, errc::no_such_master));
    CHECK(outcome.cause == condition::misuse);
    CHECK(mentions(outcome, "no sentinel told where 'yourmaster' is"));
    CHECK(times_in(words_of(outcome), ": no master of this name") == 2);
    CHECK(has(stranger.received(), "yourmaster"));
}

// Passwords

TEST_CASE("S16 SentinelConnection: passwords of the sentinels and of the servers are two") {
    SentinelGroup group{"for-data", "for-sentinels"};
    const Endpoint data{.password = "for-data"};
    SentinelConnection redis{group.urls(), SentinelGroup::name, data};
    SentinelLock lock{redis, "lock:a", patient, std::defer_lock};
    CHECK(said(lock.try_acquire()) == said(Answer::yes));

    SentinelConnection wrong_data{group.urls(), SentinelGroup::name, {.password = "hunter2"}};
    SentinelLock b{wrong_data, "lock:b", patient, std::defer_lock};
    const Outcome refused = b.try_acquire_for(60s);
    CHECK(said(refused) == said(Answer::refused, errc::wrong_password));
    CHECK(mentions(refused, "WRONGPASS"));
    CHECK_FALSE(mentions(refused, "hunter2"));

    std::vector<std::string> urls;
    for (int i = 0; i < 3; ++i) {
        urls.push_back("redis://:hunter2@127.0.0.1:" +
                       std::to_string(group.sentinel(static_cast<std::size_t>(i)).port()));
    }
    SentinelConnection wrong_sentinel{urls, SentinelGroup::name, data};
    SentinelLock c{wrong_sentinel, "lock:c", patient, std::defer_lock};
    const Outcome outcome = c.try_acquire_for(60s);
    CHECK(said(outcome) == said(Answer::unsent, errc::wrong_password));
    CHECK(mentions(outcome, "WRONGPASS"));
    CHECK_FALSE(mentions(outcome, "hunter2"));

    // a user who may ask for the master and nothing else
    for (std::size_t i = 0; i < 3; ++i) {
        group.sentinel(i).client().expect_ok({"ACL", "SETUSER", "app", "on", ">app-pass",
                                              "resetchannels", "-@all",
                                              "+sentinel|get-master-addr-by-name"});
        urls[i] = "redis://app:app-pass@127.0.0.1:" + std::to_string(group.sentinel(i).port());
    }
    SentinelConnection by_user{urls, SentinelGroup::name, data};
    SentinelLock d{by_user, "lock:d", patient, std::defer_lock};
    CHECK(said(d.try_acquire()) == said(Answer::yes));
}

// Sentinels that lie

TEST_CASE("S24 SentinelConnection: a sentinel that lies costs its turn, and does no harm") {
    Pair pair;
    PlayedSentinel honest{pair.master.port()};
    std::optional<PlayedSentinel> misleading;
    std::optional<FalseServer> liar;
    FalseServer no_redis{std::vector<std::string>{"HTTP/1.1 400 Bad Request\r\n\r\n"}};
    std::string url;
    SECTION("names a replica") { url = misleading.emplace(pair.replica.port()).url(); }
    SECTION("names nobody") {
        const ReservedPort nobody;
        url = misleading.emplace(nobody.number()).url();
    }
    SECTION("names itself") {
        misleading.emplace(std::uint16_t{0});
        misleading->name(misleading->port());
        url = misleading->url();
    }
    SECTION("names something that is no Redis") { url = misleading.emplace(no_redis.port()).url(); }
    SECTION("port 0") { url = misleading.emplace(std::uint16_t{0}).url(); }
    SECTION("garbage") {
        url = liar.emplace(std::vector<std::string>{"I am your master\r\n"}).url();
    }
    SECTION("a port out of range") {
        url = liar.emplace(std::vector<std::string>{"*2\r\n$9\r\n127.0.0.1\r\n$5\r\n65536\r\n"})
                  .url();
    }
    SECTION("a host that is none") {
        url = liar.emplace(std::vector<std::string>{"*2\r\n$10\r\n127.0.0.1\0\r\n$4\r\n6379\r\n"s})
                  .url();
    }
    SECTION("one reply for another") {
        url = liar.emplace(std::vector<std::string>{"+OK\r\n"}).url();
    }
    SECTION("an endless array") {
        url = liar.emplace(std::vector<std::string>{"*2147483647\r\n"}).url();
    }
    const Urls urls{url, honest.url()};
    SentinelConnection redis{urls, SentinelGroup::name, {.connect_timeout = 20s}};
    SentinelLock lock{redis, "lock:a", patient, std::defer_lock};
    CHECK(said(lock.try_acquire()) == said(Answer::yes)); // in one call
    CHECK(pair.master.client().exists("lock:a"));
    CHECK(honest.asked() == 1);
    const auto calls = pair.replica.client().command_stats();
    CHECK(calls.count("evalsha") == 0);

    // the next connect asks the honest one
    pair.master.client().client_kill_normal();
    CHECK(said(lock.renew()) == said(Answer::yes));
    CHECK(honest.asked() == 2);
    if (misleading) CHECK(misleading->asked() <= 2); // itself, where it named itself
}

TEST_CASE("S24 SentinelConnection: where all lie, the call ends in time and says what it found") {
    Pair pair;
    const PlayedSentinel one{pair.replica.port()};
    const PlayedSentinel two{pair.replica.port()};
    const Urls urls{one.url(), two.url()};
    SentinelConnection redis{urls, SentinelGroup::name};
    SentinelLock lock{redis, "lock:a", {.ttl = 60s, .timeout = 500ms}, std::defer_lock};
    const Stopwatch watch;
    const Outcome outcome = lock.try_acquire();
    CHECK(watch.elapsed() < 500ms + slack);
    CHECK(said(outcome) == said(Answer::unsent, errc::not_master));
    CHECK(mentions(outcome, "127.0.0.1:" + std::to_string(pair.replica.port()) +
                                ": the server found is no master"));
    CHECK(one.asked() + two.asked() >= 3);
    CHECK(one.asked() + two.asked() < 20); // no storm
}

// A master that is one no longer

TEST_CASE("S11 SentinelConnection: READONLY is rediscovered inside the call") {
    Pair pair;
    PlayedSentinel sentinel{pair.master.port()};
    SentinelConnection redis{Urls{sentinel.url()}, SentinelGroup::name, {.connect_timeout = 20s}};
    SentinelLock held{
        redis, "lock:held", {.ttl = 60s, .fencing = true, .timeout = 20s}, std::defer_lock};
    REQUIRE(said(held.try_acquire()) == said(Answer::yes));
    await_replicas(pair.master, 1);

    pair.swap_roles();
    std::thread late{[&] { // the sentinel hears of it a little later
        std::this_thread::sleep_for(100ms);
        sentinel.name(pair.replica.port());
    }};
    CHECK(said(held.renew()) == said(Answer::yes));
    late.join();
    CHECK(sentinel.asked() >= 2);

    // SET and fence go together, or not at all
    SentinelLock fresh{
        redis, "lock:fresh", {.ttl = 60s, .fencing = true, .timeout = 20s}, std::defer_lock};
    pair.master.client().expect_ok({"REPLICAOF", "NO", "ONE"});
    pair.replica.client().expect_ok({"REPLICAOF", "127.0.0.1", std::to_string(pair.master.port())});
    Pair::follow(pair.replica);
    sentinel.name(pair.master.port());
    CHECK(said(fresh.try_acquire()) == said(Answer::yes));
    CHECK(fresh.fencing_token() != 0);
    CHECK(pair.master.client().exists("lock:fresh"));
    CHECK(said(held.unlock()) == said(Answer::yes));
    CHECK(said(fresh.unlock()) == said(Answer::yes));
}

TEST_CASE(
    "S11 SentinelConnection: READONLY stands, with its words, where no other master is named") {
    Pair pair;
    const PlayedSentinel sentinel{pair.master.port()};
    SentinelConnection redis{Urls{sentinel.url()}, SentinelGroup::name};
    REQUIRE(line_of(call(redis, {"SET", "k", "v"})) == "+OK");
    await_replicas(pair.master, 1);
    pair.swap_roles();
    const Stopwatch watch;
    const Reply reply = call(redis, {"SET", "k", "w"}, 500ms);
    CHECK(watch.elapsed() < 500ms + slack);
    const bool told = reply.cause == errc::not_master || line_of(reply).starts_with("-READONLY");
    INFO(line_of(reply));
    CHECK(told);
    CHECK(pair.replica.client().get("k") == "v");
}

TEST_CASE("S3 SentinelConnection: a master that loads its data is waited out inside the call") {
    // about two seconds of loading, in which it answers every few milliseconds
    RedisServer server{{"--loading-process-events-interval-bytes", "1024"}};
    server.client().expect_ok({"DEBUG", "POPULATE", "4000", "filler", "100"});
    server.client().config_set("key-load-delay", "500");
    HiredisConnection plain{patient_url(server)};
    SentinelConnection redis{nullptr, Endpoint::from_url(patient_url(server))};
    REQUIRE(line_of(call(redis, {"SET", "k", "v"})) == "+OK");
    const Beside reload{[&] {
        auto other = server.client();
        other.set_timeout(60s);
        static_cast<void>(other.command({"DEBUG", "RELOAD"}));
    }};
    REQUIRE(eventually([&] { return line_of(call(plain, {"GET", "k"})).starts_with("-LOADING"); }));
    CHECK(line_of(call(redis, {"SET", "k", "w"}, 60s)) == "+OK");
}

TEST_CASE("N3 SentinelConnection: what may have run is never sent again") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    const PlayedSentinel sentinel{proxy.port()};
    SentinelConnection redis{Urls{sentinel.url()}, SentinelGroup::name};
    REQUIRE(line_of(call(redis, {"SET", "n", "0"})) == "+OK");
    proxy.on_command("INCR", Fault::cut_reply);
    const auto replies = contract::call_all(redis, {{"INCR", "n"}, {"GET", "n"}}, 2s);
    CHECK(line_of(replies[0]) == "unknown");
    CHECK(line_of(replies[1]) == "unknown");
    proxy.on_command("INCR", Fault::cut_request);
    CHECK(line_of(call(redis, {"INCR", "n"}, 2s)) == "unknown");
    CHECK(line_of(call(redis, {"GET", "n"}, 20s)) == "$1");
}

// Failovers

TEST_CASE("S24 SentinelConnection: leases, a wait and threads go on through a failover") {
    SentinelGroup group;
    RedisServer& old = group.server(0);
    constexpr auto ttl = 45s; // longer than a failover, even if the clock steps first (TILT, 30 s)
    const Options options{.ttl = ttl, .timeout = 5s};

    // 50 leases that a renewer keeps
    SentinelConnection redis{group.urls(), SentinelGroup::name};
    SentinelConnection wire{group.urls(), SentinelGroup::name};
    Hearsay hearsay;
    Options heard = options;
    heard.observer = &hearsay;
    Renewer renewer{wire};
    std::vector<std::unique_ptr<SentinelLock>> leases;
    for (int i = 0; i < 50; ++i) {
        leases.push_back(std::make_unique<SentinelLock>(redis, "lock:" + std::to_string(i), heard,
                                                        std::defer_lock));
        REQUIRE(said(leases.back()->try_acquire()) == said(Answer::yes));
        renewer.keep(*leases.back());
    }

    // one that waits for another
    SentinelConnection waiting{group.urls(), SentinelGroup::name};
    SentinelLock holder{redis, "lock:waited", options, std::defer_lock};
    REQUIRE(holder.try_acquire());
    std::atomic<bool> granted{false};
    std::thread waiter{[&] {
        SentinelLock lock{waiting, "lock:waited", options, std::defer_lock};
        granted = static_cast<bool>(lock.try_acquire_for(100s));
    }};

    // 8 threads on one shared connection
    SentinelConnection<MultiplexedConnection> shared{group.urls(), SentinelGroup::name};
    std::atomic<bool> stop{false};
    std::array<std::atomic<int>, 8> cycles{};
    std::atomic<int> merged{0};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < cycles.size(); ++i) {
        threads.emplace_back([&, i] {
            LeaseLock lock{shared, "lock:thread:" + std::to_string(i),
                           Options{.ttl = 2s, .timeout = 500ms}, std::defer_lock};
            while (!stop) {
                const Outcome outcome = lock.try_acquire();
                if (outcome) ++cycles[i];
                if (!outcome && !outcome.cause) ++merged; // each has its cause
                (void)lock.unlock();
                std::this_thread::sleep_for(5ms);
            }
        });
    }
    CHECK(eventually([&] { return hearsay.renewed() >= 50; }));
    CHECK(eventually([&] {
        return std::all_of(cycles.begin(), cycles.end(), [](const auto& n) { return n > 0; });
    }));
    await_replicas(old, 2);
    const std::size_t renewed = hearsay.renewed();
    const Stopwatch since_kill;
    old.kill_hard();
    RedisServer& successor = group.await_successor_of(old);

    const bool in_time = since_kill.elapsed() < ttl - 10s;

    // what was replicated is there still, unless it ran out meanwhile; nothing is lost twice
    const Outcome handed_over = holder.unlock();
    if (in_time) CHECK(said(handed_over) == said(Answer::yes));
    waiter.join();
    CHECK(granted);
    if (in_time) CHECK(eventually([&] { return hearsay.renewed() >= renewed + 50; }, 60s));
    RawClient outside = successor.client();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < leases.size(); ++i) {
        if (!leases[i]->owns_lock()) continue;
        ++kept;
        CHECK(outside.exists("lock:" + std::to_string(i)));
    }
    CHECK(kept + hearsay.count(Verb::lose) == leases.size());
    if (in_time) CHECK(kept == leases.size());
    for (auto& n : cycles) n = 0;
    CHECK(eventually(
        [&] {
            return std::all_of(cycles.begin(), cycles.end(), [](const auto& n) { return n > 0; });
        },
        60s));
    stop = true;
    for (std::thread& thread : threads) thread.join();
    CHECK(merged == 0);

    // the old master comes back, as a master for a moment: nobody goes there
    old.restart();
    RawClient returned = old.client();
    for (int i = 0; i < 20; ++i) {
        outside.client_kill_normal();
        SentinelLock lock{redis, "lock:back:" + std::to_string(i), options, std::defer_lock};
        CHECK(said(lock.try_acquire_for(20s)) == said(Answer::yes));
        CHECK(outside.exists("lock:back:" + std::to_string(i)));
    }
    CHECK(returned.command_stats().count("set") == 0);
}

TEST_CASE(
    "S22 SentinelConnection: a failover that forgets the lock is heard of at the next renewal, "
    "and the fence grows") {
    SentinelGroup group;
    RedisServer& old = group.server(0);
    SentinelConnection redis{group.urls(), SentinelGroup::name};
    Hearsay hearsay;
    const Options fenced{.ttl = 60s, .fencing = true, .timeout = 20s, .observer = &hearsay};
    { // the replicas know a fence counter, but not its last issue
        SentinelLock earlier{redis, "lock:a", fenced, std::defer_lock};
        REQUIRE(earlier.try_acquire());
    }
    await_replicas(old, 2);
    // so long without a master is no reason not to promote a replica: ten times this, and more
    for (const std::size_t i : {0U, 1U, 2U}) {
        group.sentinel(i).client().expect_ok(
            {"SENTINEL", "SET", SentinelGroup::name, "down-after-milliseconds", "6000"});
    }
    for (const std::size_t i : {1U, 2U}) { // cut off: the master has no password for them
        group.server(i).client().config_set("masterauth", "none");
    }
    (void)old.client().command({"CLIENT", "KILL", "TYPE", "replica"});
    REQUIRE(eventually([&] { return has(old.client().command({"ROLE"}), ", []]"); }));

    SentinelLock lock{redis, "lock:a", fenced, std::defer_lock};
    REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
    const std::uint64_t issued = lock.fencing_token();
    const std::stop_token told = lock.stop_token();
    SentinelConnection wire{group.urls(), SentinelGroup::name};
    Renewer renewer{wire};
    old.kill_hard();
    (void)group.await_successor_of(old);
    CHECK(lock.owns_lock()); // nobody has said otherwise yet

    SentinelConnection another{group.urls(), SentinelGroup::name};
    SentinelLock next{another, "lock:a", fenced, std::defer_lock};
    REQUIRE(said(next.try_acquire_for(60s)) == said(Answer::yes)); // the exception to exclusion
    CHECK(next.fencing_token() > issued);                          // and its answer

    renewer.keep(lock); // renews at once
    CHECK(eventually([&] { return told.stop_requested(); }, 30s));
    CHECK_FALSE(lock.owns_lock());
    CHECK(to_string(lock.loss()) == to_string(Loss::taken));
    CHECK(hearsay.count(Verb::lose) == 1);
    CHECK(said(lock.renew()) ==
          said(Answer::unsent, errc::not_held)); // it was the one and only time
    CHECK(said(next.renew()) == said(Answer::yes));
}

TEST_CASE("S24 SentinelConnection: a failover by order, under guards that hold and take") {
    SentinelGroup group;
    SentinelConnection redis{group.urls(), SentinelGroup::name};
    SentinelLock held{redis, "lock:held", {.ttl = 120s, .timeout = 30s}, std::defer_lock};
    REQUIRE(said(held.try_acquire()) == said(Answer::yes));
    await_replicas(group.server(0), 2);
    RedisServer& successor = group.fail_over();
    CHECK(said(held.renew()) == said(Answer::yes)); // one call
    CHECK(successor.client().exists("lock:held"));
    CHECK(said(held.unlock()) == said(Answer::yes));
    CHECK_FALSE(successor.client().exists("lock:held"));
}

// The contract, as far as no resolver has a part in it

namespace {
const auto make = [](const std::string& url) {
    return std::make_unique<SentinelConnection<>>(std::shared_ptr<Resolver>{},
                                                  Endpoint::from_url(url));
};
} // namespace

TEST_CASE("SentinelConnection: answers of every kind") { contract::answers_of_every_kind(make); }
TEST_CASE("X1 SentinelConnection: bytes arrive exact") { contract::x1_bytes_arrive_exact(make); }
TEST_CASE("N2 SentinelConnection: connecting keeps the deadline") {
    contract::n2_connect_goes_nowhere(make);
}
TEST_CASE("N3 SentinelConnection: a lost reply is unknown") { contract::n3_reply_lost(make); }
TEST_CASE("N4 SentinelConnection: a lost request is unknown") { contract::n4_request_lost(make); }
TEST_CASE("N17 SentinelConnection: a killed client connects again") {
    contract::n17_client_killed(make);
}
TEST_CASE("S16 SentinelConnection: a wrong password is refused") {
    contract::s16_wrong_password(make);
}
TEST_CASE("P4 SentinelConnection: a forked child has a stream of its own") {
    contract::p4_fork(make);
}
