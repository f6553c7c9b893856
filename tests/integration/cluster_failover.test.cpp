// SPDX-License-Identifier: MIT
#include "connection_contract.hpp"
#include "kept_story.hpp"
#include "support/redis_cluster.hpp"

#include <leaselock/hiredis/cluster_connection.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/renewer.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

using namespace leaselock;
using namespace leaselock::test;
using contract::call;
using contract::line_of;
using namespace std::chrono_literals;

namespace {

using ClusterLock = LeaseLock<ClusterConnection>;

std::string patient_url(const RedisCluster& servers) { return test::patient_url(servers.url(1)); }

/// A kept lease on each master, which has reached the replicas.
std::vector<ClusterLock> keep_one_each(RedisCluster& servers, ClusterConnection& cluster,
                                       Renewer<ClusterConnection>& renewer,
                                       std::chrono::milliseconds ttl, Observer* observer) {
    std::vector<ClusterLock> locks;
    for (std::size_t i = 0; i < servers.masters(); ++i) {
        locks.emplace_back(cluster, servers.key_on(i, "lock:kept"),
                           Options{.ttl = ttl, .timeout = 20s, .observer = observer});
        renewer.keep(locks.back());
        const bool copied = eventually([&] {
            return servers.client(servers.masters() + i)
                       .command({"CLUSTER", "COUNTKEYSINSLOT",
                                 std::to_string(hash_slot(locks.back().key()))}) == "(integer) 1";
        });
        if (!copied) throw std::runtime_error("a replica did not get the lock");
    }
    return locks;
}

/// Threads that go on until it is over, also where the story itself ends by an exception.
struct Crowd {
    explicit Crowd(std::atomic<bool>& over) : over_{over} {}
    Crowd(const Crowd&) = delete;
    Crowd& operator=(const Crowd&) = delete;
    ~Crowd() { disperse(); }
    void disperse() {
        over_ = true;
        for (auto& thread : threads) thread.join();
        threads.clear();
    }

    std::vector<std::thread> threads;

private:
    std::atomic<bool>& over_;
};

} // namespace

TEST_CASE(
    "S30 ClusterConnection: a killed master's slots are found at its replica, inside the call") {
    RedisCluster servers{{.replicas = true}};
    ClusterConnection cluster{patient_url(servers)};
    Hearsay heard;
    Renewer renewer{cluster};
    auto locks = keep_one_each(servers, cluster, renewer, 20s, &heard);
    const std::uint32_t old_lane = cluster.lane(locks[0].key());

    servers.master(0).kill_hard();
    ClusterLock fresh{cluster, servers.key_on(0, "lock:fresh"), {.ttl = 60s, .timeout = 60s}};
    CHECK(fresh.owns_lock()); // tried again until the replica had been promoted
    CHECK(said(fresh.renew()) == said(Answer::yes));
    CHECK(cluster.lane(fresh.key()) != old_lane);
    for (ClusterLock& lock : locks) {
        INFO(lock.key());
        CHECK(eventually([&] { return bool{lock.renew()}; }, 30s));
        CHECK(lock.owns_lock());
    }
    CHECK(heard.count(Verb::lose) == 0);
    CHECK(said(fresh.unlock()) == said(Answer::yes));
    // and the old one comes back as a replica
    servers.master(0).restart();
    servers.await_state("ok");
    CHECK(said(locks[0].renew()) == said(Answer::yes));
    CHECK(said(locks[0].unlock()) == said(Answer::yes));
}

TEST_CASE(
    "S5 S30 ClusterConnection: a master that hangs is left behind once it has been replaced") {
    RedisCluster servers{{.replicas = true}};
    ClusterConnection cluster{patient_url(servers), system_runtime(), 500ms};
    Hearsay heard;
    Renewer renewer{cluster};
    auto locks = keep_one_each(servers, cluster, renewer, 20s, &heard);
    const std::uint32_t old_lane = cluster.lane(locks[0].key());
    // it takes connections and bytes, and says nothing: nothing is ever unsent
    servers.master(0).stop_process();
    CHECK(eventually([&] { return cluster.lane(locks[0].key()) != old_lane; }, 60s));
    for (ClusterLock& lock : locks) {
        INFO(lock.key());
        CHECK(eventually([&] { return bool{lock.renew()}; }, 30s));
    }
    CHECK(heard.count(Verb::lose) == 0);
    servers.master(0).continue_process();
    servers.await_state("ok");
    for (ClusterLock& lock : locks) CHECK(said(lock.unlock()) == said(Answer::yes));
}

