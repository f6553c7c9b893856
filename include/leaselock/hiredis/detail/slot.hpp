#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// A call that shares a stream with others; it lives with its caller.
struct Slot {
    enum State : std::uint8_t {
        waiting, ///< its thread is awake, or on its way to work
        asleep,  ///< its thread waits for its bell
        leading, ///< its thread is to do the work for all
        done,    ///< its replies are in place; from then on nobody else may touch it
    };

    std::span<const Command> commands;
    std::span<Reply> replies;
    bool attended = true;  ///< a thread waits for it, and can lead
    bool written = false;  ///< it is in flight
    std::uint8_t bell = 0; ///< what that thread waits for
    std::size_t answered = 0;
    std::uint64_t begin = 0; ///< where its bytes begin in all that goes out on the stream
    Slot* next = nullptr;
    std::atomic<State> state{waiting};

    [[nodiscard]] bool is_done() const noexcept {
        return state.load(std::memory_order_acquire) == done;
    }
    /// Begins anew; it belongs to nobody else.
    void reset(std::span<const Command> all, std::span<Reply> answers) noexcept {
        commands = all;
        replies = answers;
        written = false;
        answered = 0;
        state.store(waiting, std::memory_order_relaxed);
    }
};

#if LEASELOCK_DEFINES
/// A list of slots by their own links.
struct SlotList {
    Slot* first = nullptr;
    Slot* last = nullptr;

    void push(Slot& slot) noexcept {
        slot.next = nullptr;
        (last != nullptr ? last->next : first) = &slot;
        last = &slot;
    }
    Slot* pop() noexcept {
        Slot* const slot = first;
        if (slot != nullptr) first = slot->next;
        if (first == nullptr) last = nullptr;
        return slot;
    }
    bool remove(const Slot& slot) noexcept {
        Slot* before = nullptr;
        for (Slot* at = first; at != nullptr; before = at, at = at->next) {
            if (at != &slot) continue;
            (before != nullptr ? before->next : first) = at->next;
            if (last == at) last = before;
            return true;
        }
        return false;
    }
};

/// Where calls come in, without a lock, and where it is settled who leads.
///
/// One word tells both who has come and whether somebody leads, so that nobody can come in unseen while
/// the last leader leaves: whoever comes when nobody leads, leads.
class Entrance {
public:
    /// @return whether it is its caller who leads from now on
    [[nodiscard]] bool enter(Slot& slot) noexcept {
        Slot* seen = newest_.load(std::memory_order_relaxed);
        std::uint8_t bell = 0;
        do {
            slot.next = is_somebody(seen) ? seen : nullptr;
            // The first of those that leave together has a bell of its own: it is the next to lead.
            if (slot.next != nullptr && bell == 0) bell = next_bell();
            slot.bell = slot.next != nullptr ? bell : std::uint8_t{0};
        } while (!newest_.compare_exchange_weak(seen, &slot, std::memory_order_acq_rel,
                                                std::memory_order_relaxed));
        return seen == nullptr;
    }
    /// Becomes the leader, if there is none.
    [[nodiscard]] bool try_lead() noexcept {
        Slot* none = nullptr;
        return newest_.compare_exchange_strong(none, &led_, std::memory_order_acq_rel);
    }
    /// The leader stops leading, unless somebody has come. Under the mutex of the queue.
    [[nodiscard]] bool try_leave() noexcept {
        Slot* nobody_else = &led_;
        return newest_.compare_exchange_strong(nobody_else, nullptr, std::memory_order_acq_rel);
    }
    /// Whether nobody has come since the last `take`.
    [[nodiscard]] bool is_empty() const noexcept {
        return !is_somebody(newest_.load(std::memory_order_relaxed));
    }
    /// Adds those who have come to `queue`, in their order. Under the mutex of the queue.
    void take(SlotList& queue) noexcept {
        if (is_empty()) return;
        // somebody leads as long as there are any
        Slot* slot = newest_.exchange(&led_, std::memory_order_acq_rel);
        Slot* const last = slot;
        Slot* first = nullptr;
        while (slot != nullptr) {
            Slot* const older = slot->next;
            slot->next = first;
            first = slot;
            slot = older;
        }
        (queue.last != nullptr ? queue.last->next : queue.first) = first;
        queue.last = last;
    }

private:
    [[nodiscard]] bool is_somebody(const Slot* slot) const noexcept {
        return slot != nullptr && slot != &led_;
    }
    [[nodiscard]] std::uint8_t next_bell() noexcept;

    Slot led_;                           ///< its address: somebody leads, and nobody has come
    std::atomic<Slot*> newest_{nullptr}; ///< null: nobody leads
    std::atomic<std::uint32_t> arrivals_{0};
};

