#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/hiredis/detail/reply_decoder.hpp>
#include <leaselock/hiredis/detail/resp_writer.hpp>
#include <leaselock/hiredis/detail/socket.hpp>
#include <leaselock/hiredis/detail/stream.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// Whether the server of a write turned out to be no master, or no longer; or one without its
/// replicas, who may have another master by now that this one has not heard of.
[[nodiscard]] constexpr bool is_from_replica(errc cause) noexcept {
    return cause == errc::read_only || cause == errc::master_down ||
           cause == errc::too_few_replicas;
}
/// A batch of commands and their replies over one stream. It goes on as far as the kernel lets it, and
/// waits only where that is asked for.
class Exchange {
public:
    /// @return false for want of memory
    [[nodiscard]] bool prepare(std::span<const Command> commands) noexcept {
        count_ = commands.size();
        sent_ = 0;
        answered_ = 0;
        broken_ = false;
        turned_away_ = false;
        from_replica_ = false;
        abandoned_ = false;
        return out_.write(commands);
    }

    /// Sends what the kernel takes. An error is kept for `advance`: replies may have come before it.
    void send(Stream& stream) noexcept {
        while (sent_ < out_.size()) {
            const Io io = stream.send(out_.view().substr(sent_));
            if (io.state == IoState::again) return;
            if (io.state != IoState::moved) {
                failure_ = stream.failure(io.state);
                broken_ = true;
                return;
            }
            sent_ += io.bytes;
        }
    }

    /// Sends and receives what can be. Replies that have come are in place, whatever it returns; hand
    /// over the same replies each time.
    /// @param wait for something to come, see `Stream::receive_waiting`; only where `waits_for_reply`
    [[nodiscard]] Progress advance(Stream& stream, std::span<Reply> replies,
                                   bool wait = false) noexcept {
        if (!broken_ && sent_ < out_.size()) send(stream);
        const Progress progress = receive(stream, replies, wait);
        return broken_ && progress == Progress::waiting ? Progress::failed : progress;
    }

    /// What to poll for.
    [[nodiscard]] pollfd interest(const Stream& stream) const noexcept {
        return stream.interest(sent_ < out_.size() && !broken_);
    }
    /// In a forked child: what was written is not looked at any more.
    void abandon() noexcept {
        out_.abandon();
        abandoned_ = true;
    }
    [[nodiscard]] bool is_broken() const noexcept { return broken_; }
    /// Whether all is sent, and nothing left to do before something comes.
    [[nodiscard]] bool waits_for_reply() const noexcept { return sent_ == out_.size() && !broken_; }
    [[nodiscard]] std::size_t answered() const noexcept { return answered_; }
    /// Whether one of the answers proves that the server is no master, or may not be one any more.
    [[nodiscard]] bool from_replica() const noexcept { return from_replica_; }
    [[nodiscard]] const Failure& failure() const noexcept { return failure_; }

    /// Gives every command without a reply its verdict.
    ///
    /// Unsent are those of which the kernel has accepted not one byte. A command that was cut in the
    /// middle is unknown like those that went out whole: it cannot run by itself, but its bytes are on
    /// their way, and the promise of *unsent* is that there are none.
    void give_up(const Failure& failure, std::span<Reply> replies) const noexcept {
        const std::size_t all_or_none = sent_ == 0 ? 0 : count_;
        const std::size_t begun = abandoned_ ? all_or_none : out_.count_begun(sent_);
        for (std::size_t i = answered_; i < count_ && i < replies.size(); ++i) {
            if (i < begun) {
                replies[i].set_unknown(failure.cause);
            } else {
                replies[i].set_unsent(failure.cause);
            }
            replies[i].text = failure.text;
        }
    }

    /// Gives every command the error by which the server refused to take any.
    void refuse(std::string_view error_line, std::span<Reply> replies) noexcept {
        for (; answered_ < count_; ++answered_) {
            if (answered_ < replies.size()) {
                replies[answered_].set_text(Reply::error, error_line);
            }
        }
    }

private:
    [[nodiscard]] Progress receive(Stream& stream, std::span<Reply> replies, bool wait) noexcept {
        // Not set: the kernel does it. It fits the reader's buffer, see ReplyDecoder::grow_buffer.
        std::array<char, 2048> chunk; // NOLINT(cppcoreguidelines-pro-type-member-init)
        for (;; wait = false) {
            const Io io = wait ? stream.receive_waiting(chunk) : stream.receive(chunk);
            if (io.state == IoState::again) return Progress::waiting;
            if (io.state != IoState::moved) {
                if (turned_away_ && answered_ == 1) {
                    const Reply first = replies.empty() ? surplus_ : replies[0];
                    refuse(first.text.view(), replies);
                    stream.close();
                    return Progress::done;
                }
                const Failure why = stream.failure(io.state);
                return fail(why.cause, why.text.view());
            }
            stream.decoder.feed(std::span{chunk}.first(io.bytes));
            const Progress progress = decode(stream, replies);
            if (progress != Progress::waiting || !stream.may_have_more(io.bytes, chunk.size())) {
                return progress;
            }
        }
    }

    [[nodiscard]] Progress decode(Stream& stream, std::span<Reply> replies) noexcept {
        while (answered_ < count_) {
            Reply& reply = answered_ < replies.size() ? replies[answered_] : surplus_;
            const bool whole = sent_ == out_.size() || answered_ < out_.count_whole(sent_);
            switch (stream.decoder.next(reply)) {
            case ReplyDecoder::Step::incomplete: return Progress::waiting;
            case ReplyDecoder::Step::broken:
                return fail(stream.decoder.error(), stream.decoder.complaint());
            case ReplyDecoder::Step::decoded: break;
            }
            // Half a command may be answered by an error, all else is no Redis'.
            if (!whole && (reply.kind != Reply::error || answered_ >= out_.count_begun(sent_))) {
                return fail(make_error_code(errc::protocol_error), "a reply before its command");
            }
            ++answered_;
            if (reply.kind == Reply::error) {
                from_replica_ = from_replica_ || is_from_replica(cause_of(reply.text.view()));
            }
            if (stream.fresh) {
                stream.fresh = false;
                turned_away_ = is_turned_away(reply);
            }
        }
        // A reply too many would answer the next command.
        if (!stream.decoder.is_drained()) stream.close();
        return Progress::done;
    }

    /// A server that has clients enough says so unasked, reads nothing, and closes: where the stream
    /// ends behind this first reply, no command of the batch has run.
    [[nodiscard]] static bool is_turned_away(const Reply& first) noexcept {
        return first.kind == Reply::error && cause_of(first.text.view()) == errc::too_many_clients;
    }

    [[nodiscard]] Progress fail(std::error_code cause, std::string_view text = {}) noexcept {
        // The first cause stands, unless the server says why it has broken the stream.
        if (!broken_ || cause == errc::insecure) failure_.cause = cause;
        failure_.text = text;
        broken_ = true;
        return Progress::failed;
    }

    RespWriter out_;
    std::size_t count_ = 0;
    std::size_t sent_ = 0; ///< bytes that the kernel has accepted
    std::size_t answered_ = 0;
    bool broken_ = false;
    bool turned_away_ = false;
    bool from_replica_ = false;
    bool abandoned_ = false;
    Failure failure_;
    Reply surplus_; ///< takes what the caller has no room for
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
