// SPDX-License-Identifier: MIT

#include "simulation/simulation.hpp"

#include "simulation/client.hpp"
#include "simulation/connection.hpp"
#include "simulation/network.hpp"
#include "simulation/plan.hpp"
#include "simulation/random.hpp"
#include "simulation/scene.hpp"
#include "simulation/surroundings.hpp"
#include "simulation/world.hpp"

#include <leaselock/lock/renewer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace leaselock::simulation {
namespace {

constexpr Time never = std::numeric_limits<Time>::max();

class Simulation {
public:
    explicit Simulation(const Plan& plan)
        : scene_(plan), store_(scene_.world), around_{scene_.world, scene_.network, plan, store_},
          faults_(scene_, [this](auto number) { start_client(number); }) {}
    Run run();

private:
    void start_client(std::size_t number);
    template <class B>
    void run_client(std::size_t number, bool shared, Random random);
    void start_probe();
    template <class B>
    void run_probe();

    Scene scene_;
    Store store_;
    Surroundings around_;
    Faults faults_;
};

Run Simulation::run() {
    World& world = scene_.world;
    const Plan& plan = scene_.plan;
    for (std::size_t i = 0; i < plan.clients; ++i) {
        if (std::find(plan.without.begin(), plan.without.end(), i) == plan.without.end()) {
            start_client(i);
        }
    }
    for (const Fault& fault : plan.faults) {
        world.at(fault.at, [this, &fault] { faults_.begin(fault); });
        world.at(fault.at + fault.span, [this, &fault] { faults_.end(fault); });
    }
    world.at(plan.horizon, [this] { faults_.heal(); });
    bool ended = world.run(never) && world.threads() == 0;
    if (ended) {
        start_probe();
        ended = world.run(never) && world.threads() == 0;
    }
    return {world.history(), ended};
}

void Simulation::start_client(std::size_t number) {
    const Plan& plan = scene_.plan;
    Machine& machine = scene_.machines[number];
    std::string name = "c" + std::to_string(number);
    if (machine.processes++ != 0) name += "." + std::to_string(machine.processes);
    machine.process = &scene_.world.start_process(std::move(name), machine.clock);
    machine.forks.store(0);
    const Random random{plan.seed,
                        10'000 + 100 * number + static_cast<std::uint64_t>(machine.processes)};
    const bool shared = machine.process->random.chance(plan.shared);
    scene_.world.start_thread(*machine.process, [this, number, shared, random] {
        if (scene_.plan.nodes > 1) {
            run_client<SimulatedQuorum>(number, false, random);
        } else if (shared) {
            run_client<SharedSimulatedConnection>(number, true, random);
        } else {
            run_client<SimulatedConnection>(number, false, random);
        }
    });
}

template <class B>
void Simulation::run_client(std::size_t number, bool shared, Random random) {
    Machine& machine = scene_.machines[number];
    const std::span<Link> links = scene_.links_of(number);
    Way<B> way{scene_.network, links};
    Way<B> for_renewal{scene_.network, links};
    B& redis = way.backend;
    std::optional<Renewer<B>> renewer{std::in_place, shared ? redis : for_renewal.backend};
    Client<B> client{around_, redis, links, renewer, random, machine.forks, !shared};
    if (!shared) return client.work();
    Client<B> second{around_, redis, links, renewer, Random{random.next()}, machine.forks, false};
    World& world = scene_.world;
    Thread& thread = world.start_thread(world.process(), [&] { second.work(); });
    client.work();
    (void)world.wait_until(thread.ended, 0, never);
}

void Simulation::start_probe() {
    Machine& machine = scene_.machines.back();
    machine.process = &scene_.world.start_process("probe", machine.clock);
    scene_.world.start_thread(*machine.process, [this] {
        scene_.plan.nodes > 1 ? run_probe<SimulatedQuorum>() : run_probe<SimulatedConnection>();
    });
}

template <class B>
void Simulation::run_probe() {
    const std::span<Link> links = scene_.links_of(scene_.plan.clients);
    for (Link& link : links)
        link.latency = 100 * us; // it is to measure the lock, not the way there
    Way<B> way{scene_.network, links};
    std::optional<Renewer<B>> none;
    Client<B>{around_,
              way.backend,
              links,
              none,
              Random{scene_.plan.seed, 3},
              scene_.machines.back().forks,
              true}
        .probe();
}

} // namespace

Run carry_out(const Plan& plan) { return Simulation{plan}.run(); }

} // namespace leaselock::simulation
