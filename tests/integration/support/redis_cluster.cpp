// SPDX-License-Identifier: MIT
#include "redis_cluster.hpp"

#include "eventually.hpp"
#include "reserved_port.hpp"

#include <leaselock/redis/key.hpp>

#include <chrono>
#include <functional>
#include <set>
#include <stdexcept>

namespace leaselock::test {
namespace {

constexpr std::size_t all_slots = hash_slots;

bool holds(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

void await(const std::string& what, const std::function<bool()>& condition) {
    const auto guarded = [&] {
        try {
            return condition();
        } catch (const std::runtime_error&) {
            return false; // a node that is being started, or has just been killed
        }
    };
    if (!eventually(guarded, std::chrono::seconds{60})) {
        throw std::runtime_error("cluster: waited in vain: " + what);
    }
}

} // namespace

RedisCluster::RedisCluster(const ClusterPlan& plan)
    : masters_{plan.masters},
      slot_owners_{plan.masters - (plan.leave_gap ? 1 : 0)}, password_{plan.password} {
    start(plan);
    form(plan);
    if (plan.replicas) replicate();
}

void RedisCluster::start(const ClusterPlan& plan) {
    const std::size_t count = masters_ * (plan.replicas ? 2 : 1);
    for (std::size_t i = 0; i < count; ++i) {
        // The bus has a port of its own choice from Redis 7 on; before, it is the other one + 10000.
        const ReservedPort bus;
        std::vector<std::string> arguments{"--cluster-enabled",
                                           "yes",
                                           "--cluster-port",
                                           std::to_string(bus.number()),
                                           "--cluster-node-timeout",
                                           "1000",
                                           "--cluster-replica-validity-factor",
                                           "0",
                                           "--repl-diskless-sync-delay",
                                           "0",
                                           "--repl-ping-replica-period", // a replica counts from
                                           "1"};                         // the first one on
        if (!password_.empty()) {
            arguments.insert(arguments.end(), {"--masterauth", password_});
        }
        arguments.insert(arguments.end(), plan.arguments.begin(), plan.arguments.end());
        nodes_.push_back(std::make_unique<RedisServer>(arguments, password_));
        bus_ports_.push_back(bus.number());
    }
}

void RedisCluster::form(const ClusterPlan& plan) {
    const std::size_t parts = masters_; // a gap is the last one's part
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        RawClient node = client(i);
        node.expect_ok({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
        if (i >= slot_owners_) continue;
        std::vector<std::string> add{"CLUSTER", "ADDSLOTS"};
        for (std::size_t slot = all_slots * i / parts; slot < all_slots * (i + 1) / parts; ++slot) {
            add.push_back(std::to_string(slot));
        }
        node.expect_ok(add);
    }
    RawClient first = client(0);
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
        first.expect_ok({"CLUSTER", "MEET", "127.0.0.1", std::to_string(nodes_[i]->port()),
                         std::to_string(bus_ports_[i])});
    }
    const std::string known = "cluster_known_nodes:" + std::to_string(nodes_.size()) + "\r";
    const std::size_t assigned = plan.leave_gap ? all_slots * slot_owners_ / parts : all_slots;
    const std::string slots = "cluster_slots_ok:" + std::to_string(assigned) + "\r";
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        await("a node knows all others and all slots", [&] {
            const std::string info = client(i).command({"CLUSTER", "INFO"});
            return holds(info, known) && holds(info, slots) &&
                   (plan.leave_gap || holds(info, "cluster_state:ok"));
        });
    }
}

void RedisCluster::replicate() {
    for (std::size_t i = 0; i < masters_; ++i) {
        RawClient node = client(masters_ + i);
        node.expect_ok({"CLUSTER", "REPLICATE", id_of(i)});
    }
    for (std::size_t i = 0; i < masters_; ++i) {
        await("a replica follows its master", [&] {
            return holds(client(masters_ + i).command({"INFO", "replication"}),
                         "master_link_status:up");
        });
        await("the others know of it", [&] {
            for (std::size_t k = 0; k < nodes_.size(); ++k) {
                if (!holds(client(k).command({"CLUSTER", "SLOTS"}), id_of(masters_ + i))) {
                    return false;
                }
            }
            return true;
        });
    }
    await_state("ok");
}

std::string RedisCluster::id_of(std::size_t node) {
    return client(node).command({"CLUSTER", "MYID"});
}

std::size_t RedisCluster::first_owner(std::uint16_t slot) const noexcept {
    std::size_t owner = 0;
    while (slot >= all_slots * (owner + 1) / masters_) ++owner;
    return owner;
}

std::string RedisCluster::key_on(std::size_t master, const std::string& beginning) const {
    for (int i = 0;; ++i) {
        std::string key = beginning + std::to_string(i);
        if (first_owner(hash_slot(key)) == master) return key;
    }
}

RawClient RedisCluster::client_for(std::string_view key) const {
    return client(first_owner(hash_slot(key)));
}

void RedisCluster::begin_migration(std::uint16_t slot, std::size_t from, std::size_t to) {
    const std::string number = std::to_string(slot);
    client(to).expect_ok({"CLUSTER", "SETSLOT", number, "IMPORTING", id_of(from)});
    client(from).expect_ok({"CLUSTER", "SETSLOT", number, "MIGRATING", id_of(to)});
}

void RedisCluster::move_keys(const std::vector<std::string>& keys, std::size_t from,
                             std::size_t to) {
    std::vector<std::string> words{"MIGRATE", "127.0.0.1", std::to_string(nodes_.at(to)->port()),
                                   "",        "0",         "20000"};
    if (!password_.empty()) words.insert(words.end(), {"AUTH", password_});
    words.emplace_back("KEYS");
    words.insert(words.end(), keys.begin(), keys.end());
    const std::string reply = client(from).command(words);
    if (reply != "OK" && reply != "NOKEY") throw std::runtime_error("MIGRATE: " + reply);
}

void RedisCluster::move_all_keys(std::uint16_t slot, std::size_t from, std::size_t to) {
    RawClient source = client(from);
    const std::string number = std::to_string(slot);
    // one at a time: keys come and go under way, and have any bytes but these
    for (;;) {
        const std::string listed = source.command({"CLUSTER", "GETKEYSINSLOT", number, "1"});
        if (listed == "[]") return;
        move_keys({listed.substr(1, listed.size() - 2)}, from, to);
    }
}

void RedisCluster::end_migration(std::uint16_t slot, std::size_t from, std::size_t to) {
    const std::vector<std::string> words{"CLUSTER", "SETSLOT", std::to_string(slot), "NODE",
                                         id_of(to)};
    client(to).expect_ok(words); // first: else nobody has it for a moment
    client(from).expect_ok(words);
    for (std::size_t i = 0; i < masters_; ++i) {
        if (i != to && i != from) client(i).expect_ok(words);
    }
    // Until all know how new that is, a next move may be taken for an older one, and undone.
    await("the nodes agree on the epoch", [&] {
        std::set<std::string> epochs;
        for (std::size_t i = 0; i < masters_; ++i) {
            const std::string info = client(i).command({"CLUSTER", "INFO"});
            const auto at = info.find("cluster_current_epoch:");
            epochs.insert(info.substr(at, info.find('\r', at) - at));
        }
        return epochs.size() == 1;
    });
}

void RedisCluster::cancel_migration(std::uint16_t slot, std::size_t from, std::size_t to) {
    const std::string number = std::to_string(slot);
    client(from).expect_ok({"CLUSTER", "SETSLOT", number, "STABLE"});
    client(to).expect_ok({"CLUSTER", "SETSLOT", number, "STABLE"});
}

void RedisCluster::await_state(std::string_view state) {
    const std::string line = "cluster_state:" + std::string{state};
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (!nodes_[i]->running()) continue;
        await("a node says " + line, [&] {
            return holds(client(i).command({"CLUSTER", "INFO"}), line);
        });
    }
}

void RedisCluster::await_promotion(std::size_t of) {
    await("a replica is promoted", [&] {
        return holds(client(masters_ + of).command({"INFO", "replication"}), "role:master");
    });
    await_state("ok");
}

} // namespace leaselock::test
