#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/lease_clock.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

/// When which lease is renewed and watched: a pure state machine, without clock, thread or socket.
/// Source: design, "Losing a lease".
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

inline constexpr std::uint32_t not_queued = UINT32_MAX;

/// What the schedule knows of a lease; part of the lease's own record, so that keeping one costs
/// two pointers besides.
struct RenewalNode {
    std::chrono::milliseconds ttl{};
    Deadline due{};       ///< of the next renewal
    Deadline confirmed{}; ///< the end of the lease, as last confirmed
    Deadline watch{};     ///< when the watcher has to look: the end, or the longest hold before it
    std::uint32_t waiting_at = not_queued;
    std::uint32_t ready_at = not_queued;
    std::uint32_t watched_at = not_queued;
};

/// A binary heap of nodes that know their place, so that any of them can be taken out.
template <Deadline RenewalNode::*Key, std::uint32_t RenewalNode::*Place>
class NodeHeap {
public:
    [[nodiscard]] bool empty() const noexcept { return nodes_.empty(); }
    [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }
    [[nodiscard]] RenewalNode& top() const noexcept { return *nodes_.front(); }

    /// Room for `count` nodes, after which `push` cannot fail. @throws std::bad_alloc
    void reserve(std::size_t count) {
        if (count > nodes_.capacity()) nodes_.reserve(std::max(count, 2 * nodes_.capacity()));
    }
    void push(RenewalNode& node) noexcept {
        nodes_.push_back(&node);
        up(nodes_.size() - 1);
    }
    void remove(RenewalNode& node) noexcept {
        const std::size_t at = node.*Place;
        RenewalNode* const moved = nodes_.back();
        nodes_.pop_back();
        node.*Place = not_queued;
        if (moved == &node) return;
        put(at, moved);
        down(up(at));
    }
    /// To be called when the node's key has changed.
    void moved(RenewalNode& node) noexcept { down(up(node.*Place)); }

private:
    void put(std::size_t at, RenewalNode* node) noexcept {
        nodes_[at] = node;
        node->*Place = static_cast<std::uint32_t>(at);
    }
    std::size_t up(std::size_t at) noexcept {
        RenewalNode* const node = nodes_[at];
        while (at != 0 && node->*Key < nodes_[(at - 1) / 2]->*Key) {
            put(at, nodes_[(at - 1) / 2]);
            at = (at - 1) / 2;
        }
        put(at, node);
        return at;
    }
    void down(std::size_t at) noexcept {
        RenewalNode* const node = nodes_[at];
        for (std::size_t child = 2 * at + 1; child < nodes_.size(); child = 2 * at + 1) {
            if (child + 1 < nodes_.size() && nodes_[child + 1]->*Key < nodes_[child]->*Key) ++child;
            if (!(nodes_[child]->*Key < node->*Key)) break;
            put(at, nodes_[child]);
            at = child;
        }
        put(at, node);
    }

    std::vector<RenewalNode*> nodes_;
};

/// Which leases are renewed next, and which have to be looked at.
///
/// A lease is *waiting* until its renewal is due, then *ready*, in the order of deadlines, then with
/// the caller until it says what came of it. It is *watched* all the while.
class RenewalSchedule {
public:
    static constexpr std::size_t batch_limit = 64;

    /// Makes room for one more. @return false when there is no memory
    [[nodiscard]] bool reserve() noexcept {
        const std::size_t count = size_ + 1;
#if LEASELOCK_EXCEPTIONS
        try {
            waiting_.reserve(count);
            ready_.reserve(count);
            watched_.reserve(count);
        } catch (const std::bad_alloc&) {
            return false;
        }
#else
        waiting_.reserve(count);
        ready_.reserve(count);
        watched_.reserve(count);
#endif
        return true;
    }

    /// Takes a lease up, behind `reserve`; its first renewal is due at `due`, by the node's ttl.
    void add(RenewalNode& node, Deadline due, Deadline end, Deadline hold_end) noexcept {
        node.due = due;
        node.confirmed = end;
        node.watch = std::min(end, hold_end);
        waiting_.push(node);
        watched_.push(node);
        ++size_;
    }

