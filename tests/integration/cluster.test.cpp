// SPDX-License-Identifier: MIT
#include "connection_contract.hpp"
#include "story.hpp"
#include "support/redis_cluster.hpp"

#include <leaselock/hiredis/cluster_connection.hpp>
#include <leaselock/lock/inspect.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/renewer.hpp>
#include <leaselock/redis/classify.hpp>

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace leaselock;
using namespace leaselock::test;
using contract::call;
using contract::call_all;
using contract::line_of;
using namespace std::chrono_literals;

namespace {

using ClusterLock = LeaseLock<ClusterConnection>;

/// For what has to succeed, however slow the machine is.
std::string patient_url(const RedisCluster& servers, std::size_t node = 0) {
    return test::patient_url(servers.url(node));
}

const Options fenced{.ttl = 60s, .fencing = true, .owner = "me", .timeout = 20s};

} // namespace

TEST_CASE("ClusterConnection: all verbs, on keys of all nodes, from any node") {
    RedisCluster servers;
    for (std::size_t seed = 0; seed < servers.masters(); ++seed) {
        ClusterConnection cluster{patient_url(servers, seed)};
        for (std::size_t i = 0; i < servers.masters(); ++i) {
            const std::string key = servers.key_on(i, "lock:verbs");
            INFO(seed << " " << key);
            RawClient node = servers.client_for(key);
            ClusterLock lock{cluster, key, fenced, std::defer_lock};
            REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
            CHECK(lock.fencing_token() > 0);
            CHECK(node.pttl(key) > 50'000);
            CHECK(node.exists("{" + key + "}:leaselock:fence"));

            ClusterLock other{cluster, key, fenced, std::defer_lock};
            CHECK(said(other.try_acquire()) == said(Answer::no, errc::busy));
            CHECK(said(lock.renew()) == said(Answer::yes));
            const Inspection seen = inspect(cluster, key, 20s);
            CHECK(seen.state == Inspection::State::held);
            CHECK(seen.owner.view() == "me");

            const std::uint64_t token = lock.fencing_token();
            const Lease lease = lock.detach();
            ClusterLock adopted{cluster, key, fenced, std::defer_lock};
            REQUIRE(said(adopted.try_adopt(lease)) == said(Answer::yes));
            CHECK(adopted.fencing_token() > token);
            CHECK(said(adopted.unlock()) == said(Answer::yes));
            CHECK_FALSE(node.exists(key));
            CHECK(inspect(cluster, key, 20s).state == Inspection::State::free);
        }
        for (std::size_t i = 1; i < servers.masters(); ++i) {
            CHECK(cluster.lane(servers.key_on(i, "x")) != cluster.lane(servers.key_on(0, "x")));
            CHECK(cluster.lane(servers.key_on(i, "x")) == cluster.lane(servers.key_on(i, "y")));
        }
    }
}

TEST_CASE("B65 ClusterConnection: helper keys share the slot, or are refused before sending") {
    RedisCluster servers;
    ClusterConnection cluster{patient_url(servers)};
    RawClient outside = servers.client(0);
    for (const std::string key : {"a", "x{y}z", "{tag}", "{}a", "a{b", "a}b{", "a}"}) {
        INFO(key);
        ClusterLock lock{cluster, key, fenced, std::defer_lock};
        const Outcome outcome = lock.try_acquire();
        if (helper_form(key) == HelperForm::impossible) {
            CHECK(said(outcome) == said(Answer::unsent, errc::invalid_argument));
            continue;
        }
        CHECK(said(outcome) == said(Answer::yes));
        const HelperKey helper{key, helper_suffix::fence};
        std::string name(helper.size(), ' ');
        helper.write(name.data());
        CHECK(servers.client_for(key).exists(name));
        CHECK(outside.integer({"CLUSTER", "KEYSLOT", key}) ==
              outside.integer({"CLUSTER", "KEYSLOT", name}));
        CHECK(said(lock.unlock()) == said(Answer::yes));
    }
}

TEST_CASE("ClusterConnection: a batch over all nodes is answered in order") {
    RedisCluster servers;
    ClusterConnection cluster{patient_url(servers)};
    std::vector<std::string> keys;
    std::vector<std::string> values;
    for (int i = 0; i < 300; ++i) {
        keys.push_back("key" + std::to_string(i));
        values.push_back(std::to_string(i));
    }
    std::vector<contract::Words> batch;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        batch.push_back({"SET", keys[i], values[i]});
        batch.push_back({"APPEND", keys[i], "x"});
        batch.push_back({"GET", keys[i]});
    }
    const auto replies = call_all(cluster, batch, 20s);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        REQUIRE(line_of(replies[3 * i]) == "+OK");
        REQUIRE(line_of(replies[3 * i + 1]) == ":" + std::to_string(values[i].size() + 1));
        REQUIRE(line_of(replies[3 * i + 2]) == "$" + values[i] + "x");
    }
    for (std::size_t i = 0; i < servers.masters(); ++i) {
        CHECK(servers.client(i).integer({"DBSIZE"}) > 50);
        CHECK(servers.client(i).client_ids().size() <=
              2); // one stream, and the other test clients'
    }
}

