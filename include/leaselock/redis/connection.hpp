#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {

// clang-format off: version 14 knows no compound requirements

/// A way to one Redis, or to one cluster.
///
/// `call` writes all commands in one go and takes one reply each, in order per key. It never blocks
/// past `by`; with a `by` that has passed it still writes what it can without waiting. Each reply
/// carries its own verdict, and a batch that breaks in the middle keeps what arrived. There are as
/// many replies as commands. Source: design, "The connection".
template <class C>
concept Connection = requires(C& c, std::span<const Command> commands, std::span<Reply> replies,
                              Deadline by) {
    { c.call(commands, replies, by) }
    noexcept->std::same_as<void>;
};

/// A connection on which many can be waited for at once, as a quorum does: `start` on each, then
/// `wait_any` and `finish` until all are there or `by` has passed.
template <class C>
concept SplitConnection = Connection<C> &&
    requires(C& c, std::span<C* const> all, std::span<const Command> commands,
             std::span<Reply> replies, Deadline by) {
    { c.start(commands, by) }
    noexcept->std::same_as<void>;
    { c.finish(replies) }
    noexcept->std::same_as<bool>; // false: not all there yet
    { C::wait_any(all, by) }
    noexcept->std::same_as<void>;
};

// clang-format on

/// A connection that any number of threads may use at once; it says so by `is_shareable`.
template <class C>
concept SharedConnection = Connection<C> && static_cast<bool>(C::is_shareable);

// clang-format off

/// A shared connection to several servers, as to a cluster, that knows which key lives on which.
///
/// `lane` numbers the server on which the key lives, as far as is known: equal numbers, one server. It
/// may say something else later, for keys move; a command is routed by its key whatever it said. Who
/// uses it, as a renewer does, keeps servers apart so that a silent one holds up no other. It never
/// blocks, and any thread may call it, also one that holds a mutex. Source: design, "Losing a lease".
template <class C>
concept RoutedConnection = SharedConnection<C> && requires(C& c, std::string_view key) {
    { c.lane(key) }
    noexcept->std::same_as<std::uint32_t>;
};

// clang-format on

namespace detail {

/// `c.stream_number()`, of a connection that counts its streams: calls between which it has not changed
/// went over one stream, in their order. 0 where a connection does not tell.
template <class C>
[[nodiscard]] std::uint64_t find_stream_number(const C& connection) noexcept {
    if constexpr (requires { connection.stream_number(); }) {
        return connection.stream_number();
    } else {
        return 0;
    }
}

} // namespace detail

} // namespace LEASELOCK_ABI
} // namespace leaselock