    /// Lets a lease go, wherever it is.
    void remove(RenewalNode& node) noexcept {
        stop_renewing(node);
        if (holds(node)) {
            watched_.remove(node);
            --size_;
        }
    }
    /// No more renewals, but watched on.
    void stop_renewing(RenewalNode& node) noexcept {
        if (node.waiting_at != not_queued) waiting_.remove(node);
        if (node.ready_at != not_queued) ready_.remove(node);
    }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] static bool holds(const RenewalNode& node) noexcept {
        return node.watched_at != not_queued;
    }

    /// When the next batch is to be made; `Deadline::max()` for never.
    [[nodiscard]] Deadline next_batch() const noexcept {
        if (!ready_.empty()) return Deadline::min();
        return waiting_.empty() ? Deadline::max() : waiting_.top().due;
    }

    /// Takes the next batch out: what is due, the earliest deadline first.
    /// @param by set to the end of the time that this batch may take
    /// @return its size
    std::size_t take(Deadline now, std::span<RenewalNode*, batch_limit> batch,
                     Deadline& by) noexcept {
        while (!waiting_.empty() && waiting_.top().due <= now) {
            RenewalNode& node = waiting_.top();
            waiting_.remove(node);
            ready_.push(node);
        }
        std::chrono::nanoseconds longest = std::chrono::nanoseconds::max();
        std::size_t size = 0;
        while (size < batch.size() && !ready_.empty()) {
            RenewalNode& node = ready_.top();
            ready_.remove(node);
            longest = std::min(longest, try_limit(node.ttl));
            batch[size++] = &node;
        }
        if (size != 0)
            by = std::min(later(now, longest), std::max(later(now, longest / 4), spare()));
        return size;
    }

    /// The lease was confirmed until `end`: the next renewal is due a third of the ttl after `sent`.
    void renewed(RenewalNode& node, Deadline sent, Deadline end, Deadline hold_end) noexcept {
        node.confirmed = end;
        node.watch = std::min(end, hold_end);
        watched_.moved(node);
        node.due = later(sent, std::chrono::nanoseconds{node.ttl} / 3);
        waiting_.push(node);
    }
    /// Nothing is proved: tried again soon, inside the lease.
    void failed(RenewalNode& node, Deadline now) noexcept {
        node.due = later(now, retry_after(node.ttl));
        waiting_.push(node);
    }

    /// The next lease that the watcher has to look at, if there is one.
    [[nodiscard]] RenewalNode* next_watched() const noexcept {
        return watched_.empty() ? nullptr : &watched_.top();
    }
    /// Its deadline turned out to be another than it was known here.
    void watch_until(RenewalNode& node, Deadline watch) noexcept {
        node.watch = watch;
        watched_.moved(node);
    }

    [[nodiscard]] static constexpr std::chrono::nanoseconds
    try_limit(std::chrono::nanoseconds ttl) noexcept {
        return ttl / 6;
    }
    /// Twenty tries fit into what is left behind a first one that failed, and a dead server hears no
    /// storm of them.
    [[nodiscard]] static constexpr std::chrono::nanoseconds
    retry_after(std::chrono::nanoseconds ttl) noexcept {
        return std::clamp<std::chrono::nanoseconds>(ttl / 30, std::chrono::milliseconds{1},
                                                    std::chrono::seconds{1});
    }

private:
    /// The last moment at which every lease could still be tried once more: no batch that hangs
    /// takes that try from another lease.
    [[nodiscard]] Deadline spare() const noexcept {
        if (watched_.empty()) return Deadline::max();
        const RenewalNode& first = watched_.top();
        return later(first.confirmed, -try_limit(first.ttl));
    }

    NodeHeap<&RenewalNode::due, &RenewalNode::waiting_at> waiting_;
    NodeHeap<&RenewalNode::confirmed, &RenewalNode::ready_at> ready_;
    NodeHeap<&RenewalNode::watch, &RenewalNode::watched_at> watched_;
    std::size_t size_ = 0;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
