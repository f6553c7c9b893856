// SPDX-License-Identifier: MIT
#pragma once

// leaselock over Boost.Redis (Boost 1.84 or newer): a `leaselock::Connection` is one function,
// `call`. Copy this file into your service and make it yours.

#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/reply.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/redis/connection.hpp>
#include <boost/redis/error.hpp>
#include <boost/redis/request.hpp>
#include <boost/redis/response.hpp>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

/// Calls on a `boost::redis::connection` that somebody else keeps running: its `async_run`, on an
/// io_context that a thread of the service runs. Any number of threads may call; none of them may be
/// the one that runs the io_context, which would wait for itself.
///
/// Unsent: Boost.Redis has no stream at the moment, or its thread had no time to begin. Every failure
/// behind that is *unknown*: it does not tell what was still in its queue. The time is a total for the call; a call that runs out of it
/// costs the stream, and whatever else is under way on it. Boost.Redis never sends a command twice
/// (`cancel_if_unresponded`, as it is by default), so that nil after `SET NX` means busy.
class BoostRedisConnection {
public:
    static constexpr bool is_shareable = true;

    /// @param connection outlives this, and its executor runs what is given to it in turn
    explicit BoostRedisConnection(boost::redis::connection& connection) : connection_(connection) {}

    void call(std::span<const leaselock::Command> commands, std::span<leaselock::Reply> replies,
              leaselock::Deadline by) noexcept {
        const auto no_memory = std::make_error_code(std::errc::not_enough_memory);
        for (leaselock::Reply& reply : replies) reply.set_unsent(no_memory);
        if (commands.empty()) return;
        try {
            const auto batch = std::make_shared<Batch>(connection_.get_executor(), commands);
            std::future<void> done = batch->done.get_future();
            boost::asio::post(connection_.get_executor(), [&connection = connection_, batch, by] {
                if (!batch->taken.exchange(true)) start(connection, batch, time_left(by));
            });
            // A timer over there ends it at `by`. The rest is for a thread there that is late; one
            // that is blocked, or gone, keeps nobody, and what it has not begun it never will.
            const auto rest = std::chrono::milliseconds{50};
            const bool ended = done.wait_for(time_left(by) + rest) == std::future_status::ready;
            const bool begun = batch->taken.exchange(true);
            for (std::size_t i = 0; i < replies.size(); ++i) {
                if (ended) {
                    batch->all[i].read(replies[i], by);
                } else if (begun) {
                    replies[i].set_unknown(error(leaselock::errc::timed_out));
                } else {
                    replies[i].set_unsent(error(leaselock::errc::timed_out));
                }
            }
        } catch (const std::bad_alloc&) { // before anything was posted: unsent
        }
    }

private:
    struct Batch;

    /// A command and its answer. One request each: the error of one leaves the others alone, and all
    /// that are started together leave in one write.
    struct Exchange {
        boost::redis::request request;
        boost::redis::generic_response response{};
        boost::system::error_code failure{};
        boost::asio::cancellation_signal stop{};

        explicit Exchange(const leaselock::Command& command)
            : request({.cancel_on_connection_lost = true,
                       .cancel_if_not_connected = true,
                       .cancel_if_unresponded = true}) {
            request.push_range(command.argv.front(), command.argv.subspan(1));
            if (command.argv.size() == 1) request.push(command.argv.front());
        }

        void read(leaselock::Reply& reply, leaselock::Deadline by) const {
            using boost::redis::resp3::type;
            if (failure == boost::redis::error::not_connected) {
                return reply.set_unsent(std::make_error_code(std::errc::not_connected));
            }
            if (failure == boost::asio::error::operation_aborted) {
                const bool late = leaselock::LeaseClock::now() >= by;
                return reply.set_unknown(
                    error(late ? leaselock::errc::timed_out : leaselock::errc::connection_lost));
            }
            if (failure) return reply.set_unknown(error(leaselock::errc::protocol_error));
            if (response.has_error()) {
                return reply.set_text(leaselock::Reply::error, response.error().diagnostic);
            }
            const auto& node = response.value().front(); // of an array: the array itself
            std::int64_t number = 0;
            switch (node.data_type) {
            case type::null: return reply.set_nil();
            case type::simple_string: return reply.set_text(leaselock::Reply::status, node.value);
            case type::blob_string: return reply.set_text(leaselock::Reply::string, node.value);
            case type::number:
                std::from_chars(node.value.data(), node.value.data() + node.value.size(), number);
                return reply.set_integer(number);
            default: return reply.set_unknown(error(leaselock::errc::protocol_error));
            }
        }
    };

    /// Lives until its last handler has run, however long after the call that is.
    struct Batch {
        std::vector<Exchange> all;
        std::size_t missing;
        std::promise<void> done{};
        std::atomic<bool> taken{false}; ///< by whoever comes first: one who begins, or who gives up
        boost::asio::steady_timer timer;

        Batch(const boost::asio::any_io_executor& executor,
              std::span<const leaselock::Command> commands)
            : all(commands.begin(), commands.end()), missing(commands.size()), timer(executor) {}
    };

    /// On the connection's executor, as all handlers.
    static void start(boost::redis::connection& connection, const std::shared_ptr<Batch>& batch,
                      std::chrono::nanoseconds time) {
        batch->timer.expires_after(time);
        batch->timer.async_wait([batch](const boost::system::error_code& done) {
            if (done) return;
            for (Exchange& one : batch->all) {
                one.stop.emit(boost::asio::cancellation_type::terminal);
            }
        });
        for (Exchange& one : batch->all) {
            auto ended = [batch, &one](const boost::system::error_code& why, std::size_t) {
                one.failure = why;
                if (--batch->missing != 0) return;
                batch->timer.cancel();
                batch->done.set_value();
            };
            connection.async_exec(
                one.request, one.response,
                boost::asio::bind_cancellation_slot(one.stop.slot(), std::move(ended)));
        }
    }

    static std::error_code error(leaselock::errc why) noexcept { return make_error_code(why); }

    static std::chrono::nanoseconds time_left(leaselock::Deadline by) noexcept {
        const leaselock::Deadline now = leaselock::LeaseClock::now();
        if (by <= now) return {};
        return std::min<leaselock::Deadline>(by, now + std::chrono::hours{24}) - now;
    }

    boost::redis::connection& connection_;
};

static_assert(leaselock::SharedConnection<BoostRedisConnection>);
