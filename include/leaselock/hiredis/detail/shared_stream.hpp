#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/exchange.hpp>
#include <leaselock/hiredis/detail/reply_decoder.hpp>
#include <leaselock/hiredis/detail/slot.hpp>
#include <leaselock/hiredis/detail/slot_queue.hpp>
#include <leaselock/hiredis/detail/socket.hpp>
#include <leaselock/hiredis/detail/stream.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>

#include <poll.h>

#include <array>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// The stream that calls share, and what goes over it. Nothing waits but `receive_waiting`.
///
/// Under its owner's mutex, but for what receives; whatever touches the stream itself is the leader's.
class SharedStream {
public:
    // Not set: the kernel does it. It fits the reader's buffer, see ReplyDecoder::grow_buffer.
    using Chunk = std::array<char, 2048>;

    SharedStream(Runtime& runtime, LeaseClock::duration silence, const ServerText& label) noexcept
        : runtime_(runtime), silence_(silence), label_(label) {}

    [[nodiscard]] SlotQueue& queue() noexcept { return slots_; }
    /// For whoever connects it. Nothing else may touch it meanwhile.
    [[nodiscard]] Stream& stream() noexcept { return stream_; }
    [[nodiscard]] bool is_open() const noexcept { return stream_.is_open(); }

    void begin(const ServerText& label) noexcept {
        label_ = label;
        demoted_ = unwatched_ = more_ = full_ = cut_ = false;
        turned_away_.clear();
    }
    /// Nobody will read for a while.
    void leave_alone() noexcept { unwatched_ = slots_.owed(); }
    [[nodiscard]] bool is_unwatched() const noexcept { return unwatched_; }

    /// Writes what waits, and sends what the kernel takes.
    void write(Deadline now) noexcept {
        if (is_writable(now)) slots_.write_pending();
        if (is_open() && !unwatched_ && !cut_) send();
    }
    /// Writes and sends a call whose caller does not wait. @param leads else the leader sends it
    /// @return whether it will go out
    [[nodiscard]] bool write_for_nobody(std::span<const Command> commands, bool leads) noexcept {
        if (leads && is_open()) (void)is_writable(runtime_.now());
        const bool written = is_open() && !demoted_ && slots_.write_for_nobody(commands);
        if (written && leads) send();
        return written;
    }

    /// When the stream falls, if it brings nothing until then.
    [[nodiscard]] Deadline fall_at() const noexcept { return later(heard_, silence_); }
    /// Whether to read without waiting for something to come.
    [[nodiscard]] bool is_due(Deadline now) const noexcept {
        return unwatched_ || more_ || cut_ || now >= fall_at();
    }
    /// Whether the last read may have left something.
    [[nodiscard]] bool may_have_more() const noexcept { return more_; }
    [[nodiscard]] pollfd interest() const noexcept { return stream_.interest(slots_.has_output()); }
    /// Whether a receive may wait, which is one system call less than to poll first.
    [[nodiscard]] bool is_patient(Deadline now, Deadline until) const noexcept {
        return stream_.waits() && !slots_.has_output() && detail::is_patient(now, until);
    }
    [[nodiscard]] Io receive(Chunk& chunk, Failure& failed) noexcept {
        return told(stream_.receive(chunk), failed);
    }
    [[nodiscard]] Io receive_waiting(Chunk& chunk, Failure& failed) noexcept {
        return told(stream_.receive_waiting(chunk), failed);
    }
    /// Takes in what `receive` gave. @param now from before it
    void absorb(const Io& io, const Chunk& chunk, const Failure& failed, Deadline now) noexcept;

    [[nodiscard]] Failure failure(std::error_code cause,
                                  std::string_view text = {}) const noexcept {
        Failure failure{cause, label_};
        if (!text.empty()) failure.text.append(": ").append(text);
        return failure;
    }

private:
    [[nodiscard]] Io told(Io io, Failure& failed) const noexcept {
        if (io.state != IoState::moved && io.state != IoState::again) {
            failed = stream_.failure(io.state);
        }
        return io;
    }
    [[nodiscard]] bool is_writable(Deadline now) noexcept;
    void send() noexcept;
    [[nodiscard]] bool decode() noexcept;
    void look_at_error(std::string_view line) noexcept;
    void fall(std::error_code cause, std::string_view text = {}) noexcept;

