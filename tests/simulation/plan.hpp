#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace leaselock::simulation {

/// What goes wrong. Ids in brackets: those of the faults that the README's tests bear.
enum class Kind : std::uint8_t {
    // a client's machine, or the way from there
    stop,       ///< SIGSTOP, for a span
    kill,       ///< SIGKILL; a new process starts a span later
    fork,       ///< while it holds what it holds
    sluggish,   ///< its threads are slow to wake up
    no_random,  ///< its source of random bytes fails
    no_threads, ///< it can start no thread
    lose,       ///< so many of a thousand calls get lost on the way there, or back
    slow,       ///< everything takes up to so much longer, in either direction
    cut,        ///< its connections are reset
    refuse,     ///< nobody listens
    swallow,    ///< nobody answers who connects
    lie,        ///< a proxy answers with an error for what has been executed
    misroute,   ///< who connects to a node of a quorum reaches another of them
    // a server
    pause,         ///< SIGSTOP
    restart,       ///< it is down for a span, and keeps its data
    flush_scripts, ///< SCRIPT FLUSH
    full,          ///< out of memory
    read_only,     ///< demoted for a while
    loading,       ///< answers LOADING
    clock_back,    ///< its clock steps back
    // those that the promise of exclusion excepts
    forget,        ///< it is down for a span, and has lost its data
    flush,         ///< FLUSHALL
    remove,        ///< DEL of a lock by hand, or its eviction
    clock_forward, ///< its clock steps forward
    failover,      ///< a replica that lags behind is promoted; the old master may go on for a span
};
inline constexpr std::size_t kinds = static_cast<std::size_t>(Kind::failover) + 1;

/// Of a client, or of the way from there.
[[nodiscard]] constexpr bool strikes_client(Kind kind) noexcept { return kind <= Kind::misroute; }

/// Of the way alone.
[[nodiscard]] constexpr bool strikes_way(Kind kind) noexcept {
    return strikes_client(kind) && kind >= Kind::lose;
}

/// Whether two guards may own one key behind it. Source: design, "What is promised" (exclusion). The same
/// on a quorum: two majorities may have one node in common, and one that forgets a lease, or lets it run
/// out too early, votes for two. What leaves a node with its keys, or without an answer, does not.
[[nodiscard]] constexpr bool breaks_exclusion(Kind kind) noexcept { return kind >= Kind::forget; }

struct Fault {
    Kind kind{};
    Time at = 0;
    Time span = 0;
    std::size_t target = 0;            ///< the client's machine, or the key
    std::optional<std::size_t> node{}; ///< of a quorum; none: the way to each of them
    std::int64_t amount = 0;
};

/// What a run is made of: all of it drawn from the seed, and then written down, so that parts of it can
/// be left out.
struct Plan {
    std::uint64_t seed = 0;
    std::size_t clients = 0;
    std::size_t keys = 0;
    std::size_t nodes = 1; ///< more: a quorum of so many servers
    Time horizon = 0;      ///< the clients stop working, and the faults end
    std::int64_t ttl_ms = 0;
    std::int64_t timeout_ms = 0;
    bool wide_margin = false;
    bool lacks_getex = false;
    unsigned fenced = 0, kept = 0, shared = 0, waiting = 0; ///< of a thousand
    Time latency = 0;
    std::vector<Fault> faults{};
    std::vector<std::size_t> without{}; ///< clients that do not run
};

[[nodiscard]] Plan draw_plan(std::uint64_t seed);
[[nodiscard]] std::string_view to_string(Kind kind) noexcept;
/// For people.
[[nodiscard]] std::string describe(const Fault& fault);
[[nodiscard]] std::string describe(const Plan& plan);

} // namespace leaselock::simulation
