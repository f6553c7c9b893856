// SPDX-License-Identifier: MIT

#include "simulation/simulation.hpp"

#include "simulation/client.hpp"
#include "simulation/network.hpp"
#include "simulation/plan.hpp"
#include "simulation/random.hpp"
#include "simulation/server.hpp"
#include "simulation/world.hpp"

#include <leaselock/lock/renewer.hpp>
#include <leaselock/testing/memory_redis.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace leaselock::simulation {
namespace {

using testing::MemoryRedis;

constexpr Time never = std::numeric_limits<Time>::max();

class Simulation {
public:
    explicit Simulation(const Plan& plan);
    Run run();

private:
    /// Where a client runs, one process after another.
    struct Machine {
        Clock clock;
        Process* process = nullptr;
        int processes = 0;
        std::atomic<std::uint32_t> forks{0};
    };

    void start_client(std::size_t number);
    template <class C>
    void run_client(std::size_t number, bool shared, Random random);
    void start_probe();
    void heal();

    void begin(const Fault& fault);
    void end(const Fault& fault);
    void begin_at_client(const Fault& fault, Process& process);
    void begin_at_server(const Fault& fault);
    void fail_over();
    void come_back(const Fault& fault);

    const Plan& plan_;
    World world_;
    SimulatedRuntime runtime_;
    Random random_;
    std::deque<Server> servers_;
    std::vector<Link> links_; ///< one to a machine, and the probe's
    Network network_;
    Store store_;
    Surroundings around_;
    std::deque<Machine> machines_;
};

Simulation::Simulation(const Plan& plan)
    : plan_(plan), world_(plan.seed), runtime_(world_),
      random_(plan.seed, 2), network_{world_, runtime_},
      store_(world_), around_{world_, network_, plan, store_} {
    // No two clocks differ in rate by more than the default margin allows, 1 %. The replica's is not
    // behind that of the master: a fence counter that was lost would not be caught up with.
    constexpr std::int64_t most_ppm = 4'000;
    const Clock master{random_.between(0, 1'000 * s), random_.between(-most_ppm, most_ppm)};
    const Clock replica{master.offset + random_.between(0, 5 * ms),
                        random_.between(master.ppm, most_ppm)};
    servers_.emplace_back(world_, "s0", master);
    servers_.emplace_back(world_, "s1", replica);
    for (Server& server : servers_) server.redis.set_lacks_getex(plan.lacks_getex);
    network_.master = &servers_.front();
    servers_.front().replicate_to(&servers_.back(), random_.between(0, 100 * ms));
    for (std::size_t i = 0; i <= plan.clients; ++i) {
        links_.push_back(Link{Random{plan.seed, 100 + i}, plan.latency});
        machines_.emplace_back().clock = {random_.between(s, 1'000'000 * s),
                                          random_.between(-most_ppm, most_ppm)};
    }
}

Run Simulation::run() {
    for (std::size_t i = 0; i < plan_.clients; ++i) {
        if (std::find(plan_.without.begin(), plan_.without.end(), i) == plan_.without.end()) {
            start_client(i);
        }
    }
    for (const Fault& fault : plan_.faults) {
        world_.at(fault.at, [this, &fault] { begin(fault); });
        world_.at(fault.at + fault.span, [this, &fault] { end(fault); });
    }
    world_.at(plan_.horizon, [this] { heal(); });
    bool ended = world_.run(never) && world_.threads() == 0;
    if (ended) {
        start_probe();
        ended = world_.run(never) && world_.threads() == 0;
    }
    return {world_.history(), ended};
}

void Simulation::start_client(std::size_t number) {
    Machine& machine = machines_[number];
    std::string name = "c" + std::to_string(number);
    if (machine.processes++ != 0) name += "." + std::to_string(machine.processes);
    machine.process = &world_.start_process(std::move(name), machine.clock);
    machine.forks.store(0);
    const Random random{plan_.seed,
                        10'000 + 100 * number + static_cast<std::uint64_t>(machine.processes)};
    const bool shared = machine.process->random.chance(plan_.shared);
    world_.start_thread(*machine.process, [this, number, shared, random] {
        if (shared) {
            run_client<SharedSimulatedConnection>(number, shared, random);
        } else {
            run_client<SimulatedConnection>(number, shared, random);
        }
    });
}

template <class C>
void Simulation::run_client(std::size_t number, bool shared, Random random) {
    Machine& machine = machines_[number];
    Link& link = links_[number];
    C redis{network_, link};
    C for_renewal{network_, link};
    std::optional<Renewer<C>> renewer{std::in_place, shared ? redis : for_renewal};
    Client<C> client{around_, redis, link, renewer, random, machine.forks, !shared};
    if (!shared) return client.work();
    Client<C> second{around_, redis, link, renewer, Random{random.next()}, machine.forks, false};
    Thread& thread = world_.start_thread(world_.process(), [&] { second.work(); });
    client.work();
    (void)world_.wait_until(thread.ended, 0, never);
}

void Simulation::start_probe() {
    Machine& machine = machines_.back();
    machine.process = &world_.start_process("probe", machine.clock);
    links_.back().latency = 100 * us; // it is to measure the lock, not the way there
    world_.start_thread(*machine.process, [this] {
        SimulatedConnection redis{network_, links_.back()};
        std::optional<Renewer<SimulatedConnection>> none;
        Client<SimulatedConnection>{
            around_, redis, links_.back(), none, Random{plan_.seed, 3}, machines_.back().forks,
            true}
            .probe();
    });
}

void Simulation::heal() {
    for (Link& link : links_) {
        link.slow_there = link.slow_back = 0;
        link.loses_there = link.loses_back = link.lies = 0;
        link.refuses = link.swallows = false;
    }
    for (Machine& machine : machines_) {
        if (machine.process == nullptr) continue;
        world_.resume(*machine.process);
        machine.process->sluggish = false;
        machine.process->no_random = machine.process->no_threads = false;
    }
    for (Server& server : servers_) {
        server.unpause();
        server.error.clear();
        server.redis.set_out_of_memory(false);
        if (&server != network_.master) continue;
        server.up = true;
        server.redis.set_read_only(false);
    }
}

// --- faults

void Simulation::begin(const Fault& fault) {
    if (fault.at >= plan_.horizon) return;
    const bool at_client = fault.kind <= Kind::lie;
    // Of what breaks exclusion, only a failover is more than a moment
    const bool a_moment = breaks_exclusion(fault.kind) && fault.kind != Kind::failover;
    world_.line("world", "fault")
        .put("kind", to_string(fault.kind))
        .put("lasts", a_moment ? 0 : fault.span)
        .put("breaks", breaks_exclusion(fault.kind) ? "exclusion" : "")
        .put("target", at_client ? "c" + std::to_string(fault.target) : std::string{});
    if (!at_client) return begin_at_server(fault);
    if (Process* const process = machines_[fault.target].process) begin_at_client(fault, *process);
}

void Simulation::begin_at_client(const Fault& fault, Process& process) {
    Link& link = links_[fault.target];
    const auto rate = static_cast<unsigned>(fault.amount);
    switch (fault.kind) {
    case Kind::stop: return world_.stop(process);
    case Kind::kill: return world_.kill(process);
    case Kind::fork: machines_[fault.target].forks.fetch_add(1); return;
    case Kind::sluggish: process.sluggish = true; return;
    case Kind::no_random: process.no_random = true; return;
    case Kind::no_threads: process.no_threads = true; return;
    case Kind::lose: (link.random.chance(500) ? link.loses_there : link.loses_back) = rate; return;
    case Kind::slow:
        (link.random.chance(500) ? link.slow_there : link.slow_back) = fault.amount;
        return;
    case Kind::cut: return network_.cut(link);
    case Kind::refuse: link.refuses = true; return network_.cut(link);
    case Kind::swallow: link.swallows = true; return network_.cut(link);
    case Kind::lie: link.lies = rate; return;
    default: return;
    }
}

void Simulation::begin_at_server(const Fault& fault) {
    Server& server = *network_.master;
    switch (fault.kind) {
    case Kind::pause: return server.pause();
    case Kind::restart:
    case Kind::forget:
        server.up = false;
        server.restart(fault.kind == Kind::restart ? MemoryRedis::Restart::keeping_data
                                                   : MemoryRedis::Restart::forgetting);
        return network_.cut(server, links_);
    case Kind::flush_scripts: return server.redis.flush_scripts();
    case Kind::full: return server.redis.set_out_of_memory(true);
    case Kind::read_only: return server.redis.set_read_only(true);
    case Kind::loading: server.error = "LOADING Redis is loading the dataset in memory"; return;
    case Kind::clock_back: return server.step_clock(-fault.amount);
    case Kind::clock_forward: return server.step_clock(fault.amount);
    case Kind::flush: (void)server.redis.execute({"FLUSHALL"}); return;
    case Kind::remove: (void)server.redis.del("k" + std::to_string(fault.target)); return;
    case Kind::failover: return fail_over();
    default: return;
    }
}

/// The replica has what has reached it. The old master is down, or goes on for a span with those who
/// are connected to it.
void Simulation::fail_over() {
    Server& old = servers_.front();
    Server& heir = servers_.back();
    old.replicate_to(nullptr, 0);
    network_.master = &heir;
    if (random_.chance(500)) return; // `come_back` demotes it
    old.up = false;
    network_.cut(old, links_);
}

void Simulation::end(const Fault& fault) {
    if (fault.kind <= Kind::lie) {
        Machine& machine = machines_[fault.target];
        Link& link = links_[fault.target];
        if (machine.process == nullptr) return;
        switch (fault.kind) {
        case Kind::stop: return world_.resume(*machine.process);
        case Kind::kill:
            if (machine.process->killed && world_.now() < plan_.horizon) start_client(fault.target);
            return;
        case Kind::sluggish: machine.process->sluggish = false; return;
        case Kind::no_random: machine.process->no_random = false; return;
        case Kind::no_threads: machine.process->no_threads = false; return;
        case Kind::lose: link.loses_there = link.loses_back = 0; return;
        case Kind::slow: link.slow_there = link.slow_back = 0; return;
        case Kind::refuse: link.refuses = false; return;
        case Kind::swallow: link.swallows = false; return;
        case Kind::lie: link.lies = 0; return;
        default: return;
        }
    }
    come_back(fault);
}

void Simulation::come_back(const Fault& fault) {
    Server& server = *network_.master;
    switch (fault.kind) {
    case Kind::pause:
        for (Server& any : servers_) any.unpause();
        return;
    case Kind::restart:
    case Kind::forget: server.up = true; return;
    case Kind::full: server.redis.set_out_of_memory(false); return;
    case Kind::read_only: server.redis.set_read_only(false); return;
    case Kind::loading:
        for (Server& any : servers_) any.error.clear();
        return;
    case Kind::failover:
        servers_.front().redis.set_read_only(true);
        network_.cut(servers_.front(), links_);
        return;
    default: return;
    }
}

} // namespace

Run carry_out(const Plan& plan) { return Simulation{plan}.run(); }

} // namespace leaselock::simulation
