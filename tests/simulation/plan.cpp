// SPDX-License-Identifier: MIT

#include "simulation/plan.hpp"

#include "simulation/clock.hpp"
#include "simulation/random.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace leaselock::simulation {
namespace {

constexpr std::array<std::string_view, kinds> names = {
    "stop",    "kill",          "fork",          "sluggish",  "no_random", "no_threads", "lose",
    "slow",    "cut",           "refuse",        "swallow",   "lie",       "misroute",   "pause",
    "restart", "flush_scripts", "full",          "read_only", "loading",   "clock_back", "forget",
    "flush",   "remove",        "clock_forward", "failover"};

/// The kinds that a seed has to do with: a third of them, drawn anew for each, since faults hide one
/// another when all of them are there at once (Groce et al., "Swarm Testing", 2012).
std::vector<Kind> draw_kinds(Random& random, const Plan& plan) {
    const bool one_master = plan.nodes == 1;
    const bool keeps_exclusion = random.chance(600);
    const bool clock_goes_back = random.chance(500);
    const bool fails_over = random.chance(300) && one_master;
    std::vector<Kind> some;
    for (std::size_t i = 0; i < kinds; ++i) {
        const auto kind = static_cast<Kind>(i);
        const bool drawn = random.chance(333);
        if (keeps_exclusion && breaks_exclusion(kind)) continue;
        if (kind == Kind::misroute && one_master) continue;
        // The limits of the fence: what was issued last is lost, and the clock goes backwards.
        const bool backwards = kind == Kind::clock_back;
        const bool forgets = kind == Kind::forget || kind == Kind::flush || kind == Kind::failover;
        const bool fence_bears_it = clock_goes_back ? !forgets : !backwards;
        if (one_master && !fence_bears_it) continue;
        if (kind == Kind::failover && !fails_over) continue;
        if (kind == Kind::clock_forward && fails_over) continue;
        // The limit of servers before 6.2: a demoted one says no where it should say READONLY.
        if (plan.lacks_getex && (kind == Kind::read_only || kind == Kind::failover)) continue;
        if (drawn || (kind == Kind::failover)) some.push_back(kind);
    }
    return some;
}

Fault draw_fault(Random& random, Kind kind, const Plan& plan) {
    const Time ttl = plan.ttl_ms * ms;
    Fault fault{kind, random.between(0, plan.horizon * 9 / 10)};
    fault.target = random.below(plan.clients);
    // as often as not long enough for a lease to end meanwhile
    fault.span =
        random.chance(500) ? random.between(ms, ttl / 2) : random.between(ttl / 2, 2 * ttl);
    switch (kind) {
    case Kind::lose: fault.amount = random.between(20, 600); break;
    case Kind::slow: fault.amount = random.between(ms, ttl); break;
    case Kind::lie: fault.amount = random.between(50, 900); break;
    case Kind::remove: fault.target = random.below(plan.keys); break;
    case Kind::clock_back:
    case Kind::clock_forward: fault.amount = random.between(ms, 2 * ttl); break;
    case Kind::failover: fault.amount = random.between(0, 300) * ms; break;
    default: break;
    }
    const bool one_way = random.chance(700);
    const bool at_server = !strikes_client(kind);
    if (plan.nodes > 1 && (at_server || (one_way && strikes_way(kind))))
        fault.node = random.below(plan.nodes);
    return fault;
}

std::string seconds(Time time) {
    std::array<char, 32> text{};
    (void)std::snprintf(text.data(), text.size(), "%.3f s",
                        static_cast<double>(time) / static_cast<double>(s));
    return text.data();
}

} // namespace

std::string_view to_string(Kind kind) noexcept { return names[static_cast<std::size_t>(kind)]; }

Plan draw_plan(std::uint64_t seed) {
    Random random{seed};
    Plan plan;
    plan.seed = seed;
    plan.clients = 2 + random.below(3);
    plan.keys = 1 + random.below(2);
    if (random.chance(333)) plan.nodes = random.chance(750) ? 3 : 5;
    const bool one_master = plan.nodes == 1;
    constexpr std::array<std::int64_t, 3> ttls = {200, 1'000, 3'000};
    plan.ttl_ms = random.pick(ttls);
    plan.timeout_ms = random.between(20, one_master ? plan.ttl_ms : plan.ttl_ms / 4);
    plan.horizon = plan.ttl_ms * ms * random.between(6, 15);
    plan.wide_margin = random.chance(200);
    plan.lacks_getex = random.chance(100);
    constexpr std::array<unsigned, 4> shares = {0, 300, 700, 1000};
    plan.fenced = one_master ? random.pick(shares) : 0;
    plan.kept = random.pick(shares);
    plan.shared = one_master ? random.pick(shares) : 0;
    plan.waiting = random.pick(shares);
    // at its slowest, there and back still fits into the timeout
    plan.latency = random.chance(800) ? random.between(50 * us, ms)
                                      : random.between(ms, plan.timeout_ms * ms / 10);
    const std::vector<Kind> some = draw_kinds(random, plan);
    bool failed_over = false;
    for (std::uint64_t count = some.empty() ? 0 : random.below(13); count != 0; --count) {
        const Kind kind = random.pick(some);
        if (kind == Kind::failover && failed_over) continue; // there is one replica
        failed_over = failed_over || kind == Kind::failover;
        plan.faults.push_back(draw_fault(random, kind, plan));
    }
    std::sort(plan.faults.begin(), plan.faults.end(),
              [](const Fault& a, const Fault& b) { return a.at < b.at; });
    return plan;
}

std::string describe(const Fault& fault) {
    std::string text = seconds(fault.at) + " " + std::string{to_string(fault.kind)};
    if (strikes_client(fault.kind)) text += " c" + std::to_string(fault.target);
    if (fault.kind == Kind::remove) text += " k" + std::to_string(fault.target);
    if (fault.node)
        text += (strikes_client(fault.kind) ? " to s" : " of s") + std::to_string(*fault.node);
    text += ", for " + seconds(fault.span);
    if (fault.kind == Kind::lose || fault.kind == Kind::lie) {
        text += ", " + std::to_string(fault.amount) + " of 1000";
    } else if (fault.amount != 0) {
        text += ", by " + seconds(fault.amount);
    }
    return text;
}

std::string describe(const Plan& plan) {
    std::string text = std::to_string(plan.clients - plan.without.size()) + " clients, " +
                       std::to_string(plan.keys) + " keys, ttl " + std::to_string(plan.ttl_ms) +
                       " ms, timeout " + std::to_string(plan.timeout_ms) + " ms, " +
                       seconds(plan.horizon) + ", of 1000: " + std::to_string(plan.fenced) +
                       " fenced, " + std::to_string(plan.kept) + " kept, " +
                       std::to_string(plan.waiting) + " waiting, " + std::to_string(plan.shared) +
                       " on shared connections";
    if (plan.nodes > 1) text += ", a quorum of " + std::to_string(plan.nodes);
    if (plan.wide_margin) text += ", margin ttl/10";
    if (plan.lacks_getex) text += ", a server without GETEX";
    return text;
}

} // namespace leaselock::simulation
