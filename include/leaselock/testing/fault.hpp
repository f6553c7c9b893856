#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace testing {

/// What goes wrong with a call of a `MemoryConnection`.
///
/// A stream keeps its order: where one command or reply is lost, so are those behind it in the call.
struct Fault {
    enum Kind : std::uint8_t {
        refused,      ///< unsent, at once: connection refused
        lost_request, ///< never executed; the caller waits until `by`: unknown, timed out
        lost_reply,   ///< executed; the caller waits until `by`: unknown, timed out
        held,         ///< as lost, but `deliver_held()` executes it later
        cut_request,  ///< never executed; unknown, connection lost, as soon as a reply would come
        cut_reply,    ///< executed; unknown, connection lost, as soon as a reply would come
        garbage,      ///< executed; what comes back is no Redis reply: unknown, protocol error
        error,        ///< not executed; `text` is the server's error line
        slow,         ///< the whole call travels longer, by `there` and `back`
    };

    Kind kind;
    std::string text{};           ///< of `error`: `LOADING Redis is loading the dataset in memory`
    std::size_t after = 0;        ///< so many commands of the call go well first
    LeaseClock::duration there{}; ///< of `slow`
    LeaseClock::duration back{};  ///< of `slow`
};

} // namespace testing
} // namespace LEASELOCK_ABI
} // namespace leaselock
