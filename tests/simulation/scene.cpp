// SPDX-License-Identifier: MIT

#include "simulation/scene.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace leaselock::simulation {
namespace {

// No two clocks differ in rate by more than the default margin allows, 1 %.
constexpr std::int64_t most_ppm = 4'000;

} // namespace

Scene::Scene(const Plan& its_plan)
    : plan(its_plan), world(plan.seed), runtime(world),
      random(plan.seed, 2), network{world, runtime} {
    plan.nodes == 1 ? add_master_and_replica() : add_nodes();
    for (Server& server : servers) server.redis.set_lacks_getex(plan.lacks_getex);
    for (std::size_t i = 0; i <= plan.clients; ++i) {
        for (std::size_t node = 0; node < plan.nodes; ++node) {
            links.push_back(Link{Random{plan.seed, 100 + i + 1'000 * node}, node, plan.latency});
        }
        machines.emplace_back().clock = {random.between(s, 1'000'000 * s),
                                         random.between(-most_ppm, most_ppm)};
    }
}

/// The replica's clock is not behind that of the master: a fence counter that was lost would not be
/// caught up with.
void Scene::add_master_and_replica() {
    const Clock master{random.between(0, 1'000 * s), random.between(-most_ppm, most_ppm)};
    const Clock replica{master.offset + random.between(0, 5 * ms),
                        random.between(master.ppm, most_ppm)};
    servers.emplace_back(world, "s0", master);
    servers.emplace_back(world, "s1", replica);
    servers.front().replicate_to(&servers.back(), random.between(0, 100 * ms));
    network.nodes.push_back(&servers.front());
}

void Scene::add_nodes() {
    for (std::size_t i = 0; i < plan.nodes; ++i) {
        const Clock clock{random.between(0, 1'000 * s), random.between(-most_ppm, most_ppm)};
        network.nodes.push_back(&servers.emplace_back(world, "s" + std::to_string(i), clock));
    }
}

} // namespace leaselock::simulation
