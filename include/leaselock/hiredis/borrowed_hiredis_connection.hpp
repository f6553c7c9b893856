#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/dialect.hpp>
#include <leaselock/redis/reply.hpp>

#include <hiredis/hiredis.h>

#include <memory>
#include <span>

#if LEASELOCK_DEFINES
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/hiredis/detail/exchange.hpp>
#include <leaselock/hiredis/detail/host.hpp>
#include <leaselock/hiredis/detail/socket.hpp>
#include <leaselock/hiredis/detail/stream.hpp>

#include <hiredis/read.h>
#include <hiredis/sds.h>

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>
#include <system_error>
#endif

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
                                       Runtime& runtime = system_runtime()) noexcept;
    BorrowedHiredisConnection(const BorrowedHiredisConnection&) = delete;
    BorrowedHiredisConnection& operator=(const BorrowedHiredisConnection&) = delete;
    ~BorrowedHiredisConnection();

    /// See `Connection`.
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept;

    /// What the server cannot do.
    [[nodiscard]] Dialect& dialect() noexcept { return dialect_; }
    [[nodiscard]] redisContext& context() const noexcept { return context_; }

    friend Runtime& runtime_of(BorrowedHiredisConnection& connection) noexcept {
        return connection.runtime_;
    }

private:
    struct Loan;

    redisContext& context_;
    Runtime& runtime_;
    ProcessId process_;
    std::unique_ptr<Loan> loan_; ///< from the first call on
    Dialect dialect_;
};

static_assert(Connection<BorrowedHiredisConnection>);

#if LEASELOCK_DEFINES
namespace detail {

template <class Context>
bool is_under_tls(const Context& context) noexcept {
    if constexpr (requires { context.privctx; }) return context.privctx != nullptr; // 1.0
    return false;
}

/// @return none, or why the context cannot be used
[[nodiscard]] inline std::string_view find_obstacle(const redisContext& context) noexcept {
    if (context.err != 0) return context.errstr;
    if ((context.flags & REDIS_CONNECTED) == 0) return "the context is not connected";
    if (context.obuf != nullptr && ::sdslen(context.obuf) != 0) {
        return "the context has commands that are not sent";
    }
    if (context.reader->pos != context.reader->len) {
        return "the context has replies that are not read";
    }
    if (is_under_tls(context)) return "the context is under TLS";
    if (!is_silent(context.fd)) return "the context has something to read, or has ended";
    return {};
}

} // namespace detail

/// What calls on the context take besides it.
struct BorrowedHiredisConnection::Loan {
    [[nodiscard]] bool begin(std::span<const Command> commands) noexcept {
        reading = reading || stream.decoder.open();
        return reading && exchange.prepare(commands);
    }
    [[nodiscard]] detail::Progress run(std::span<Reply> replies, Deadline by,
                                       const Runtime& runtime, detail::Failure& failure) noexcept;
    /// Nobody may use the context again: what comes next on it may be the answer to us.
    void poison(redisContext& context, const detail::Failure& failure) noexcept;
    /// With the context's server in front, as far as it knows it.
    [[nodiscard]] static detail::Failure labelled(const redisContext& context,
                                                  const detail::Failure& failure) noexcept;
    static void refuse(std::span<Reply> replies, std::error_code cause,
                       std::string_view text = {}) noexcept {
        for (Reply& reply : replies) {
            reply.set_unsent(cause);
            reply.text.append(text);
        }
    }

    /// For one call, its socket is a descriptor of our own for the context's, so that closing it closes
    /// nothing of the caller's.
    detail::Stream stream;
    bool reading = false; ///< the decoder is open
    detail::Exchange exchange;
};

LEASELOCK_INLINE
BorrowedHiredisConnection::BorrowedHiredisConnection(redisContext& context,
                                                     Runtime& runtime) noexcept
    : context_(context), runtime_(runtime), process_(runtime.process()) {}
LEASELOCK_INLINE BorrowedHiredisConnection::~BorrowedHiredisConnection() = default;

LEASELOCK_INLINE void BorrowedHiredisConnection::call(std::span<const Command> commands,
                                                      std::span<Reply> replies,
                                                      Deadline by) noexcept {
    if (runtime_.process() != process_) {
        return Loan::refuse(replies, make_error_code(errc::other_process));
    }
    if (commands.empty()) return;
    if (const std::string_view obstacle = detail::find_obstacle(context_); !obstacle.empty()) {
        return Loan::refuse(replies, make_error_code(errc::connection_lost), obstacle);
    }
    if (loan_ == nullptr) loan_.reset(new (std::nothrow) Loan);
    if (loan_ == nullptr || !loan_->begin(commands)) {
        return Loan::refuse(replies, std::make_error_code(std::errc::not_enough_memory));
    }
    detail::Stream& stream = loan_->stream;
    stream.socket = detail::Socket{::fcntl(context_.fd, F_DUPFD_CLOEXEC, 0)};
    if (!stream.is_open()) return Loan::refuse(replies, detail::system_error_code());
    detail::Failure failure;
    if (loan_->run(replies, by, runtime_, failure) == detail::Progress::failed) {
        loan_->exchange.give_up(Loan::labelled(context_, failure), replies);
        loan_->poison(context_, failure);
    } else if (!stream.is_open()) {
        loan_->poison(context_, {make_error_code(errc::protocol_error), {"a reply too many"}});
    }
    stream.socket.close();
}

LEASELOCK_INLINE detail::Progress
BorrowedHiredisConnection::Loan::run(std::span<Reply> replies, Deadline by, const Runtime& runtime,
                                     detail::Failure& failure) noexcept {
    exchange.send(stream);
    for (;;) {
        if (!exchange.is_broken()) {
            pollfd alone = exchange.interest(stream);
            detail::wait_ready({&alone, 1}, by, runtime);
        }
        const detail::Progress progress = exchange.advance(stream, replies);
        if (progress == detail::Progress::failed) failure = exchange.failure();
        if (progress != detail::Progress::waiting) return progress;
        if (runtime.now() >= by) {
            failure.cause = make_error_code(errc::timed_out);
            return detail::Progress::failed;
        }
    }
}

LEASELOCK_INLINE detail::Failure
BorrowedHiredisConnection::Loan::labelled(const redisContext& context,
                                          const detail::Failure& failure) noexcept {
    ServerText text;
    if (context.unix_sock.path != nullptr) {
        text.append("unix:").append(context.unix_sock.path);
    } else if (context.tcp.host != nullptr) {
        text = detail::label_of(context.tcp.host, static_cast<std::uint16_t>(context.tcp.port));
    }
    if (!text.empty() && !failure.text.empty()) text.append(": ");
    text.append(failure.text.view());
    return {failure.cause, text};
}

LEASELOCK_INLINE void
BorrowedHiredisConnection::Loan::poison(redisContext& context,
                                        const detail::Failure& failure) noexcept {
    stream.close();
    context.err = REDIS_ERR_OTHER;
    ServerText text{"leaselock: a call was left without its reply: "};
    if (failure.cause == errc::timed_out) text.append(to_string(errc::timed_out));
    text.append(failure.text.view());
    const std::size_t size = (std::min)(text.size(), sizeof context.errstr - 1);
    std::copy_n(text.view().begin(), size, &context.errstr[0]);
    context.errstr[size] = '\0';
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
