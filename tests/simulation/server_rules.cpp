// SPDX-License-Identifier: MIT

#include "simulation/server_rules.hpp"

#include "simulation/checker.hpp"
#include "simulation/history.hpp"
#include "simulation/ledger.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace leaselock::simulation::detail {

void ServerRules::see(const HistoryLine& line) {
    if (line.what == "exec") return see_executed(line);
    if (line.what == "fault") return see_fault(line);
    if (line.actor == "store") return see_store(line);
}

void ServerRules::see_fault(const HistoryLine& line) {
    if (line.text("breaks") != "exclusion") return;
    const std::string_view kind = line.text("kind");
    ledger_.breaks.push_back({line.time, line.time + line.number("lasts"), kind,
                              line.text("target"), line.text("keys"), line.text("by")});
    ledger_.failed_over = ledger_.failed_over || kind == "failover";
}

void ServerRules::see_executed(const HistoryLine& line) {
    ledger_.has_servers = true;
    const std::string_view verb = line.text("verb");
    const std::string_view before = line.text("before");
    if (const auto sent = ledger_.sends.find(static_cast<std::uint64_t>(line.number("id")));
        sent != ledger_.sends.end()) {
        sent->second.is = line.text("is");
        sent->second.before = before;
    }
    if (const auto holder = ledger_.tokens.find(before); holder != ledger_.tokens.end()) {
        const auto life = holder->second.lives.find(line.actor);
        if (life != holder->second.lives.end() && line.number("clock") > life->second) {
            report_.add(Rule::ghosts, say("token ", before, " is there beyond its ttl"));
        }
    }
    const bool known =
        verb == "set" || verb == "delete" || verb == "expire" || verb == "adopt" || verb == "fence";
    if (known) return see_change(line, verb);
    if (before != line.text("after")) {
        report_.add(Rule::ownership, say(verb, " changes a lock without comparing its value"));
    }
}

/// Ownership: what changes, changes under its owner's value, and has a ttl.
void ServerRules::see_change(const HistoryLine& line, std::string_view verb) {
    const std::string_view before = line.text("before");
    const std::string_view after = line.text("after");
    const std::string_view token = line.text("token");
    const std::string_view is = line.text("is");
    const auto demand = [&](bool kept, std::string_view what) {
        if (!kept) report_.add(Rule::ownership, say(verb, " of ", token, ": ", what));
    };
    bool writes = false;
    if (verb == "set") {
        writes = is == "ok";
        demand(writes ? before.empty() && after == token : before == after, "takes another's key");
        if (writes) take(line, ledger_.tokens[token]);
    } else if (verb == "adopt") {
        const std::string_view heir = line.text("heir");
        writes = is == "1";
        const bool due = before == token || before == heir;
        demand(writes ? due && after == heir : before == after, "takes another's key");
        if (writes) {
            TokenFacts& facts = ledger_.tokens[heir];
            if (facts.taken_at < 0) facts.taken_at = facts.taken_from = line.time;
            note_life(line, heir);
        }
    } else if (verb == "delete") {
        demand(is == "1" ? before == token && after.empty() : before == after,
               "deletes what is not its own");
        if (is == "1") ledger_.tokens[token].deleted.insert(line.actor);
    } else if (verb == "expire") {
        writes = is == "1";
        demand(before == after && (!writes || before == token), "extends what is not its own");
        if (writes) note_life(line, token);
    } else if (verb == "fence") {
        demand(before == after, "changes the lock");
        if (line.number("is") > 0) {
            demand(before == token, "issues a fencing token for what is not its own");
            demand(line.number("counter_left") > 0, "leaves a counter without ttl");
            see_fence(line, ledger_.tokens[token]);
        }
    }
    if (writes) demand(line.number("left") > 0, "leaves a key without ttl");
}

