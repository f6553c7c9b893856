#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/cluster_nodes.hpp>
#include <leaselock/hiredis/detail/lookup.hpp>
#include <leaselock/hiredis/detail/query.hpp>
#include <leaselock/hiredis/detail/slot_table.hpp>
#include <leaselock/hiredis/detail/stream.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/dialect.hpp>
#include <leaselock/redis/reply.hpp>

#include <hiredis/hiredis.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

enum class Refreshed : std::uint8_t {
    fresh,
    skipped, ///< somebody is at it, or was a moment ago: the table is as good as can be
    failed,  ///< no node has given one
};

/// Asks the cluster itself which slot is whose. One thread at a time does, within its own call's time;
/// the others go on with the table there is, or wait for the first one.
/// Thread-safety: any number of threads.
class SlotRefresh {
public:
    static constexpr std::chrono::milliseconds least_interval{100};

    /// @param seeds asked first, and when no other node answers; outlive this
    /// @param dialect forgotten with each new table: there may be new servers behind it
    SlotRefresh(ClusterNodes& nodes, std::span<const Endpoint> seeds, Dialect& dialect,
                Runtime& runtime, LookupFunction lookup)
        : nodes_(nodes), seeds_(seeds), dialect_(dialect), runtime_(runtime), lookup_(lookup),
          seed_lookups_(seeds.size()) {}

    /// The node that answered last, if it has slots, or else another that has: for what may go anywhere.
    /// Null before the first table has come.
    [[nodiscard]] ClusterNode* home() const noexcept {
        return home_.load(std::memory_order_acquire);
    }

    /// In a forked child, where nothing but the destructor follows.
    void abandon_in_child() noexcept {
        for (Lookup& lookup : seed_lookups_) lookup.abandon_in_child();
        for (std::uint32_t i = 0; i < nodes_.size(); ++i) nodes_.at(i)->lookup.abandon_in_child();
    }

    /// The table may be wrong: the next call had better ask. @param suspect whom not to ask, if it was
    /// silence that gave rise to the doubt
    void doubt(const ClusterNode* suspect) noexcept {
        doubt_.store(suspect == nullptr ? in_general : suspect->index + of_node,
                     std::memory_order_relaxed);
    }
    /// Whether a call to the node should ask first. What a silent node did concerns its own slots alone,
    /// so that it takes no time from the calls to others.
    [[nodiscard]] bool is_doubtful(const ClusterNode& node) const noexcept {
        const std::uint32_t doubt = doubt_.load(std::memory_order_relaxed);
        return doubt != none && (doubt == in_general || doubt == node.index + of_node);
    }

    /// @param failure set where it failed
    [[nodiscard]] Refreshed run(Deadline by, Failure& failure) noexcept {
        for (;;) {
            const std::uint32_t seen = round_.load(std::memory_order_acquire);
            if (!busy_.exchange(true, std::memory_order_acquire)) {
                const Refreshed result = run_alone(by, failure);
                busy_.store(false, std::memory_order_release);
                round_.fetch_add(1, std::memory_order_release);
                runtime_.notify_all(round_);
                return result;
            }
            if (home() != nullptr) return Refreshed::skipped;
            if (!runtime_.wait_until(round_, seen, by)) {
                failure = {make_error_code(errc::timed_out), {"waiting for the slot table"}};
                return Refreshed::failed;
            }
            if (home() != nullptr) return Refreshed::fresh;
        }
    }

private:
    static constexpr std::uint32_t none = 0;
    static constexpr std::uint32_t in_general = 1;
    static constexpr std::uint32_t of_node = 2; ///< and its index

    [[nodiscard]] Refreshed run_alone(Deadline by, Failure& failure) noexcept;
    [[nodiscard]] bool ask_all(ClusterNode* suspect, Deadline by, Failure& failure) noexcept;
    [[nodiscard]] bool ask_node(ClusterNode& node, Deadline by, Failure& failure) noexcept;
    [[nodiscard]] bool ask(const Endpoint& endpoint, Lookup& lookup, Deadline by,
                           Failure& failure) noexcept;
    [[nodiscard]] bool take(const redisReply& reply, const Endpoint& from) noexcept;

    /// A share of the time that is left for one of those still to be asked. The last ones of a large
    /// cluster get little, but the first ones get enough for a distant server.
    [[nodiscard]] Deadline share(Deadline by, std::size_t still_to_ask) const noexcept {
        const Deadline now = runtime_.now();
        if (now >= by) return by;
        const auto parts = static_cast<std::int64_t>(std::clamp<std::size_t>(still_to_ask, 1, 4));
        const LeaseClock::duration most = seeds_.front().connect_timeout;
        return later(now, (std::min)((by - now) / parts, most));
    }

