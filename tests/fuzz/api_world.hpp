#pragma once
// SPDX-License-Identifier: MIT

#include "fuzz/fuzz.hpp"

#include <leaselock/core/deadline.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/lock/lease.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/quorum.hpp>
#include <leaselock/lock/renewer.hpp>
#include <leaselock/testing/manual_runtime.hpp>
#include <leaselock/testing/memory_connection.hpp>
#include <leaselock/testing/memory_redis.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace fuzz {

using leaselock::Deadline;
using leaselock::LeaseClock;
using leaselock::Loss;
using leaselock::testing::MemoryConnection;
using leaselock::testing::MemoryRedis;
using Nodes = leaselock::Quorum<MemoryConnection>;
using std::chrono::milliseconds;

/// The keys that all locks are on: one without a hash tag, one with.
inline constexpr std::array<std::string_view, 2> lock_keys{"lock:a", "lock:{b}"};

/// What is known of a guard, and goes along with it.
struct Known {
    std::size_t key = 0;
    LeaseClock::duration lease{};   ///< ttl less margin
    LeaseClock::duration timeout{}; ///< of one call
    bool held = false;              ///< a yes came, and no end has been seen
    bool kept = false;              ///< by a renewer, ever since
    bool overslept = false;         ///< the machine was suspended meanwhile
    bool disturbed = false;         ///< somebody deleted or overwrote its key behind its back
    Deadline deadline{};            ///< the last one that was seen
    std::optional<std::stop_token> token{};

    void begin() {
        held = kept = overslept = disturbed = false;
        deadline = {};
        token.reset();
    }
};

template <class B>
struct Guard : Known {
    std::optional<leaselock::LeaseLock<B>> lock{};
};

/// A server in memory, and what nobody but the test has done to it.
struct Server {
    explicit Server(leaselock::Runtime& runtime) : redis(runtime) {}

    MemoryRedis redis;
    std::array<std::optional<std::string>, lock_keys.size()> foreign{}; ///< values that must stay
    std::array<bool, lock_keys.size()> may_lack_ttl{};
};

/// Server 0 is alone; 1 to 3 are a quorum's nodes.
struct World {
    leaselock::testing::ManualRuntime runtime;
    std::array<Server, 4> servers{Server{runtime}, Server{runtime}, Server{runtime},
                                  Server{runtime}};
    MemoryConnection one{servers[0].redis}, other{servers[0].redis}, for_renewals{servers[0].redis};
    std::array<MemoryConnection, 3> q = to_nodes(), r = to_nodes(), s = to_nodes();
    Nodes nodes{q[0], q[1], q[2]}, other_nodes{r[0], r[1], r[2]},
        nodes_for_renewals{s[0], s[1], s[2]};
    std::array<MemoryConnection*, 12> connections{
        &one, &other, &for_renewals, &q[0], &q[1], &q[2], &r[0], &r[1], &r[2], &s[0], &s[1], &s[2]};
    std::optional<leaselock::Renewer<MemoryConnection>> renewer{std::in_place, for_renewals};
    std::optional<leaselock::Renewer<Nodes>> renewer_of_nodes{std::in_place, nodes_for_renewals};
    std::array<Guard<MemoryConnection>, 3> guards{};
    std::array<Guard<Nodes>, 2> guards_of_nodes{};

    std::vector<leaselock::Lease> leases{}, leases_of_nodes{}; ///< detached
    std::set<std::string> dead{}; ///< values of which it was said that they are not there
    std::array<std::uint64_t, lock_keys.size()> fences{};
    LeaseClock::duration spent{};

    [[nodiscard]] std::span<Server> servers_of(const Guard<MemoryConnection>& /*guard*/) {
        return std::span{servers}.first(1);
    }
    [[nodiscard]] std::span<Server> servers_of(const Guard<Nodes>& /*guard*/) {
        return std::span{servers}.subspan(1);
    }
    auto& renewer_of(const Guard<MemoryConnection>& /*guard*/) { return renewer; }
    auto& renewer_of(const Guard<Nodes>& /*guard*/) { return renewer_of_nodes; }
    auto& leases_of(const Guard<MemoryConnection>& /*guard*/) { return leases; }
    auto& leases_of(const Guard<Nodes>& /*guard*/) { return leases_of_nodes; }

    template <class Do>
    void for_each_guard(const Do& put) {
        for (auto& guard : guards) put(guard);
        for (auto& guard : guards_of_nodes) put(guard);
    }

