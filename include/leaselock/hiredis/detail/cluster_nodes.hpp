#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/lookup.hpp>
#include <leaselock/hiredis/detail/slot_table.hpp>
#include <leaselock/hiredis/detail/stream.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/hiredis/multiplexed_connection.hpp>
#include <leaselock/hiredis/resolver.hpp>
#include <leaselock/redis/key.hpp>

#include <hiredis/hiredis.h>

#include <array>
#include <atomic>
#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// One node of a cluster. Its connections are made when they are first needed.
struct ClusterNode {
    ServerAddress address;
    std::uint32_t index = 0;
    std::atomic<std::uint32_t> listed{0}; ///< the last slot table that it had slots in
    std::atomic<MultiplexedConnection*> connection{nullptr};
    /// For commands behind ASKING, and nothing else. A caller that leaves may leave the ASKING alone on
    /// the stream, for whatever comes next there; a stranger's command would then run on a node that does
    /// not have its slot.
    std::atomic<MultiplexedConnection*> asking{nullptr};
    Lookup lookup; ///< of whoever asks it for the slot table
};

/// All nodes that a cluster has named, and which slot is whose. Nothing is freed before the end, so that
/// readers need no lock; there is a limit to what a cluster, or whoever plays one, may name.
/// Thread-safety: any number of threads.
class ClusterNodes {
public:
    static constexpr std::uint32_t most = 1024;

    /// @param endpoint what all nodes share: user, password, TLS and time limits
    ClusterNodes(Endpoint endpoint, Runtime& runtime, std::chrono::milliseconds silence,
                 LookupFunction lookup) noexcept
        : endpoint_(std::move(endpoint)), runtime_(runtime), silence_(silence), lookup_(lookup) {}
    ClusterNodes(const ClusterNodes&) = delete;
    ClusterNodes& operator=(const ClusterNodes&) = delete;
    ~ClusterNodes() {
        for (const auto& slot : nodes_) {
            ClusterNode* const node = slot.load(std::memory_order_acquire);
            if (node == nullptr) break;
            delete node->connection.load(std::memory_order_acquire);
            delete node->asking.load(std::memory_order_acquire);
            delete node;
        }
    }

    /// Who has the slot, as far as is known; null if nobody.
    [[nodiscard]] ClusterNode* owner(std::uint16_t slot) const noexcept {
        const std::uint16_t entry = owners_[slot].load(std::memory_order_acquire);
        return entry == 0 ? nullptr : at(entry - 1U);
    }
    void set_owner(std::uint16_t slot, const ClusterNode& node) noexcept {
        owners_[slot].store(static_cast<std::uint16_t>(node.index + 1), std::memory_order_release);
    }
    void clear_owner(std::uint16_t slot) noexcept {
        owners_[slot].store(0, std::memory_order_release);
    }

    [[nodiscard]] std::uint32_t size() const noexcept {
        return count_.load(std::memory_order_acquire);
    }
    [[nodiscard]] ClusterNode* at(std::size_t index) const noexcept {
        return nodes_[index].load(std::memory_order_acquire);
    }

    /// The node of this address, new or not; null when there are too many, or no memory for it.
    [[nodiscard]] ClusterNode* find(std::string_view host, std::uint16_t port) noexcept {
        const std::lock_guard lock{mutex_};
        const std::uint32_t count = count_.load(std::memory_order_relaxed);
        for (std::uint32_t i = 0; i < count; ++i) {
            ClusterNode* const node = nodes_[i].load(std::memory_order_relaxed);
            if (node->address.port == port && node->address.host.view() == host) return node;
        }
        if (count == most) return nullptr;
        auto* const node = new (std::nothrow) ClusterNode;
        if (node == nullptr) return nullptr;
        node->address.host = host;
        node->address.port = port;
        node->index = count;
        nodes_[count].store(node, std::memory_order_release);
        count_.store(count + 1, std::memory_order_release);
        return node;
    }

    /// Its connection, or the one for what goes behind ASKING; null for want of memory.
    [[nodiscard]] MultiplexedConnection* connection(ClusterNode& node, bool asking) noexcept {
        auto& place = asking ? node.asking : node.connection;
        if (MultiplexedConnection* const there = place.load(std::memory_order_acquire))
            return there;
        const std::lock_guard lock{mutex_};
        MultiplexedConnection* there = place.load(std::memory_order_relaxed);
        if (there != nullptr) return there;
#if LEASELOCK_EXCEPTIONS
        try {
            there =
                new MultiplexedConnection(endpoint_of(node.address), runtime_, silence_, lookup_);
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
#else
        there = new MultiplexedConnection(endpoint_of(node.address), runtime_, silence_, lookup_);
#endif
        place.store(there, std::memory_order_release);
        return there;
    }

    /// How to reach a node. @throws std::bad_alloc
    [[nodiscard]] Endpoint endpoint_of(const ServerAddress& address) const {
        Endpoint endpoint = endpoint_;
        endpoint.host = std::string{address.host.view()};
        endpoint.port = address.port;
        return endpoint;
    }

private:
    Endpoint endpoint_;
    Runtime& runtime_;
    std::chrono::milliseconds silence_;
    LookupFunction lookup_;
    std::array<std::atomic<std::uint16_t>, hash_slots> owners_{}; ///< index + 1; 0: unknown
    std::array<std::atomic<ClusterNode*>, most> nodes_{};
    std::atomic<std::uint32_t> count_{0};
    std::mutex mutex_; ///< for what is added
};

/// Makes a reply that has passed `check_slots` the table.
/// @param from who gave it: the host of nodes that do not know their own
/// @param table counts the tables, from 1
/// @return where to go with what may go anywhere: `from`, if it has slots, or else another that has; null
///         where there is no room for a node, and then nobody's slots have changed
[[nodiscard]] inline ClusterNode* take_slots(ClusterNodes& nodes, const redisReply& reply,
                                             const Endpoint& from, std::uint32_t table) noexcept {
    const auto node_of = [&](const SlotRange& range) {
        const std::string_view host = range.host.empty() ? std::string_view{from.host} : range.host;
        return nodes.find(host, range.port);
    };
    if (!for_each_range(reply, [&](const SlotRange& range) { return node_of(range) != nullptr; })) {
        return nullptr;
    }
    ClusterNode* const home = nodes.find(from.host, from.port);
    if (home == nullptr) return nullptr;
    ClusterNode* any = nullptr;
    std::bitset<hash_slots> served;
    (void)for_each_range(reply, [&](const SlotRange& range) {
        ClusterNode& node = *node_of(range);
        node.listed.store(table, std::memory_order_relaxed);
        any = &node;
        for (std::uint32_t slot = range.first; slot <= range.last; ++slot) {
            nodes.set_owner(static_cast<std::uint16_t>(slot), node);
            served.set(slot);
        }
        return true;
    });
    for (std::uint32_t slot = 0; slot < hash_slots; ++slot) {
        if (!served[slot]) nodes.clear_owner(static_cast<std::uint16_t>(slot));
    }
    const bool has_slots = home->listed.load(std::memory_order_relaxed) == table;
    return has_slots || any == nullptr ? home : any;
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
