#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/hiredis/detail/redirect.hpp>
#include <leaselock/redis/key.hpp>

#include <hiredis/hiredis.h>

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

/// The reply to CLUSTER SLOTS, read: pure. Source: redis.io/docs/latest/commands/cluster-slots
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// Neighbouring slots and their master; it refers to the reply.
struct SlotRange {
    std::uint16_t first = 0;
    std::uint16_t last = 0;
    std::string_view host{}; ///< empty: unknown, as in `Redirect`
    std::uint16_t port = 0;
};

[[nodiscard]] inline std::span<redisReply* const> elements_of(const redisReply& reply) noexcept {
    if (reply.type != REDIS_REPLY_ARRAY || reply.element == nullptr) return {};
    return {reply.element, static_cast<std::size_t>(reply.elements)};
}

/// The number of an integer reply from `least` to `most`.
[[nodiscard]] inline bool read_number(const redisReply* reply, long long least, long long most,
                                      std::uint16_t& value) noexcept {
    if (reply == nullptr || reply->type != REDIS_REPLY_INTEGER || reply->integer < least ||
        reply->integer > most) {
        return false;
    }
    value = static_cast<std::uint16_t>(reply->integer);
    return true;
}

/// One entry: first slot, last slot, the master, replicas. What stands behind a node's host and port (its
/// id; from Redis 7 on, other names) does not matter.
/// @return what is wrong with it, or empty
[[nodiscard]] inline std::string_view read_slot_range(const redisReply* entry,
                                                      SlotRange& range) noexcept {
    if (entry == nullptr) return "an entry that is missing";
    const auto parts = elements_of(*entry);
    if (parts.size() < 2) return "an entry without slots";
    if (!read_number(parts[0], 0, hash_slots - 1, range.first) ||
        !read_number(parts[1], range.first, hash_slots - 1, range.last)) {
        return "slots that do not go up from 0 to 16383";
    }
    if (parts.size() < 3 || parts[2] == nullptr) return "slots without a node";
    const auto node = elements_of(*parts[2]);
    if (node.size() < 2 || node[0] == nullptr) return "a node without host and port";
    range.host = {};
    if (node[0]->type == REDIS_REPLY_STRING) {
        const std::string_view host{node[0]->str, static_cast<std::size_t>(node[0]->len)};
        if (!is_node_host(host)) return "a node whose host is no host";
        if (!is_unknown_host(host)) range.host = host;
    } else if (node[0]->type != REDIS_REPLY_NIL) {
        return "a node whose host is no string";
    }
    if (!read_number(node[1], 1, 65'535, range.port)) return "a node whose port is no port";
    return {};
}

/// Whether the whole reply can be believed. Slots may be missing, as they are in a cluster that is being
/// set up or has lost a part; none may be there twice.
/// @return what is wrong with it, or empty
[[nodiscard]] inline std::string_view check_slots(const redisReply& reply) noexcept {
    if (reply.type != REDIS_REPLY_ARRAY) return "no array";
    std::bitset<hash_slots> seen;
    for (const redisReply* const entry : elements_of(reply)) {
        SlotRange range;
        if (const auto complaint = read_slot_range(entry, range); !complaint.empty()) {
            return complaint;
        }
        for (std::size_t slot = range.first; slot <= range.last; ++slot) {
            if (seen[slot]) return "a slot with two masters";
            seen.set(slot);
        }
    }
    return {};
}

/// Hands over each range of a reply that has passed `check_slots`.
/// @param take `bool(const SlotRange&)`; false ends it
template <class Take>
bool for_each_range(const redisReply& reply, Take&& take) noexcept {
    for (const redisReply* const entry : elements_of(reply)) {
        SlotRange range;
        if (!read_slot_range(entry, range).empty() || !take(range)) return false;
    }
    return true;
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
