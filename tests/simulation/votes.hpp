#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/history.hpp"
#include "simulation/ledger.hpp"

#include <cstdint>
#include <functional>
#include <set>
#include <string_view>

/// What the nodes of a quorum were asked about a token, and what they said. Pure.
namespace leaselock::simulation::detail {

/// What a command did, as the server or its caller knows.
[[nodiscard]] inline bool did(std::string_view is) { return is == "ok" || is == "1"; }
[[nodiscard]] inline bool said_yes(const Send& send) { return did(send.reply); }
[[nodiscard]] inline bool said_no(const Send& send) {
    return send.reply == "nil" || send.reply == "0" || send.reply == "-1";
}
[[nodiscard]] inline bool said_either(const Send& send) { return said_yes(send) || said_no(send); }
/// The server had another's value, or none.
[[nodiscard]] inline bool lacked(const Send& send) {
    return !did(send.is) && !send.is.empty() && send.before != send.token &&
           (send.old.empty() || send.before != send.old);
}

/// A question that went to all nodes over one quorum.
struct Try {
    Time first = 0; ///< the first send, confirmed or not, by the clock of the process
    Time ttl = 0;
    std::set<std::string_view> nodes{}; ///< servers, or connections, that gave a certain answer

    [[nodiscard]] std::int64_t size() const noexcept {
        return static_cast<std::int64_t>(nodes.size());
    }
};

/// The try, from a point in time on, in which most nodes gave an answer. Votes of a guard's own quorum
/// and of its renewer's are never added up; a server that was reached
/// twice counts once, but for deletions.
[[nodiscard]] Try best_try(const Ledger& ledger, const TokenFacts& token, std::string_view verb,
                           Time from, const std::function<bool(const Send&)>& gave);

/// A connection over which the token may have got to a node, and over which its deletion has not gone;
/// none: empty.
[[nodiscard]] std::string_view find_untold(const Ledger& ledger, const TokenFacts& token);

/// Takes those for told that have yet to answer something earlier.
void excuse_busy(const Ledger& ledger, TokenFacts& token);

/// Whether a renewal that is sent now was asked for earlier: other nodes have yet to answer it, or this
/// one's connection has just become free for it.
[[nodiscard]] bool belongs_to_earlier(const Ledger& ledger, const Send& send, Time end);

} // namespace leaselock::simulation::detail
