#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/hiredis/detail/cluster_nodes.hpp>
#include <leaselock/hiredis/detail/hop.hpp>
#include <leaselock/hiredis/multiplexed_connection.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// A command of a call on a cluster that has no verdict yet.
struct ClusterItem {
    std::size_t at = 0;          ///< which command
    ClusterNode* node = nullptr; ///< where it goes
    bool asking = false;         ///< behind ASKING
    unsigned hops = 0;           ///< MOVED and ASK that it has followed
    Hop hop = Hop::done;         ///< what its last reply asked for
    std::size_t group = 0;       ///< of those that go the same way
};

/// Sends commands to many nodes at once, and takes their replies.
class ClusterRound {
public:
    ClusterRound(ClusterNodes& nodes, std::span<const Command> commands, std::span<Reply> replies,
                 Deadline by) noexcept
        : nodes_(nodes), commands_(commands), replies_(replies), by_(by) {}

    /// Room for so many. @return false for want of memory
    [[nodiscard]] bool reserve(std::size_t count) noexcept {
        out_.reset(new (std::nothrow) Command[2 * count]);
        in_.reset(new (std::nothrow) Reply[2 * count]);
        return out_ != nullptr && in_ != nullptr;
    }

    /// Each node gets its commands in one write, in order; no node's silence holds up another's.
    void run(std::span<ClusterItem> items) noexcept {
        const std::size_t count = number_groups(items);
        const std::unique_ptr<Group[]> groups{new (std::nothrow) Group[count]};
        if (groups == nullptr) {
            for (const ClusterItem& item : items) fail(replies_[item.at]);
            return;
        }
        lay_out(items, {groups.get(), count});
        for (Group& group : std::span{groups.get(), count}) begin(group);
        if (count > 1) reach({groups.get(), count});
        for (Group& group : std::span{groups.get(), count}) finish(group);
        for (const ClusterItem& item : items) take(item, groups[item.group]);
    }

private:
    struct Group {
        ClusterNode* node = nullptr;
        bool asking = false;
        std::size_t first = 0; ///< of its commands in `out_`
        std::size_t size = 0;
        std::size_t taken = 0; ///< replies
        MultiplexedConnection* connection = nullptr;
        MultiplexedConnection::Call call;
    };

    static void fail(Reply& reply) noexcept {
        reply.set_unsent(std::make_error_code(std::errc::not_enough_memory));
    }

    /// @return how many groups there are
    static std::size_t number_groups(std::span<ClusterItem> items) noexcept {
        std::size_t count = 0;
        for (std::size_t i = 0; i < items.size(); ++i) {
            ClusterItem& item = items[i];
            item.group = count;
            for (std::size_t k = i; k-- > 0 && item.group == count;) {
                const bool same = items[k].node == item.node && items[k].asking == item.asking;
                if (same) item.group = items[k].group;
            }
            if (item.group == count) ++count;
        }
        return count;
    }

    void lay_out(std::span<const ClusterItem> items, std::span<Group> groups) noexcept {
        static constexpr std::array<std::string_view, 1> asking{"ASKING"};
        std::size_t next = 0;
        for (std::size_t g = 0; g < groups.size(); ++g) {
            Group& group = groups[g];
            group.first = next;
            for (const ClusterItem& item : items) {
                if (item.group != g) continue;
                group.node = item.node;
                group.asking = item.asking;
                if (item.asking) out_[next++] = {asking, {}};
                out_[next++] = commands_[item.at];
            }
            group.size = next - group.first;
        }
    }

    [[nodiscard]] std::span<Reply> replies_of(const Group& group) const noexcept {
        return {in_.get() + group.first, group.size};
    }
    void begin(Group& group) noexcept {
        group.connection = nodes_.connection(*group.node, group.asking);
        if (group.connection == nullptr) {
            for (Reply& reply : replies_of(group)) fail(reply);
        } else {
            group.connection->begin(group.call, {out_.get() + group.first, group.size},
                                    replies_of(group), by_);
        }
    }
    /// Connecting takes several steps, which are made by whoever waits for it: each node gets its turn.
    static void reach(std::span<Group> groups) noexcept {
        LeaseClock::duration turn = std::chrono::milliseconds{1};
        for (bool all = false; !all;
             turn = std::min<LeaseClock::duration>(2 * turn, std::chrono::milliseconds{64})) {
            all = true;
            for (Group& group : groups) {
                const bool reached =
                    group.connection == nullptr || group.connection->reach(group.call, turn);
                all = all && reached;
            }
        }
    }
    static void finish(Group& group) noexcept {
        if (group.connection != nullptr) group.connection->finish(group.call);
    }

    void take(const ClusterItem& item, Group& group) noexcept {
        const Reply* const to_asking = group.asking ? &in_[group.first + group.taken++] : nullptr;
        Reply& reply = replies_[item.at];
        reply = in_[group.first + group.taken++];
        // a node that will not be asked sends the command back: why, is in its first answer
        if (to_asking != nullptr && to_asking->kind == Reply::error && reply.kind == Reply::error &&
            cause_of(reply.text.view()) == errc::moved) {
            reply = *to_asking;
        }
    }

    ClusterNodes& nodes_;
    std::span<const Command> commands_;
    std::span<Reply> replies_;
    Deadline by_;
    std::unique_ptr<Command[]> out_; ///< with room for an ASKING before each
    std::unique_ptr<Reply[]> in_;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
