// SPDX-License-Identifier: MIT

#include "chaos/tormentor.hpp"

#include "integration/support/eventually.hpp"
#include "integration/support/fault_proxy.hpp"

#include <leaselock/redis/script.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace leaselock::chaos {
namespace {

using simulation::ms;
using std::chrono::milliseconds;
using test::Fault;
using test::FaultProxy;

/// A command by the word that only it has.
std::string_view word_of(int amount) {
    static constexpr std::array<std::string_view, 5> words{
        "SET", scripts::compare_and_delete.getex.sha1, scripts::compare_and_expire.getex.sha1,
        scripts::compare_and_fence.getex.sha1, scripts::compare_and_adopt.getex.sha1};
    return words.at(static_cast<std::size_t>(amount));
}

Fault fault_of(Kind kind) {
    switch (kind) {
    case Kind::lose_command: return Fault::drop_request;
    case Kind::lose_answer: return Fault::drop_reply;
    case Kind::cut_command: return Fault::cut_request;
    case Kind::cut_answer: return Fault::cut_reply;
    case Kind::hold_command: return Fault::hold_request;
    default: throw std::logic_error("no fault of one command");
    }
}

} // namespace

void Tormentor::begin(const Torment& torment) {
    begun_[torment.at] = arena_.scribe().now();
    switch (facts_of(torment.kind).target) {
    case Target::worker: begin_at_worker(torment); break;
    case Target::link: begin_at_link(torment); break;
    case Target::server: begin_at_server(torment); break;
    }
}

void Tormentor::end(const Torment& torment) {
    switch (facts_of(torment.kind).target) {
    case Target::worker: end_at_worker(torment); break;
    case Target::link: end_at_link(torment); break;
    case Target::server: end_at_server(torment); break;
    }
    tell(torment, begun_.at(torment.at));
}

/// Of what it breaks, too: all that was held, asked for, or on its way while it lasted.
void Tormentor::tell(const Torment& torment, Time from) const {
    const KindFacts& kind = facts_of(torment.kind);
    const Scribe& scribe = arena_.scribe();
    const bool breaks = kind.breaks == Breaks::exclusion;
    scribe.line(from, "world", "fault", [&](History::Line& line) {
        line.put("kind", kind.name);
        const std::string worker = "w" + std::to_string(torment.worker);
        const std::string server = "s" + std::to_string(torment.server);
        if (kind.target != Target::server) line.put("worker", worker);
        if (kind.target != Target::worker) line.put("server", server);
        line.put("span", scribe.now() - from).put("amount", std::int64_t{torment.amount});
        if (!breaks) return;
        line.put("breaks", "exclusion").put("lasts", scribe.now() - from);
        if (kind.target == Target::server) line.put("keys", server + ":");
        if (const auto victim = victims_.find(torment.at); victim != victims_.end()) {
            line.put("by", victim->second);
        }
    });
}

// --- workers

void Tormentor::begin_at_worker(const Torment& torment) {
    ArenaWorker& worker = arena_.worker(torment.worker);
    if (torment.kind == Kind::stop) {
        const Scribe& scribe = arena_.scribe();
        scribe.line(scribe.now(), worker.actor, "stop", [](History::Line& /*line*/) {});
        worker.process->stop();
        return;
    }
    arena_.kill_worker(torment.worker);
    const std::int64_t ppm = std::int64_t{torment.amount} * 1000;
    if (torment.kind == Kind::slow_clock) arena_.start_worker(torment.worker, -ppm);
    if (torment.kind == Kind::fast_clock) arena_.start_worker(torment.worker, ppm);
    victims_[torment.at] = worker.actor;
}

void Tormentor::end_at_worker(const Torment& torment) {
    ArenaWorker& worker = arena_.worker(torment.worker);
    if (torment.kind == Kind::stop) {
        worker.process->resume();
        const Scribe& scribe = arena_.scribe();
        scribe.line(scribe.now(), worker.actor, "continue", [](History::Line& /*line*/) {});
        return;
    }
    if (torment.kind != Kind::kill) arena_.kill_worker(torment.worker);
    arena_.start_worker(torment.worker);
}