TEST_CASE("ClusterConnection: waiting for a key on another node") {
    RedisCluster servers;
    ClusterConnection cluster{patient_url(servers)};
    const std::string key = servers.key_on(2, "lock:wait");
    servers.client_for(key).expect_ok({"SET", key, "somebody", "PX", "300"});
    ClusterLock lock{cluster, key, fenced, std::defer_lock};
    REQUIRE(said(lock.try_acquire_for(30s)) == said(Answer::yes));
    CHECK(lock.owns_lock());
}

TEST_CASE("ClusterConnection: a renewer keeps leases on all nodes") {
    RedisCluster servers;
    ClusterConnection cluster{patient_url(servers)};
    Renewer renewer{cluster};
    std::vector<ClusterLock> locks;
    std::vector<std::string> keys;
    for (int i = 0; i < 90; ++i) {
        keys.push_back(
            servers.key_on(static_cast<std::size_t>(i) % 3, "lock:kept" + std::to_string(i) + "-"));
    }
    for (const std::string& key : keys) {
        locks.emplace_back(cluster, key, Options{.ttl = 5s, .timeout = 5s});
        renewer.keep(locks.back());
    }
    std::this_thread::sleep_for(6s);
    for (const ClusterLock& lock : locks) CHECK(lock.owns_lock());
    for (std::size_t i = 0; i < keys.size(); i += 10) {
        CHECK(servers.client_for(keys[i]).pttl(keys[i]) > 0);
    }
}

TEST_CASE("S26 ClusterConnection: MOVED is followed with the same token, and remembered") {
    RedisCluster servers;
    ClusterConnection cluster{patient_url(servers)};
    const std::string key = servers.key_on(0, "lock:moved");
    const std::uint16_t slot = hash_slot(key);
    ClusterLock lock{cluster, key, fenced};
    REQUIRE(lock.owns_lock());
    servers.begin_migration(slot, 0, 1);
    servers.move_all_keys(slot, 0, 1);
    servers.end_migration(slot, 0, 1);
    const std::optional<std::string> value = servers.client(1).get(key);
    REQUIRE(value);

    CHECK(said(lock.renew()) == said(Answer::yes));
    CHECK(servers.client(1).get(key) == value);
    CHECK(cluster.lane(key) == cluster.lane(servers.key_on(1, "x")));
    RawClient old = servers.client(0);
    old.reset_stats();
    CHECK(said(lock.renew()) == said(Answer::yes)); // straight to the new owner
    CHECK(old.command_stats().count("evalsha") == 0);
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK_FALSE(servers.client(1).exists(key));
    // and taking it, with a fence, from a connection that has an old table
    CHECK(said(lock.try_acquire()) == said(Answer::yes));
    CHECK(servers.client(1).exists(key));
}

