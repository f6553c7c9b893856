#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/checker.hpp"
#include "simulation/clock.hpp"
#include "simulation/history.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

/// What the checker knows of a history so far. All views are into the history.
namespace leaselock::simulation::detail {

/// A process.
struct Actor {
    Clock clock;
    Time held_up = 0; ///< how long it was stopped, or slow to wake up, in all
    Time stopped_at = -1;
    bool killed = false;
};

struct GuardFacts {
    std::string_view key;
    std::string_view maker;
    Time ttl = 0;
    Time margin = 0;
    std::int64_t nodes = 1;
    Time cap = 0; ///< the longest pause between two attempts of a waiting call; 0: not known
    bool fenced = false;
    std::string_view token{};    ///< of its last attempt that may have left something
    std::uint64_t deletions = 0; ///< that were asked for, or could not be, for any of its tokens
    bool waits = false;          ///< it is in a call that does
    Time attempted = -1;         ///< the last attempt of a call that waits, by its maker's clock
    Time held_up_then = 0;

    [[nodiscard]] bool is_quorum() const noexcept { return nodes > 1; }
    [[nodiscard]] std::int64_t majority() const noexcept { return nodes / 2 + 1; }
};

/// A command that went out.
struct Send {
    std::string_view verb;
    std::string_view token; ///< of adopt: the new one
    std::string_view old;   ///< of adopt: the one that it replaces
    std::string_view actor;
    std::string_view to;   ///< the server
    std::string_view via;  ///< of a quorum: which one
    std::string_view slot; ///< and which of its connections; the server where that is not known
    Time at = 0;           ///< when
    Time local = 0;        ///< the same by the actor's clock
    Time asked = 0;        ///< when its caller asked for it, in the time of the run
    Time asked_local = 0;
    Time ttl = 0;
    Time answered = -1;      ///< when its caller was told, by the actor's clock
    std::string_view reply;  ///< as its caller was told
    std::string_view is;     ///< as the server answered
    std::string_view before; ///< what the key held then
};

/// An acquisition, by its token: what its holder knows of it, and what the servers do.
struct TokenFacts {
    std::string_view guard;
    std::string_view actor;
    std::vector<std::uint64_t> sends{};

    std::string_view answer; ///< of the attempt
    bool granted = false;
    Time most = 0;  ///< the latest deadline that its confirmed sends allow, by the actor's clock
    Time least = 0; ///< the earliest
    Time taken_at = -1;   ///< when a server executed it, at the latest
    Time taken_from = -1; ///< and at the earliest
    Time ended_at = -1;   ///< as its holder knows
    Time over_at = -1;    ///< when it knew for sure: the same, unless threads run at the same time
    bool denied = false;  ///< its only server has said that it is not there
    bool lost = false;
    bool given_away = false;
    Time lost_at = -1;
    Time held_up_at_loss = 0;
    Time renewal_asked = -1;    ///< of the renewal that is going on
    bool renewal_again = false; ///< the server wants it in another form
    std::uint64_t told_lost = 0;
    std::uint64_t signals = 0;
    bool listening = false;
    bool kept = false;
    bool settled = false; ///< it is known to be in no server any more
    bool forsaken =
        false; ///< nobody has to delete it: handed over, or lost by the word of the servers

    /// Executed, by server, and by the connection to it.
    std::map<std::pair<std::string_view, std::string_view>, int> sets{};
    std::unordered_map<std::string_view, std::int64_t>
        lives{};                          ///< until when, by the server's clock, ms
    std::set<std::string_view> deleted{}; ///< servers that executed its deletion
    std::set<std::string_view>
        backing{};                     ///< of a quorum: the nodes that confirmed `most`, in one try
    std::uint64_t newest = 0;          ///< command about it, by id, when its deletion was last over
    std::set<std::string_view> told{}; ///< of a quorum: connections that got its deletion
    std::uint64_t fence = 0;
    std::uint64_t told_fence = 0; ///< as its holder was told
    std::size_t line = 0;         ///< of its answer
};

struct OpenCall {
    std::string_view guard;
    std::string_view verb;
    std::string_view actor;
    Time local = 0;
    Time limit = 0;
    Time held_up = 0;
    std::uint64_t deletions = 0; ///< of the guard, when it began
    bool must = false;
    std::size_t line = 0;
};

struct FaultSpan {
    Time from;
    Time to;
    std::string_view kind;
    std::string_view target;
    std::string_view keys; ///< what they begin with
    std::string_view by;   ///< whose leases it concerns; empty: everybody's
};

/// One connection of a quorum.
struct LineFacts {
    /// A command that it was given.
    struct Waiting {
        std::string_view verb;
        std::string_view token;
        Time asked;
    };
    std::map<std::uint64_t, Waiting> open{}; ///< what it has yet to answer, by id
    Time freed_at = -1;                      ///< when it answered last, in the time of the run
};

struct StoreFacts {
    std::uint64_t highest = 0;
    std::string_view newest; ///< the token among those registered that was taken last
};

struct Ledger {
    std::unordered_map<std::string_view, Actor> actors{};
    std::unordered_map<std::string_view, GuardFacts> guards{};
    std::unordered_map<std::string_view, TokenFacts> tokens{};
    std::unordered_map<std::uint64_t, Send> sends{};
    std::unordered_map<std::int64_t, OpenCall> calls{};
    std::map<std::pair<std::string_view, std::string_view>, LineFacts> lines{};
    std::unordered_map<std::uint64_t, LineFacts*> line_of{}; ///< of what it has yet to answer
    std::uint64_t newest = 0;                                ///< command, by id
    std::unordered_map<std::string_view, std::vector<std::string_view>>
        granted{};                                           ///< tokens, by key
    std::unordered_map<std::string, std::uint64_t> issued{}; ///< last fence, by key, and server
    std::unordered_map<std::string_view, StoreFacts> stores{};
    std::vector<FaultSpan> breaks{}; ///< what may break exclusion
    bool failed_over = false;
    bool has_servers = false;
};

/// Where the rules say what they find.
struct Report {
    Findings& findings;
    std::size_t line; ///< that is being looked at

    void add(Rule rule, std::string what) const {
        findings.violations.push_back({rule, line, std::move(what)});
    }
};

/// Text from parts.
template <class... Parts>
[[nodiscard]] std::string say(const Parts&... parts) {
    std::string text;
    (text.append(std::string_view{parts}), ...);
    return text;
}

} // namespace leaselock::simulation::detail
