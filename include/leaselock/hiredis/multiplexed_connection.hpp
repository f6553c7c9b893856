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
#include <leaselock/hiredis/detail/slot.hpp>
#include <leaselock/hiredis/detail/slot_queue.hpp>
#include <leaselock/hiredis/detail/socket.hpp>
#include <leaselock/hiredis/detail/stream.hpp>
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
/// After a READONLY nothing new is sent on a stream: when all on it is answered, the next call connects
/// anew, where a resolver or a name may lead to the master.
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

    /// A call in two halves, so that those to many servers can be under way at once. It belongs to one
    /// thread at a time; destroyed unfinished, it is given up. It does not move.
    class Call {
    public:
        Call() noexcept = default;
        Call(const Call&) = delete;
        Call& operator=(const Call&) = delete;
        ~Call() { give_up(); }

    private:
        friend class MultiplexedConnection;
        void give_up() noexcept {
            if (connection_ != nullptr) std::exchange(connection_, nullptr)->drop(slot_);
        }

        MultiplexedConnection* connection_ = nullptr; ///< on which it is under way
        detail::Slot slot_;
        Deadline by_{};
    };

    /// Begins a call, and gives up what `call` was before. Does not wait: on an open stream it goes out
    /// as far as the kernel takes it; else connecting begins, and `finish` goes on with it. The commands,
    /// their words and the replies stay alive and untouched until `finish`, or the end of `call`.
    void begin(Call& call, std::span<const Command> commands, std::span<Reply> replies,
               Deadline by) noexcept;

    /// Waits until the replies are in place, or until the deadline of `begin`. Even behind it, what has
    /// come by then is read: the calls of many servers can be finished one behind the other.
    void finish(Call& call) noexcept;

    /// What the server cannot do; forgotten at each connect, for it may be another one by then.
    [[nodiscard]] Dialect& dialect() noexcept { return dialect_; }
    [[nodiscard]] const Endpoint& endpoint() const noexcept { return endpoint_; }

    friend Runtime& runtime_of(MultiplexedConnection& connection) noexcept {
        return connection.runtime_;
    }

private:
    /// Whether it is another process than the one that made the connection; then the mutex may be held
    /// by a thread that is not here.
    [[nodiscard]] bool is_elsewhere() const noexcept { return runtime_.process() != process_; }
    [[nodiscard]] bool is_open() const noexcept { return !connecting_ && stream_.is_open(); }
    void attend(detail::Slot& slot, Deadline by) noexcept;
    void drop(detail::Slot& slot) noexcept;
    void post(std::span<const Command> commands, std::span<Reply> replies) noexcept;
    void abandon(detail::Slot& slot) noexcept;

    // The leader's. The mutex is held, but where it waits.
    void lead(detail::Slot& slot, Deadline by, Deadline now, Guarded& lock) noexcept;
    void hand_over(Guarded& lock) noexcept;
    void step(Deadline by, Deadline now, Guarded& lock) noexcept {
        is_open() ? exchange(by, now, lock) : connect(by, now, lock);
    }
    void connect(Deadline by, Deadline now, Guarded& lock) noexcept;
    void exchange(Deadline by, Deadline now, Guarded& lock) noexcept;
    [[nodiscard]] bool is_writable(Deadline now) noexcept;
    void send() noexcept;
    [[nodiscard]] bool decode() noexcept;
    void fall(std::error_code cause, std::string_view text = {}) noexcept;
    void let_others_in(Guarded& lock) noexcept {
        const detail::Bells::Set bells = slots_.take_bells();
        lock.unlock();
        bells_.ring(bells, runtime_);
    }
    [[nodiscard]] detail::Failure failure(std::error_code cause,
                                          std::string_view text = {}) const noexcept {
        detail::Failure failure{cause, label_};
        if (!text.empty()) failure.text.append(": ").append(text);
        return failure;
    }

    Endpoint endpoint_;
    Runtime& runtime_;
    detail::Entrance entrance_;
    detail::Bells bells_;
    std::mutex mutex_; ///< of all below; the stream itself is the leader's
    std::unique_ptr<detail::SlotQueue> owned_slots_ = std::make_unique<detail::SlotQueue>();
    detail::SlotQueue& slots_ = *owned_slots_;
    detail::Stream stream_;
    detail::Connector connector_;
    bool connecting_ = false;
    bool demoted_ = false;   ///< the server is no master any more: nothing new goes out
    bool unwatched_ = false; ///< replies may have come while nobody led: they are read first
    bool more_ = false;      ///< the last read may have left some that poll does not tell of
    bool cut_ = false;       ///< sending failed, for `cut_by_`; replies may have come before that
    detail::Failure cut_by_;
    ServerText label_ = endpoint_.label(); ///< of the server that was found last
    ServerText turned_away_; ///< the first reply, if it said that there are too many clients
    Deadline heard_{};       ///< when a reply was last heard, or first owed
    ProcessId process_;      ///< whose stream it is
    std::chrono::milliseconds silence_;
    Dialect dialect_;
};

