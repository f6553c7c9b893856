#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/address.hpp>
#include <leaselock/hiredis/detail/connector.hpp>
#include <leaselock/hiredis/detail/exchange.hpp>
#include <leaselock/hiredis/detail/occupancy.hpp>
#include <leaselock/hiredis/detail/socket.hpp>
#include <leaselock/hiredis/detail/stream.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/dialect.hpp>
#include <leaselock/redis/reply.hpp>

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// One call at a time over a stream of its own: what a `HiredisConnection` does behind what it promises,
/// whose members these are.
class Caller {
public:
    Caller(Endpoint endpoint, Runtime& runtime, LookupFunction lookup)
        : endpoint_(std::move(endpoint)), runtime_(runtime), connector_(endpoint_, runtime, lookup),
          process_(runtime.process()) {}
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;
    ~Caller() {
        if (runtime_.process() != process_) leave_to_parent();
    }

    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept;
    void start(std::span<const Command> commands, Deadline by) noexcept {
        (void)begin(commands, by, by); // `finish` says whether
    }
    [[nodiscard]] bool finish(std::span<Reply> replies) noexcept;

    /// Whether this thread's call is under way.
    [[nodiscard]] bool is_calling() const noexcept {
        return occupancy_.is_mine() && phase_ != Phase::idle;
    }
    [[nodiscard]] pollfd interest() const noexcept {
        if (phase_ == Phase::connecting) return connector_.interest(stream_);
        return exchange_.interest(stream_);
    }
    [[nodiscard]] Deadline wake() const noexcept {
        return phase_ == Phase::connecting ? (std::min)(by_, connector_.wake()) : by_;
    }
    /// Whether there is something to do for which nobody needs to wait.
    [[nodiscard]] bool is_due() const noexcept {
        return phase_ == Phase::failed || (phase_ == Phase::exchanging && exchange_.is_broken());
    }

    [[nodiscard]] Dialect& dialect() noexcept { return dialect_; }
    [[nodiscard]] const Endpoint& endpoint() const noexcept { return endpoint_; }
    [[nodiscard]] Runtime& runtime() const noexcept { return runtime_; }

private:
    enum class Phase : std::uint8_t {
        idle,       ///< no call
        connecting, ///< the call waits for a stream
        exchanging, ///< it is on the stream
        failed,     ///< it has failed, and its verdicts wait to be fetched
    };

    /// @param kept until when, without `finish`, others are kept out  @return false: another is inside
    [[nodiscard]] bool begin(std::span<const Command> commands, Deadline by,
                             Deadline kept) noexcept;
    /// Waits for what the call under way needs next.
    /// @return false where the next receive is to do that, which is one system call less
    [[nodiscard]] bool wait() noexcept;
    /// Goes on with the call. @param waited else it waits in the receive
    /// @return whether it has ended
    [[nodiscard]] bool proceed(std::span<Reply> replies, bool waited) noexcept;
    void connect() noexcept;
    /// @return whether all replies are in place
    [[nodiscard]] bool advance(std::span<Reply> replies, bool waited) noexcept;
    /// Gives the call up in a child that was forked off in the middle of it.
    void notice_fork() noexcept;
    void fail(const Failure& failure) noexcept;
    void fail_here(std::error_code cause, std::string_view text = {}) noexcept;
    void give_verdicts(std::span<Reply> replies) noexcept;
    static void refuse(std::span<Reply> replies) noexcept {
        for (Reply& reply : replies) reply.set_unsent(make_error_code(errc::in_use));
    }
    void leave_to_parent() noexcept;

    Endpoint endpoint_;
    Runtime& runtime_;
    Stream stream_;
    Exchange exchange_;
    Connector connector_;
    ProcessId process_; ///< whose stream it is
    Phase phase_ = Phase::idle;
    bool refused_ = false; ///< with `failed`: the server refused the sign-in
    Deadline by_{};
    Failure failure_;
    Occupancy occupancy_;
    Dialect dialect_;
};

inline void Caller::call(std::span<const Command> commands, std::span<Reply> replies,
                         Deadline by) noexcept {
    // it may be over its time by long, behind a suspend: it comes to its end all the same
    if (!begin(commands, by, (Deadline::max)())) return refuse(replies);
    while (!proceed(replies, wait())) notice_fork(); // a signal handler's
    occupancy_.leave();
}

