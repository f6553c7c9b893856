// SPDX-License-Identifier: MIT

#include "simulation/holder_rules.hpp"

#include "simulation/checker.hpp"
#include "simulation/history.hpp"
#include "simulation/ledger.hpp"
#include "simulation/votes.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace leaselock::simulation::detail {

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
    if (guard.token != name) check_told(guard);
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
    const bool adopts = line.text("verb") == "adopt";
    for (const std::uint64_t id : token.sends) {
        const Send& send = ledger_.sends[id];
        if (token.taken_from < 0 && (send.verb == "set" || send.verb == "adopt")) {
            token.taken_from = send.at; // as far as this history knows
        }
    }
    if (guard.is_quorum()) {
        confirm(best_try(ledger_, token, adopts ? "adopt" : "set", beginning(line), said_yes),
                token);
        ++report_.findings.counts.by_quorum;
    } else {
        for (const std::uint64_t id : token.sends) {
            const Send& send = ledger_.sends[id];
            if (send.verb == (adopts ? "adopt" : "set") && said_yes(send)) confirm(send, token);
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
        if (is_excused(token, other, line.time)) {
            ++report_.findings.counts.excused;
            continue;
        }
        ++report_.findings.counts.overlaps;
        report_.add(Rule::exclusion, say(name, " of ", line.actor, " is granted while ", other_name,
                                         " of ", other.actor, " holds ", guard.key));
    }
}

/// A fault explains it. Of a quorum, one at every node that backs both: where one of them neither lost
/// the first lease nor let it run out too early, the second cannot have had its vote.
bool HolderRules::is_excused(const TokenFacts& token, const TokenFacts& other, Time granted) const {
    // the one that was told last may have been executed first
    const Time taken = std::min(other.taken_from, token.taken_from);
    const GuardFacts& guard = ledger_.guards.at(token.guard);
    const auto strikes = [&](std::string_view node) {
        return std::any_of(
            ledger_.breaks.begin(), ledger_.breaks.end(), [&](const FaultSpan& fault) {
                const bool concerns =
                    fault.by.empty() || fault.by == other.actor || fault.by == token.actor;
                return concerns && guard.key.starts_with(fault.keys) && fault.from <= granted &&
                       fault.to >= taken && (node.empty() || fault.target == node);
            });
    };
    if (!guard.is_quorum()) return strikes({});
    std::int64_t both = 0;
    for (const std::string_view node : token.backing) {
        if (!other.backing.contains(node)) continue;
        if (!strikes(node)) return false;
        ++both;
    }
    return both != 0;
}

/// Of a quorum: what an attempt may have left has been deleted, by its token, on every node.
void HolderRules::check_told(const GuardFacts& guard) {
    if (!guard.is_quorum() || guard.token.empty()) return;
    const TokenFacts& token = ledger_.tokens[guard.token];
    const std::string_view slot = token.forsaken ? std::string_view{} : find_untold(ledger_, token);
    if (slot.empty()) return;
    report_.add(Rule::ghosts,
                say(guard.token, " may be on node ", slot, ", which is not told to delete it"));
}

/// When that began, by the clock of its process.
Time HolderRules::beginning(const HistoryLine& event) const {
    return told(event) - event.number("elapsed") - tolerance_.slack;
}

/// By the word of the server too, where the history has it.
bool HolderRules::ran(const Send& send) const {
    return !ledger_.has_servers || send.is == "ok" || send.is == "1";
}

/// What each answer takes. Source: design, "The wire".
void HolderRules::check_answer(const HistoryLine& event, std::string_view name,
                               const TokenFacts& token, std::string_view verb) {
    const Question question{event, name, token, verb, ledger_.guards[event.text("guard")]};
    question.guard.is_quorum() ? check_votes(question) : check_reply(question);
}

void HolderRules::demand(const Question& question, bool kept, std::string_view what) const {
    if (kept) return;
    report_.add(Rule::answers, say(question.event.text("verb"), " of ", question.name, " answers ",
                                   question.event.text("answer"), ", but ", what));
}

