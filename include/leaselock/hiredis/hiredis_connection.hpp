#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/connector.hpp>
#include <leaselock/hiredis/detail/exchange.hpp>
#include <leaselock/hiredis/detail/lookup.hpp>
#include <leaselock/hiredis/detail/occupancy.hpp>
#include <leaselock/hiredis/detail/socket.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/reply.hpp>
#include <leaselock/redis/script_call.hpp>

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

namespace leaselock {
inline namespace LEASELOCK_ABI {

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
    explicit HiredisConnection(std::string_view url, Runtime& runtime = system_runtime())
        : HiredisConnection(Endpoint::from_plain_url(url), runtime) {}
#endif

    /// @param endpoint if its fields are out of their limits, every call answers unsent and says so
    /// @param runtime outlives the connection
    /// @param lookup for tests of this library
    explicit HiredisConnection(Endpoint endpoint, Runtime& runtime = system_runtime(),
                               detail::LookupFunction lookup = detail::system_lookup)
        : endpoint_(std::move(endpoint)), runtime_(runtime), connector_(endpoint_, runtime, lookup),
          process_(runtime.process()) {}

    HiredisConnection(const HiredisConnection&) = delete;
    HiredisConnection& operator=(const HiredisConnection&) = delete;
    ~HiredisConnection() {
        if (runtime_.process() != process_) leave_to_parent();
    }

    /// Sends all commands at once and takes one reply each. See `Connection`.
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept;

    /// Begins a call, without waiting; a call that is under way is given up. See `SplitConnection`.
    void start(std::span<const Command> commands, Deadline by) noexcept {
        (void)begin(commands, by, by); // `finish` says whether
    }

    /// Goes on with the call as far as possible. Hand over the same replies each time: those that have
    /// come are in place already.
    /// @return false while replies are missing and the deadline of `start` lies ahead
    bool finish(std::span<Reply> replies) noexcept;

    /// Waits until one of the calls under way may go on, or until `by`; with more than 64 of them, a
    /// millisecond at most.
    static void wait_any(std::span<HiredisConnection* const> all, Deadline by) noexcept;

    /// What the server cannot do; forgotten at each connect, for it may be another one by then.
    [[nodiscard]] Dialect& dialect() noexcept { return dialect_; }
    [[nodiscard]] const Endpoint& endpoint() const noexcept { return endpoint_; }

    friend Runtime& runtime_of(HiredisConnection& connection) noexcept {
        return connection.runtime_;
    }

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
    void fail(const detail::Failure& failure) noexcept;
    void fail_here(std::error_code cause, std::string_view text = {}) noexcept;
    void give_verdicts(std::span<Reply> replies) noexcept;
    static void refuse(std::span<Reply> replies) noexcept {
        for (Reply& reply : replies) reply.set_unsent(make_error_code(errc::in_use));
    }
    void leave_to_parent() noexcept;

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

    Endpoint endpoint_;
    Runtime& runtime_;
    detail::Stream stream_;
    detail::Exchange exchange_;
    detail::Connector connector_;
    ProcessId process_; ///< whose stream it is
    Phase phase_ = Phase::idle;
    bool refused_ = false; ///< with `failed`: the server refused the sign-in
    Deadline by_{};
    detail::Failure failure_;
    detail::Occupancy occupancy_;
    Dialect dialect_;
};

inline void HiredisConnection::call(std::span<const Command> commands, std::span<Reply> replies,
                                    Deadline by) noexcept {
    // it may be over its time by long, behind a suspend: it comes to its end all the same
    if (!begin(commands, by, (Deadline::max)())) return refuse(replies);
    while (!proceed(replies, wait())) notice_fork(); // a signal handler's
    occupancy_.leave();
}

inline bool HiredisConnection::begin(std::span<const Command> commands, Deadline by,
                                     Deadline kept) noexcept {
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

inline bool HiredisConnection::finish(std::span<Reply> replies) noexcept {
    if (!occupancy_.is_mine()) {
        refuse(replies);
        return true;
    }
    notice_fork();
    if (!proceed(replies, true)) return false;
    occupancy_.leave();
    return true;
}

inline void HiredisConnection::notice_fork() noexcept {
    if (phase_ == Phase::idle || phase_ == Phase::failed || runtime_.process() == process_) return;
    leave_to_parent();
    fail_here(make_error_code(errc::other_process));
}

inline bool HiredisConnection::wait() noexcept {
    if (phase_ == Phase::idle || is_due()) return true;
    if (phase_ == Phase::exchanging && stream_.waits() && exchange_.waits_for_reply() &&
        detail::is_patient(runtime_.now(), by_)) {
        return false;
    }
    pollfd alone = interest();
    detail::wait_ready({&alone, 1}, wake(), runtime_);
    return true;
}

inline bool HiredisConnection::proceed(std::span<Reply> replies, bool waited) noexcept {
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

inline bool HiredisConnection::advance(std::span<Reply> replies, bool waited) noexcept {
    if (phase_ == Phase::connecting) {
        switch (connector_.advance(stream_)) {
        case detail::Progress::waiting: return false;
        case detail::Progress::failed: fail(connector_.failure()); return false;
        case detail::Progress::done: break;
        }
        dialect_.reset();
        stream_.socket.let_wait();
        phase_ = Phase::exchanging;
        exchange_.send(stream_);
        return false;
    }
    switch (exchange_.advance(stream_, replies, !waited)) {
    case detail::Progress::waiting: return false;
    case detail::Progress::failed:
        fail_here(exchange_.failure().cause, exchange_.failure().text.view());
        return false;
    case detail::Progress::done: break;
    }
    // demoted: the next connect looks for the master anew, where a resolver or a name leads to it
    if (exchange_.from_replica()) stream_.close();
    return true;
}

inline void HiredisConnection::connect() noexcept {
    const Deadline now = runtime_.now();
    if (now >= by_) return fail_here(make_error_code(errc::timed_out));
    phase_ = Phase::connecting;
    const auto limit = ceil_saturated<LeaseClock::duration>(endpoint_.connect_timeout);
    const Deadline connect_by = (std::min)(by_, later(now, limit));
    if (connector_.begin(connect_by, stream_) == detail::Progress::failed) {
        fail(connector_.failure());
    }
}

inline void HiredisConnection::fail(const detail::Failure& failure) noexcept {
    refused_ = phase_ == Phase::connecting && connector_.refused_by_server();
    phase_ = Phase::failed;
    failure_ = failure;
    stream_.close();
}

inline void HiredisConnection::fail_here(std::error_code cause, std::string_view text) noexcept {
    detail::Failure failure{cause, connector_.label()};
    if (!text.empty()) failure.text.append(": ").append(text);
    fail(failure);
}

inline void HiredisConnection::give_verdicts(std::span<Reply> replies) noexcept {
    // The server's own words where they prove that no command ran. Others prove nothing to whoever
    // reads them, while we know that not a byte of any command went out.
    if (refused_ && failure_.cause != errc::server_error) {
        exchange_.refuse(failure_.text.view(), replies);
    } else {
        exchange_.give_up(failure_, replies);
    }
}

inline void HiredisConnection::leave_to_parent() noexcept {
    if (!occupancy_.is_mine()) occupancy_.leave();
    stream_.abandon();
    exchange_.abandon();
    connector_.abandon_in_child();
    process_ = runtime_.process();
}

inline void HiredisConnection::wait_any(std::span<HiredisConnection* const> all,
                                        Deadline by) noexcept {
    std::array<pollfd, 64> set; // NOLINT(cppcoreguidelines-pro-type-member-init): `size` are used
    std::size_t size = 0;
    const Runtime* runtime = nullptr;
    for (const HiredisConnection* const c : all) {
        if (!c->occupancy_.is_mine() || c->phase_ == Phase::idle) continue;
        if (c->is_due()) return;
        by = (std::min)(by, c->wake());
        runtime = &c->runtime_;
        if (size == set.size()) {
            by = (std::min)(by, later(runtime->now(), std::chrono::milliseconds{1}));
            break;
        }
        set[size++] = c->interest();
    }
    if (runtime != nullptr) detail::wait_ready(std::span{set}.first(size), by, *runtime);
}

static_assert(SplitConnection<HiredisConnection>);

} // namespace LEASELOCK_ABI
} // namespace leaselock
