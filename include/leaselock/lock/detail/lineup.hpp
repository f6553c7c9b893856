#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <new>
#include <stop_token>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// The sleep of a waiting call: ended by its time, a stop request, or, in a line, its turn.
class Sleeper {
public:
    Sleeper(Runtime& runtime, const std::stop_token& stop) noexcept
        : runtime_(runtime), on_stop_(stop, Wake{*this, stop_bit}) {}

    /// @return false when a stop was requested
    [[nodiscard]] bool sleep_until(Deadline by) noexcept {
        (void)wait(stop_bit, by);
        return !stopped();
    }
    /// @return whether the turn has come
    [[nodiscard]] bool await_turn(Deadline by) noexcept {
        return (wait(stop_bit | turn_bit, by) & turn_bit) != 0;
    }
    [[nodiscard]] bool stopped() const noexcept {
        return (word_.load(std::memory_order_acquire) & stop_bit) != 0;
    }
    void give_turn() noexcept { wake(turn_bit); }

private:
    static constexpr std::uint32_t stop_bit = 1;
    static constexpr std::uint32_t turn_bit = 2;

    struct Wake {
        Sleeper& sleeper;
        std::uint32_t bit;
        void operator()() const noexcept { sleeper.wake(bit); }
    };

    void wake(std::uint32_t bit) noexcept {
        word_.fetch_or(bit, std::memory_order_acq_rel);
        runtime_.notify_all(word_);
    }
    std::uint32_t wait(std::uint32_t bits, Deadline by) noexcept {
        std::uint32_t word = word_.load(std::memory_order_acquire);
        while ((word & bits) == 0 && runtime_.wait_until(word_, word, by)) {
            word = word_.load(std::memory_order_acquire);
        }
        return word_.load(std::memory_order_acquire);
    }

    Runtime& runtime_;
    std::atomic<std::uint32_t> word_{0};
    std::stop_callback<Wake> on_stop_; // last: it may call back while it is made
};

/// Threads that wait for one key on one connection, in the order in which they came: Redis sees the
/// first of them only. Places live on their threads' stacks; nothing is allocated for them.
class Lineup {
public:
    struct Place {
        const void* backend;
        std::string_view key;
        Sleeper* sleeper;
        Place* next = nullptr;
    };

    /// The line of this process: a forked child starts its own, for a lock in its parent's may have
    /// been held by a thread that the child does not have. Null when there is no memory: then nobody
    /// lines up.
    static Lineup* of_this_process() noexcept {
        static std::atomic<Lineup*> current{nullptr};
        const ProcessId process = system_runtime().process();
        Lineup* lineup = current.load(std::memory_order_acquire);
        while (lineup == nullptr || lineup->process_ != process) {
            auto* const fresh = new (std::nothrow) Lineup{process};
            if (fresh == nullptr) return nullptr;
            if (current.compare_exchange_strong(lineup, fresh, std::memory_order_acq_rel)) {
                return fresh; // the parent's is leaked: nobody knows who still looks at it
            }
            delete fresh;
        }
        return lineup;
    }

    /// @return whether the turn has come already
    [[nodiscard]] bool enter(Place& place) noexcept {
        Bucket& bucket = bucket_of(place);
        const std::lock_guard lock{bucket.mutex};
        bool first = true;
        Place** end = &bucket.first;
        for (; *end != nullptr; end = &(*end)->next) first = first && !same(**end, place);
        *end = &place;
        return first;
    }
    void leave(Place& place) noexcept {
        Bucket& bucket = bucket_of(place);
        const std::lock_guard lock{bucket.mutex};
        bool was_first = true;
        Place** at = &bucket.first;
        for (; *at != &place; at = &(*at)->next) was_first = was_first && !same(**at, place);
        *at = place.next;
        if (!was_first) return;
        for (Place* next = place.next; next != nullptr; next = next->next) {
            if (same(*next, place)) return next->sleeper->give_turn();
        }
    }

private:
    struct Bucket {
        std::mutex mutex;
        Place* first = nullptr;
    };

    explicit Lineup(ProcessId process) noexcept : process_(process) {}

    static bool same(const Place& a, const Place& b) noexcept {
        return a.backend == b.backend && a.key == b.key;
    }
    Bucket& bucket_of(const Place& place) noexcept {
        const std::size_t hash = std::hash<std::string_view>{}(place.key) ^
                                 (std::hash<const void*>{}(place.backend) >> 4U);
        return buckets_[hash % buckets_.size()];
    }

    ProcessId process_;
    std::array<Bucket, 64> buckets_{};
};

/// A place in the line, for a scope.
class InLine {
public:
    InLine(const void* backend, std::string_view key, Sleeper& sleeper) noexcept
        : lineup_(Lineup::of_this_process()), place_{backend, key, &sleeper},
          first_(lineup_ == nullptr || lineup_->enter(place_)) {}
    InLine(const InLine&) = delete;
    InLine& operator=(const InLine&) = delete;
    ~InLine() {
        if (lineup_ != nullptr) lineup_->leave(place_);
    }

    /// @return whether the turn came by `by`, and before a stop request
    [[nodiscard]] bool await_turn(Deadline by) const noexcept {
        return first_ || place_.sleeper->await_turn(by);
    }

private:
    Lineup* lineup_;
    Lineup::Place place_;
    bool first_;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