inline void MultiplexedConnection::call(std::span<const Command> commands, std::span<Reply> replies,
                                        Deadline by) noexcept {
    if (is_elsewhere()) {
        for (Reply& reply : replies) reply.set_unsent(make_error_code(errc::other_process));
        return;
    }
    if (commands.empty()) return;
    const Deadline now = runtime_.now();
    if (now >= by) return post(commands, replies);
    detail::Slot slot{.commands = commands, .replies = replies};
    if (!entrance_.enter(slot)) return attend(slot, by);
    Guarded lock{mutex_};
    lead(slot, by, now, lock);
}

inline void MultiplexedConnection::begin(Call& call, std::span<const Command> commands,
                                         std::span<Reply> replies, Deadline by) noexcept {
    call.give_up();
    if (commands.empty() || is_elsewhere() || runtime_.now() >= by) {
        return this->call(commands, replies, by); // which does not wait
    }
    call.connection_ = this;
    call.by_ = by;
    call.slot_.reset(commands, replies);
    call.slot_.attended = false;
    if (!entrance_.enter(call.slot_)) return;
    Guarded lock{mutex_};
    const Deadline now = runtime_.now();
    if (unwatched_ || !is_open()) step(now, now, lock);
    hand_over(lock);
}

inline void MultiplexedConnection::finish(Call& call) noexcept {
    if (call.connection_ == nullptr) return;
    call.connection_ = nullptr;
    if (is_elsewhere()) {
        for (Reply& reply : call.slot_.replies) {
            reply.set_unknown(make_error_code(errc::other_process));
        }
        return;
    }
    if (call.slot_.is_done()) return;
    Guarded lock{mutex_};
    if (call.slot_.is_done()) return;
    call.slot_.attended = true;
    if (entrance_.try_lead()) return lead(call.slot_, call.by_, runtime_.now(), lock);
    lock.unlock();
    attend(call.slot_, call.by_);
}

/// A call that its caller gives up.
inline void MultiplexedConnection::drop(detail::Slot& slot) noexcept {
    if (is_elsewhere() || slot.is_done()) return;
    const Guarded lock{mutex_};
    abandon(slot);
}

/// Waits for the one who leads, or for the lead.
inline void MultiplexedConnection::attend(detail::Slot& slot, Deadline by) noexcept {
    bells_.await(slot, by, runtime_);
    if (slot.is_done()) return;
    Guarded lock{mutex_};
    if (slot.state.load(std::memory_order_relaxed) == detail::Slot::leading) {
        return lead(slot, by, runtime_.now(), lock);
    }
    abandon(slot);
}

inline void MultiplexedConnection::abandon(detail::Slot& slot) noexcept {
    slots_.add_from(entrance_); // it may be among them
    slots_.abandon(slot, failure(make_error_code(errc::timed_out)));
}

/// Works for all until the slot is done, or its deadline comes. Behind that, what has come by then is
/// still read.
inline void MultiplexedConnection::lead(detail::Slot& slot, Deadline by, Deadline now,
                                        Guarded& lock) noexcept {
    while (now < by || slot.written) {
        step(by, now, lock);
        if (slot.is_done() || now >= by) break;
        now = runtime_.now();
    }
    abandon(slot);
    hand_over(lock);
}

/// Lets go of the lead. What has gathered goes out first, so that the server has it while the threads
/// wake up whose replies have come.
inline void MultiplexedConnection::hand_over(Guarded& lock) noexcept {
    for (;;) {
        slots_.add_from(entrance_);
        if (slots_.has_pending() && is_open() && is_writable(runtime_.now())) {
            slots_.write_pending();
            send();
        }
        if (slots_.appoint(bells_.are_awake())) break;
        unwatched_ = slots_.owed();
        if (entrance_.try_leave()) break;
    }
    let_others_in(lock);
}

/// A call whose deadline has passed: written behind the others, if there is a stream, and not waited
/// for.
inline void MultiplexedConnection::post(std::span<const Command> commands,
                                        std::span<Reply> replies) noexcept {
    Guarded lock{mutex_};
    const bool leads = entrance_.try_lead();
    if (leads && is_open()) (void)is_writable(runtime_.now());
    const bool written = is_open() && !demoted_ && slots_.write_for_nobody(commands);
    const detail::Failure late = failure(make_error_code(errc::timed_out));
    for (Reply& reply : replies) {
        if (written) {
            reply.set_unknown(late.cause);
        } else {
            reply.set_unsent(late.cause);
        }
        reply.text = late.text;
    }
    if (!leads) return; // the leader sends it
    if (written) send();
    hand_over(lock);
}

