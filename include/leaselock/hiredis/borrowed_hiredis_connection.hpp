#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/exchange.hpp>
#include <leaselock/hiredis/detail/host.hpp>
#include <leaselock/hiredis/detail/socket.hpp>
#include <leaselock/hiredis/detail/stream.hpp>
#include <leaselock/hiredis/endpoint.hpp>
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
/// Before a call it has to be idle: no error, nothing half sent or half read, nothing to be read. That
/// is checked; a command of the caller's that is still unanswered does not show, and must not be.
/// Whether its descriptor blocks makes no difference, and is left as it is.
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
    /// @return none, or why the context cannot be used
    [[nodiscard]] std::string_view find_obstacle() const noexcept;
    [[nodiscard]] detail::Progress run(std::span<Reply> replies, Deadline by,
                                       detail::Failure& failure) noexcept;
    void poison(const detail::Failure& failure) noexcept;
    /// With the context's server in front, as far as it knows it.
    [[nodiscard]] detail::Failure labelled(const detail::Failure& failure) const noexcept;
    template <class Context>
    static bool is_under_tls(const Context& context) noexcept {
        if constexpr (requires { context.privctx; }) return context.privctx != nullptr; // 1.0
        return false;
    }
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
    /// For one call, a descriptor of our own for the context's socket, so that closing it closes nothing
    /// of the caller's.
    detail::Stream stream_;
    bool reading_ = false; ///< the decoder is open
    detail::Exchange exchange_;
    Dialect dialect_;
};

inline void BorrowedHiredisConnection::call(std::span<const Command> commands,
                                            std::span<Reply> replies, Deadline by) noexcept {
    if (runtime_.process() != process_) {
        return set_unsent(replies, make_error_code(errc::other_process), {});
    }
    if (commands.empty()) return;
    if (const std::string_view obstacle = find_obstacle(); !obstacle.empty()) {
        return set_unsent(replies, make_error_code(errc::connection_lost), obstacle);
    }
    stream_.socket = detail::Socket{::fcntl(context_.fd, F_DUPFD_CLOEXEC, 0)};
    if (!stream_.is_open()) return set_unsent(replies, detail::system_error_code(), {});
    if ((!reading_ && !stream_.decoder.open()) || !exchange_.prepare(commands)) {
        stream_.close();
        return set_unsent(replies, std::make_error_code(std::errc::not_enough_memory), {});
    }
    reading_ = true;
    detail::Failure failure;
    if (run(replies, by, failure) == detail::Progress::failed) {
        exchange_.give_up(labelled(failure), replies);
        poison(failure);
    } else if (!stream_.is_open()) {
        poison({make_error_code(errc::protocol_error), {"a reply too many"}});
    }
    stream_.socket.close();
}

inline std::string_view BorrowedHiredisConnection::find_obstacle() const noexcept {
    if (context_.err != 0) return context_.errstr;
    if ((context_.flags & REDIS_CONNECTED) == 0) return "the context is not connected";
    if (context_.obuf != nullptr && ::sdslen(context_.obuf) != 0) {
        return "the context has commands that are not sent";
    }
    if (context_.reader->pos != context_.reader->len) {
        return "the context has replies that are not read";
    }
    if (is_under_tls(context_)) return "the context is under TLS";
    if (!detail::is_silent(context_.fd)) return "the context has something to read, or has ended";
    return {};
}

inline detail::Progress BorrowedHiredisConnection::run(std::span<Reply> replies, Deadline by,
                                                       detail::Failure& failure) noexcept {
    exchange_.send(stream_);
    for (;;) {
        if (!exchange_.is_broken()) {
            pollfd alone = exchange_.interest(stream_);
            detail::wait_ready({&alone, 1}, by, runtime_);
        }
        const detail::Progress progress = exchange_.advance(stream_, replies);
        if (progress == detail::Progress::failed) failure = exchange_.failure();
        if (progress != detail::Progress::waiting) return progress;
        if (runtime_.now() >= by) {
            failure.cause = make_error_code(errc::timed_out);
            return detail::Progress::failed;
        }
    }
}

inline detail::Failure
BorrowedHiredisConnection::labelled(const detail::Failure& failure) const noexcept {
    ServerText text;
    if (context_.unix_sock.path != nullptr) {
        text.append("unix:").append(context_.unix_sock.path);
    } else if (context_.tcp.host != nullptr) {
        text = detail::label_of(context_.tcp.host, static_cast<std::uint16_t>(context_.tcp.port));
    }
    if (!text.empty() && !failure.text.empty()) text.append(": ");
    text.append(failure.text.view());
    return {failure.cause, text};
}

/// Nobody may use the context again: what comes next on it may be the answer to us.
inline void BorrowedHiredisConnection::poison(const detail::Failure& failure) noexcept {
    stream_.close();
    context_.err = REDIS_ERR_OTHER;
    ServerText text{"leaselock: a call was left without its reply: "};
    if (failure.cause == errc::timed_out) text.append(to_string(errc::timed_out));
    text.append(failure.text.view());
    const std::size_t size = (std::min)(text.size(), sizeof context_.errstr - 1);
    std::copy_n(text.view().begin(), size, &context_.errstr[0]);
    context_.errstr[size] = '\0';
}

static_assert(Connection<BorrowedHiredisConnection>);

} // namespace LEASELOCK_ABI
} // namespace leaselock