TEST_CASE(
    "S30 ClusterConnection: without a replica the others go on, and it is found when it is back") {
    RedisCluster servers{{.arguments = {"--cluster-require-full-coverage", "no"}}};
    ClusterConnection cluster{patient_url(servers)};
    const std::string dead = servers.key_on(0, "lock:dead");
    const std::string alive = servers.key_on(2, "lock:alive");
    ClusterLock held{cluster, alive, patient};
    REQUIRE(said(held.renew()) == said(Answer::yes));
    ClusterLock before{cluster, dead, patient};
    servers.master(0).kill_hard();

    for (int i = 0; i < 3; ++i) {
        ClusterLock lock{cluster, dead, {.ttl = 60s, .timeout = 1s}, std::defer_lock};
        const Stopwatch watch;
        const Outcome outcome = lock.try_acquire();
        CHECK(watch.elapsed() < 1s + contract::slack);
        CHECK((outcome.answer == Answer::unsent || outcome.answer == Answer::refused));
        CHECK((outcome.cause == condition::unreachable || outcome.cause == errc::cluster_down));
        const Stopwatch other;
        CHECK(said(held.renew()) == said(Answer::yes));
    }
    ClusterLock lock{cluster, dead, {.ttl = 60s, .timeout = 60s}, std::defer_lock};
    Outcome outcome;
    std::thread worker{[&] { outcome = lock.try_acquire(); }};
    std::this_thread::sleep_for(300ms);
    servers.master(0).restart(); // on the main thread, with which the server would end
    worker.join();
    CHECK(said(outcome) == said(Answer::yes));
    CHECK(said(before.unlock()) == said(Answer::no, errc::taken)); // forgotten: nothing was saved
    CHECK(said(lock.unlock()) == said(Answer::yes));
}

TEST_CASE(
    "S26 S27 S28 ClusterConnection: slots move there and back under load, and nobody notices") {
    RedisCluster servers;
    ClusterConnection cluster{patient_url(servers)};
    Hearsay heard;
    constexpr std::size_t slots = 4;
    std::vector<std::string> names; // one for each slot, which its keys have as their tag
    for (std::size_t i = 0; i < slots; ++i) {
        names.push_back(servers.key_on(0, "s" + std::to_string(i) + "-"));
    }
    const auto key = [&](std::size_t slot, const std::string& what) {
        return "{" + names[slot] + "}:" + what;
    };
    Renewer renewer{cluster};
    std::vector<ClusterLock> kept;
    for (std::size_t i = 0; i < 2 * slots; ++i) {
        kept.emplace_back(cluster, key(i % slots, "kept" + std::to_string(i)),
                          Options{.ttl = 6s, .timeout = 5s, .observer = &heard});
        renewer.keep(kept.back());
    }

    std::atomic<bool> over = false;
    std::atomic<int> entered = 0;
    std::atomic<int> overlaps = 0;
    std::atomic<int> not_given_back = 0;
    std::array<std::atomic<int>, slots> inside{};
    std::array<std::atomic<std::uint64_t>, slots> fence{};
    Crowd crowd{over};
    for (int t = 0; t < 4; ++t) {
        crowd.threads.emplace_back([&, t] {
            for (std::size_t i = static_cast<std::size_t>(t); !over; ++i) {
                const std::size_t slot = i % slots;
                ClusterLock lock{cluster,
                                 key(slot, "crowd"),
                                 {.ttl = 60s, .fencing = true, .timeout = 20s, .observer = &heard},
                                 std::defer_lock};
                if (!lock.try_acquire()) continue;
                if (++inside[slot] != 1) ++overlaps;
                const std::uint64_t token = lock.fencing_token();
                if (fence[slot].exchange(token) >= token) ++overlaps;
                ++entered;
                --inside[slot];
                if (!lock.unlock()) ++not_given_back;
            }
        });
    }
    const Stopwatch watch;
    int rounds = 0;
    for (; watch.elapsed() < 8s; ++rounds) {
        for (const auto& [from, to] : {std::pair<std::size_t, std::size_t>{0, 1}, {1, 0}}) {
            for (const std::string& name : names) {
                const std::uint16_t slot = hash_slot(name);
                servers.begin_migration(slot, from, to);
                servers.move_all_keys(slot, from, to);
                std::this_thread::sleep_for(5ms); // new keys are asked for
                servers.move_all_keys(slot, from, to);
                servers.end_migration(slot, from, to);
            }
        }
    }
    crowd.disperse();
    CAPTURE(rounds);
    CHECK(entered > 50);
    CHECK(overlaps == 0);
    CHECK(not_given_back == 0);
    CHECK(heard.count(Verb::lose) == 0);
    CHECK(heard.count(Verb::acquire, "unknown") == 0);
    for (ClusterLock& lock : kept) {
        CHECK(lock.owns_lock());
        CHECK(said(lock.unlock()) == said(Answer::yes));
    }
    for (std::size_t i = 0; i < slots; ++i) { // nothing is left but the counters
        const std::vector<std::string> count{"CLUSTER", "COUNTKEYSINSLOT",
                                             std::to_string(hash_slot(names[i]))};
        CHECK(servers.client(0).integer(count) + servers.client(1).integer(count) == 1);
    }
}