    Runtime& runtime_;
    LeaseClock::duration silence_;
    SlotQueue slots_;
    Stream stream_;
    bool demoted_ = false;   ///< the server is no master any more: nothing new goes out
    bool unwatched_ = false; ///< replies may have come while nobody led: they are read first
    bool more_ = false;      ///< the last read may have left some that poll does not tell of
    bool full_ = false;      ///< the kernel took no more, the last time
    bool cut_ = false;       ///< sending failed; replies may have come before that
    Failure cut_by_;
    ServerText label_;       ///< of the server that was found last
    ServerText turned_away_; ///< the first reply, if it said that there are too many clients
    Deadline heard_{};       ///< when it last showed signs of life, or first had to
};

/// Whether something new may go out: not on a stream that seems to be dead, or that is to end. On an
/// idle one, a reply too many, or the end of the stream, has to show before anything is sent on it.
inline bool SharedStream::is_writable(Deadline now) noexcept {
    if (slots_.owed()) return !demoted_ && !unwatched_ && !cut_ && now < fall_at();
    // but for a fresh one, on which a server with clients enough says so unasked: that is an answer
    if (demoted_ || (!stream_.fresh && !stream_.is_silent())) {
        fall(make_error_code(errc::connection_lost));
        return false;
    }
    heard_ = now;
    return true;
}

inline void SharedStream::send() noexcept {
    while (slots_.has_output()) {
        const Io io = stream_.send(slots_.output());
        if (io.state == IoState::moved) {
            slots_.mark_sent(io.bytes);
            if (std::exchange(full_, false)) heard_ = runtime_.now(); // the other side has read
            continue;
        }
        full_ = io.state == IoState::again;
        if (full_) {
            // the next send has to begin with the same bytes
            if (stream_.secure) slots_.commit_output();
        } else {
            cut_ = true;
            cut_by_ = stream_.failure(io.state);
        }
        return;
    }
}

inline void SharedStream::absorb(const Io& io, const Chunk& chunk, const Failure& failed,
                                 Deadline now) noexcept {
    unwatched_ = more_ = false;
    if (io.state == IoState::again) {
        if (cut_) return fall(cut_by_.cause, cut_by_.text.view());
        if (now >= fall_at()) fall(make_error_code(errc::timed_out), "silent stream");
        return;
    }
    if (io.state != IoState::moved) {
        const Failure& first = cut_ ? cut_by_ : failed;
        return fall(first.cause, first.text.view());
    }
    more_ = stream_.may_have_more(io.bytes, chunk.size());
    stream_.decoder.feed(std::span{chunk}.first(io.bytes));
    if (!decode()) return fall(stream_.decoder.error(), stream_.decoder.complaint());
    if (slots_.owed()) heard_ = runtime_.now();
}

/// Puts the replies that have come where they belong. @return false when they are no such thing
inline bool SharedStream::decode() noexcept {
    while (Reply* const reply = slots_.expected()) {
        switch (stream_.decoder.next(*reply)) {
        case ReplyDecoder::Step::incomplete: return true;
        case ReplyDecoder::Step::broken: return false;
        case ReplyDecoder::Step::decoded: break;
        }
        turned_away_.clear();
        if (reply->kind == Reply::error) look_at_error(reply->text.view());
        stream_.fresh = false;
        if (!slots_.take_reply(*reply)) return false;
    }
    // A reply too many would answer the next command.
    if (demoted_ || !stream_.decoder.is_drained()) stream_.close();
    return true;
}

inline void SharedStream::look_at_error(std::string_view line) noexcept {
    const errc cause = cause_of(line);
    if (is_from_replica(cause)) demoted_ = true;
    // Unasked, to whoever comes when there are enough: if the stream ends behind it, no command ran.
    if (stream_.fresh && cause == errc::too_many_clients) turned_away_ = line;
}

inline void SharedStream::fall(std::error_code cause, std::string_view text) noexcept {
    if (turned_away_.empty()) {
        slots_.fall(failure(cause, text), false);
    } else {
        slots_.fall({cause, turned_away_}, true);
    }
    turned_away_.clear();
    stream_.close();
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