    ClusterNodes& nodes_;
    std::span<const Endpoint> seeds_;
    Dialect& dialect_;
    Runtime& runtime_;
    LookupFunction lookup_;
    std::atomic<ClusterNode*> home_{nullptr};
    std::atomic<std::uint32_t> doubt_{none};
    std::atomic<bool> busy_{false};
    std::atomic<std::uint32_t> round_{0}; ///< counts the refreshes, for those who wait for one
    // of the thread that is at it:
    std::vector<Lookup> seed_lookups_;
    std::uint32_t tables_ = 0; ///< that have been taken
    Deadline next_{};          ///< not before
};

inline Refreshed SlotRefresh::run_alone(Deadline by, Failure& failure) noexcept {
    if (home() != nullptr && runtime_.now() < next_) return Refreshed::skipped;
    const std::uint32_t doubt = doubt_.exchange(none, std::memory_order_relaxed);
    ClusterNode* const suspect = doubt >= of_node ? nodes_.at(doubt - of_node) : nullptr;
    const bool fresh = ask_all(suspect, by, failure);
    if (!fresh && home() != nullptr) doubt_.store(in_general, std::memory_order_relaxed);
    next_ = later(runtime_.now(), least_interval);
    return fresh ? Refreshed::fresh : Refreshed::failed;
}

/// Who answered last comes first, then who has slots, then the seeds; a suspect comes last.
inline bool SlotRefresh::ask_all(ClusterNode* suspect, Deadline by, Failure& failure) noexcept {
    ClusterNode* const first = home();
    std::size_t left = nodes_.size() + seeds_.size();
    bool telling = false; // a server's own words tell more than the silence of the next one
    bool tried = false;
    const auto try_one = [&](const auto& put) {
        // without time one is tried all the same, so that there is a reason to tell
        if (std::exchange(tried, true) && runtime_.now() >= by) return false;
        Failure why;
        if (put(share(by, left), why)) return true;
        left -= std::min<std::size_t>(left, 1);
        if (!telling) failure = why;
        telling = telling || why.cause != condition::unreachable;
        return false;
    };
    const auto try_node = [&](ClusterNode& node) {
        return try_one([&](Deadline until, Failure& why) { return ask_node(node, until, why); });
    };
    if (first != nullptr && first != suspect && try_node(*first)) return true;
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
        ClusterNode& node = *nodes_.at(i);
        const bool listed = tables_ != 0 && node.listed.load(std::memory_order_relaxed) == tables_;
        if (!listed || &node == first || &node == suspect) {
            left -= std::min<std::size_t>(left, 1);
            continue;
        }
        if (try_node(node)) return true;
    }
    for (std::size_t i = 0; i < seeds_.size(); ++i) {
        const auto ask_seed = [&](Deadline until, Failure& why) {
            return ask(seeds_[i], seed_lookups_[i], until, why);
        };
        if (try_one(ask_seed)) return true;
    }
    return suspect != nullptr && try_node(*suspect);
}

inline bool SlotRefresh::ask_node(ClusterNode& node, Deadline by, Failure& failure) noexcept {
#if LEASELOCK_EXCEPTIONS
    try {
        return ask(nodes_.endpoint_of(node.address), node.lookup, by, failure);
    } catch (const std::bad_alloc&) {
        failure = {std::make_error_code(std::errc::not_enough_memory), {}};
        return false;
    }
#else
    return ask(nodes_.endpoint_of(node.address), node.lookup, by, failure);
#endif
}

inline bool SlotRefresh::ask(const Endpoint& endpoint, Lookup& lookup, Deadline by,
                             Failure& failure) noexcept {
    const std::array<std::string_view, 2> argv{"CLUSTER", "SLOTS"};
    const Command command{argv, {}};
    const ReplyTree reply = query(endpoint, runtime_, lookup_, lookup, command, by, failure);
    if (reply == nullptr) return false;
    if (reply->type == REDIS_REPLY_ERROR) {
        const std::string_view line{reply->str, static_cast<std::size_t>(reply->len)};
        failure = {make_error_code(cause_of(line)), without_arguments(line)};
        return false;
    }
    std::string_view complaint = check_slots(*reply);
    if (complaint.empty() && !take(*reply, endpoint)) complaint = "more than 1,024 nodes so far";
    if (complaint.empty()) return true;
    failure = {make_error_code(errc::protocol_error), endpoint.label()};
    failure.text.append(": CLUSTER SLOTS: ").append(complaint);
    return false;
}

/// @return false where there is no room for a node; then the table is the old one
inline bool SlotRefresh::take(const redisReply& reply, const Endpoint& from) noexcept {
    ClusterNode* const home = take_slots(nodes_, reply, from, tables_ + 1);
    if (home == nullptr) return false;
    ++tables_;
    dialect_.reset();
    home_.store(home, std::memory_order_release);
    return true;
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
