#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/lock/detail/lease_record.hpp>
#include <leaselock/lock/detail/renewal_lane.hpp>
#include <leaselock/lock/detail/renewal_schedule.hpp>
#include <leaselock/lock/detail/signaller.hpp>
#include <leaselock/lock/detail/wake_word.hpp>
#include <leaselock/redis/connection.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// The lanes of a renewer: one, or one for each server that its backend tells apart, up to `most`;
/// then servers share. The first is always there; another is made, with its thread, at the first lease
/// that needs it, and what has become idle is used again before that.
///
/// Called with the renewer's mutex held.
template <class B>
class RenewalLanes {
public:
    using Lane = RenewalLane<B>;
    static constexpr std::size_t most = RoutedConnection<B> ? 16 : 1;
    /// Where no lane could be had: from then on none is tried to be had for so long.
    static constexpr std::chrono::seconds patience{1};

    RenewalLanes(B& backend, Runtime& runtime, Signaller& signaller, WakeWord& watch) noexcept
        : backend_(backend), runtime_(runtime), signaller_(signaller), watch_(watch),
          first_(0, backend, runtime, signaller, watch) {}

    [[nodiscard]] Lane& at(std::size_t number) noexcept {
        if constexpr (most == 1) {
            return first_;
        } else {
            return number == 0 ? first_ : *others_[number - 1];
        }
    }
    /// The lane that a lease is in.
    [[nodiscard]] Lane& of(const LeaseRecord& record) noexcept { return at(record.lane); }

    /// The lane that a lease on this key belongs in, as far as is known now.
    /// @param start starts the thread of the lane of this number; false where that cannot be
    template <class Start>
    [[nodiscard]] Lane& of_key(std::string_view key, const Start& start) noexcept {
        if constexpr (most == 1) {
            return first_;
        } else {
            const std::uint32_t server = backend_.lane(key);
            for (std::size_t i = 0; i < size_; ++i) {
                if (servers_[i] == server) return at(i);
            }
            for (std::size_t i = 0; i < size_; ++i) {
                if (!at(i).idle()) continue;
                at(i).forget_the_server();
                servers_[i] = server;
                return at(i);
            }
            if (make_one(start)) {
                servers_[size_ - 1] = server;
                return at(size_ - 1);
            }
            return at(server % size_);
        }
    }

    void wake() noexcept {
        for (std::size_t i = 0; i < size(); ++i) at(i).wake();
    }

    // as of one schedule

    [[nodiscard]] Deadline next_watch() noexcept {
        Deadline next = first_.schedule().next_watch();
        for (std::size_t i = 1; i < size(); ++i)
            next = (std::min)(next, at(i).schedule().next_watch());
        return next;
    }
    [[nodiscard]] LeaseRecord* lapsed(Deadline now) noexcept {
        for (std::size_t i = 0; i < size(); ++i) {
            if (RenewalNode* const node = at(i).schedule().lapsed(now)) return &record_of(*node);
        }
        return nullptr;
    }
    [[nodiscard]] LeaseRecord* any() noexcept {
        for (std::size_t i = 0; i < size(); ++i) {
            if (RenewalNode* const node = at(i).schedule().any()) return &record_of(*node);
        }
        return nullptr;
    }

private:
    [[nodiscard]] std::size_t size() const noexcept {
        if constexpr (most == 1) {
            return 1;
        } else {
            return size_;
        }
    }

    template <class Start>
    [[nodiscard]] bool make_one(const Start& start) noexcept {
        if (size_ == most) return false;
        const Deadline now = runtime_.now();
        if (now < none_until_) return false;
        std::unique_ptr<Lane>& lane = others_[size_ - 1];
        lane.reset(new (std::nothrow) Lane{static_cast<std::uint8_t>(size_), backend_, runtime_,
                                           signaller_, watch_});
        // with room for the first lease, and seen by its thread only when this one gives up the mutex
        if (lane == nullptr || !lane->schedule().reserve() || !start(size_)) {
            lane.reset();
            none_until_ = later(now, patience);
            return false;
        }
        ++size_;
        return true;
    }

    B& backend_;
    Runtime& runtime_;
    Signaller& signaller_;
    WakeWord& watch_;
    Lane first_;
    std::array<std::unique_ptr<Lane>, most - 1> others_;
    std::array<std::uint32_t, most> servers_{}; ///< as the backend numbers them, of each lane
    std::size_t size_ = 1;
    Deadline none_until_{};
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