    /// Somebody deletes or overwrites a key: the one thing that exclusion does not survive.
    void disturb(std::size_t server, std::size_t key) {
        const auto mark = [&](auto& guard) { guard.disturbed |= guard.held && guard.key == key; };
        if (server == 0) {
            for (auto& guard : guards) mark(guard);
        } else {
            for (auto& guard : guards_of_nodes) mark(guard);
        }
        servers[server].foreign[key].reset();
    }

    void check_all();

private:
    [[nodiscard]] std::array<MemoryConnection, 3> to_nodes() {
        return {MemoryConnection{servers[1].redis}, MemoryConnection{servers[2].redis},
                MemoryConnection{servers[3].redis}};
    }
    template <class B>
    void check_guard(Guard<B>& guard);
    template <class B>
    void check_owner(Guard<B>& guard);
    template <class B>
    void check_end(Guard<B>& guard);
    void check_servers();
    template <class Guards>
    void check_exclusion(Guards& all) {
        std::array<int, lock_keys.size()> owners{};
        for (auto& guard : all) {
            if (guard.lock && !guard.disturbed && guard.lock->owns_lock()) ++owners[guard.key];
        }
        for (const int count : owners) check(count <= 1, "no more than one owner");
    }
};

inline void World::check_all() {
    runtime.settle(); // signals are given by threads of the renewers
    for_each_guard([&](auto& guard) { check_guard(guard); });
    check_exclusion(guards);
    check_exclusion(guards_of_nodes);
    check_servers();
}

template <class B>
void World::check_guard(Guard<B>& guard) {
    if (!guard.lock) return;
    const bool owns = guard.lock->owns_lock();
    check(owns || (guard.lock->deadline() == Deadline{} &&
                   guard.lock->remaining() == LeaseClock::duration{}),
          "without a lease there is no deadline");
    if (owns) {
        check_owner(guard);
    } else if (guard.held) {
        check_end(guard);
    }
    if (!guard.token) return;
    const Loss loss = guard.lock->loss();
    check(loss == Loss::none || guard.token->stop_requested(), "a loss sets the stop token");
    check(loss != Loss::none || !guard.token->stop_requested(), "nothing else sets it");
}

template <class B>
void World::check_owner(Guard<B>& guard) {
    const Deadline now = runtime.now();
    const Deadline deadline = guard.lock->deadline();
    check(guard.held, "what was lost never comes back to life");
    check(deadline > now, "nobody owns behind the deadline");
    check(deadline >= guard.deadline, "a deadline never moves to an earlier point");
    check(deadline <= now + guard.lease, "it counts from before the send");
    check(guard.lock->remaining() == deadline - now, "what remains");
    guard.deadline = deadline;
    if (guard.disturbed) return;
    std::size_t holding = 0;
    for (Server& server : servers_of(guard)) {
        const auto value = server.redis.get(lock_keys[guard.key]);
        if (!value || !value->starts_with(guard.lock->fingerprint())) continue;
        const std::int64_t left = server.redis.pttl(lock_keys[guard.key]);
        // a key is there for its last millisecond, too
        holding += left == -1 || milliseconds{left + 1} > deadline - now ? 1U : 0U;
    }
    check(holding > servers_of(guard).size() / 2,
          "who owns is who the servers say, and for as long");
}

template <class B>
void World::check_end(Guard<B>& guard) {
    guard.held = false;
    switch (guard.lock->loss()) {
    case Loss::none: return fail("a lease that was not given back ends by a loss", __LINE__);
    case Loss::taken:
    case Loss::gone:
        // behind a suspend the server may be the first to say so
        return check(guard.disturbed || (guard.overslept && runtime.now() >= guard.deadline),
                     "nobody loses a key that nobody touched");
    case Loss::expired: break;
    case Loss::max_hold:
    case Loss::unkept: check(guard.kept, "only a renewer ends a lease like that");
    }
    check(runtime.now() >= guard.deadline, "nobody loses a lease ahead of its deadline");
}

inline void World::check_servers() {
    for (Server& server : servers) {
        for (std::size_t key = 0; key < lock_keys.size(); ++key) {
            const auto value = server.redis.get(lock_keys[key]);
            const std::int64_t left = server.redis.pttl(lock_keys[key]);
            if (left == -2) server.may_lack_ttl[key] = false;
            check(left != -1 || server.may_lack_ttl[key], "no key is left without a ttl");
            const auto& foreign = server.foreign[key];
            check(!foreign || value == foreign, "what is another's is neither changed nor deleted");
            check(!value || !dead.contains(*value), "what was surely not acquired is not there");
        }
    }
}

} // namespace fuzz
