#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/fixed_text.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/lock/options.hpp>
#include <leaselock/redis/connection.hpp>

#include <chrono>
#include <cstdint>
#include <string_view>

#if LEASELOCK_DEFINES
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/core/token.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/key.hpp>
#include <leaselock/redis/reply.hpp>

#include <algorithm>
#include <array>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// What a lock key looks like from outside, at one moment: for people and dashboards. It is no
/// answer to "may I": only an acquisition is.
struct Inspection {
    enum class State : std::uint8_t {
        unknown,             ///< see `outcome`
        free,                ///< nobody holds it
        held,                ///< with `ttl` left to live
        held_without_expiry, ///< by something that is no lease: it stays until somebody deletes it
    };

    /// Yes when the server answered both questions; else why not, though the state may be known.
    Outcome outcome;
    State state = State::unknown;
    std::chrono::milliseconds ttl{}; ///< of held
    FixedText<max_owner_size> owner; ///< the holder's label, if it set one
};

/// Looks at a lock key: its time to live, and the holder's label; never at its token, of which not
/// a byte leaves the server. One round trip, of PTTL and GETRANGE.
/// @param timeout how long that may take
/// Thread-safety: that of the connection. Throws nothing.
template <Connection C>
[[nodiscard]] Inspection
inspect(C& connection, std::string_view key,
        std::chrono::milliseconds timeout = std::chrono::seconds{1}) noexcept;

#if LEASELOCK_DEFINES
template <Connection C>
Inspection inspect(C& connection, std::string_view key,
                   std::chrono::milliseconds timeout) noexcept {
    Inspection seen;
    if (key.empty() || key.size() > max_key_size) {
        seen.outcome = {Answer::unsent, errc::invalid_argument, "key must have 1 to 1024 bytes"};
        return seen;
    }
    // from the ':' between token and label to the label's end
    const std::array<std::string_view, 2> pttl{"PTTL", key};
    const std::array<std::string_view, 4> label{"GETRANGE", key, "32", "160"};
    static_assert(Token::size == 32 && Token::size + max_owner_size == 160);
    const std::array<Command, 2> commands{Command{pttl, key}, Command{label, key}};
    std::array<Reply, 2> replies;
    connection.call(commands, replies,
                    later(detail::find_runtime(connection).now(),
                          std::clamp(timeout, std::chrono::milliseconds{0}, max_ttl)));

    if (replies[0].kind != Reply::integer) {
        seen.outcome = classify_failure(replies[0]);
        return seen;
    }
    seen.outcome = {Answer::yes};
    const std::int64_t left = replies[0].number;
    seen.state = left == -2   ? Inspection::State::free
                 : left == -1 ? Inspection::State::held_without_expiry
                              : Inspection::State::held;
    if (left >= 0) seen.ttl = std::chrono::milliseconds{left};
    if (replies[1].kind == Reply::string) {
        const std::string_view tail = replies[1].text.view();
        if (tail.starts_with(':')) seen.owner.append(tail.substr(1));
    } else if (Outcome trouble = classify_failure(replies[1]); trouble.cause != errc::wrong_type) {
        seen.outcome = trouble; // the state is known, the label is not
    }
    return seen;
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
