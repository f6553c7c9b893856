#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/redis/reply.hpp>

#include <hiredis/read.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// Reads replies out of a stream of bytes: hiredis' parser, with callbacks that write straight into a
/// `Reply`, so that there are no reply trees and nothing is allocated for a reply.
///
/// It takes what locks are answered by (status, error, integer, bulk string, null bulk) and nothing
/// else: arrays, pushes and all of RESP3 are protocol errors, refused at their first line. What waits
/// to become whole is bounded. After an error it is of no more use until it is opened anew.
///
/// The replies to what goes well, and to SET where it is busy, are known byte for byte, and taken
/// ahead of hiredis: its parsing was a fifth of the instructions of a cycle.
class ReplyDecoder {
public:
    /// The longest reply that is waited for. Much more than any reply to a lock: the rest is for
    /// strangers' values, of which the `Reply` keeps the beginning.
    static constexpr std::size_t longest_reply = std::size_t{64} * 1024;

    enum class Step : std::uint8_t {
        decoded,    ///< one reply
        incomplete, ///< more bytes are needed
        broken,     ///< see `error()` and `complaint()`
    };

    ReplyDecoder() noexcept = default;
    ReplyDecoder(const ReplyDecoder&) = delete;
    ReplyDecoder& operator=(const ReplyDecoder&) = delete;
    ~ReplyDecoder() { close(); }

    /// Begins a new stream. @return false for want of memory
    [[nodiscard]] bool open() noexcept {
        close();
        reader_ = ::redisReaderCreateWithFunctions(&functions);
        return reader_ != nullptr && grow_buffer();
    }
    void close() noexcept {
        if (reader_ != nullptr) ::redisReaderFree(std::exchange(reader_, nullptr));
        refused_ = nullptr;
        unread_ = {};
    }
    /// In a child whose parent may have been in the middle of a reply: the reader is left alone.
    void abandon() noexcept { reader_ = nullptr; }

    /// Adds bytes; a failure shows in the next step.
    void feed(std::span<const char> bytes) noexcept {
        if (bytes.empty()) return;
        hand_over();
        if (bytes.size() <= room_.size() && is_drained() && reader_->err == 0) {
            unread_ = {room_.data(), bytes.size()};
            std::memcpy(room_.data(), bytes.data(), bytes.size());
        } else {
            (void)::redisReaderFeed(reader_, bytes.data(), bytes.size());
        }
    }

    /// Decodes one reply. When it is whole in one go, `reply` is written; otherwise it is untouched.
    [[nodiscard]] Step next(Reply& reply) noexcept {
        if (const std::size_t taken = take_usual(unread_, reply); taken != 0) {
            unread_.remove_prefix(taken);
            return Step::decoded;
        }
        hand_over();
        if (is_drained() && reader_->err == 0)
            return Step::incomplete; // hiredis would begin a reply
        reader_->privdata = this;
        target_ = &reply;
        void* decoded = nullptr;
        if (::redisReaderGetReply(reader_, &decoded) != REDIS_OK) return Step::broken;
        if (decoded != nullptr) return Step::decoded;
        if (reader_->len - reader_->pos <= longest_reply) return Step::incomplete;
        refused_ = "reply of more than 64 KiB";
        return Step::broken;
    }

    /// True when nothing waits, not even the beginning of a reply: a stream that should be silent now, is.
    [[nodiscard]] bool is_drained() const noexcept {
        return unread_.empty() && reader_->pos == reader_->len && reader_->ridx < 0;
    }

