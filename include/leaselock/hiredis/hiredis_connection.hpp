#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/lookup_function.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/dialect.hpp>
#include <leaselock/redis/reply.hpp>

#include <memory>
#include <span>
#include <string_view>

#if LEASELOCK_DEFINES
#include <leaselock/core/deadline.hpp>
#include <leaselock/hiredis/detail/address.hpp>
#include <leaselock/hiredis/detail/caller.hpp>
#include <leaselock/hiredis/detail/socket.hpp>

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <utility>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {
class Caller;
}

/// A connection of its own to one Redis.
///
/// It connects when first used, and again at the next call after any failure; AUTH and SELECT are
/// answered before a command goes out. Every call ends by its deadline. After a timeout, an I/O or a
/// protocol error the stream is closed, never reused, for a late reply would answer the next command;
/// likewise when something came that nobody asked for. Trouble is told by the replies: the cause, and
/// a text that names the endpoint, never its password.
///
/// In a forked child it closes its descriptor, without a word to the server, and opens one of its own.
///
/// Thread-safety: one thread at a time; a `call` that finds another thread's under way is unsent,
/// `errc::in_use`. It does not move. Source: design, "The connection".
class HiredisConnection {
public:
    static constexpr bool is_shareable = false;

#if LEASELOCK_EXCEPTIONS
    /// @param url as `Endpoint::parse` reads it
    /// @throws Error for a malformed URL; it connects to nothing yet
    explicit HiredisConnection(std::string_view url, Runtime& runtime = system_runtime());
#endif

    /// @param endpoint if its fields are out of their limits, every call answers unsent and says so
    /// @param runtime outlives the connection
    /// @param lookup for tests of this library
    explicit HiredisConnection(Endpoint endpoint, Runtime& runtime = system_runtime(),
                               detail::LookupFunction lookup = detail::system_lookup);

    HiredisConnection(const HiredisConnection&) = delete;
    HiredisConnection& operator=(const HiredisConnection&) = delete;
    ~HiredisConnection();

    /// Sends all commands at once and takes one reply each. See `Connection`.
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept;

    /// Begins a call, without waiting; a call that is under way is given up. See `SplitConnection`.
    void start(std::span<const Command> commands, Deadline by) noexcept;

    /// Goes on with the call as far as possible. Hand over the same replies each time: those that have
    /// come are in place already.
    /// @return false while replies are missing and the deadline of `start` lies ahead
    bool finish(std::span<Reply> replies) noexcept;

    /// Waits until one of the calls under way may go on, or until `by`; with more than 64 of them, a
    /// millisecond at most.
    static void wait_any(std::span<HiredisConnection* const> all, Deadline by) noexcept;

    /// What the server cannot do; forgotten at each connect, for it may be another one by then.
    [[nodiscard]] Dialect& dialect() noexcept;
    [[nodiscard]] const Endpoint& endpoint() const noexcept;

    friend Runtime& runtime_of(HiredisConnection& connection) noexcept {
        return connection.runtime();
    }

private:
    [[nodiscard]] Runtime& runtime() const noexcept;

    std::unique_ptr<detail::Caller> caller_;
};

static_assert(SplitConnection<HiredisConnection>);

#if LEASELOCK_DEFINES
#if LEASELOCK_EXCEPTIONS
LEASELOCK_INLINE HiredisConnection::HiredisConnection(std::string_view url, Runtime& runtime)
    : HiredisConnection(Endpoint::from_plain_url(url), runtime) {}
#endif
LEASELOCK_INLINE HiredisConnection::HiredisConnection(Endpoint endpoint, Runtime& runtime,
                                                      detail::LookupFunction lookup)
    : caller_(std::make_unique<detail::Caller>(std::move(endpoint), runtime, lookup)) {}
LEASELOCK_INLINE HiredisConnection::~HiredisConnection() = default;

LEASELOCK_INLINE void HiredisConnection::call(std::span<const Command> commands,
                                              std::span<Reply> replies, Deadline by) noexcept {
    caller_->call(commands, replies, by);
}
LEASELOCK_INLINE void HiredisConnection::start(std::span<const Command> commands,
                                               Deadline by) noexcept {
    caller_->start(commands, by);
}
LEASELOCK_INLINE bool HiredisConnection::finish(std::span<Reply> replies) noexcept {
    return caller_->finish(replies);
}
LEASELOCK_INLINE Dialect& HiredisConnection::dialect() noexcept { return caller_->dialect(); }
LEASELOCK_INLINE const Endpoint& HiredisConnection::endpoint() const noexcept {
    return caller_->endpoint();
}
LEASELOCK_INLINE Runtime& HiredisConnection::runtime() const noexcept { return caller_->runtime(); }

LEASELOCK_INLINE void HiredisConnection::wait_any(std::span<HiredisConnection* const> all,
                                                  Deadline by) noexcept {
    std::array<pollfd, 64> set; // NOLINT(cppcoreguidelines-pro-type-member-init): `size` are used
    std::size_t size = 0;
    const Runtime* runtime = nullptr;
    for (const HiredisConnection* const c : all) {
        const detail::Caller& caller = *c->caller_;
        if (!caller.is_calling()) continue;
        if (caller.is_due()) return;
        by = (std::min)(by, caller.wake());
        runtime = &caller.runtime();
        if (size == set.size()) {
            by = (std::min)(by, later(runtime->now(), std::chrono::milliseconds{1}));
            break;
        }
        set[size++] = caller.interest();
    }
    if (runtime != nullptr) detail::wait_ready(std::span{set}.first(size), by, *runtime);
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
