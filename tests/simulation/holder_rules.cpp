// SPDX-License-Identifier: MIT

#include "simulation/holder_rules.hpp"

#include "simulation/checker.hpp"
#include "simulation/history.hpp"
#include "simulation/ledger.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace leaselock::simulation::detail {

void HolderRules::see(const HistoryLine& line) {
    const std::string_view what = line.what;
    if (what == "send") return see_send(line);
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

// --- the wire

void HolderRules::see_send(const HistoryLine& line) {
    const auto id = static_cast<std::uint64_t>(line.number("id"));
    Send& send = ledger_.sends[id];
    send.verb = line.text("verb");
    send.token = line.text("token");
    send.actor = line.actor;
    send.to = line.text("to");
    send.at = line.time;
    send.local = local(line);
    send.ttl = line.number("ttl") * 1'000'000;
    if (send.verb == "adopt") {
        send.old = send.token;
        send.token = line.text("heir");
    }
    if (send.token.empty()) return;
    TokenFacts& token = ledger_.tokens[send.token];
    token.sends.push_back(id);
    if (token.actor.empty()) token.actor = line.actor;
    if (token.actor != line.actor) {
        report_.add(Rule::ownership,
                    say(line.actor, " sends the token ", send.token, " of ", token.actor));
    }
    if (send.verb == "expire") note_renewal(line, send.token, token);
}

void HolderRules::note_renewal(const HistoryLine& line, std::string_view name, TokenFacts& token) {
    if (!token.granted) {
        report_.add(Rule::ghosts, say("renews ", name, ", which was never granted"));
        return;
    }
    // A renewal that the server wants in another form is the same one still.
    if (!token.renewal_again) token.renewal_asked = line.number("asked", line.time);
    token.renewal_again = false;
    if (token.over_at < 0) return;
    const Time late =
        tolerance_.real ? tolerance_.bound + held_up(line.actor, line.time) : tolerance_.slack;
    if (token.renewal_asked > token.over_at + late) {
        report_.add(Rule::finality, say("renews ", name, ", which has ended"));
    }
}

void HolderRules::see_reply(const HistoryLine& line) {
    const auto found = ledger_.sends.find(static_cast<std::uint64_t>(line.number("id")));
    if (found == ledger_.sends.end()) {
        report_.add(Rule::form, "a reply to nothing");
        return;
    }
    Send& send = found->second;
    send.reply = line.text("is");
    send.answered = local(line);
    TokenFacts& token = ledger_.tokens[send.token];
    const bool compared = send.reply == "1" || send.reply == "0" || send.reply == "-1";
    if (send.verb == "delete" && compared) token.settled = true;
    if (send.verb != "expire") return;
    const bool sole = ledger_.guards[token.guard].nodes == 1;
    token.denied = token.denied || (sole && (send.reply == "0" || send.reply == "-1"));
    token.renewal_again = send.reply.starts_with("error:NOSCRIPT") || send.reply == "error:ERR";
    if (send.reply != "1" || token.ended_at >= 0) return;
    // a 1 read after the deadline changes nothing
    if (local(line) >= token.most + tolerance_.slack) return;
    confirm(send, token);
    ++report_.findings.counts.renewals;
}

/// A node has confirmed the lease: it lasts for as long as a majority of them has it.
void HolderRules::confirm(const Send& send, TokenFacts& token) {
    const GuardFacts& guard = ledger_.guards[token.guard];
    Time& until = token.confirmed[send.to];
    until = std::max(until, send.local + send.ttl - guard.margin);
    std::vector<Time> ends;
    for (const auto& [node, end] : token.confirmed) ends.push_back(end);
    const auto majority = static_cast<std::size_t>(guard.nodes / 2 + 1);
    if (ends.size() < majority) return;
    std::sort(ends.begin(), ends.end(), std::greater<>{});
    token.most = std::max(token.most, ends[majority - 1]);
}

// --- outcomes

void HolderRules::see_event(const HistoryLine& line) {
    const std::string_view verb = line.text("verb");
    const std::string_view name = line.text("token");
    TokenFacts& token = ledger_.tokens[name];
    if (verb == "acquire" || verb == "adopt") return see_attempt(line, name, token);
    if (verb == "renew") return see_renewal(line, name, token);
    if (verb == "release" || verb == "clean_up") return see_deletion(line, name, token);
    if (verb == "lose") return see_loss(line, name, token);
}

void HolderRules::see_attempt(const HistoryLine& line, std::string_view name, TokenFacts& token) {
    const std::string_view answer = line.text("answer");
    GuardFacts& guard = ledger_.guards[line.text("guard")];
    note_attempt(line, guard);
    // what was unsent before there was a new token bears the old one
    if (answer == "unsent" && (!token.answer.empty() || token.sends.empty())) return;
    guard.token = name;
    token.guard = line.text("guard");
    token.answer = answer;
    token.line = report_.line;
    const bool adopts = line.text("verb") == "adopt";
    check_answer(line, name, token, adopts ? "adopt" : "set");
    if (answer == "yes") return grant(line, name, token);
    if (answer == "unknown") ++report_.findings.counts.unknown;
    const bool in_doubt = answer == "unknown";
    token.settled = token.settled || !in_doubt;
}

/// Whoever waits asks again, and again.
void HolderRules::note_attempt(const HistoryLine& line, GuardFacts& guard) {
    const Time now = local(line);
    const Time held = held_up(line.actor, line.time);
    const Time pause = now - line.number("elapsed") - guard.attempted;
    if (guard.attempted >= 0 && guard.cap != 0 &&
        pause > guard.cap + tolerance_.bound + held - guard.held_up_then) {
        report_.add(Rule::liveness, say(line.text("guard"), " waits without asking"));
    }
    if (guard.waits) guard.attempted = now;
    guard.held_up_then = held;
}

void HolderRules::grant(const HistoryLine& line, std::string_view name, TokenFacts& token) {
    const GuardFacts& guard = ledger_.guards[token.guard];
    for (const std::uint64_t id : token.sends) {
        const Send& send = ledger_.sends[id];
        const bool took = (send.verb == "set" && send.reply == "ok") ||
                          (send.verb == "adopt" && send.reply == "1");
        if (took) confirm(send, token);
        if (token.taken_from < 0 && (send.verb == "set" || send.verb == "adopt")) {
            token.taken_from = send.at; // as far as this history knows
        }
    }
    const Time deadline = told(line) + line.number("remaining");
    if (deadline > token.most + tolerance_.slack) {
        report_.add(Rule::deadline, say(name, " ends later than its confirmed SET allows"));
    }
    token.least = deadline;
    if (tolerance_.real ? is_late(token) : line.number("remaining") <= 0) {
        report_.add(Rule::honesty, say(name, " is granted behind its deadline"));
    }
    if (guard.fenced && ledger_.has_servers && token.fence == 0) {
        report_.add(Rule::fencing, say(name, " is granted without a fencing token"));
    }
    token.granted = true;
    token.settled = false;
    if (token.taken_at < 0) token.taken_at = line.time; // as far as this history knows
    ++report_.findings.counts.grants;
    check_exclusion(line, name, token);
    ledger_.granted[guard.key].push_back(name);
}

/// Whether the answers came too late. A holder that is held up behind that cannot know.
bool HolderRules::is_late(const TokenFacts& token) const {
    return std::any_of(token.sends.begin(), token.sends.end(), [&](const std::uint64_t id) {
        return ledger_.sends.at(id).answered > token.most + tolerance_.slack;
    });
}

/// Nobody else has the key now: all that others were granted has ended, by what they know, or by their
/// deadlines.
void HolderRules::check_exclusion(const HistoryLine& line, std::string_view name,
                                  const TokenFacts& token) {
    const GuardFacts& guard = ledger_.guards[token.guard];
    for (const std::string_view other_name : ledger_.granted[guard.key]) {
        const TokenFacts& other = ledger_.tokens[other_name];
        const Actor& holder = ledger_.actors[other.actor];
        if (other.ended_at >= 0 || holder.killed) continue;
        if (holder.clock.when(other.most) <= line.time + tolerance_.slack) continue;
        if (is_excused(guard.key, other, token, line.time)) {
            ++report_.findings.counts.excused;
            continue;
        }
        ++report_.findings.counts.overlaps;
        report_.add(Rule::exclusion, say(name, " of ", line.actor, " is granted while ", other_name,
                                         " of ", other.actor, " holds ", guard.key));
    }
}

bool HolderRules::is_excused(std::string_view key, const TokenFacts& holder,
                             const TokenFacts& taker, Time granted) const {
    // the one that was told last may have been executed first
    const Time taken = std::min(holder.taken_from, taker.taken_from);
    return std::any_of(ledger_.breaks.begin(), ledger_.breaks.end(), [&](const FaultSpan& fault) {
        const bool concerns =
            fault.by.empty() || fault.by == holder.actor || fault.by == taker.actor;
        return concerns && key.starts_with(fault.keys) && fault.from <= granted &&
               fault.to >= taken;
    });
}

template <class Condition>
std::int64_t HolderRules::nodes_where(const HistoryLine& event, const TokenFacts& token,
                                      const Condition& condition) const {
    const Time from = told(event) - event.number("elapsed") - tolerance_.slack;
    std::set<std::string_view> nodes;
    for (const std::uint64_t id : token.sends) {
        const Send& send = ledger_.sends.at(id);
        if (send.local >= from && condition(send)) nodes.insert(send.to);
    }
    return static_cast<std::int64_t>(nodes.size());
}

/// Yes: a majority of the nodes did it, in this one try, and said so. No: one said so that had another's
/// value, or none; to a renewal, so many that there is no majority any more. Refused: one gave an error,
/// and had not done it. Unsent: none has done it.
void HolderRules::check_answer(const HistoryLine& event, std::string_view name,
                               const TokenFacts& token, std::string_view verb) {
    const std::string_view answer = event.text("answer");
    const std::int64_t all = ledger_.guards[token.guard].nodes;
    const std::int64_t majority = all / 2 + 1;
    const auto did = [](std::string_view is) { return is == "ok" || is == "1"; };
    const auto ran = [&](const Send& send) { return !ledger_.has_servers || did(send.is); };
    const auto demand = [&](bool kept, std::string_view what) {
        if (!kept) {
            report_.add(Rule::answers,
                        say(event.text("verb"), " of ", name, " answers ", answer, ", but ", what));
        }
    };
    const auto count = [&](const auto& condition) {
        return nodes_where(event, token,
                           [&](const Send& send) { return send.verb == verb && condition(send); });
    };
    if (answer == "yes") {
        demand(count([&](const Send& send) { return did(send.reply) && ran(send); }) >= majority,
               "no majority of the nodes did it");
    } else if (answer == "no" && ledger_.has_servers) {
        const auto lacked = count([&](const Send& send) {
            return !did(send.is) && !send.is.empty() && send.before != send.token &&
                   (send.old.empty() || send.before != send.old);
        });
        demand(lacked > (verb == "expire" ? all - majority : 0),
               "too few nodes had another's value, or none");
    } else if (answer == "refused" && (verb == "expire" || verb == "delete")) {
        demand(count([&](const Send& send) {
                   return send.reply.starts_with("error:") && !did(send.is);
               }) > 0,
               "no error proves it");
    } else if (answer == "unsent" && !token.kept) {
        demand(count([&](const Send& send) { return did(send.is); }) == 0, "it was executed");
    }
}

void HolderRules::see_renewal(const HistoryLine& line, std::string_view name, TokenFacts& token) {
    const std::string_view answer = line.text("answer");
    check_answer(line, name, token, "expire");
    if (answer == "yes") {
        if (token.over_at >= 0 && (!tolerance_.real || told(line) > token.over_at)) {
            report_.add(Rule::finality, say(name, " is renewed behind its end"));
        }
        const GuardFacts& guard = ledger_.guards[token.guard];
        const Time sent = told(line) - line.number("elapsed");
        token.least = std::max(token.least, sent + guard.ttl - guard.margin);
    } else if (answer == "no") {
        finish(token, line.time);
        if (!tolerance_.real) be_over(token, line.time); // else when its loss is told
        token.settled = true;
    }
}

void HolderRules::see_deletion(const HistoryLine& line, std::string_view name, TokenFacts& token) {
    check_answer(line, name, token, "delete");
    ++ledger_.guards[line.text("guard")].deletions;
}

void HolderRules::see_loss(const HistoryLine& line, std::string_view name, TokenFacts& token) {
    ++report_.findings.counts.losses;
    const std::string_view why = line.text("loss");
    if (why == "expired" && local(line) < least_of(token) - tolerance_.slack) {
        report_.add(Rule::honesty, say(name, " is lost before its deadline"));
    }
    if (why == "taken" || why == "gone") {
        const std::string_view reply = why == "taken" ? "0" : "-1";
        const bool heard = std::any_of(token.sends.begin(), token.sends.end(), [&](auto id) {
            const Send& send = ledger_.sends.at(id);
            return send.verb == "expire" && send.reply == reply;
        });
        if (!heard) report_.add(Rule::honesty, say(name, " is ", why, ", and no server said so"));
    }
    if (++token.told_lost > 1) report_.add(Rule::finality, say(name, " is lost twice"));
    token.lost = true;
    token.lost_at = line.time;
    token.held_up_at_loss = held_up(line.actor, line.time);
    // else it runs out: held for as long as was asked for, or its renewer has gone
    if (line.number("remaining") > 0) return;
    finish(token, line.time);
    be_over(token, line.time);
}

void HolderRules::finish(TokenFacts& token, Time at) {
    if (token.granted && token.ended_at < 0) token.ended_at = at;
}

void HolderRules::be_over(TokenFacts& token, Time at) {
    if (token.granted && token.over_at < 0) token.over_at = at;
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
    const bool gave_back = call.verb == "unlock" || call.verb == "end" || call.verb == "detach";
    if (gave_back && line.actor == guard.maker && !guard.token.empty()) {
        be_over(ledger_.tokens[guard.token], line.time);
    }
    if (yes && line.number("fence") != 0) note_fence(line, guard);
    if (!guard.token.empty() && yes) {
        TokenFacts& token = ledger_.tokens[guard.token];
        if (call.verb == "keep") token.kept = true;
        if (call.verb == "detach") token.settled = true;
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
    const TokenFacts& token = ledger_.tokens[guard.token];
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
