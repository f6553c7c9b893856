#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/script_call.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// What all nodes of a quorum are asked at once: a SET and what goes with it, or calls of one script.
struct Question {
    enum class Kind : std::uint8_t { take, renew, release, clean_up };

    Kind kind;
    std::span<const Command> commands{};
    std::span<ScriptCall> calls{};
    Deadline by{}; ///< when the call ends at the latest
    LeaseClock::duration
        node_time{}; ///< what a node may take, at least; the call may be over by then
    std::uint32_t* holders = nullptr; ///< see `LeaseView`
    bool patient = false; ///< waits for every node that is not known to be down, decided or not

    [[nodiscard]] std::size_t items() const noexcept { return calls.empty() ? 1 : calls.size(); }
    [[nodiscard]] bool deletes() const noexcept {
        return kind == Kind::release || kind == Kind::clean_up;
    }
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