/// Whether threads that wait stay awake for a moment.
///
/// To sleep and to be woken costs more than a call itself. While many threads keep the processors busy
/// with calls of their own, replies come before one's turn to run comes again: then yielding is all the
/// waiting there is. Where it does not help, for the server is far away or the processors have other
/// work, it is left, and tried again ever more seldom.
class Patience {
public:
    static constexpr int yields = 8;
    /// Whoever yields to other work than calls of ours loses a whole time slice.
    static constexpr std::chrono::microseconds too_long{500};

    /// Whether staying awake has paid of late.
    [[nodiscard]] bool pays() const noexcept {
        return balance_.load(std::memory_order_relaxed) > 0;
    }
    [[nodiscard]] bool is_worth_a_try() noexcept {
        if (pays()) return true;
        // a lost update does no harm
        const std::uint32_t left = skip_.load(std::memory_order_relaxed);
        if (left != 0) skip_.store(left - 1, std::memory_order_relaxed);
        return left == 0;
    }
    /// What a try came to.
    void note(bool success, LeaseClock::duration took) noexcept {
        const int gain = took >= too_long ? -most / 2 : success ? 1 : -2;
        const int before = balance_.load(std::memory_order_relaxed);
        const int after = std::clamp(before + gain, 0, most);
        if (after != before) balance_.store(after, std::memory_order_relaxed);
        if (after == most) pause_.store(least_pause, std::memory_order_relaxed);
        if (after > 0) return;
        const std::uint32_t pause = pause_.load(std::memory_order_relaxed);
        skip_.store(pause, std::memory_order_relaxed);
        pause_.store((std::min)(2 * pause, longest_pause), std::memory_order_relaxed);
    }

private:
    static constexpr int most = 512;
    static constexpr std::uint32_t least_pause = 64; ///< calls between two tries that fail
    static constexpr std::uint32_t longest_pause = 4096;

    std::atomic<int> balance_{1}; ///< of the last tries
    std::atomic<std::uint32_t> skip_{0};
    std::atomic<std::uint32_t> pause_{least_pause};
};

/// What waiting threads wait on. A few that came one behind the other share a bell: they will most
/// likely be answered together, and one system call wakes them all. The bells belong to the
/// connection, for a slot may be gone as soon as it is done.
class Bells {
public:
    static constexpr std::uint32_t count = 64;
    static constexpr std::uint32_t sharers = 8;
    using Set = std::uint64_t; ///< a bit for each

    /// Waits until the slot is done, or is to lead, or until `by`.
    void await(Slot& slot, Deadline by, Runtime& runtime) noexcept {
        if (patience_.is_worth_a_try() && stay_awake(slot, by, runtime)) return;
        Slot::State awake = Slot::waiting;
        if (!slot.state.compare_exchange_strong(awake, Slot::asleep, std::memory_order_acq_rel))
            return;
        std::atomic<std::uint32_t>& bell = words_[slot.bell];
        for (;;) {
            const std::uint32_t rung = bell.load(std::memory_order_acquire);
            if (slot.state.load(std::memory_order_acquire) != Slot::asleep) return;
            if (!runtime.wait_until(bell, rung, by)) return;
        }
    }
    /// Whether threads that wait are awake, most likely.
    [[nodiscard]] bool are_awake() const noexcept { return patience_.pays(); }
    /// The first comes first: whoever is to lead is to begin.
    void ring(Set which, Runtime& runtime) noexcept {
        for (; which != 0; which &= which - 1) {
            std::atomic<std::uint32_t>& bell =
                words_[static_cast<std::size_t>(std::countr_zero(which))];
            bell.fetch_add(1, std::memory_order_release);
            runtime.notify_all(bell);
        }
    }
    /// Moves a slot on. @return the bell to be rung, for a thread that sleeps
    [[nodiscard]] static Set change(Slot& slot, Slot::State to) noexcept {
        const Set bell = Set{1} << slot.bell; // the slot may be gone behind the change
        return slot.state.exchange(to, std::memory_order_acq_rel) == Slot::asleep ? bell : 0;
    }

private:
    [[nodiscard]] bool stay_awake(const Slot& slot, Deadline by, Runtime& runtime) noexcept {
        const Deadline start = runtime.now();
        if (later(start, Patience::too_long) >= by) return false; // it could cost the deadline
        LeaseClock::duration took{};
        bool waits = true;
        for (int i = 0; waits && i < Patience::yields && took < Patience::too_long; ++i) {
            runtime.yield();
            took = runtime.now() - start;
            waits = slot.state.load(std::memory_order_acquire) == Slot::waiting;
        }
        patience_.note(!waits, took);
        return !waits;
    }

    std::array<std::atomic<std::uint32_t>, count> words_{};
    Patience patience_;
};

inline std::uint8_t Entrance::next_bell() noexcept {
    const std::uint32_t n = arrivals_.fetch_add(1, std::memory_order_relaxed);
    return static_cast<std::uint8_t>(1 + n / Bells::sharers % (Bells::count - 1));
}
#endif

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
