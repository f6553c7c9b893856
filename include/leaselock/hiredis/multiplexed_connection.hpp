#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/lookup_function.hpp>
#include <leaselock/hiredis/detail/slot.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/dialect.hpp>
#include <leaselock/redis/reply.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#if LEASELOCK_DEFINES
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/hiredis/detail/address.hpp>
#include <leaselock/hiredis/detail/multiplexer.hpp>

#include <algorithm>
#include <utility>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {
class Multiplexer;
}

/// One stream to one Redis for any number of threads, without a thread of its own.
///
/// Whoever comes first leads: it writes what has gathered, hands out the replies, and passes the lead
/// on when its own have come; alone, that is a direct call. A caller whose deadline comes leaves its
/// slot behind: the late reply is dropped in its order, and the stream lives on, until it has been
/// silent for the silence limit. Then it falls, and each command on it is *unknown*, or *unsent* where
/// not a byte of it had gone out. For the rest it is as `HiredisConnection`.
///
/// After a READONLY nothing new is sent on a stream: when all on it is answered, the next call connects
/// anew, where a resolver or a name may lead to the master.
///
/// In a forked child every call answers unsent, `errc::other_process`: make a new connection there.
///
/// Thread-safety: any number of threads. It does not move. Source: design, "The connection".
class MultiplexedConnection {
public:
    static constexpr bool is_shareable = true;
    static constexpr std::chrono::milliseconds default_silence{2'000};

#if LEASELOCK_EXCEPTIONS
    /// @param url as `Endpoint::parse` reads it
    /// @throws Error for a malformed URL; it connects to nothing yet
    explicit MultiplexedConnection(std::string_view url, Runtime& runtime = system_runtime(),
                                   std::chrono::milliseconds silence = default_silence);
#endif

    /// @param endpoint if its fields are out of their limits, every call answers unsent and says so
    /// @param runtime outlives the connection
    /// @param silence how long the stream may owe replies, and neither bring any nor take more of what is
    /// to be sent, before it falls; at least 1 ms
    /// @param lookup for tests of this library
    explicit MultiplexedConnection(Endpoint endpoint, Runtime& runtime = system_runtime(),
                                   std::chrono::milliseconds silence = default_silence,
                                   detail::LookupFunction lookup = detail::system_lookup);

    MultiplexedConnection(const MultiplexedConnection&) = delete;
    MultiplexedConnection& operator=(const MultiplexedConnection&) = delete;
    /// No call may be under way.
    ~MultiplexedConnection();

    /// See `Connection`.
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept;

    class Call;
    /// Begins a call, and gives up what `call` was before. Does not wait: on an open stream it goes out
    /// as far as the kernel takes it; else connecting begins, and `finish` goes on with it. The commands,
    /// their words and the replies stay alive and untouched until `finish`, or the end of `call`.
    void begin(Call& call, std::span<const Command> commands, std::span<Reply> replies,
               Deadline by) noexcept;

    /// Goes on with connecting for a call that has begun, and not behind its deadline: with many servers
    /// each gets its turn, so that none that is silent takes the time of the others.
    /// @param turn how long it may take
    /// @return false: there is no stream yet, and time left
    [[nodiscard]] bool reach(Call& call, LeaseClock::duration turn) noexcept;

    /// Waits until the replies are in place, or until the deadline of `begin`. Even behind it, what has
    /// come already is read: the calls of many servers can be finished one behind the other.
    void finish(Call& call) noexcept;

    /// Counts its streams. Calls between which it has not changed went over one stream, in their order:
    /// so a confirmed deletion proves that the SET before it cannot run any more. Source: design, "The
    /// wire", ghosts.
    [[nodiscard]] std::uint64_t stream_number() const noexcept;

    /// What the server cannot do; forgotten at each connect, for it may be another one by then.
    [[nodiscard]] Dialect& dialect() noexcept;
    [[nodiscard]] const Endpoint& endpoint() const noexcept;

    friend Runtime& runtime_of(MultiplexedConnection& connection) noexcept {
        return connection.runtime();
    }

private:
    [[nodiscard]] Runtime& runtime() const noexcept;

    std::unique_ptr<detail::Multiplexer> work_;
};

/// A call in two halves, so that those to many servers can be under way at once: `begin` on each
/// connection, then `finish` one behind the other. Destroyed unfinished, it is given up.
///
/// Thread-safety: one thread at a time. It does not move, and ends before its connection.
class MultiplexedConnection::Call {
public:
    Call() noexcept = default;
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() { give_up(); }

private:
    friend class MultiplexedConnection;
    void give_up() noexcept;

