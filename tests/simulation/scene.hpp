#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/clock.hpp"
#include "simulation/network.hpp"
#include "simulation/plan.hpp"
#include "simulation/random.hpp"
#include "simulation/server.hpp"
#include "simulation/world.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

namespace leaselock::simulation {

/// Where a client runs, one process after another.
struct Machine {
    Clock clock;
    Process* process = nullptr;
    int processes = 0;
    std::atomic<std::uint32_t> forks{0};
};

/// What there is in a run: servers, machines, and the ways between them.
struct Scene {
    explicit Scene(const Plan& its_plan);

    [[nodiscard]] std::span<Link> links_of(std::size_t machine) {
        return std::span{links}.subspan(machine * plan.nodes, plan.nodes);
    }

    const Plan& plan;
    World world;
    SimulatedRuntime runtime;
    Random random;
    std::deque<Server> servers; ///< the nodes of a quorum; else a master and its replica
    std::vector<Link> links;    ///< of each machine one to each node
    Network network;
    std::deque<Machine> machines; ///< the clients', and the probe's

private:
    void add_master_and_replica();
    void add_nodes();
};

/// Makes things go wrong, and ends that.
class Faults {
public:
    /// @param start_client on its machine, where a process was killed
    Faults(Scene& scene, std::function<void(std::size_t)> start_client)
        : scene_(scene), start_client_(std::move(start_client)) {}

    void begin(const Fault& fault);
    void end(const Fault& fault);
    /// Ends all.
    void heal();

private:
    void begin_at_client(const Fault& fault, Process& process);
    void begin_on_the_way(const Fault& fault, Link& link);
    void begin_at_server(const Fault& fault);
    void fail_over();
    void end_at_client(const Fault& fault);
    void end_on_the_way(const Fault& fault, Link& link);
    void end_at_server(const Fault& fault);
    [[nodiscard]] Server& server_of(const Fault& fault) const {
        return *scene_.network.nodes[fault.node.value_or(0)];
    }

    Scene& scene_;
    std::function<void(std::size_t)> start_client_;
};

} // namespace leaselock::simulation
