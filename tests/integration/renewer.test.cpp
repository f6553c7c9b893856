// SPDX-License-Identifier: MIT
// What a renewer does for its leases, and what the holder hears when one is lost.
#include "kept_story.hpp"
#include "support/dead_name_server.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

const std::string key = "lock:report";

/// The deadline at which a lease will end that is confirmed no more: answers on their way are read.
Deadline last_deadline(const Lock& lock) {
    Deadline last{};
    while (lock.deadline() != last && lock.owns_lock()) {
        last = lock.deadline();
        std::this_thread::sleep_for(100ms);
    }
    return last;
}

} // namespace

TEST_CASE("B26: released locks do not come back, and are renewed no more") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection wire{patient_url(server)};
    constexpr int threads = 8;
    constexpr int rounds = 2000;
    std::atomic<int> done{0};
    std::atomic<int> came_back{0};
    {
        Keeper renewer{wire};
        const Stopwatch watch;
        std::vector<std::thread> crowd;
        for (int who = 0; who < threads; ++who) {
            crowd.emplace_back([&, who] {
                HiredisConnection redis{patient_url(server)};
                auto eye = server.client();
                const std::string name = key + std::to_string(who / 2); // two fight for each
                Lock lock{redis, name, {.ttl = 60ms, .timeout = 20s}, std::defer_lock};
                for (int i = 0; i < rounds && watch.elapsed() < 4s; ++i) {
                    if (!lock.try_acquire()) {
                        continue;
                    }
                    const auto value = eye.get(name);
                    static_cast<void>(renewer.try_keep(lock)); // its lease may have run out
                    if (i % 32 == 0) {
                        std::this_thread::sleep_for(25ms); // a renewal or two
                    }
                    static_cast<void>(lock.unlock());
                    came_back += value && eye.get(name) == value ? 1 : 0;
                    ++done;
                }
            });
        }
        for (std::thread& one : crowd) {
            one.join();
        }
        CHECK(done > threads);
        CHECK(came_back == 0);
        std::this_thread::sleep_for(180ms);
        CHECK(outside.integer({"DBSIZE"}) == 0);
        outside.reset_stats();
        std::this_thread::sleep_for(180ms);
        CHECK(commands_of(outside).empty());
    }
}

TEST_CASE("B30: after a loss the same name is taken again, and renewed again") {
    RedisServer server;
    auto outside = server.client();
    Kept kept{server, key, 2s};
    REQUIRE(outside.integer({"DEL", key}) == 1);
    kept.check_lost(Loss::gone);

    REQUIRE(kept.lock.try_acquire());
    const std::stop_token told = kept.lock.stop_token();
    CHECK_FALSE(told.stop_requested());
    kept.renewer.keep(kept.lock);
    const Stopwatch watch;
    long long least = 1;
    bool busy = true;
    while (least >= 1 && busy && watch.elapsed() < 2500ms) {
        least = outside.pttl(key);
        busy = outside.command({"SET", key, "another's", "NX", "PX", "2000"}) == "(nil)";
        std::this_thread::sleep_for(10ms);
    }
    CHECK(least >= 1);
    CHECK(busy);
    CHECK(kept.lock.owns_lock());
    CHECK_FALSE(told.stop_requested());
    CHECK(kept.hearsay.count(Verb::lose) == 1); // the first one
}

