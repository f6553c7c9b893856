// SPDX-License-Identifier: MIT

#include "simulation/holder_rules.hpp"

#include "simulation/checker.hpp"
#include "simulation/history.hpp"
#include "simulation/ledger.hpp"
#include "simulation/votes.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace leaselock::simulation::detail {

namespace {

std::string_view slot_of(const HistoryLine& line) {
    return line.text(line.has("slot") ? "slot" : "to");
}

} // namespace

// --- the wire

void HolderRules::see_send(const HistoryLine& line) {
    const auto id = static_cast<std::uint64_t>(line.number("id"));
    Send& send = ledger_.sends[id];
    send.verb = line.text("verb");
    send.token = line.text("token");
    send.actor = line.actor;
    send.to = line.text("to");
    send.via = line.text("via");
    send.slot = slot_of(line);
    send.at = line.time;
    send.local = local(line);
    send.asked = line.number("asked", line.time);
    send.asked_local = ledger_.actors[line.actor].clock.at(send.asked);
    send.ttl = line.number("ttl") * 1'000'000;
    if (send.verb == "adopt") {
        send.old = send.token;
        send.token = line.text("heir");
    }
    ledger_.newest = std::max(ledger_.newest, id);
    note_line(line, id);
    if (send.token.empty()) return;
    TokenFacts& token = ledger_.tokens[send.token];
    token.sends.push_back(id);
    if (token.actor.empty()) token.actor = line.actor;
    if (token.actor != line.actor) {
        report_.add(Rule::ownership,
                    say(line.actor, " sends the token ", send.token, " of ", token.actor));
    }
    if (send.verb == "expire") note_renewal(line, send, token);
}

/// It connects first; what it is to send has been handed over all the same.
void HolderRules::see_dial(const HistoryLine& line) {
    const auto id = static_cast<std::uint64_t>(line.number("id"));
    ledger_.newest = std::max(ledger_.newest, id);
    note_line(line, id);
}

void HolderRules::note_line(const HistoryLine& line, std::uint64_t id) {
    const std::string_view slot = slot_of(line);
    if (line.text("verb") == "delete") ledger_.tokens[line.text("token")].told.insert(slot);
    const std::string_view via = line.text("via");
    if (via.empty()) return;
    LineFacts& facts = ledger_.lines[{via, slot}];
    facts.open[id] = {line.text("verb"), line.text("token"), line.number("asked", line.time)};
    ledger_.line_of[id] = &facts;
}

void HolderRules::note_renewal(const HistoryLine& line, const Send& send, TokenFacts& token) {
    if (!token.granted) {
        report_.add(Rule::ghosts, say("renews ", send.token, ", which was never granted"));
        return;
    }
    // A renewal that the server wants in another form is the same one still.
    if (!token.renewal_again) token.renewal_asked = send.asked;
    token.renewal_again = false;
    if (token.over_at < 0) return;
    const Time late =
        tolerance_.real ? tolerance_.bound + held_up(line.actor, line.time) : tolerance_.slack;
    if (token.renewal_asked > token.over_at + late &&
        !(ledger_.guards[token.guard].is_quorum() &&
          belongs_to_earlier(ledger_, send, token.over_at))) {
        report_.add(Rule::finality, say("renews ", send.token, ", which has ended"));
    }
}

void HolderRules::see_reply(const HistoryLine& line) {
    const auto id = static_cast<std::uint64_t>(line.number("id"));
    const auto waits = ledger_.line_of.find(id);
    const bool dialled = waits != ledger_.line_of.end();
    if (dialled) {
        waits->second->open.erase(id);
        waits->second->freed_at = line.time;
        ledger_.line_of.erase(waits);
    }
    const auto found = ledger_.sends.find(id);
    if (found == ledger_.sends.end()) {
        if (!dialled) report_.add(Rule::form, "a reply to nothing");
        return;
    }
    Send& send = found->second;
    send.reply = line.text("is");
    send.answered = local(line);
    TokenFacts& token = ledger_.tokens[send.token];
    if (!send.via.empty() || ledger_.guards[token.guard].is_quorum())
        return; // it counts with those of the other nodes
    const bool compared = send.reply == "1" || send.reply == "0" || send.reply == "-1";
    if (send.verb == "delete" && compared) token.settled = true;
    if (send.verb != "expire") return;
    token.denied = token.denied || said_no(send);
    token.renewal_again = send.reply.starts_with("error:NOSCRIPT") || send.reply == "error:ERR";
    if (send.reply != "1" || token.ended_at >= 0) return;
    // a 1 read after the deadline changes nothing
    if (local(line) >= token.most + tolerance_.slack) return;
    confirm(send, token);
    ++report_.findings.counts.renewals;
}

/// The one server has confirmed the lease.
void HolderRules::confirm(const Send& send, TokenFacts& token) {
    token.most = std::max(token.most, send.local + send.ttl - ledger_.guards[token.guard].margin);
}

/// Nobody tells of a renewal that its renewer has left behind: it shows in what the guard says.
void HolderRules::confirm_untold(TokenFacts& token) {
    if (!token.lost || !ledger_.guards[token.guard].is_quorum()) return;
    for (const std::uint64_t id : token.sends) {
        const Send& send = ledger_.sends.at(id);
        if (send.verb == "expire") {
            confirm(best_try(ledger_, token, "expire", send.asked_local, said_yes), token);
        }
    }
}

/// A majority of the nodes has confirmed it, in one try: the lease counts from the first send of that,
/// whichever node it went to.
void HolderRules::confirm(const Try& by_nodes, TokenFacts& token) {
    const GuardFacts& guard = ledger_.guards[token.guard];
    if (by_nodes.size() < guard.majority()) return;
    const Time until = by_nodes.first + by_nodes.ttl - guard.margin;
    if (until <= token.most) return;
    token.most = until;
    token.backing = by_nodes.nodes;
}

} // namespace leaselock::simulation::detail