TEST_CASE("S27 ClusterConnection: a key that has gone ahead of its slot is asked for there") {
    RedisCluster servers;
    ClusterConnection cluster{patient_url(servers)};
    const std::string held = servers.key_on(0, "lock:asked");
    const std::uint16_t slot = hash_slot(held);
    const std::string fresh = "{" + held + "}:fresh";
    ClusterLock lock{cluster, held, {.ttl = 60s, .timeout = 20s}};
    servers.begin_migration(slot, 0, 1);
    CHECK(said(lock.renew()) == said(Answer::yes)); // here still
    servers.move_keys({held}, 0, 1);
    CHECK(said(lock.renew()) == said(Answer::yes)); // there
    // a key that is in neither place is made there
    ClusterLock second{cluster, fresh, {.ttl = 60s, .timeout = 20s}};
    CHECK(second.owns_lock());
    ClusterLock third{cluster, fresh, {.ttl = 60s, .timeout = 20s}, std::defer_lock};
    CHECK(said(third.try_acquire()) == said(Answer::no, errc::busy));
    CHECK(servers.client(0).integer({"CLUSTER", "COUNTKEYSINSLOT", std::to_string(slot)}) == 0);
    CHECK(servers.client(1).integer({"CLUSTER", "COUNTKEYSINSLOT", std::to_string(slot)}) == 2);
    CHECK(cluster.lane(held) == cluster.lane(servers.key_on(0, "x"))); // it is not the owner yet
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK(said(second.unlock()) == said(Answer::yes));
    servers.cancel_migration(slot, 0, 1);
}

TEST_CASE(
    "S28 ClusterConnection: lock and fence counter on their way are tried again, or given back") {
    RedisCluster servers;
    ClusterConnection cluster{patient_url(servers)};
    const std::string key = servers.key_on(0, "lock:again");
    const std::uint16_t slot = hash_slot(key);
    const std::string counter = "{" + key + "}:leaselock:fence";
    std::uint64_t last = 0;
    {
        ClusterLock first{cluster, key, fenced};
        last = first.fencing_token();
    }
    REQUIRE(last > 0);
    // the counter stays, the lock is made there: the script's keys are in two places
    servers.begin_migration(slot, 0, 1);
    ClusterLock lock{cluster, key, {.ttl = 60s, .fencing = true, .timeout = 1s}, std::defer_lock};
    const Outcome outcome = lock.try_acquire();
    CHECK(said(outcome.answer) == said(Answer::refused));
    CHECK((outcome.cause == errc::try_again || outcome.cause == errc::ask));
    CHECK_FALSE(lock.owns_lock());
    RawClient target = servers.client(1);
    const std::vector<std::string> count{"CLUSTER", "COUNTKEYSINSLOT", std::to_string(slot)};
    CHECK(servers.client(0).integer(count) == 1); // the counter
    CHECK(target.integer(count) == 0);

    // until the counter has followed
    ClusterLock lasting{cluster, key, fenced, std::defer_lock};
    Outcome waited;
    std::thread worker{[&] { waited = lasting.try_acquire(); }};
    CHECK(eventually([&] { return target.integer(count) == 1; })); // the lock
    servers.move_keys({counter}, 0, 1);
    worker.join();
    CHECK(said(waited) == said(Answer::yes));
    CHECK(lasting.fencing_token() > last);
    servers.end_migration(slot, 0, 1);
    CHECK(said(lasting.unlock()) == said(Answer::yes));
}

