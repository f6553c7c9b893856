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
#include <leaselock/hiredis/detail/slot_queue.hpp>
#include <leaselock/hiredis/detail/socket.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/redis/classify.hpp>
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
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// One stream to one Redis for any number of threads, without a thread of its own.
///
/// Whoever comes first leads: it writes what has gathered, hands out the replies, and passes the lead
/// on when its own have come; alone, that is a direct call. A caller whose deadline comes leaves its
/// slot behind: the late reply is dropped in its order, and the stream lives on, until it has been
/// silent for the silence limit. Then it falls, and each command on it is *unknown*, or *unsent* where
/// not a byte of it had gone out. For the rest it is as `HiredisConnection`.
///
/// In a forked child every call answers unsent, `errc::other_process`: make a new connection there.
///
/// Thread-safety: any number of threads. It does not move. Source: design, "The connection".
class MultiplexedConnection {
    using Guarded = std::unique_lock<std::mutex>;

public:
    static constexpr bool is_shareable = true;
    static constexpr std::chrono::milliseconds default_silence{2'000};

#if LEASELOCK_EXCEPTIONS
    /// @param url as `Endpoint::parse` reads it
    /// @throws Error for a malformed URL; it connects to nothing yet
    explicit MultiplexedConnection(std::string_view url, Runtime& runtime = system_runtime(),
                                   std::chrono::milliseconds silence = default_silence)
        : MultiplexedConnection(Endpoint::from_url(url), runtime, silence) {}
#endif

    /// @param endpoint if its fields are out of their limits, every call answers unsent and says so
    /// @param runtime outlives the connection
    /// @param silence how long the stream may owe replies and bring none before it falls; at least 1 ms
    /// @param lookup for tests of this library
    explicit MultiplexedConnection(Endpoint endpoint, Runtime& runtime = system_runtime(),
                                   std::chrono::milliseconds silence = default_silence,
                                   detail::LookupFunction lookup = detail::system_lookup)
        : endpoint_(std::move(endpoint)), runtime_(runtime), connector_(endpoint_, runtime, lookup),
          process_(runtime.process()),
          silence_(std::clamp(silence, std::chrono::milliseconds{1}, max_ttl)) {}

    MultiplexedConnection(const MultiplexedConnection&) = delete;
    MultiplexedConnection& operator=(const MultiplexedConnection&) = delete;
    /// No call may be under way.
    ~MultiplexedConnection() {
        if (runtime_.process() == process_) return;
        // what another thread of the parent may have been changing is left alone
        stream_.abandon();
        connector_.abandon_in_child();
        (void)owned_slots_.release();
    }

    /// See `Connection`.
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept;

    /// What the server cannot do; forgotten at each connect, for it may be another one by then.
    [[nodiscard]] Dialect& dialect() noexcept { return dialect_; }
    [[nodiscard]] const Endpoint& endpoint() const noexcept { return endpoint_; }

    friend Runtime& runtime_of(MultiplexedConnection& connection) noexcept {
        return connection.runtime_;
    }

private:
    void lead(detail::Slot& slot, Deadline by, Guarded& lock) noexcept;
    void pass_on(Guarded& lock) noexcept;
    void connect(Deadline by, Guarded& lock) noexcept;
    void exchange(Deadline by, Guarded& lock) noexcept;
    [[nodiscard]] bool decode() noexcept;
    void fall(std::error_code cause, std::string_view text = {}) noexcept;
    void tell_concluded(const detail::Slot& own, Guarded& lock) noexcept;
    void leave(detail::Slot& slot, Guarded& lock) noexcept;
    void post(std::span<const Command> commands, std::span<Reply> replies) noexcept;
    [[nodiscard]] bool await(detail::Slot& slot, std::uint32_t state, Deadline by) noexcept {
        return runtime_.wait_until(slot.state, state, by);
    }
    [[nodiscard]] detail::Failure failure(std::error_code cause,
                                          std::string_view text = {}) const noexcept {
        detail::Failure failure{cause, label_};
        if (!text.empty()) failure.text.append(": ").append(text);
        return failure;
    }

    Endpoint endpoint_;
    Runtime& runtime_;
    std::mutex mutex_;
    bool led_ = false; ///< somebody leads; the stream is theirs
    std::unique_ptr<detail::SlotQueue> owned_slots_ = std::make_unique<detail::SlotQueue>();
    detail::SlotQueue& slots_ = *owned_slots_;
    detail::Stream stream_;
    detail::Connector connector_;
    bool connecting_ = false;
    ServerText label_ = endpoint_.label(); ///< of the server that was found last
    bool first_ = true;                    ///< no reply has come on the stream
    ServerText turned_away_; ///< the first reply, if it said that there are too many clients
    Deadline heard_{};       ///< when a reply was last heard, or first owed
    ProcessId process_;      ///< whose stream it is
    std::chrono::milliseconds silence_;
    Dialect dialect_;
};

inline void MultiplexedConnection::call(std::span<const Command> commands, std::span<Reply> replies,
                                        Deadline by) noexcept {
    if (runtime_.process() != process_) { // the mutex may be held by a thread that is not here
        for (Reply& reply : replies) reply.set_unsent(make_error_code(errc::other_process));
        return;
    }
    if (commands.empty()) return;
    Guarded lock{mutex_};
    if (runtime_.now() >= by) return post(commands, replies);
    detail::Slot slot{.commands = commands, .replies = replies};
    slots_.enter(slot);
    if (led_) {
        lock.unlock();
        (void)await(slot, detail::Slot::waiting, by);
        if (slot.state.load(std::memory_order_acquire) == detail::Slot::done) return;
        lock.lock();
        if (slot.state.load(std::memory_order_acquire) != detail::Slot::leading) {
            return leave(slot, lock);
        }
    }
    led_ = true;
    lead(slot, by, lock);
}

/// Works for all until the slot is done, or its deadline comes.
inline void MultiplexedConnection::lead(detail::Slot& slot, Deadline by, Guarded& lock) noexcept {
    while (!slot.concluded && runtime_.now() < by) {
        if (stream_.is_open() && !connecting_) {
            exchange(by, lock);
        } else {
            connect(by, lock);
        }
        tell_concluded(slot, lock);
    }
    if (!slot.concluded) (void)slots_.abandon(slot, failure(make_error_code(errc::timed_out)));
    pass_on(lock);
}

inline void MultiplexedConnection::pass_on(Guarded& lock) noexcept {
    detail::Slot* const next = slots_.oldest();
    led_ = next != nullptr;
    if (next == nullptr) return;
    next->state.store(detail::Slot::leading, std::memory_order_release);
    const std::atomic<std::uint32_t>& word = next->state;
    lock.unlock();
    runtime_.notify_all(word); // of an address only: the slot may be gone
    lock.lock();
}

/// The caller waits no longer. Where its replies have just come, it is told in a moment.
inline void MultiplexedConnection::leave(detail::Slot& slot, Guarded& lock) noexcept {
    if (slots_.abandon(slot, failure(make_error_code(errc::timed_out)))) return;
    lock.unlock();
    while (slot.state.load(std::memory_order_acquire) != detail::Slot::done) {
        (void)await(slot, detail::Slot::waiting, Deadline::max());
    }
}

/// Tells the other callers whose replies are in place. The mutex is free meanwhile: they are many.
inline void MultiplexedConnection::tell_concluded(const detail::Slot& own, Guarded& lock) noexcept {
    detail::SlotQueue::List concluded = slots_.take_concluded();
    (void)concluded.remove(own);
    if (concluded.first == nullptr) return;
    lock.unlock();
    while (detail::Slot* const slot = concluded.pop()) {
        const std::atomic<std::uint32_t>& word = slot->state;
        slot->state.store(detail::Slot::done, std::memory_order_release);
        runtime_.notify_all(word); // of an address only: the slot may be gone
    }
    lock.lock();
}

/// A call whose deadline has passed: written behind the others, if there is a stream, and not waited
/// for.
inline void MultiplexedConnection::post(std::span<const Command> commands,
                                        std::span<Reply> replies) noexcept {
    const detail::Failure late = failure(make_error_code(errc::timed_out));
    bool open = !connecting_ && stream_.is_open(); // else the stream is the leader's alone
    if (open && slots_.idle()) {
        open = stream_.is_silent();
        if (!open) stream_.close();
        heard_ = runtime_.now();
    }
    const bool written = open && slots_.write_for_nobody(commands);
    if (written && !led_) {
        const detail::Io io = stream_.send(slots_.output());
        if (io.state == detail::IoState::moved) slots_.mark_sent(io.bytes);
    }
    for (Reply& reply : replies) {
        if (written) {
            reply.set_unknown(late.cause);
        } else {
            reply.set_unsent(late.cause);
        }
        reply.text = late.text;
    }
}

inline void MultiplexedConnection::connect(Deadline by, Guarded& lock) noexcept {
    const Deadline now = runtime_.now();
    detail::Progress progress = detail::Progress::waiting;
    // one that was left behind, and whose time is over, is no reason to fail now
    if (!connecting_ || now >= connector_.deadline()) {
        // of the endpoint's own time: others wait for it too, and the next leader goes on with it
        progress = connector_.begin(later(now, endpoint_.connect_timeout), stream_);
        connecting_ = true;
    }
    if (progress == detail::Progress::waiting) {
        lock.unlock();
        pollfd alone = connector_.interest(stream_);
        detail::wait_ready({&alone, 1}, std::min(by, connector_.wake()), runtime_);
        progress = connector_.advance(stream_);
        lock.lock();
    }
    if (progress == detail::Progress::waiting) return;
    connecting_ = false;
    label_ = connector_.label();
    first_ = true;
    turned_away_.clear();
    if (progress == detail::Progress::done) {
        dialect_.reset();
        return;
    }
    stream_.close();
    const detail::Failure& why = connector_.failure();
    slots_.refuse_pending(why, connector_.refused_by_server() && why.cause != errc::server_error);
}

/// One round: writes what has gathered, waits, reads what has come.
inline void MultiplexedConnection::exchange(Deadline by, Guarded& lock) noexcept {
    if (slots_.idle()) {
        // A reply too many, or the end of the stream, has to show before anything is sent on it.
        if (!stream_.is_silent()) return stream_.close();
        heard_ = runtime_.now();
    }
    const Deadline fall_at = later(heard_, silence_);
    if (runtime_.now() >= fall_at) return fall(make_error_code(errc::timed_out), "silent stream");
    slots_.write_pending();

    // under the mutex: others may add bytes, and the buffer may move
    while (slots_.has_output()) {
        const detail::Io io = stream_.send(slots_.output());
        if (io.state == detail::IoState::again) break;
        if (io.state != detail::IoState::moved) break; // replies may have come before the error
        slots_.mark_sent(io.bytes);
    }
    const bool more = slots_.has_output();
    lock.unlock();
    pollfd alone = stream_.interest(more);
    detail::wait_ready({&alone, 1}, std::min(by, fall_at), runtime_);
    // not set: the kernel does it
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
    std::array<char, 16384> chunk;
    const detail::Io io = stream_.receive(chunk);
    const detail::Failure failed = stream_.failure(io.state);
    lock.lock();

    if (io.state == detail::IoState::again) return;
    if (io.state != detail::IoState::moved) {
        return fall(failed.cause, failed.text.view());
    }
    heard_ = runtime_.now();
    stream_.decoder.feed(std::span{chunk}.first(io.bytes));
    if (!decode()) fall(stream_.decoder.error(), stream_.decoder.complaint());
}

/// Puts the replies that have come where they belong. @return false when they are no such thing
inline bool MultiplexedConnection::decode() noexcept {
    while (Reply* const reply = slots_.expected()) {
        switch (stream_.decoder.next(*reply)) {
        case detail::ReplyDecoder::Step::incomplete: return true;
        case detail::ReplyDecoder::Step::broken: return false;
        case detail::ReplyDecoder::Step::decoded: break;
        }
        turned_away_.clear();
        // Unasked, to whoever comes when there are enough: if the stream ends behind it, no command ran.
        if (std::exchange(first_, false) && reply->kind == Reply::error &&
            cause_of(reply->text.view()) == errc::too_many_clients) {
            turned_away_ = reply->text;
        }
        if (!slots_.take_reply(*reply)) return false;
    }
    // A reply too many would answer the next command.
    if (!stream_.decoder.is_drained()) stream_.close();
    return true;
}

inline void MultiplexedConnection::fall(std::error_code cause, std::string_view text) noexcept {
    if (turned_away_.empty()) {
        slots_.fall(failure(cause, text), false);
    } else {
        slots_.fall({cause, turned_away_}, true);
    }
    stream_.close();
}

static_assert(SharedConnection<MultiplexedConnection>);

} // namespace LEASELOCK_ABI
} // namespace leaselock
