#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/exchange.hpp>
#include <leaselock/hiredis/detail/socket.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/reply.hpp>
#include <leaselock/redis/script_call.hpp>

#include <hiredis/hiredis.h>
#include <hiredis/sds.h>

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// A connection over a `redisContext` that stays the caller's: connected, signed in and in the
/// database that the caller chose. It is used as it is, and never closed or connected anew.
///
/// Before a call it has to be idle: no error, nothing half sent or half read, nothing to be read. Its
/// descriptor is made non-blocking for the call, and put back as it was behind it.
///
/// After a timeout, an I/O or a protocol error the context is poisoned: a late reply may still come,
/// so its `err` is set, hiredis refuses every further command on it, and every further call here is
/// unsent. The caller frees it and makes another, and another connection around that. In a forked
/// child every call is unsent, `errc::other_process`, and the context is left alone.
///
/// Not for contexts under TLS: those read and write through OpenSSL. Such a one is refused.
///
/// Thread-safety: that of the context: one thread at a time. It does not move.
/// Source: design, "The connection".
class BorrowedHiredisConnection {
public:
    static constexpr bool is_shareable = false;

    /// @param context connected, not subscribed, not in asynchronous use; outlives the connection
    /// @param runtime outlives the connection
    explicit BorrowedHiredisConnection(redisContext& context,
                                       Runtime& runtime = system_runtime()) noexcept
        : context_(context), runtime_(runtime), process_(runtime.process()) {}
    BorrowedHiredisConnection(const BorrowedHiredisConnection&) = delete;
    BorrowedHiredisConnection& operator=(const BorrowedHiredisConnection&) = delete;
    ~BorrowedHiredisConnection() = default;

    /// See `Connection`.
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept;

    /// What the server cannot do.
    [[nodiscard]] Dialect& dialect() noexcept { return dialect_; }
    [[nodiscard]] redisContext& context() const noexcept { return context_; }

    friend Runtime& runtime_of(BorrowedHiredisConnection& connection) noexcept {
        return connection.runtime_;
    }

private:
    /// The context's descriptor in our keeping, non-blocking, for one call.
    class Loan {
    public:
        Loan(redisContext& context, detail::Stream& stream) noexcept
            : descriptor_(context.fd), stream_(stream), flags_(::fcntl(context.fd, F_GETFL)) {
            if (flags_ >= 0 && (flags_ & O_NONBLOCK) == 0) {
                (void)::fcntl(descriptor_, F_SETFL, flags_ | O_NONBLOCK);
            }
            stream_.socket = detail::Socket{descriptor_};
        }
        Loan(const Loan&) = delete;
        Loan& operator=(const Loan&) = delete;
        ~Loan() {
            (void)stream_.socket.release();
            if (flags_ >= 0 && (flags_ & O_NONBLOCK) == 0) {
                (void)::fcntl(descriptor_, F_SETFL, flags_);
            }
        }

    private:
        int descriptor_;
        detail::Stream& stream_;
        int flags_;
    };

    /// @return none, or why the context cannot be used
    [[nodiscard]] std::string_view find_obstacle() const noexcept;
    [[nodiscard]] detail::Progress run(std::span<Reply> replies, Deadline by,
                                       detail::Failure& failure) noexcept;
    void poison(const detail::Failure& failure) noexcept;
    static void set_unsent(std::span<Reply> replies, std::error_code cause,
                           std::string_view text) noexcept {
        for (Reply& reply : replies) {
            reply.set_unsent(cause);
            reply.text.append(text);
        }
    }

    redisContext& context_;
    Runtime& runtime_;
    ProcessId process_;
    detail::Stream stream_; ///< its socket is ours during a call only
    detail::Exchange exchange_;
    Dialect dialect_;
};