inline bool Caller::begin(std::span<const Command> commands, Deadline by, Deadline kept) noexcept {
    if (runtime_.process() != process_) leave_to_parent();
    if (!occupancy_.enter(runtime_, kept)) return false;
    if (phase_ != Phase::idle) stream_.close(); // its replies would answer this call
    by_ = by;
    phase_ = Phase::exchanging;
    if (!exchange_.prepare(commands)) {
        fail_here(std::make_error_code(std::errc::not_enough_memory));
        return true;
    }
    if (commands.empty()) {
        phase_ = Phase::idle;
        return true;
    }
    // A reply too many, or the end of the stream, has to show before anything is sent on it: what the
    // kernel takes for a closed stream would be unknown for ever.
    if (stream_.is_open() && !stream_.is_silent()) stream_.close();
    if (stream_.is_open()) {
        exchange_.send(stream_);
    } else {
        connect();
    }
    return true;
}

inline bool Caller::finish(std::span<Reply> replies) noexcept {
    if (!occupancy_.is_mine()) {
        refuse(replies);
        return true;
    }
    notice_fork();
    if (!proceed(replies, true)) return false;
    occupancy_.leave();
    return true;
}

inline void Caller::notice_fork() noexcept {
    if (phase_ == Phase::idle || phase_ == Phase::failed || runtime_.process() == process_) return;
    leave_to_parent();
    fail_here(make_error_code(errc::other_process));
}

inline bool Caller::wait() noexcept {
    if (phase_ == Phase::idle || is_due()) return true;
    if (phase_ == Phase::exchanging && stream_.waits() && exchange_.waits_for_reply() &&
        is_patient(runtime_.now(), by_)) {
        return false;
    }
    pollfd alone = interest();
    wait_ready({&alone, 1}, wake(), runtime_);
    return true;
}

inline bool Caller::proceed(std::span<Reply> replies, bool waited) noexcept {
    if (phase_ == Phase::idle) return true;
    if (phase_ != Phase::failed && advance(replies, waited)) {
        phase_ = Phase::idle;
        return true;
    }
    if (phase_ != Phase::failed) {
        if (runtime_.now() < by_) return false;
        fail_here(make_error_code(errc::timed_out));
    }
    give_verdicts(replies);
    phase_ = Phase::idle;
    return true;
}

inline bool Caller::advance(std::span<Reply> replies, bool waited) noexcept {
    if (phase_ == Phase::connecting) {
        switch (connector_.advance(stream_)) {
        case Progress::waiting: return false;
        case Progress::failed: fail(connector_.failure()); return false;
        case Progress::done: break;
        }
        dialect_.reset();
        stream_.socket.let_wait();
        phase_ = Phase::exchanging;
        exchange_.send(stream_);
        return false;
    }
    switch (exchange_.advance(stream_, replies, !waited)) {
    case Progress::waiting: return false;
    case Progress::failed:
        fail_here(exchange_.failure().cause, exchange_.failure().text.view());
        return false;
    case Progress::done: break;
    }
    // demoted: the next connect looks for the master anew, where a resolver or a name leads to it
    if (exchange_.from_replica()) stream_.close();
    return true;
}

inline void Caller::connect() noexcept {
    const Deadline now = runtime_.now();
    if (now >= by_) return fail_here(make_error_code(errc::timed_out));
    phase_ = Phase::connecting;
    const auto limit = ceil_saturated<LeaseClock::duration>(endpoint_.connect_timeout);
    const Deadline connect_by = (std::min)(by_, later(now, limit));
    if (connector_.begin(connect_by, stream_) == Progress::failed) {
        fail(connector_.failure());
    }
}

inline void Caller::fail(const Failure& failure) noexcept {
    refused_ = phase_ == Phase::connecting && connector_.refused_by_server();
    phase_ = Phase::failed;
    failure_ = failure;
    stream_.close();
}

inline void Caller::fail_here(std::error_code cause, std::string_view text) noexcept {
    Failure failure{cause, connector_.label()};
    if (!text.empty()) failure.text.append(": ").append(text);
    fail(failure);
}

inline void Caller::give_verdicts(std::span<Reply> replies) noexcept {
    // The server's own words where they prove that no command ran. Others prove nothing to whoever
    // reads them, while we know that not a byte of any command went out.
    if (refused_ && failure_.cause != errc::server_error) {
        exchange_.refuse(failure_.text.view(), replies);
    } else {
        exchange_.give_up(failure_, replies);
    }
}

inline void Caller::leave_to_parent() noexcept {
    if (!occupancy_.is_mine()) occupancy_.leave();
    stream_.abandon();
    exchange_.abandon();
    connector_.abandon_in_child();
    process_ = runtime_.process();
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