TEST_CASE("S30 ClusterConnection: slots that nobody has are told by the cluster's words") {
    RedisCluster servers{
        {.arguments = {"--cluster-require-full-coverage", "no"}, .leave_gap = true}};
    ClusterConnection cluster{patient_url(servers)};
    const std::string served = servers.key_on(0, "lock:served");
    const std::string missing = servers.key_on(2, "lock:missing");
    ClusterLock good{cluster, served, patient};
    CHECK(good.owns_lock());
    ClusterLock lock{cluster, missing, {.ttl = 60s, .timeout = 2s}, std::defer_lock};
    const Stopwatch watch;
    const Outcome outcome = lock.try_acquire();
    CHECK(watch.elapsed() < 2s + contract::slack);
    CHECK(said(outcome) == said(Answer::refused, errc::cluster_down));
    CHECK(words_of(outcome) == "CLUSTERDOWN Hash slot not served");
    CHECK(said(good.renew()) == said(Answer::yes));
    // served from now on: found inside one call
    ClusterLock late{cluster, missing, patient, std::defer_lock};
    Outcome waited;
    std::thread worker{[&] { waited = late.try_acquire(); }};
    std::this_thread::sleep_for(200ms);
    servers.client(2).expect_ok({"CLUSTER", "ADDSLOTS", std::to_string(hash_slot(missing))});
    worker.join();
    CHECK(said(waited) == said(Answer::yes));
}

TEST_CASE("S30 ClusterConnection: with a slot missing, a strict cluster is down for every key") {
    RedisCluster servers{{.leave_gap = true}};
    ClusterConnection cluster{patient_url(servers)};
    const std::string key = servers.key_on(0, "lock:down");
    ClusterLock lock{cluster, key, {.ttl = 60s, .timeout = 2s}, std::defer_lock};
    const Outcome outcome = lock.try_acquire();
    CHECK(said(outcome) == said(Answer::refused, errc::cluster_down));
    CHECK(words_of(outcome) == "CLUSTERDOWN The cluster is down");
    CHECK(may_pass_by_waiting(outcome.cause));
}

TEST_CASE("S16 ClusterConnection: user and password hold for every node") {
    RedisCluster servers{{.password = "secret"}};
    ClusterConnection cluster{patient_url(servers)};
    for (std::size_t i = 0; i < servers.masters(); ++i) {
        ClusterLock lock{cluster, servers.key_on(i, "lock:auth"), fenced};
        CHECK(lock.owns_lock());
    }
}

TEST_CASE("P4 ClusterConnection: in a forked child it sends nothing") {
    RedisCluster servers;
    ClusterConnection cluster{patient_url(servers)};
    const std::string key = servers.key_on(1, "lock:fork");
    ClusterLock lock{cluster, key, patient};
    ChildProcess child{[&] {
        const Reply reply = call(cluster, {"SET", "child", "1"});
        if (reply.kind != Reply::unsent || reply.cause != errc::other_process) return 1;
        if (lock.owns_lock()) return 2;
        ClusterConnection own{patient_url(servers)};
        ClusterLock mine{own, servers.key_on(2, "lock:child"), patient};
        return mine.owns_lock() ? 0 : 3;
    }};
    CHECK(child.wait() == ProcessEnd{.code = 0});
    CHECK(lock.owns_lock());
    CHECK(said(lock.renew()) == said(Answer::yes));
    CHECK(said(lock.unlock()) == said(Answer::yes));
}

TEST_CASE("ClusterConnection: sixteen threads, every reply to its own, no two inside") {
    RedisCluster servers;
    ClusterConnection cluster{patient_url(servers)};
    std::atomic<int> wrong = 0;
    std::atomic<int> entered = 0;
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < 3; ++i) keys.push_back(servers.key_on(i, "lock:crowd"));
    std::vector<std::atomic<int>> inside(keys.size());
    std::vector<std::thread> threads;
    for (int t = 0; t < 16; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 100; ++i) {
                const std::string mine = "t" + std::to_string(t) + "-" + std::to_string(i);
                const auto replies = call_all(cluster, {{"SET", mine, mine}, {"GET", mine}}, 20s);
                if (line_of(replies[1]) != "$" + mine) ++wrong;
                const auto which = static_cast<std::size_t>(t + i) % keys.size();
                ClusterLock lock{cluster, keys[which], patient, std::defer_lock};
                if (!lock.try_acquire()) continue;
                if (++inside[which] != 1) ++wrong;
                ++entered;
                --inside[which];
                if (!lock.unlock()) ++wrong;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(entered > 0);
}