void ServerRules::take(const HistoryLine& line, TokenFacts& token) {
    // a quorum that reaches one server under two connections has sent it two
    const auto sent = ledger_.sends.find(static_cast<std::uint64_t>(line.number("id")));
    const std::string_view slot = sent == ledger_.sends.end() ? "" : sent->second.slot;
    if (++token.sets[{line.actor, slot}] > 1) {
        report_.add(Rule::ownership,
                    say("token ", line.text("token"), " is set twice on ", line.actor));
    }
    if (token.taken_at < 0) token.taken_at = token.taken_from = line.time;
    note_life(line, line.text("token"));
}

void ServerRules::note_life(const HistoryLine& line, std::string_view token) {
    ledger_.tokens[token].lives[line.actor] = line.number("clock") + line.number("ttl");
}

void ServerRules::see_fence(const HistoryLine& line, TokenFacts& token) {
    const auto fence = static_cast<std::uint64_t>(line.number("is"));
    // an adopter that asks twice, for want of an answer, is given two, and told the second
    if (token.fence != 0 && token.granted) {
        report_.add(Rule::fencing, say("a second fencing token for ", line.text("token")));
    }
    token.fence = fence;
    std::string place{line.text("key")};
    // while an old master goes on beside the new one, there are two orders
    if (ledger_.failed_over) place.append("@").append(line.actor);
    std::uint64_t& last = ledger_.issued[place];
    if (fence <= last) {
        report_.add(Rule::fencing, say("fencing token ", std::to_string(fence), " behind ",
                                       std::to_string(last), " for ", line.text("key")));
    }
    last = std::max(last, fence);
}

/// The store's rule, and what it is for: what an older owner writes behind a newer one's registration
/// is refused.
void ServerRules::see_store(const HistoryLine& line) {
    const bool done = line.number("ok") == 1;
    if (!done) {
        ++report_.findings.counts.refused_writes;
        return;
    }
    const auto fence = static_cast<std::uint64_t>(line.number("fence"));
    const std::string_view token = line.text("token");
    StoreFacts& store = ledger_.stores[line.text("key")];
    if (fence < store.highest) {
        report_.add(Rule::fencing, say("the store takes ", std::to_string(fence), " behind ",
                                       std::to_string(store.highest)));
    }
    store.highest = std::max(store.highest, fence);
    const TokenFacts& writer = ledger_.tokens[token];
    if (ledger_.has_servers && fence != writer.fence) {
        report_.add(Rule::fencing,
                    say("fencing token ", std::to_string(fence), " was not issued for ", token));
    }
    if (!store.newest.empty() && store.newest != token) {
        const TokenFacts& newest = ledger_.tokens[store.newest];
        if (writer.taken_at < newest.taken_from) {
            report_.add(Rule::fencing,
                        say("stale: ", token, " writes behind the newer ", store.newest));
        }
    }
    if (line.what == "register" &&
        (store.newest.empty() || writer.taken_at >= ledger_.tokens[store.newest].taken_at)) {
        store.newest = token;
    }
}

void ServerRules::end() {
    if (!ledger_.has_servers) return;
    for (const auto& known : ledger_.tokens) {
        const TokenFacts& token = known.second;
        if (token.answer == "unknown" && token.taken_at >= 0) ++report_.findings.counts.ghosts;
        if (token.answer != "refused") continue;
        const GuardFacts& guard = ledger_.guards[token.guard];
        const auto left =
            std::count_if(token.lives.begin(), token.lives.end(),
                          [&](const auto& at) { return !token.deleted.contains(at.first); });
        // Of a single master, one that took over may have deleted it. Of a quorum, a node that has not
        // been heard of may have what is too little for anybody to hold.
        if (!guard.is_quorum() && !token.deleted.empty()) continue;
        if (left < guard.majority()) continue;
        report_.line = token.line;
        report_.add(Rule::answers,
                    say("refused, but ", known.first, " was executed and not deleted"));
    }
}

} // namespace leaselock::simulation::detail