/// Yes: it did it, in this one try, and said so. No: it had another's value, or none. Refused: it gave an
/// error, and had not done it. Unsent: it has not done it.
void HolderRules::check_reply(const Question& question) const {
    const std::string_view answer = question.event.text("answer");
    const Time from = beginning(question.event);
    const auto any = [&](const auto& condition) {
        return std::any_of(question.token.sends.begin(), question.token.sends.end(), [&](auto id) {
            const Send& send = ledger_.sends.at(id);
            return send.local >= from && send.verb == question.verb && condition(send);
        });
    };
    if (answer == "yes") {
        demand(question, any([&](const Send& send) { return said_yes(send) && ran(send); }),
               "the server did not do it");
    } else if (answer == "no" && ledger_.has_servers) {
        demand(question, any(lacked), "the server had its value");
    } else if (answer == "refused" && (question.verb == "expire" || question.verb == "delete")) {
        demand(question, any([](const Send& send) {
                   return send.reply.starts_with("error:") && !did(send.is);
               }),
               "no error proves it");
    } else if (answer == "unsent" && !question.token.kept) {
        demand(question, !any([](const Send& send) { return did(send.is); }), "it was executed");
    }
}

/// The same of many: yes and no take a majority of different nodes in one try, with one exception. Once a
/// majority says that an attempt's token is gone, or never was there, cleaning up behind it is over.
void HolderRules::check_votes(const Question& question) const {
    const std::string_view answer = question.event.text("answer");
    const std::int64_t majority = question.guard.majority();
    const auto count = [&](const auto& gave) {
        return best_try(ledger_, question.token, question.verb, beginning(question.event), gave)
            .size();
    };
    const auto count_yes = [&] {
        return count([&](const Send& send) { return said_yes(send) && ran(send); });
    };
    // a server that is reached twice may be busy with this very token
    const auto sent_twice = [](const Send& send) { return send.verb == "set" && send.is == "nil"; };
    const auto count_no = [&] {
        return count([&](const Send& send) {
            return said_no(send) && (!ledger_.has_servers || lacked(send) || sent_twice(send));
        });
    };
    if (question.event.text("verb") == "clean_up" && (answer == "yes" || answer == "no")) {
        const bool well = answer == "yes" ? count_yes() > 0 : count_yes() == 0;
        demand(question, well && count(said_either) >= majority, "no majority of the nodes knows");
    } else if (answer == "yes") {
        demand(question, count_yes() >= majority, "no majority of the nodes did it");
    } else if (answer == "no") {
        demand(question, count_no() > question.guard.nodes - majority,
               "a majority of the nodes may still say yes");
    } else if (answer == "unsent" ||
               (answer == "refused" && question.verb != "set" && question.verb != "adopt")) {
        if (question.token.kept) return; // its renewer has tries of its own
        demand(question, count([](const Send& send) { return did(send.is); }) == 0,
               "it was executed");
    }
}

void HolderRules::see_renewal(const HistoryLine& line, std::string_view name, TokenFacts& token) {
    const std::string_view answer = line.text("answer");
    check_answer(line, name, token, "expire");
    if (answer == "yes") {
        if (ledger_.guards[token.guard].is_quorum() && token.ended_at < 0) {
            confirm(best_try(ledger_, token, "expire", beginning(line), said_yes), token);
            ++report_.findings.counts.renewals;
        }
        if (token.over_at >= 0 && (!tolerance_.real || told(line) > token.over_at)) {
            report_.add(Rule::finality, say(name, " is renewed behind its end"));
        }
        const GuardFacts& guard = ledger_.guards[token.guard];
        const Time sent = told(line) - line.number("elapsed");
        token.least = std::max(token.least, sent + guard.ttl - guard.margin);
    } else if (answer == "no") {
        finish(token, line.time);
        if (!tolerance_.real) be_over(token, line.time); // else when its loss is told
        token.settled = token.forsaken = true;
    }
}

void HolderRules::see_deletion(const HistoryLine& line, std::string_view name, TokenFacts& token) {
    check_answer(line, name, token, "delete");
    const GuardFacts& guard = ledger_.guards[line.text("guard")];
    const auto many = [&](const auto& gave) {
        return best_try(ledger_, token, "delete", beginning(line), gave).size() >= guard.majority();
    };
    const bool cleans_up = line.text("verb") == "clean_up";
    const bool known = cleans_up ? many(said_either) : many(said_yes) || many(said_no);
    token.settled = token.settled || (guard.is_quorum() && known);
    token.newest = ledger_.newest;
    // A release does not wait for a node that is not there: its key ends with the ttl.
    if (!cleans_up) excuse_busy(ledger_, token);
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
        const auto gone = [&] {
            return best_try(ledger_, token, "expire", std::numeric_limits<Time>::min(), said_no);
        };
        const GuardFacts& guard = ledger_.guards[token.guard];
        if (guard.is_quorum() && gone().size() <= guard.nodes - guard.majority()) {
            report_.add(Rule::honesty,
                        say(name, " is ", why, ", and a majority may still have it"));
        }
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

} // namespace leaselock::simulation::detail
