// SPDX-License-Identifier: MIT

#include "simulation/holder_rules.hpp"

#include "simulation/checker.hpp"
#include "simulation/history.hpp"
#include "simulation/ledger.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace leaselock::simulation::detail {

void HolderRules::see(const HistoryLine& line) {
    const std::string_view what = line.what;
    if (what == "send") return see_send(line);
    if (what == "dial") return see_dial(line);
    if (what == "reply") return see_reply(line);
    if (what == "event") return see_event(line);
    if (what == "call") return see_call(line);
    if (what == "return") return see_return(line);
    if (what == "signal") return see_signal(line);
    if (what == "unlisten") return see_unlisten(line);
    if (what == "listen") {
        ledger_.tokens[line.text("token")].listening = true;
    } else if (what == "owns") {
        see_claim(line, line.text("guard"), line.number("is") == 1, line.number("deadline"));
    } else if (what == "guard") {
        ledger_.guards[line.text("guard")] = {line.text("key"),
                                              line.actor,
                                              line.number("ttl") * 1'000'000,
                                              line.number("margin"),
                                              line.number("nodes", 1),
                                              line.number("cap") * 1'000'000,
                                              line.number("fenced") == 1};
    } else {
        see_process(line);
    }
}

// --- processes

void HolderRules::see_process(const HistoryLine& line) {
    if (line.what == "clock") {
        ledger_.actors[line.actor].clock = {line.number("offset"), line.number("ppm")};
    } else if (line.what == "stalled") {
        ledger_.actors[line.actor].held_up += line.number("span");
    } else if (line.what == "stop") {
        ledger_.actors[line.actor].stopped_at = line.time;
    } else if (line.what == "continue") {
        Actor& actor = ledger_.actors[line.actor];
        if (actor.stopped_at >= 0) actor.held_up += line.time - actor.stopped_at;
        actor.stopped_at = -1;
    } else if (line.what == "kill") {
        ledger_.actors[line.actor].killed = true;
    }
}

Time HolderRules::local(const HistoryLine& line) const {
    const auto found = ledger_.actors.find(line.actor);
    return found == ledger_.actors.end() ? line.time : found->second.clock.at(line.time);
}

Time HolderRules::told(const HistoryLine& line) const { return local(line) - line.number("late"); }

/// What it was renewed to is reckoned from lines, which may be late, and so may those of its sends be;
/// hardly both.
Time HolderRules::least_of(const TokenFacts& token) const {
    return tolerance_.real ? std::min(token.least, token.most) : token.least;
}

Time HolderRules::held_up(std::string_view name, Time now) const {
    const auto found = ledger_.actors.find(name);
    if (found == ledger_.actors.end()) return 0;
    const Actor& actor = found->second;
    return actor.held_up + (actor.stopped_at >= 0 ? now - actor.stopped_at : 0);
}

// --- calls and claims

void HolderRules::see_call(const HistoryLine& line) {
    const std::string_view verb = line.text("verb");
    const std::string_view name = line.text("guard");
    GuardFacts& guard = ledger_.guards[name];
    ledger_.calls[line.number("call")] = {name,
                                          verb,
                                          line.actor,
                                          local(line),
                                          line.number("limit"),
                                          held_up(line.actor, line.time),
                                          guard.deletions,
                                          line.has("must"),
                                          report_.line};
    if (line.actor == guard.maker) {
        guard.waits = verb == "wait";
        guard.attempted = -1;
    }
    const bool gives_back = verb == "unlock" || verb == "end" || verb == "detach";
    if (gives_back && line.actor == guard.maker && !guard.token.empty()) {
        TokenFacts& token = ledger_.tokens[guard.token];
        finish(token, line.time);
        // what another thread does meanwhile may come first, and be written down behind this
        if (!tolerance_.real) be_over(token, line.time);
    }
}

void HolderRules::see_return(const HistoryLine& line) {
    const auto found = ledger_.calls.find(line.number("call"));
    if (found == ledger_.calls.end()) {
        report_.add(Rule::form, "a return from nothing");
        return;
    }
    const OpenCall call = found->second;
    ledger_.calls.erase(found);
    const bool yes = line.text("answer") == "yes";
    GuardFacts& guard = ledger_.guards[call.guard];
    guard.waits = guard.waits && call.verb != "wait";
    if (!guard.waits) guard.attempted = -1;
    const Time held = held_up(line.actor, line.time) - call.held_up;
    if (local(line) - call.local - held > call.limit + tolerance_.bound) {
        report_.add(Rule::bounded, say(call.verb, " of ", call.guard, " takes too long"));
    }
    if (call.must && !yes) {
        report_.add(Rule::liveness, say(guard.key, " is not free in time"));
    }
    if (line.actor != guard.maker && yes) {
        report_.add(Rule::ownership, say(call.verb, " of ", call.guard, " works in a child"));
    }
    if (call.verb == "end") return see_end(line, call);
    const bool gave_back = call.verb == "unlock" || call.verb == "detach";
    if (gave_back && line.actor == guard.maker && !guard.token.empty()) {
        be_over(ledger_.tokens[guard.token], line.time);
    }
    if (yes && line.number("fence") != 0) note_fence(line, guard);
    if (!guard.token.empty() && yes) {
        TokenFacts& token = ledger_.tokens[guard.token];
        if (call.verb == "keep") token.kept = true;
        if (call.verb == "detach") token.settled = token.forsaken = true;
    }
    const Time deadline = line.number("deadline");
    if (deadline != 0) see_claim(line, call.guard, true, deadline);
}

