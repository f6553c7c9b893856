#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// Whom to ask next: first those that answered when last asked, last those that did not; among them
/// the one whose last trouble lies furthest back, so that one that misleads is asked after the others.
///
/// Thread-safety: any number of threads, without a mutex, which a fork could leave locked. Where
/// several ask at once, one may be blamed for what another said: the order alone suffers.
class SentinelOrder {
public:
    static constexpr std::size_t most = 16;

    /// @param count how many there are, @param asked a bit for each that has been asked already
    /// @return whose turn it is; `count` when all have been asked
    [[nodiscard]] std::size_t next(std::size_t count, std::uint32_t asked) const noexcept {
        std::size_t best = count;
        std::uint64_t least = 0;
        for (std::size_t i = 0; i < count; ++i) {
            if ((asked >> i & 1U) != 0) continue;
            const std::uint64_t trouble = troubles_[i].load(std::memory_order_relaxed);
            if (best == count || trouble < least) {
                best = i;
                least = trouble;
            }
        }
        return best;
    }

    /// It named a master.
    void answered(std::size_t i) noexcept {
        troubles_[i].fetch_and(~silent, std::memory_order_relaxed);
        last_.store(i, std::memory_order_relaxed);
    }
    /// It named none.
    void failed(std::size_t i) noexcept { note(i, silent); }
    /// What was named last was no master.
    void misled() noexcept { note(last_.load(std::memory_order_relaxed), 0); }

private:
    static constexpr std::uint64_t silent = std::uint64_t{1} << 63;

    void note(std::size_t i, std::uint64_t how) noexcept {
        const std::uint64_t when = 1 + count_.fetch_add(1, std::memory_order_relaxed);
        troubles_[i].store(how | when, std::memory_order_relaxed);
    }

    std::array<std::atomic<std::uint64_t>, most> troubles_{};
    std::atomic<std::uint64_t> count_{0};
    std::atomic<std::size_t> last_{0};
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
