// SPDX-License-Identifier: MIT
#pragma once

#include "raw_client.hpp"
#include "redis_server.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace leaselock::test {

/// How a private cluster is to be set up.
struct ClusterPlan {
    std::size_t masters = 3;
    bool replicas = false;                ///< one for each master
    std::vector<std::string> arguments{}; ///< added to each server's command line
    std::string password{};
    bool leave_gap = false; ///< the last master gets no slots, and nobody has them
};

/// A private Redis or Valkey cluster, see RedisServer. The slots are shared out evenly, in order. Its
/// nodes give each other up after a second.
class RedisCluster {
public:
    explicit RedisCluster(const ClusterPlan& plan = {});

    [[nodiscard]] std::size_t masters() const noexcept { return masters_; }
    [[nodiscard]] RedisServer& master(std::size_t index) { return *nodes_.at(index); }
    [[nodiscard]] RedisServer& replica(std::size_t of) { return *nodes_.at(masters_ + of); }
    /// Of one node, any is enough to find the others.
    [[nodiscard]] std::string url(std::size_t index = 0) const { return nodes_.at(index)->url(); }
    [[nodiscard]] RawClient client(std::size_t index) const { return nodes_.at(index)->client(); }

    /// Who had the slot in the beginning.
    [[nodiscard]] std::size_t first_owner(std::uint16_t slot) const noexcept;
    /// A key that begins so, has no hash tag, and lived on that master in the beginning.
    [[nodiscard]] std::string key_on(std::size_t master, const std::string& beginning) const;
    /// What the node that had the key's slot in the beginning holds under it.
    [[nodiscard]] RawClient client_for(std::string_view key) const;

    /// Declares the slot to be on its way from one master to another. Keys move by `move_keys`.
    void begin_migration(std::uint16_t slot, std::size_t from, std::size_t to);
    void move_keys(const std::vector<std::string>& keys, std::size_t from, std::size_t to);
    /// All keys of the slot.
    void move_all_keys(std::uint16_t slot, std::size_t from, std::size_t to);
    void end_migration(std::uint16_t slot, std::size_t from, std::size_t to);
    /// The slot stays where it was.
    void cancel_migration(std::uint16_t slot, std::size_t from, std::size_t to);

    /// Waits until every node that runs says so of itself.
    void await_state(std::string_view state);
    /// Waits until the replica has taken its master's place.
    void await_promotion(std::size_t of);

private:
    void start(const ClusterPlan& plan);
    void form(const ClusterPlan& plan);
    void replicate();
    [[nodiscard]] std::string id_of(std::size_t node);

    std::size_t masters_;
    std::size_t slot_owners_;
    std::string password_;
    std::vector<std::uint16_t> bus_ports_;
    std::vector<std::unique_ptr<RedisServer>> nodes_; ///< masters, then replicas
};

} // namespace leaselock::test
