#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/connector.hpp>
#include <leaselock/hiredis/detail/lookup.hpp>
#include <leaselock/hiredis/detail/resp_writer.hpp>
#include <leaselock/hiredis/detail/socket.hpp>
#include <leaselock/hiredis/detail/stream.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/redis/command.hpp>

#include <hiredis/hiredis.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

struct FreeReply {
    void operator()(redisReply* reply) const noexcept { ::freeReplyObject(reply); }
};
/// A reply with arrays in it, which lock commands never have.
using ReplyTree = std::unique_ptr<redisReply, FreeReply>;

/// Reads one reply into a tree; what it may cost in memory is bounded.
class TreeReader {
public:
    static constexpr std::size_t most_bytes = std::size_t{4} * 1024 * 1024;
    static constexpr std::size_t most_elements = std::size_t{128} * 1024; ///< of all arrays

    TreeReader() noexcept : reader_(::redisReaderCreate()) {
        if (reader_ == nullptr) return;
        functions_ = *reader_->fn;
        make_array_ = functions_.createArray;
        functions_.createArray = on_array;
        reader_->fn = &functions_;
        reader_->privdata = this;
    }
    TreeReader(const TreeReader&) = delete;
    TreeReader& operator=(const TreeReader&) = delete;
    ~TreeReader() {
        if (reader_ != nullptr) ::redisReaderFree(reader_);
    }

    /// @return false: these bytes are no reply, or one that is too large; see `error` and `complaint`
    [[nodiscard]] bool feed(std::span<const char> bytes, ReplyTree& reply) noexcept {
        fed_ += bytes.size();
        if (fed_ > most_bytes) refused_ = "reply of more than 4 MiB";
        void* tree = nullptr;
        if (reader_ == nullptr || refused_ != nullptr ||
            ::redisReaderFeed(reader_, bytes.data(), bytes.size()) != REDIS_OK ||
            ::redisReaderGetReply(reader_, &tree) != REDIS_OK) {
            return false;
        }
        reply.reset(static_cast<redisReply*>(tree));
        return true;
    }
    [[nodiscard]] std::error_code error() const noexcept {
        if (reader_ == nullptr || (refused_ == nullptr && reader_->err == REDIS_ERR_OOM)) {
            return std::make_error_code(std::errc::not_enough_memory);
        }
        return make_error_code(errc::protocol_error);
    }
    [[nodiscard]] std::string_view complaint() const noexcept {
        if (reader_ == nullptr) return {};
        return refused_ != nullptr ? refused_ : reader_->errstr;
    }

private:
    static constexpr int most_levels =
        6; // hiredis 0.14 has 7; later ones, and their stack, no limit

    /// hiredis makes room for as many elements as an array says that it has.
    template <class Size> // an int before hiredis 1.0
    static void* on_array(const redisReadTask* task, Size elements) {
        auto& self = *static_cast<TreeReader*>(task->privdata);
        int level = 1;
        for (const auto* outer = task->parent; outer != nullptr; outer = outer->parent) ++level;
        self.elements_ += static_cast<std::size_t>(elements);
        if (level > most_levels) self.refused_ = "reply of more than 6 nested arrays";
        if (self.elements_ > most_elements) self.refused_ = "reply of more than 131,072 elements";
        return self.refused_ != nullptr ? nullptr : self.make_array_(task, elements);
    }

    redisReader* reader_;
    redisReplyObjectFunctions functions_{};
    decltype(redisReplyObjectFunctions::createArray) make_array_ = nullptr;
    std::size_t fed_ = 0;
    std::size_t elements_ = 0;
    const char* refused_ = nullptr;
};

/// Carries a fresh stream to where commands may go out on it.
[[nodiscard]] inline bool connect_until(Deadline by, Connector& connector, Stream& stream,
                                        const Runtime& runtime) noexcept {
    Progress progress = connector.begin(by, stream);
    while (progress == Progress::waiting) {
        pollfd alone = connector.interest(stream);
        wait_ready({&alone, 1}, (std::min)(by, connector.wake()), runtime);
        progress = connector.advance(stream);
    }
    return progress == Progress::done;
}

/// One command on a stream of its own, for what is answered by arrays. It blocks, until `by` at most.
/// @param endpoint outlives the call
/// @param kept the lookups of this endpoint, one query at a time: a dead name server costs one thread
/// @return the reply, an error of the server's too; or null, and `failure`
[[nodiscard]] inline ReplyTree query(const Endpoint& endpoint, const Runtime& runtime,
                                     LookupFunction lookup, Lookup& kept, const Command& command,
                                     Deadline by, Failure& failure) noexcept {
    Connector connector{endpoint, runtime, lookup, kept};
    Stream stream;
    if (!connect_until(by, connector, stream, runtime)) {
        failure = connector.failure();
        return nullptr;
    }
    const auto fail = [&](std::error_code cause, std::string_view text = {}) -> ReplyTree {
        failure = {cause, connector.label()};
        if (!text.empty()) failure.text.append(": ").append(text);
        return nullptr;
    };
    RespWriter out;
    TreeReader reader;
    if (!out.write({&command, 1})) return fail(std::make_error_code(std::errc::not_enough_memory));
    std::size_t sent = 0;
    std::array<char, 4096> chunk; // NOLINT(cppcoreguidelines-pro-type-member-init): the kernel does
    for (;;) {
        while (sent < out.size()) {
            const Io io = stream.send(out.view().substr(sent));
            if (io.state != IoState::moved) break; // an error shows in the reading, too
            sent += io.bytes;
        }
        for (Io io = stream.receive(chunk); io.state != IoState::again;
             io = stream.receive(chunk)) {
            if (io.state != IoState::moved) {
                const Failure why = stream.failure(io.state);
                return fail(why.cause, why.text.view());
            }
            ReplyTree reply;
            if (!reader.feed(std::span{chunk}.first(io.bytes), reply)) {
                return fail(reader.error(), reader.complaint());
            }
            if (reply != nullptr) return reply;
        }
        if (runtime.now() >= by) return fail(make_error_code(errc::timed_out));
        pollfd alone = stream.interest(sent < out.size());
        wait_ready({&alone, 1}, by, runtime);
    }
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