TEST_CASE("B32: a renewer leaves the next holder's key alone, and says that it was taken") {
    RedisServer server;
    auto outside = server.client();
    Kept kept{server, key, 2s};
    Called called;
    const std::stop_callback callback{kept.told, std::ref(called)};
    outside.expect_ok({"SET", key, "another's", "PX", "60000"});
    kept.check_lost(Loss::taken);
    CHECK(eventually([&] { return called.times == 1; }));
    CHECK(outside.get(key) == "another's");
    CHECK(outside.pttl(key) > 20'000); // 2,000, had it been renewed
    outside.reset_stats();
    std::this_thread::sleep_for(1s);     // more than a period
    CHECK(commands_of(outside).empty()); // nothing is renewed behind a 0
    CHECK(called.times == 1);
    CHECK(said(kept.lock.unlock()) == said(Answer::no, errc::taken));
    CHECK(outside.get(key) == "another's");
}

TEST_CASE("B34: one error does not end renewal for good") {
    RedisServer server;
    auto outside = server.client();
    Kept kept{server, key, 2s};
    const auto value = outside.get(key);
    for (int i = 0; i < 2; ++i) {
        CHECK(outside.client_kill_normal() > 0);
        const auto renewed = kept.hearsay.renewed();
        CHECK(eventually([&] { return kept.hearsay.renewed() >= renewed + 2; }));
    }
    kept.check_alive();
    CHECK(outside.get(key) == value);
    CHECK(said(kept.lock.unlock()) == said(Answer::yes));
}

TEST_CASE(
    "N6: a kept lock whose release goes unanswered is renewed no more, and is released again") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    Kept kept{proxy.url(), server.url(), key, 2s};
    REQUIRE(kept.lock.renew()); // opens the way through the proxy
    proxy.drop_replies();
    Outcome outcome;
    {
        const Beside unlocking{[&] { outcome = kept.lock.unlock(); }};
        CHECK(eventually([&] { return !outside.exists(key); })); // it went through
        proxy.cut();
    }
    CHECK(said(outcome.answer) == said(Answer::unknown));
    CHECK_FALSE(kept.lock.owns_lock());
    outside.reset_stats();
    std::this_thread::sleep_for(800ms); // more than a period
    CHECK(commands_of(outside).empty());
    proxy.pass();
    CHECK(said(kept.lock.unlock()) == said(Answer::unknown, errc::unconfirmed));
    CHECK(kept.hearsay.count(Verb::lose) == 0);
}

TEST_CASE("N7: a renewal without an answer is no loss, and is tried again inside the lease") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    Kept kept{server.url(), proxy.url(), key, 3s};
    SECTION("its reply is lost") { proxy.on_command("EVALSHA", Fault::drop_reply); }
    SECTION("itself is lost") { proxy.on_command("EVALSHA", Fault::drop_request); }
    SECTION("the connection is lost") { proxy.on_command("EVALSHA", Fault::cut_reply, 2); }
    CHECK(eventually([&] { return kept.hearsay.failed() >= 1; }));
    kept.check_alive();
    for (const std::string& line : kept.hearsay.of(Verb::renew)) {
        CHECK(!line.starts_with("no"));
    }
}

TEST_CASE(
    "N8: an old renewal that arrives late harms neither its own lease nor the next holder's") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    Kept kept{server.url(), proxy.url(), key, 3s};
    const std::string read = server.has_getex() ? "getex" : "get";
    const auto hold_one = [&] {
        proxy.on_command("EVALSHA", Fault::hold_request);
        REQUIRE(eventually([&] { return proxy.held() == 1; }));
    };
    const auto deliver = [&] {
        outside.reset_stats();
        REQUIRE(proxy.deliver_held() == 1);
        REQUIRE(eventually([&] { return outside.command_stats()[read] >= 1; }));
    };
    hold_one();
    CHECK(renewed_again(kept.lock, kept.ttl)); // on another connection, by a later renewal
    deliver();
    const auto left = outside.pttl(key);
    CHECK(left >= 1);
    CHECK(left <= 3000);
    CHECK(std::chrono::milliseconds{outside.pttl(key)} >= kept.lock.remaining());
    kept.check_alive();

    hold_one();
    CHECK(said(kept.lock.unlock()) == said(Answer::yes));
    outside.expect_ok({"SET", key, "another's", "PX", "60000", "NX"});
    deliver();
    CHECK(outside.get(key) == "another's");
    CHECK(outside.pttl(key) > 20'000);
}

TEST_CASE("N11: a holder that is cut off without a word is told at its deadline") {
    RedisServer server;
    FaultProxy proxy{server.port()};
    Kept kept{server.url(), proxy.url(), key, 2s};
    Called called;
    const std::stop_callback callback{kept.told, std::ref(called)};
    proxy.black_hole();
    const Deadline deadline = last_deadline(kept.lock);
    kept.check_lost(Loss::expired);
    CHECK(eventually([&] { return called.times == 1; }));
    CHECK(called.at.load() >= deadline);
    CHECK(called.at.load() < deadline + 5s);
}