/// Of two acquisitions of a key the later one has the larger fencing token.
void HolderRules::note_fence(const HistoryLine& line, const GuardFacts& guard) {
    TokenFacts& token = ledger_.tokens[guard.token];
    if (token.told_fence != 0) return;
    token.told_fence = static_cast<std::uint64_t>(line.number("fence"));
    for (const std::string_view other_name : ledger_.granted[guard.key]) {
        const TokenFacts& other = ledger_.tokens[other_name];
        if (other.told_fence < token.told_fence || other.taken_at >= token.taken_from) continue;
        if (other_name == guard.token || ledger_.failed_over) continue;
        report_.add(Rule::fencing,
                    say(guard.token, " has no larger fencing token than ", other_name));
    }
}

/// A guard that ends has asked for the deletion of whatever it may have left.
void HolderRules::see_end(const HistoryLine& line, const OpenCall& call) {
    const GuardFacts& guard = ledger_.guards[call.guard];
    if (guard.token.empty() || line.actor != guard.maker) return;
    const TokenFacts& token = ledger_.tokens[guard.token];
    if (!token.settled && guard.deletions == call.deletions) {
        report_.add(Rule::ghosts, say(guard.token, " may be there, and nobody deletes it"));
    }
    check_told(guard);
}

void HolderRules::see_claim(const HistoryLine& line, std::string_view guard_name, bool owns,
                            Time deadline) {
    const GuardFacts& guard = ledger_.guards[guard_name];
    if (line.actor != guard.maker) {
        if (owns) report_.add(Rule::exclusion, say("a child owns ", guard_name));
        return;
    }
    if (guard.token.empty()) {
        if (owns) report_.add(Rule::honesty, say(guard_name, " owns without having been granted"));
        return;
    }
    TokenFacts& token = ledger_.tokens[guard.token];
    if (owns) confirm_untold(token);
    const Time now = local(line);
    if (!owns) {
        if (token.granted && token.ended_at < 0 && !token.denied &&
            now < least_of(token) - tolerance_.slack) {
            report_.add(Rule::honesty, say(guard.token, " has ended for no reason"));
        }
        return;
    }
    if (!token.granted) report_.add(Rule::honesty, say(guard.token, " was never granted"));
    if (token.over_at >= 0) {
        report_.add(Rule::finality, say(guard.token, " is owned behind its end"));
    }
    if (now >= token.most + tolerance_.slack) {
        report_.add(Rule::honesty, say(guard.token, " is owned behind its deadline"));
    }
    if (deadline > token.most + tolerance_.slack) {
        report_.add(Rule::deadline, say(guard.token, " ends later than its confirmed sends allow"));
    }
    if (deadline < least_of(token) - tolerance_.slack) {
        report_.add(Rule::deadline, say(guard.token, " ends earlier than it was renewed to"));
    }
}

void HolderRules::see_signal(const HistoryLine& line) {
    const std::string_view name = line.text("token");
    TokenFacts& token = ledger_.tokens[name];
    ++report_.findings.counts.signals;
    if (++token.signals > 1) report_.add(Rule::finality, say(name, " is signalled twice"));
    // whoever notices a loss tells the observer; the signal is another thread's
    const bool may_be =
        tolerance_.real && (token.denied || local(line) >= least_of(token) - tolerance_.slack);
    if (!token.lost && token.ended_at < 0 && !may_be) {
        report_.add(Rule::honesty, say(name, " is signalled, and not lost"));
    }
}

/// What was lost while somebody listened has been signalled; of a kept lease at its deadline at the
/// latest.
void HolderRules::see_unlisten(const HistoryLine& line) {
    const std::string_view name = line.text("token");
    TokenFacts& token = ledger_.tokens[name];
    token.listening = false;
    if (token.signals != 0) return;
    const Time held = held_up(line.actor, line.time);
    const Time since_loss = line.time - token.lost_at - (held - token.held_up_at_loss);
    if (token.lost && since_loss > tolerance_.bound) {
        report_.add(Rule::finality, say(name, " is lost without a signal"));
    }
    if (!token.kept || token.ended_at >= 0) return;
    if (local(line) > token.most + tolerance_.bound + held) {
        report_.add(Rule::finality, say(name, " has run out without a signal"));
    }
}

void HolderRules::end() {
    for (const auto& [id, call] : ledger_.calls) {
        if (ledger_.actors[call.actor].killed) continue;
        report_.line = call.line;
        report_.add(Rule::bounded, say(call.verb, " of ", call.guard, " does not return"));
    }
}

} // namespace leaselock::simulation::detail