    detail::Multiplexer* work_ = nullptr; ///< where it is under way
    detail::Slot slot_;
    Deadline by_{};
};

static_assert(SharedConnection<MultiplexedConnection>);

#if LEASELOCK_DEFINES
#if LEASELOCK_EXCEPTIONS
LEASELOCK_INLINE MultiplexedConnection::MultiplexedConnection(std::string_view url,
                                                              Runtime& runtime,
                                                              std::chrono::milliseconds silence)
    : MultiplexedConnection(Endpoint::from_plain_url(url), runtime, silence) {}
#endif
LEASELOCK_INLINE MultiplexedConnection::MultiplexedConnection(Endpoint endpoint, Runtime& runtime,
                                                              std::chrono::milliseconds silence,
                                                              detail::LookupFunction lookup)
    : work_(std::make_unique<detail::Multiplexer>(
          std::move(endpoint), runtime, std::clamp(silence, std::chrono::milliseconds{1}, max_ttl),
          lookup)) {}
LEASELOCK_INLINE MultiplexedConnection::~MultiplexedConnection() = default;

LEASELOCK_INLINE void MultiplexedConnection::call(std::span<const Command> commands,
                                                  std::span<Reply> replies, Deadline by) noexcept {
    if (work_->is_elsewhere()) {
        for (Reply& reply : replies) reply.set_unsent(make_error_code(errc::other_process));
    } else if (!commands.empty()) {
        work_->call(commands, replies, by);
    }
}

LEASELOCK_INLINE std::uint64_t MultiplexedConnection::stream_number() const noexcept {
    return work_->stream_number();
}
LEASELOCK_INLINE Dialect& MultiplexedConnection::dialect() noexcept { return work_->dialect(); }
LEASELOCK_INLINE const Endpoint& MultiplexedConnection::endpoint() const noexcept {
    return work_->endpoint();
}
LEASELOCK_INLINE Runtime& MultiplexedConnection::runtime() const noexcept {
    return work_->runtime();
}

LEASELOCK_INLINE void MultiplexedConnection::Call::give_up() noexcept {
    if (work_ != nullptr && !work_->is_elsewhere()) work_->drop(slot_);
    work_ = nullptr;
}

LEASELOCK_INLINE void MultiplexedConnection::begin(Call& call, std::span<const Command> commands,
                                                   std::span<Reply> replies, Deadline by) noexcept {
    call.give_up();
    // without time, or anything to do, it is over at once
    if (commands.empty() || work_->is_elsewhere() || work_->runtime().now() >= by) {
        return this->call(commands, replies, by);
    }
    call.slot_.reset(commands, replies);
    call.by_ = by;
    call.work_ = work_.get();
    work_->begin(call.slot_);
}

LEASELOCK_INLINE bool MultiplexedConnection::reach(Call& call, LeaseClock::duration turn) noexcept {
    if (call.work_ == nullptr || work_->is_elsewhere()) return true;
    const Deadline until = (std::min)(call.by_, later(work_->runtime().now(), turn));
    return work_->reach(call.slot_, until) || work_->runtime().now() >= call.by_;
}

LEASELOCK_INLINE void MultiplexedConnection::finish(Call& call) noexcept {
    if (call.work_ == nullptr) return;
    call.work_ = nullptr;
    if (!work_->is_elsewhere()) return work_->finish(call.slot_, call.by_);
    // begun by the parent, whose it is
    for (Reply& reply : call.slot_.replies) {
        reply.set_unknown(make_error_code(errc::other_process));
    }
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