TEST_CASE("N15: a dead name server costs the leases behind it, at their deadline, and no other") {
    RedisServer server;
    const DeadNameServer dns;
    Kept other{server, "lock:other", 3s};
    HiredisConnection redis{patient_url(server)};
    HiredisConnection unresolved{Endpoint{.host = "redis.example"}, system_runtime(),
                                 DeadNameServer::look_up};
    std::optional<Keeper> renewer{std::in_place, unresolved};
    Hearsay hearsay;
    LeaseLock lock{redis, key, {.ttl = 3s, .timeout = 20s, .observer = &hearsay}};
    REQUIRE(lock);
    const Deadline deadline = lock.deadline();
    const std::stop_token told = lock.stop_token();
    Called called;
    const std::stop_callback callback{told, std::ref(called)};
    renewer->keep(lock);

    const auto before = other.hearsay.renewed();
    check_signalled(lock, Loss::expired, told);
    CHECK(eventually([&] { return called.times == 1; }));
    CHECK(called.at.load() >= deadline);
    CHECK(called.at.load() < deadline + 10s);
    CHECK(hearsay.renewed() == 0);
    CHECK(hearsay.failed() >= 1);
    CHECK(DeadNameServer::askers() == 1); // one thread, however often it was tried
    CHECK(other.hearsay.renewed() >= before + 2);
    other.check_alive();
    const Stopwatch watch;
    renewer.reset();
    CHECK(watch.elapsed() < 10s); // leaves the lookup behind
}

TEST_CASE("S2: a restart that forgot no write is no loss, and renewal goes on") {
    RedisServer server{{"--appendonly", "yes", "--appendfsync", "always"}};
    auto outside = server.client();
    Kept kept{server, key, 10s};
    const auto value = outside.get(key);
    server.kill_hard();
    server.restart();
    kept.check_alive();
    CHECK(outside.get(key) == value);
    CHECK(outside.pttl(key) > 0);
    CHECK(said(kept.lock.unlock()) == said(Answer::yes));
}

TEST_CASE(
    "S5: a server that stands still costs its own leases, each on time, and none on another") {
    constexpr int each = 20;
    RedisServer still;
    RedisServer well;
    struct Side {
        explicit Side(RedisServer& server) : redis{patient_url(server)}, wire{patient_url(server)} {
            for (int i = 0; i < each; ++i) {
                locks.emplace_back(redis, key + std::to_string(i),
                                   Options{.ttl = 3s, .timeout = 1s}, std::defer_lock);
                REQUIRE(locks.back().try_acquire());
                renewer.keep(locks.back());
                told.push_back(locks.back().stop_token());
            }
        }
        [[nodiscard]] long told_of() const {
            return std::count_if(told.begin(), told.end(),
                                 [](const auto& token) { return token.stop_requested(); });
        }
        HiredisConnection redis;
        HiredisConnection wire;
        Keeper renewer{wire};
        std::vector<Lock> locks;
        std::vector<std::stop_token> told;
    };
    Side lost{still};
    Side kept{well};
    still.stop_process();
    CHECK(eventually([&] { return lost.told_of() == each; }));
    for (const Lock& lock : lost.locks) {
        CHECK(to_string(lock.loss()) == "expired");
    }
    CHECK(renewed_again(kept.locks.back(), 3s));
    CHECK(kept.told_of() == 0);
    for (const Lock& lock : kept.locks) {
        CHECK(lock.owns_lock());
    }
    still.continue_process(); // for the destructors
}

TEST_CASE("S6: a server that pauses writes costs the lease at its deadline") {
    RedisServer server;
    auto outside = server.client();
    Kept kept{server, key, 2s};
    Called called;
    const std::stop_callback callback{kept.told, std::ref(called)};
    outside.expect_ok({"CLIENT", "PAUSE", "600000", "WRITE"});
    const Deadline deadline = last_deadline(kept.lock);
    kept.check_lost(Loss::expired);
    CHECK(eventually([&] { return called.times == 1; }));
    CHECK(called.at.load() >= deadline);
    outside.expect_ok({"CLIENT", "UNPAUSE"});
    std::this_thread::sleep_for(300ms); // whatever runs now
    CHECK(to_string(kept.lock.loss()) == "expired");
    CHECK_FALSE(kept.lock.owns_lock());
}

