#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/lock/detail/renewal_node.hpp>

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

/// A binary heap of nodes that know their place, so that any of them can be taken out.
template <Deadline RenewalNode::*Key, std::uint32_t RenewalNode::*Place>
class NodeHeap {
public:
    [[nodiscard]] bool empty() const noexcept { return nodes_.empty(); }
    [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }
    [[nodiscard]] RenewalNode& top() const noexcept { return *nodes_.front(); }
    [[nodiscard]] Deadline first() const noexcept {
        return empty() ? (Deadline::max)() : top().*Key;
    }
    [[nodiscard]] std::span<RenewalNode* const> nodes() const noexcept { return nodes_; }

    /// Room for `count` nodes, after which `push` cannot fail. @throws std::bad_alloc
    void reserve(std::size_t count) {
        if (count > nodes_.capacity()) nodes_.reserve((std::max)(count, 2 * nodes_.capacity()));
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
#if LEASELOCK_EXCEPTIONS
        try {
            reserve_all(watched_.size() + 1);
        } catch (const std::bad_alloc&) {
            return false;
        }
#else
        reserve_all(watched_.size() + 1);
#endif
        return true;
    }

    /// Takes a lease up, behind `reserve`; its first renewal is due at `due`.
    void add(RenewalNode& node, Deadline due, Deadline end, Deadline hold_end) noexcept {
        node.due = due;
        node.confirmed = end;
        node.hold_end = hold_end;
        waiting_.push(node);
        watched_.push(node);
        if (hold_end != (Deadline::max)()) holding_.push(node);
    }

    /// Lets a lease go, wherever it is.
    void remove(RenewalNode& node) noexcept {
        if (node.waiting_at != not_queued) waiting_.remove(node);
        if (node.ready_at != not_queued) ready_.remove(node);
        if (node.watched_at != not_queued) watched_.remove(node);
        if (node.holding_at != not_queued) holding_.remove(node);
    }

    [[nodiscard]] std::size_t size() const noexcept { return watched_.size(); }
    [[nodiscard]] static bool holds(const RenewalNode& node) noexcept {
        return node.watched_at != not_queued;
    }

    /// When the next batch is to be made; `Deadline::max()` for never.
    [[nodiscard]] Deadline next_batch() const noexcept {
        return ready_.empty() ? waiting_.first() : (Deadline::min)();
    }

    /// Makes ready what is due, and what may go along with it: a little early is as good, and lets leases
    /// that came one after another share a write.
    void line_up(Deadline now) noexcept {
        while (!waiting_.empty() && waiting_.first() <= later(now, head_start(waiting_.top()))) {
            RenewalNode& node = waiting_.top();
            waiting_.remove(node);
            ready_.push(node);
        }
    }
    /// What is ready, roughly in the order of deadlines.
    [[nodiscard]] std::span<RenewalNode* const> ready() const noexcept { return ready_.nodes(); }

    /// Takes the next batch out: what is due, the earliest deadline first.
    ///
    /// It may take as long as the most hurried of its leases allows, and not so long that a lease
    /// outside of it could not be tried once more; but always long enough for an answer.
    /// @param answer_time what the server took to answer the batch before
    /// @param by set to the end of the time that this batch may take
    /// @return its size
    std::size_t take(Deadline now, std::chrono::nanoseconds answer_time,
                     std::span<RenewalNode*, batch_limit> batch, Deadline& by) noexcept {
        line_up(now);
        std::chrono::nanoseconds longest = (std::chrono::nanoseconds::max)();
        std::size_t size = 0;
        while (size < batch.size() && !ready_.empty()) {
            RenewalNode& node = ready_.top();
            ready_.remove(node);
            longest = (std::min)(longest, node.try_limit());
            batch[size++] = &node;
        }
        const auto least = std::max<std::chrono::nanoseconds>(2 * answer_time, shortest_try);
        by = (std::min)(later(now, longest),
                        (std::max)(later(now, least), spare(0, (Deadline::max)())));
        return size;
    }

    /// The lease was confirmed until `end`, by a renewal that was sent at `sent`.
    void renewed(RenewalNode& node, Deadline sent, Deadline end) noexcept {
        watch_until(node, end);
        node.due = later(sent, node.period());
        node.failed = false;
        waiting_.push(node);
    }
    /// Nothing is proved: tried again soon, inside the lease.
    void failed(RenewalNode& node, Deadline now) noexcept {
        node.due = later(now, node.retry_after());
        node.failed = true;
        waiting_.push(node);
    }

    /// When the watcher has to look next; `Deadline::max()` for never.
    [[nodiscard]] Deadline next_watch() const noexcept {
        return (std::min)(watched_.first(), holding_.first());
    }
    /// A lease whose end, or the end of whose longest hold, has come.
    [[nodiscard]] RenewalNode* lapsed(Deadline now) const noexcept {
        if (!watched_.empty() && watched_.first() <= now) return &watched_.top();
        return !holding_.empty() && holding_.first() <= now ? &holding_.top() : nullptr;
    }
    [[nodiscard]] RenewalNode* any() const noexcept {
        return watched_.empty() ? nullptr : &watched_.top();
    }
    /// Its end turned out to be another than it was known here.
    void watch_until(RenewalNode& node, Deadline end) noexcept {
        node.confirmed = end;
        watched_.moved(node);
    }

private:
    /// How much earlier than it is due a lease may be renewed. A batch that goes out anyway is filled with
    /// what is due within a quarter of its period: leases that are taken along once stay together, and a
    /// thousand of them, however they came, soon travel in full batches. What has just failed keeps its
    /// pause: a server that answers by errors would be asked as fast as it does.
    [[nodiscard]] std::chrono::nanoseconds head_start(const RenewalNode& node) const noexcept {
        if (node.failed) return node.retry_after() / 10;
        return node.period() / (ready_.size() < batch_limit ? 4 : 100);
    }

    /// For an answer that nobody has timed yet.
    static constexpr std::chrono::milliseconds shortest_try{5};

    void reserve_all(std::size_t count) {
        waiting_.reserve(count);
        ready_.reserve(count);
        watched_.reserve(count);
        holding_.reserve(count);
    }

    /// The last moment at which the lease that ends first, of those that are not with the caller, could
    /// still be tried once more. Below the place `at` of the heap; a heap has nothing earlier below.
    [[nodiscard]] Deadline spare(std::size_t at, Deadline best) const noexcept {
        const auto nodes = watched_.nodes();
        if (at >= nodes.size()) return best;
        const RenewalNode& node = *nodes[at];
        if (node.confirmed >= best) return best;
        if (node.waiting_at != not_queued || node.ready_at != not_queued) {
            return (std::min)(best, later(node.confirmed, -node.try_limit()));
        }
        return spare(2 * at + 2, spare(2 * at + 1, best));
    }

    NodeHeap<&RenewalNode::due, &RenewalNode::waiting_at> waiting_;
    NodeHeap<&RenewalNode::confirmed, &RenewalNode::ready_at> ready_;
    NodeHeap<&RenewalNode::confirmed, &RenewalNode::watched_at> watched_;
    NodeHeap<&RenewalNode::hold_end, &RenewalNode::holding_at> holding_;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
