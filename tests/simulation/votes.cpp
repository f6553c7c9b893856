// SPDX-License-Identifier: MIT

#include "simulation/votes.hpp"

#include "simulation/history.hpp"
#include "simulation/ledger.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

namespace leaselock::simulation::detail {

Try best_try(const Ledger& ledger, const TokenFacts& token, std::string_view verb, Time from,
             const std::function<bool(const Send&)>& gave) {
    std::map<std::string_view, Try> tries; // by quorum
    for (const std::uint64_t id : token.sends) {
        const Send& send = ledger.sends.at(id);
        const bool earlier = send.asked_local < from || (verb == "delete" && id <= token.newest);
        if (earlier || send.verb != verb) continue;
        const auto [entry, is_new] = tries.try_emplace(send.via);
        Try& its = entry->second;
        its.first = is_new ? send.local : std::min(its.first, send.local);
        its.ttl = send.ttl;
        // deleting is right whoever does it
        if (gave(send)) its.nodes.insert(verb == "delete" ? send.slot : send.to);
    }
    Try best;
    for (const auto& [via, its] : tries) {
        if (its.size() > best.size()) best = its;
    }
    return best;
}

namespace {

/// Whether the answer leaves it open that the token is there, or says so. The server's word is the last.
bool may_hold(const Send& send) {
    if (said_no(send) || (!send.is.empty() && !did(send.is))) return false;
    return !send.reply.starts_with("error:") || send.reply == "error:ERR";
}

} // namespace

std::string_view find_untold(const Ledger& ledger, const TokenFacts& token) {
    for (const std::uint64_t id : token.sends) {
        const Send& send = ledger.sends.at(id);
        const bool takes = send.verb == "set" || send.verb == "adopt";
        if (takes && may_hold(send) && !token.told.contains(send.slot)) return send.slot;
    }
    return {};
}

void excuse_busy(const Ledger& ledger, TokenFacts& token) {
    for (const std::uint64_t id : token.sends) {
        const Send& send = ledger.sends.at(id);
        const auto line = ledger.lines.find({send.via, send.slot});
        if (line != ledger.lines.end() && !line->second.open.empty()) token.told.insert(send.slot);
    }
}

bool belongs_to_earlier(const Ledger& ledger, const Send& send, Time end) {
    const auto line = ledger.lines.find({send.via, send.slot});
    if (line != ledger.lines.end() && line->second.freed_at == send.asked) return true;
    const auto began_before = [&](const auto& entry) {
        const LineFacts::Waiting& other = entry.second;
        return other.verb == "expire" && other.token == send.token && other.asked <= end;
    };
    return std::any_of(ledger.lines.begin(), ledger.lines.end(), [&](const auto& entry) {
        const auto& open = entry.second.open;
        return entry.first.first == send.via && std::any_of(open.begin(), open.end(), began_before);
    });
}

} // namespace leaselock::simulation::detail