TEST_CASE("S9: an evicted lock is a lost one, and is not set again") {
    RedisServer server;
    auto outside = server.client();
    for (const char* policy : {"allkeys-lru", "allkeys-random", "volatile-ttl"}) {
        INFO(policy);
        Kept kept{server, key, 2s};
        outside.config_set("maxmemory-policy", policy);
        outside.config_set("maxmemory", "1");
        REQUIRE(eventually([&] { return !outside.exists(key); }));
        kept.check_lost(Loss::gone);
        outside.config_set("maxmemory", "0");
        CHECK_FALSE(outside.exists(key));
    }
}

TEST_CASE(
    "S13: a replica that has lost its master keeps the lease waiting, and renews it once it can") {
    RedisServer server;
    auto outside = server.client();
    Kept kept{server, key, 6s};
    outside.config_set("replica-serve-stale-data", "no");
    outside.expect_ok({"REPLICAOF", "127.0.0.1", "1"});
    CHECK(eventually([&] { return kept.hearsay.failed() >= 2; })); // a period, and a pause
    const auto lines = kept.hearsay.of(Verb::renew);
    CHECK(lines.back().starts_with("refused"));
    outside.expect_ok({"REPLICAOF", "NO", "ONE"});
    kept.check_alive();
}

TEST_CASE("S13, S5: a replica that stays without its master costs the lease at its deadline") {
    RedisServer server;
    auto outside = server.client();
    Kept kept{server, key, 2s};
    outside.config_set("replica-serve-stale-data", "no");
    outside.expect_ok({"REPLICAOF", "127.0.0.1", "1"});
    kept.check_lost(Loss::expired);
    for (const std::string& line : kept.hearsay.of(Verb::renew)) {
        CHECK(!line.starts_with("no"));
    }
    outside.expect_ok({"REPLICAOF", "NO", "ONE"});
}

TEST_CASE(
    "S14: a server whose snapshots fail refuses, takes no lease away, and renews once it is well") {
    RedisServer server;
    auto outside = server.client();
    Kept kept{server, key, 6s};
    const auto dump = server.folder() / "dump.rdb";
    std::filesystem::create_directory(dump); // no file can take its place
    const auto saves = [&](const std::string& wanted) {
        static_cast<void>(outside.command({"BGSAVE"}));
        return eventually([&] {
            const std::string info = outside.command({"INFO", "persistence"});
            return has(info, "rdb_bgsave_in_progress:0") &&
                   has(info, "rdb_last_bgsave_status:" + wanted);
        });
    };
    outside.config_set("save", "3600 1");
    REQUIRE(saves("err"));
    CHECK(eventually([&] { return kept.hearsay.failed() >= 2; }));
    CHECK(kept.hearsay.count(Verb::renew, said(Answer::refused, errc::snapshot_failing)) >= 2);
    Lock next{kept.redis, "lock:next", patient, std::defer_lock};
    CHECK(said(next.try_acquire()) == said(Answer::refused, errc::snapshot_failing));
    CHECK(kept.lock.owns_lock());
    std::filesystem::remove(dump);
    REQUIRE(saves("ok"));
    kept.check_alive();
}

TEST_CASE("S21: a key that was renamed or swapped away is a lost lease, and stays where it went") {
    RedisServer server;
    auto outside = server.client();
    const std::vector<std::vector<std::string>> ways{{"RENAME", key, "lock:elsewhere"},
                                                     {"SWAPDB", "0", "1"}};
    for (const auto& way : ways) {
        INFO(way.front());
        outside.expect_ok({"FLUSHALL"});
        Kept kept{server, key, 2s};
        const auto value = outside.get(key);
        static_cast<void>(outside.command(way));
        kept.check_lost(Loss::gone);
        CHECK_FALSE(outside.exists(key));
        if (way.front() == "RENAME") {
            CHECK(outside.get("lock:elsewhere").value_or("") == value);
        }
    }
}