    [[nodiscard]] std::error_code error() const noexcept {
        if (refused_ == nullptr && reader_->err == REDIS_ERR_OOM) {
            return std::make_error_code(std::errc::not_enough_memory);
        }
        return make_error_code(errc::protocol_error);
    }
    [[nodiscard]] std::string_view complaint() const noexcept {
        return refused_ != nullptr ? refused_ : reader_->errstr;
    }

private:
    /// @return how many bytes it took: 0 where they begin with any other reply
    static std::size_t take_usual(std::string_view bytes, Reply& reply) noexcept {
        // not starts_with: g++ 12 calls functions for it
        const auto begins_with = [bytes](std::string_view usual) {
            return bytes.size() >= usual.size() &&
                   std::memcmp(bytes.data(), usual.data(), usual.size()) == 0;
        };
        if (begins_with("+OK\r\n")) return reply.set_text(Reply::status, "OK"), 5;
        if (begins_with(":1\r\n")) return reply.set_integer(1), 4;
        if (begins_with("$-1\r\n")) return reply.set_nil(), 5;
        return 0;
    }
    void hand_over() noexcept {
        if (unread_.empty()) return;
        (void)::redisReaderFeed(reader_, unread_.data(), unread_.size());
        unread_ = {};
    }

    // hiredis takes a null pointer from a callback for want of memory, and gives up: that is how a
    // reply is refused before it is read. Any other pointer stands for a decoded reply.

    static ReplyDecoder& decoder_of(const redisReadTask* task) noexcept {
        return *static_cast<ReplyDecoder*>(task->privdata);
    }
    void* refuse(const char* why) noexcept {
        refused_ = why;
        return nullptr;
    }

    static void* on_string(const redisReadTask* task, char* bytes, std::size_t size) {
        ReplyDecoder& self = decoder_of(task);
        const std::string_view text{bytes, size};
        switch (task->type) {
        case REDIS_REPLY_STATUS: self.target_->set_text(Reply::status, text); break;
        case REDIS_REPLY_ERROR: self.target_->set_text(Reply::error, text); break;
        case REDIS_REPLY_STRING:
            // hiredis has both bytes, and skips them unseen
            if (bytes[size] != '\r' || bytes[size + 1] != '\n') {
                return self.refuse("bulk string of another length than it says");
            }
            self.target_->set_text(Reply::string, text);
            break;
        default: return self.refuse("reply of a kind that RESP2 does not have");
        }
        return self.target_;
    }
    static void* on_integer(const redisReadTask* task, long long value) {
        ReplyDecoder& self = decoder_of(task);
        self.target_->set_integer(value);
        return self.target_;
    }
    static void* on_nil(const redisReadTask* task) {
        ReplyDecoder& self = decoder_of(task);
        // no null array, and no null of RESP3
        if (task->type != REDIS_REPLY_STRING) return self.refuse("null that is no bulk string");
        self.target_->set_nil();
        return self.target_;
    }
    /// Arrays, and what RESP3 has besides; the length of an array is an int before hiredis 1.0.
    template <class... Rest>
    static void* on_other(const redisReadTask* task, Rest...) {
        return decoder_of(task).refuse("reply of a kind that no lock command has");
    }

    template <class Functions>
    static constexpr Functions make_functions() noexcept {
        Functions f{};
        f.createString = on_string;
        f.createInteger = on_integer;
        f.createNil = on_nil;
        f.createArray = on_other;
        if constexpr (requires { f.createDouble; }) f.createDouble = on_other; // 1.0
        if constexpr (requires { f.createBool; }) f.createBool = on_other;     // 1.0
        return f;
    }
    // not const, for hiredis takes a pointer to a variable; it never writes to it
    static redisReplyObjectFunctions functions;

    /// Lets hiredis' buffer grow at once, by a status of 2 KiB: it drops what it has read only every
    /// 1,024 bytes, and would go on allocating for the first hundred replies.
    [[nodiscard]] bool grow_buffer() noexcept {
        std::array<char, 2048> status{};
        status.fill('+');
        status[status.size() - 2] = '\r';
        status[status.size() - 1] = '\n';
        feed(status);
        Reply ignored;
        return next(ignored) == Step::decoded && is_drained();
    }

    redisReader* reader_ = nullptr;
    std::array<char, 512> room_{}; ///< more than the replies to a batch of renewals
    std::string_view unread_;      ///< in it: what hiredis has not been fed, while it holds nothing
    Reply* target_ = nullptr;
    const char* refused_ = nullptr;
};

// behind the class, where it can be a constant: no file that includes this has anything to do at start
inline constinit redisReplyObjectFunctions ReplyDecoder::functions =
    ReplyDecoder::make_functions<redisReplyObjectFunctions>();

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