/// One step towards a stream.
inline void MultiplexedConnection::connect(Deadline by, Deadline now, Guarded& lock) noexcept {
    detail::Progress progress = detail::Progress::waiting;
    const bool stale = connecting_ && now >= connector_.deadline();
    if (!connecting_) {
        // of the endpoint's own time: others wait for it too, and the next leader goes on with it
        progress = connector_.begin(later(now, endpoint_.connect_timeout), stream_);
        connecting_ = true;
    }
    if (progress == detail::Progress::waiting) {
        let_others_in(lock);
        pollfd alone = connector_.interest(stream_);
        detail::wait_ready({&alone, 1}, std::min(by, connector_.wake()), runtime_);
        progress = connector_.advance(stream_);
        lock.lock();
    }
    if (progress == detail::Progress::waiting) return;
    connecting_ = false;
    label_ = connector_.label();
    if (progress == detail::Progress::done) {
        demoted_ = unwatched_ = more_ = cut_ = false;
        turned_away_.clear();
        dialect_.reset();
        return;
    }
    stream_.close();
    if (stale) return; // one that was left behind is no reason to fail now
    const detail::Failure& why = connector_.failure();
    slots_.add_from(entrance_);
    slots_.refuse_pending(why, connector_.refused_by_server() && why.cause != errc::server_error);
}

/// One round: writes what has gathered, waits, reads what has come.
inline void MultiplexedConnection::exchange(Deadline by, Deadline now, Guarded& lock) noexcept {
    slots_.add_from(entrance_);
    if (is_writable(now)) slots_.write_pending();
    if (!stream_.is_open()) return;
    if (!cut_ && !unwatched_) send();
    const Deadline fall_at = later(heard_, silence_);
    const bool at_once = now >= fall_at || unwatched_ || more_ || cut_;
    pollfd alone = stream_.interest(slots_.has_output());
    let_others_in(lock);
    if (!at_once) detail::wait_ready({&alone, 1}, std::min(by, fall_at), runtime_);
    // Not set: the kernel does it. It fits the reader's buffer, see ReplyDecoder::grow_buffer.
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
    std::array<char, 2048> chunk;
    const detail::Io io = stream_.receive(chunk);
    const bool lost = io.state != detail::IoState::again && io.state != detail::IoState::moved;
    if (lost && !cut_) cut_by_ = stream_.failure(io.state);
    lock.lock();

    unwatched_ = more_ = false;
    if (io.state == detail::IoState::again) {
        if (cut_) return fall(cut_by_.cause, cut_by_.text.view());
        if (now >= fall_at) fall(make_error_code(errc::timed_out), "silent stream");
        return;
    }
    if (lost) return fall(cut_by_.cause, cut_by_.text.view());
    more_ = stream_.may_have_more(io.bytes, chunk.size());
    stream_.decoder.feed(std::span{chunk}.first(io.bytes));
    if (!decode()) return fall(stream_.decoder.error(), stream_.decoder.complaint());
    if (slots_.owed()) heard_ = runtime_.now();
}

/// Whether something new may go out: not on a stream that seems to be dead, or that is to end. On an
/// idle one, a reply too many, or the end of the stream, has to show before anything is sent on it.
inline bool MultiplexedConnection::is_writable(Deadline now) noexcept {
    if (slots_.owed()) {
        return !demoted_ && !unwatched_ && !cut_ && now < later(heard_, silence_);
    }
    if (demoted_ || !stream_.is_silent()) {
        fall(make_error_code(errc::connection_lost));
        return false;
    }
    heard_ = now;
    return true;
}

inline void MultiplexedConnection::send() noexcept {
    while (slots_.has_output()) {
        const detail::Io io = stream_.send(slots_.output());
        if (io.state == detail::IoState::moved) {
            slots_.mark_sent(io.bytes);
            continue;
        }
        if (io.state == detail::IoState::again) {
            if (stream_.secure)
                slots_.commit_output(); // as the next send begins with the same bytes
        } else {
            cut_ = true; // replies may have come before that
            cut_by_ = stream_.failure(io.state);
        }
        return;
    }
}

/// Puts the replies that have come where they belong. @return false when they are no such thing
inline bool MultiplexedConnection::decode() noexcept {
    while (Reply* const reply = slots_.expected()) {
        switch (stream_.decoder.next(*reply)) {
        case detail::ReplyDecoder::Step::incomplete: return true;
        case detail::ReplyDecoder::Step::broken: return false;
        case detail::ReplyDecoder::Step::decoded: break;
        }
        if (reply->kind == Reply::error) {
            const errc cause = cause_of(reply->text.view());
            if (cause == errc::read_only) demoted_ = true;
            // Unasked, to whoever comes when there are enough: if the stream ends behind it, no command
            // ran.
            if (stream_.fresh && cause == errc::too_many_clients) turned_away_ = reply->text;
        }
        if (!std::exchange(stream_.fresh, false)) turned_away_.clear();
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
    turned_away_.clear();
    stream_.close();
}

static_assert(SharedConnection<MultiplexedConnection>);

} // namespace LEASELOCK_ABI
} // namespace leaselock