// --- links

void Tormentor::begin_at_link(const Torment& torment) {
    FaultProxy& link = arena_.link(torment.worker, torment.server);
    const milliseconds amount{torment.amount};
    switch (torment.kind) {
    case Kind::delay_requests: return link.delay_requests(amount);
    case Kind::delay_replies: return link.delay_replies(amount);
    case Kind::drip_requests: return link.drip_requests(amount);
    case Kind::drip_replies: return link.drip(amount);
    case Kind::lose_requests: return link.drop_requests();
    case Kind::lose_replies: return link.drop_replies();
    case Kind::half_open: return link.black_hole();
    case Kind::cut: return link.cut();
    case Kind::cut_reply:
        return link.cut_after_reply_bytes(static_cast<std::size_t>(torment.amount));
    case Kind::refuse: link.refuse(); return link.cut();
    default: return link.on_command(std::string{word_of(torment.amount)}, fault_of(torment.kind));
    }
}

void Tormentor::end_at_link(const Torment& torment) {
    FaultProxy& link = arena_.link(torment.worker, torment.server);
    if (torment.kind == Kind::refuse) return link.accept_again();
    if (torment.kind == Kind::cut || torment.kind == Kind::cut_reply) return;
    link.pass();
    (void)link.deliver_held();
}

// --- servers

void Tormentor::begin_at_server(const Torment& torment) {
    ArenaServer& server = arena_.server(torment.server);
    switch (torment.kind) {
    case Kind::client_kill: (void)server.live->client().client_kill_normal(); break;
    case Kind::script_flush: server.live->client().expect_ok({"SCRIPT", "FLUSH"}); break;
    case Kind::pause_server: server.live->stop_process(); break;
    case Kind::restart:
        if (torment.amount != 0)
            server.live->terminate();
        else
            server.live->kill_hard();
        break;
    case Kind::forget: server.live->kill_hard(); break;
    case Kind::clock_back: Arena::step_clock(server, -torment.amount * ms); break;
    case Kind::clock_forward: Arena::step_clock(server, torment.amount * ms); break;
    case Kind::promotion: split(torment); break;
    default: throw std::logic_error("no torment of a server");
    }
}

void Tormentor::end_at_server(const Torment& torment) {
    ArenaServer& server = arena_.server(torment.server);
    switch (torment.kind) {
    case Kind::pause_server: server.live->continue_process(); break;
    case Kind::restart: Arena::restart(server); break;
    case Kind::forget:
        Arena::restart(server);
        // it would try again once a second
        server.replica->client().expect_ok({"REPLICAOF", "NO", "ONE"});
        Arena::follow(server);
        break;
    case Kind::promotion: promote(torment); break;
    default: break;
    }
}

/// From here on the replica lags. Where the old master is to go on for a while, it goes on for those that
/// stay connected, while others find the new one.
void Tormentor::split(const Torment& torment) {
    ArenaServer& server = arena_.server(torment.server);
    const auto in_step = [&] {
        return server.replica->client().command({"ROLE"}).find("connected") != std::string::npos;
    };
    if (!test::eventually(in_step, std::chrono::seconds{60})) {
        throw std::runtime_error("the replica does not come into step");
    }
    server.replica->client().expect_ok({"REPLICAOF", "NO", "ONE"});
    if (torment.amount != 0) return;
    std::swap(server.live, server.replica);
    arena_.lead_to(torment.server);
    for (std::size_t worker = 0; worker < arena_.workers(); worker += 2) {
        arena_.link(worker, torment.server).cut();
    }
}

/// The old master dies, and comes back as the replica of the new one.
void Tormentor::promote(const Torment& torment) {
    ArenaServer& server = arena_.server(torment.server);
    if (torment.amount != 0) std::swap(server.live, server.replica);
    arena_.lead_to(torment.server);
    server.replica->kill_hard();
    server.replica->restart();
    Arena::follow(server);
}

} // namespace leaselock::chaos
