#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/lookup.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// The lookups of several endpoints, with those that were left behind. One user at a time.
template <std::size_t Endpoints>
struct KeptLookups {
    KeptLookups() noexcept = default;
    KeptLookups(const KeptLookups&) = delete;
    KeptLookups& operator=(const KeptLookups&) = delete;
    ~KeptLookups() {
        if (!is_elsewhere()) return;
        for (Lookup& lookup : of) lookup.abandon_in_child();
    }
    /// Whether the threads of these lookups are another process's.
    [[nodiscard]] bool is_elsewhere() const noexcept {
        return system_runtime().process() != process;
    }

    std::array<Lookup, Endpoints> of{};
    ProcessId process = system_runtime().process();
};

/// Lends lookups to as many as ask at once, so that each waits for what one before it left behind: with
/// a dead name server there are as many threads as there have been users at once, however often they ask.
///
/// Thread-safety: any number of threads, without a mutex, which a fork could leave locked.
template <std::size_t Endpoints>
class LookupPool {
public:
    using Kept = KeptLookups<Endpoints>;

    LookupPool() noexcept = default;
    LookupPool(const LookupPool&) = delete;
    LookupPool& operator=(const LookupPool&) = delete;
    ~LookupPool() {
        for (std::atomic<Kept*>& place : places_) delete place.load(std::memory_order_acquire);
    }

    /// @return null for want of memory
    [[nodiscard]] std::unique_ptr<Kept> borrow() noexcept {
        for (std::atomic<Kept*>& place : places_) {
            std::unique_ptr<Kept> kept{place.exchange(nullptr, std::memory_order_acq_rel)};
            if (kept != nullptr && !kept->is_elsewhere()) return kept;
        }
        return std::unique_ptr<Kept>{new (std::nothrow) Kept};
    }
    void give_back(std::unique_ptr<Kept> kept) noexcept {
        for (std::atomic<Kept*>& place : places_) {
            Kept* none = nullptr;
            if (place.compare_exchange_strong(none, kept.get(), std::memory_order_acq_rel)) {
                (void)kept.release();
                return;
            }
        }
    }

private:
    static constexpr std::size_t most = 64; ///< users at once; what more of them leave is not kept

    std::array<std::atomic<Kept*>, most> places_{};
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