TEST_CASE("P18: a callback may destroy its guard, or the renewer, or be slow") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    HiredisConnection wire{patient_url(server)};
    auto renewer = std::make_unique<Keeper>(wire);
    const Options options{.ttl = 2s, .timeout = 20s};
    auto lock = std::make_unique<Lock>(redis, key, options);
    auto other = std::make_unique<Lock>(redis, "lock:other", options);
    REQUIRE(*lock);
    REQUIRE(*other);
    const std::stop_token of_other = other->stop_token();
    renewer->keep(*lock);
    std::atomic<bool> done{false};

    SECTION("its guard") {
        const std::stop_callback callback{lock->stop_token(), [&] {
                                              lock.reset();
                                              done = true;
                                          }};
        outside.expect_ok({"SET", key, "another's", "PX", "60000"});
        CHECK(eventually([&] { return done.load(); }));
        CHECK(outside.get(key) == "another's");
        renewer->keep(*other); // it works on
        CHECK(renewed_again(*other, options.ttl));
    }
    SECTION("the renewer") {
        renewer->keep(*other);
        const std::stop_callback callback{lock->stop_token(), [&] {
                                              renewer.reset();
                                              done = true;
                                          }};
        REQUIRE(outside.integer({"DEL", key}) == 1);
        CHECK(eventually([&] { return done.load(); }));
        CHECK(eventually([&] { return of_other.stop_requested(); }));
        CHECK(to_string(other->loss()) == "unkept");
    }
    SECTION("slow, with the next signal behind it") {
        renewer->keep(*other);
        std::atomic<bool> let_go{false};
        const std::stop_callback callback{lock->stop_token(), [&] {
                                              while (!let_go) {
                                                  std::this_thread::sleep_for(1ms);
                                              }
                                              done = true;
                                          }};
        REQUIRE(outside.integer({"DEL", key}) == 1);
        REQUIRE(eventually([&] { return lock->stop_token().stop_requested(); }));
        REQUIRE(outside.integer({"DEL", "lock:other"}) == 1);
        CHECK(eventually([&] { return of_other.stop_requested(); }));
        CHECK_FALSE(done);
        let_go = true;
    }
    renewer.reset();
    lock.reset();
    CHECK(done);
}

TEST_CASE("P19: of a thousand leases on a slow server each is lost on time, and none before") {
    constexpr std::size_t count = 1000;
    RedisServer server;
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(server)};
    HiredisConnection wire{patient_url(proxy)};
    Keeper renewer{wire};
    const Options options{.ttl = 5s, .timeout = 20s};
    struct One {
        explicit One(Lock made) : lock{std::move(made)} {}

        Lock lock;
        Called called;
        std::optional<std::stop_callback<std::reference_wrapper<Called>>> callback;
    };
    proxy.delay(10ms);
    std::vector<std::unique_ptr<One>> leases;
    std::size_t acquired = 0;
    for (std::size_t i = 0; i < count; ++i) {
        leases.push_back(
            std::make_unique<One>(Lock{redis, key + std::to_string(i), options, std::defer_lock}));
        One& one = *leases.back();
        acquired += one.lock.try_acquire() ? 1U : 0U;
        one.callback.emplace(one.lock.stop_token(), std::ref(one.called));
        acquired += renewer.try_keep(one.lock) ? 1U : 0U;
    }
    REQUIRE(acquired == 2 * count);
    const auto owned = [&] {
        return static_cast<std::size_t>(std::count_if(
            leases.begin(), leases.end(), [](const auto& one) { return one->lock.owns_lock(); }));
    };
    CHECK(renewed_again(leases.front()->lock, options.ttl));
    CHECK(renewed_again(leases.back()->lock, options.ttl));
    CHECK(owned() == count);

    proxy.black_hole();
    std::this_thread::sleep_for(200ms); // what had come is read
    std::vector<Deadline> ends;
    for (const auto& one : leases) {
        ends.push_back(one->lock.deadline());
    }
    CHECK(eventually(
        [&] {
            return std::all_of(leases.begin(), leases.end(),
                               [](const auto& one) { return one->called.times > 0; });
        },
        30s));
    std::size_t early = 0;
    std::size_t twice = 0;
    std::size_t others = 0;
    std::chrono::nanoseconds latest{};
    for (std::size_t i = 0; i < count; ++i) {
        const Deadline at = leases[i]->called.at;
        early += at < ends[i] ? 1U : 0U;
        latest = std::max<std::chrono::nanoseconds>(latest, at - ends[i]);
        twice += leases[i]->called.times == 1 ? 0U : 1U;
        others += leases[i]->lock.loss() == Loss::expired ? 0U : 1U;
    }
    INFO("the latest signal came " << latest.count() / 1000 << " us behind its deadline");
    CHECK(early == 0);
    CHECK(twice == 0);
    CHECK(others == 0);
    CHECK(latest < 5s);
    CHECK(owned() == 0);
}
