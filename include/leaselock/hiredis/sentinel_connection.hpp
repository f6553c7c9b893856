#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/hiredis/hiredis_connection.hpp>
#include <leaselock/hiredis/resolver.hpp>
#include <leaselock/hiredis/sentinel.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/dialect.hpp>
#include <leaselock/redis/reply.hpp>

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#if LEASELOCK_DEFINES
#include <leaselock/core/deadline.hpp>
#include <leaselock/hiredis/detail/rediscovery.hpp>

#include <cstddef>
#include <cstdint>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// A connection to whoever is the master, as the sentinels say and the server itself confirms.
///
/// At each connect the sentinels are asked, and the role is verified (INFO) before a command goes out.
/// Within one call, what surely did not run is sent again, behind a fresh discovery, for as long as its
/// deadline allows: nobody was there, it was no master, or the server answered READONLY, MASTERDOWN,
/// LOADING or NOREPLICAS. What may have run is never sent again, nor is anything behind it: it is
/// *unknown*. When the time is over, the last answer stands with its text.
///
/// What it cannot do: replication is asynchronous, so a failover may forget a lock that was granted a
/// moment ago, and a master that is cut off from its sentinels may grant one until it hears of its
/// successor. The guard notices at its next renewal; the fencing token is what guards the store.
///
/// Thread-safety: that of C, `HiredisConnection` or `MultiplexedConnection`. It does not move.
template <class C = HiredisConnection>
class SentinelConnection {
    static_assert(Connection<C>);

public:
    static constexpr bool is_shareable = SharedConnection<C>;

#if LEASELOCK_EXCEPTIONS
    /// @param urls of the sentinels, with their own user and password
    /// @param master its name, as `sentinel monitor` gives it
    /// @param data user, password, db, TLS and limits for the master; host and port are not used
    /// @throws Error for a malformed URL or name; it asks nobody yet
    SentinelConnection(std::initializer_list<std::string_view> urls, std::string master,
                       Endpoint data = {}, Runtime& runtime = system_runtime())
        : SentinelConnection(std::make_shared<Sentinel>(urls, std::move(master)), std::move(data),
                             runtime) {}
    /// The same, with URLs from a `std::vector<std::string>` or another range of texts.
    template <detail::RangeOfTexts R>
    SentinelConnection(const R& urls, std::string master, Endpoint data = {},
                       Runtime& runtime = system_runtime())
        : SentinelConnection(std::make_shared<Sentinel>(urls, std::move(master)), std::move(data),
                             runtime) {}
#endif

    /// Throws nothing of its own: what is out of its limits is told by every call.
    /// @param resolver a `Sentinel`, which several connections may share, or another; null: the host
    ///        of `data`, whose name leads to the master
    /// @param runtime outlives the connection
    explicit SentinelConnection(std::shared_ptr<Resolver> resolver, Endpoint data = {},
                                Runtime& runtime = system_runtime())
        : connection_(with_resolver(std::move(data), std::move(resolver)), runtime) {}

    SentinelConnection(const SentinelConnection&) = delete;
    SentinelConnection& operator=(const SentinelConnection&) = delete;
    ~SentinelConnection() = default;

    /// See `Connection`.
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept;

    [[nodiscard]] Dialect& dialect() noexcept { return connection_.dialect(); }
    [[nodiscard]] const Endpoint& endpoint() const noexcept { return connection_.endpoint(); }

    friend Runtime& runtime_of(SentinelConnection& connection) noexcept {
        return detail::find_runtime(connection.connection_);
    }

private:
    static Endpoint with_resolver(Endpoint data, std::shared_ptr<Resolver> resolver) noexcept {
        data.resolver = std::move(resolver);
        data.must_be_master = true;
        return data;
    }

    /// @return false where it would last until the deadline
    [[nodiscard]] bool pause(unsigned failed, Deadline by) noexcept;

    C connection_;
};

static_assert(Connection<SentinelConnection<>>);

#if LEASELOCK_DEFINES
template <class C>
void SentinelConnection<C>::call(std::span<const Command> commands, std::span<Reply> replies,
                                 Deadline by) noexcept {
    connection_.call(commands, replies, by);
    for (unsigned failed = 0;; ++failed) {
        const std::size_t first = detail::first_to_send_again(commands, replies);
        if (first == replies.size() || !pause(failed, by)) return;
        const Reply before = replies[first];
        commands = commands.subspan(first);
        replies = replies.subspan(first);
        connection_.call(commands, replies, by);
        if (detail::find_runtime(connection_).now() >= by) {
            return detail::keep_last_words(before, replies);
        }
    }
}

template <class C>
bool SentinelConnection<C>::pause(unsigned failed, Deadline by) noexcept {
    Runtime& runtime = detail::find_runtime(connection_);
    std::uint64_t random = 0;
    (void)runtime.fill_random(std::as_writable_bytes(std::span{&random, 1}));
    const Deadline next = later(runtime.now(), detail::rediscovery_pause(failed, random));
    if (next >= by) return false;
    runtime.sleep_until(next);
    return true;
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
