// SPDX-License-Identifier: MIT

#include "simulation/scene.hpp"

#include "simulation/network.hpp"
#include "simulation/plan.hpp"
#include "simulation/server.hpp"
#include "simulation/world.hpp"

#include <leaselock/testing/memory_redis.hpp>

#include <string>

namespace leaselock::simulation {

using testing::MemoryRedis;

void Faults::begin(const Fault& fault) {
    if (fault.at >= scene_.plan.horizon) return;
    const bool at_client = strikes_client(fault.kind);
    // Of what breaks exclusion, only a failover is more than a moment
    const bool a_moment = breaks_exclusion(fault.kind) && fault.kind != Kind::failover;
    scene_.world.line("world", "fault")
        .put("kind", to_string(fault.kind))
        .put("lasts", a_moment ? 0 : fault.span)
        .put("breaks", breaks_exclusion(fault.kind) ? "exclusion" : "")
        .put("target", at_client ? "c" + std::to_string(fault.target) : server_of(fault).name());
    if (!at_client) return begin_at_server(fault);
    if (scene_.machines[fault.target].process == nullptr) return;
    begin_at_client(fault, *scene_.machines[fault.target].process);
    for (Link& link : scene_.links_of(fault.target)) {
        if (link.node == fault.node.value_or(link.node)) begin_on_the_way(fault, link);
    }
}

void Faults::begin_at_client(const Fault& fault, Process& process) {
    switch (fault.kind) {
    case Kind::stop: return scene_.world.stop(process);
    case Kind::kill: return scene_.world.kill(process);
    case Kind::fork: scene_.machines[fault.target].forks.fetch_add(1); return;
    case Kind::sluggish: process.sluggish = true; return;
    case Kind::no_random: process.no_random = true; return;
    case Kind::no_threads: process.no_threads = true; return;
    default: return;
    }
}

void Faults::begin_on_the_way(const Fault& fault, Link& link) {
    const auto rate = static_cast<unsigned>(fault.amount);
    switch (fault.kind) {
    case Kind::lose: (link.random.chance(500) ? link.loses_there : link.loses_back) = rate; return;
    case Kind::slow:
        (link.random.chance(500) ? link.slow_there : link.slow_back) = fault.amount;
        return;
    case Kind::cut: return scene_.network.cut(link);
    case Kind::refuse: link.refuses = true; return scene_.network.cut(link);
    case Kind::swallow: link.swallows = true; return scene_.network.cut(link);
    case Kind::lie: link.lies = rate; return;
    case Kind::misroute: link.misroutes = true; return scene_.network.cut(link);
    default: return;
    }
}

void Faults::begin_at_server(const Fault& fault) {
    Server& server = server_of(fault);
    switch (fault.kind) {
    case Kind::pause: return server.pause();
    case Kind::restart:
    case Kind::forget:
        server.up = false;
        server.restart(fault.kind == Kind::restart ? MemoryRedis::Restart::keeping_data
                                                   : MemoryRedis::Restart::forgetting);
        return scene_.network.cut(server, scene_.links);
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
void Faults::fail_over() {
    Server& old = scene_.servers.front();
    Server& heir = scene_.servers.back();
    old.replicate_to(nullptr, 0);
    scene_.network.nodes.front() = &heir;
    if (scene_.random.chance(500)) return; // its end demotes it
    old.up = false;
    scene_.network.cut(old, scene_.links);
}

void Faults::end(const Fault& fault) {
    if (!strikes_client(fault.kind)) return end_at_server(fault);
    if (scene_.machines[fault.target].process == nullptr) return;
    end_at_client(fault);
    for (Link& link : scene_.links_of(fault.target)) {
        if (link.node == fault.node.value_or(link.node)) end_on_the_way(fault, link);
    }
}

void Faults::end_at_client(const Fault& fault) {
    Process& process = *scene_.machines[fault.target].process;
    switch (fault.kind) {
    case Kind::stop: return scene_.world.resume(process);
    case Kind::kill:
        if (process.killed && scene_.world.now() < scene_.plan.horizon) start_client_(fault.target);
        return;
    case Kind::sluggish: process.sluggish = false; return;
    case Kind::no_random: process.no_random = false; return;
    case Kind::no_threads: process.no_threads = false; return;
    default: return;
    }
}

void Faults::end_on_the_way(const Fault& fault, Link& link) {
    switch (fault.kind) {
    case Kind::lose: link.loses_there = link.loses_back = 0; return;
    case Kind::slow: link.slow_there = link.slow_back = 0; return;
    case Kind::refuse: link.refuses = false; return;
    case Kind::swallow: link.swallows = false; return;
    case Kind::lie: link.lies = 0; return;
    case Kind::misroute: link.misroutes = false; return; // who is connected stays there
    default: return;
    }
}

void Faults::end_at_server(const Fault& fault) {
    Server& server = server_of(fault);
    const auto everywhere = [&](const auto& what) { // behind a failover: at either of the two
        if (fault.node) return what(server);
        for (Server& any : scene_.servers) what(any);
    };
    switch (fault.kind) {
    case Kind::pause: return everywhere([](Server& any) { any.unpause(); });
    case Kind::restart:
    case Kind::forget: server.up = true; return;
    case Kind::full: server.redis.set_out_of_memory(false); return;
    case Kind::read_only: server.redis.set_read_only(false); return;
    case Kind::loading: return everywhere([](Server& any) { any.error.clear(); });
    case Kind::failover:
        scene_.servers.front().redis.set_read_only(true);
        scene_.network.cut(scene_.servers.front(), scene_.links);
        return;
    default: return;
    }
}

void Faults::heal() {
    for (Link& link : scene_.links) {
        link.slow_there = link.slow_back = 0;
        link.loses_there = link.loses_back = link.lies = 0;
        link.refuses = link.swallows = link.misroutes = false;
    }
    for (Machine& machine : scene_.machines) {
        if (machine.process == nullptr) continue;
        scene_.world.resume(*machine.process);
        machine.process->sluggish = false;
        machine.process->no_random = machine.process->no_threads = false;
    }
    for (Server& server : scene_.servers) {
        server.unpause();
        server.error.clear();
        server.redis.set_out_of_memory(false);
    }
    for (Server* const server : scene_.network.nodes) {
        server->up = true;
        server->redis.set_read_only(false);
    }
}

} // namespace leaselock::simulation
