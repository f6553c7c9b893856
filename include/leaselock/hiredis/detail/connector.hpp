#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/address.hpp>
#include <leaselock/hiredis/detail/exchange.hpp>
#include <leaselock/hiredis/detail/lookup.hpp>
#include <leaselock/hiredis/detail/socket.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>

#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// From an endpoint to a stream that commands may go out on: looks the name up, connects, signs in.
/// It never waits.
///
/// The name is looked up anew each time; the addresses are tried in turn, each with its share of the
/// time that is left, so that a dead one does not use up the time of the others. AUTH and SELECT have
/// been answered OK before the stream is ready: no command runs unauthenticated or in another db.
class Connector {
public:
    /// Refers to both as long as it lives.
    Connector(const Endpoint& endpoint, const Runtime& runtime, LookupFunction function) noexcept
        : endpoint_(endpoint), runtime_(runtime), function_(function) {}

    /// Begins. All of it has to be done by `by`.
    [[nodiscard]] Progress begin(Deadline by, Stream& stream) noexcept {
        stream.close();
        by_ = by;
        refused_ = false;
        addresses_.clear();
        tried_ = 0;
        if (const Outcome valid = endpoint_.check(); !valid) {
            failure_ = {valid.cause, valid.text};
            return Progress::failed;
        }
        if (endpoint_.is_unix()) {
            add_unix_address(endpoint_.unix_path, addresses_);
        } else if (!add_numeric_address(endpoint_.host.c_str(), endpoint_.port, addresses_)) {
            return begin_lookup();
        }
        return connect_next(stream, make_error_code(errc::no_address));
    }

    /// Goes on as far as possible. `done`: the stream is ready.
    [[nodiscard]] Progress advance(Stream& stream) noexcept {
        Progress progress = Progress::waiting;
        if (phase_ == Phase::looking_up) progress = finish_lookup(stream);
        if (phase_ == Phase::connecting && progress == Progress::waiting) {
            progress = finish_connect(stream);
        }
        if (phase_ == Phase::signing_in && progress == Progress::waiting) {
            progress = sign_in(stream);
        }
        if (progress == Progress::waiting && runtime_.now() >= by_) {
            return fail(make_error_code(errc::timed_out));
        }
        return progress;
    }

    /// What to poll for, and until when.
    [[nodiscard]] pollfd interest(const Stream& stream) const noexcept {
        switch (phase_) {
        case Phase::looking_up: return {lookup_.descriptor(), POLLIN, 0};
        case Phase::connecting: return {stream.socket.descriptor(), POLLOUT, 0};
        case Phase::signing_in: break;
        }
        return {stream.socket.descriptor(), sign_in_.events(), 0};
    }
    [[nodiscard]] Deadline wake() const noexcept {
        return phase_ == Phase::connecting ? attempt_by_ : by_;
    }

    [[nodiscard]] const Failure& failure() const noexcept { return failure_; }
    /// Whether the failure's text is the error by which the server refused the sign-in.
    [[nodiscard]] bool refused_by_server() const noexcept { return refused_; }

    void abandon_in_child() noexcept {
        lookup_.abandon_in_child();
        sign_in_.abandon();
    }
    /// When the time to connect is over.
    [[nodiscard]] Deadline deadline() const noexcept { return by_; }

private:
    enum class Phase : std::uint8_t { looking_up, connecting, signing_in };

    [[nodiscard]] Progress fail(std::error_code cause, std::string_view text = {}) noexcept {
        failure_ = {cause, endpoint_.label()};
        if (!text.empty()) failure_.text.append(": ").append(text);
        return Progress::failed;
    }

    [[nodiscard]] Progress begin_lookup() noexcept {
        phase_ = Phase::looking_up;
        // One that an earlier call left behind is waited for, not joined by another: a dead name
        // server costs one thread, however often somebody tries.
        if (lookup_.under_way()) return Progress::waiting;
        if (const auto error = lookup_.start(endpoint_.host, endpoint_.port, function_)) {
            return fail(error);
        }
        return Progress::waiting;
    }

    [[nodiscard]] Progress finish_lookup(Stream& stream) noexcept {
        if (lookup_.under_way()) return Progress::waiting;
        const int code = lookup_.take(addresses_);
        if (code != 0 || addresses_.empty()) {
            const char* const why = code == 0 ? "no address" : ::gai_strerror(code);
            return fail(make_error_code(errc::no_address), why);
        }
        return connect_next(stream, make_error_code(errc::no_address));
    }

    /// Begins to connect to the next address; `last` is why the one before it failed.
    [[nodiscard]] Progress connect_next(Stream& stream, std::error_code last) noexcept {
        phase_ = Phase::connecting;
        stream.close();
        while (tried_ < addresses_.size()) {
            std::error_code error;
            stream.socket = begin_connect(addresses_[tried_++], error);
            if (stream.is_open()) {
                const Deadline now = runtime_.now();
                const auto shares = static_cast<std::int64_t>(addresses_.size() - tried_ + 1);
                attempt_by_ = by_ > now ? now + (by_ - now) / shares : by_;
                return Progress::waiting;
            }
            last = error;
        }
        return fail(last);
    }

    [[nodiscard]] Progress finish_connect(Stream& stream) noexcept {
        std::error_code error;
        switch (connect_state(stream.socket.descriptor(), error)) {
        case ConnectState::pending:
            if (runtime_.now() < attempt_by_) return Progress::waiting;
            return connect_next(stream, make_error_code(errc::timed_out));
        case ConnectState::failed: return connect_next(stream, error);
        case ConnectState::connected: break;
        }
        return begin_sign_in(stream);
    }

    [[nodiscard]] Progress begin_sign_in(Stream& stream) noexcept {
        phase_ = Phase::signing_in;
        stream.fresh = true;
        const std::array<std::string_view, 3> auth_user{"AUTH", endpoint_.user, endpoint_.password};
        const std::array<std::string_view, 2> auth{"AUTH", endpoint_.password};
        std::array<char, 12> digits{};
        const char* const end =
            std::to_chars(digits.data(), digits.data() + digits.size(), endpoint_.db).ptr;
        const std::array<std::string_view, 2> select{
            "SELECT", {digits.data(), static_cast<std::size_t>(end - digits.data())}};

        std::array<Command, 2> commands{};
        commands_ = 0;
        if (endpoint_.needs_auth()) {
            if (endpoint_.user.empty()) {
                commands[commands_++].argv = auth;
            } else {
                commands[commands_++].argv = auth_user;
            }
        }
        if (endpoint_.db != 0) commands[commands_++].argv = select;
        if (!stream.decoder.open() || !sign_in_.prepare(std::span{commands}.first(commands_))) {
            return fail(std::make_error_code(std::errc::not_enough_memory));
        }
        if (commands_ != 0) sign_in_.send(stream);
        return Progress::waiting;
    }

    [[nodiscard]] Progress sign_in(Stream& stream) noexcept {
        if (commands_ == 0) return Progress::done;
        const Progress progress = sign_in_.advance(stream, replies_);
        // The first answer that is not OK ends it: behind it there may be the end of the stream, or
        // silence.
        for (std::size_t i = 0; i < sign_in_.answered(); ++i) {
            const Reply& reply = replies_[i];
            if (reply.kind == Reply::status && reply.text.view() == "OK") continue;
            if (reply.kind != Reply::error) {
                return fail(make_error_code(errc::protocol_error), "no Redis");
            }
            failure_ = {make_error_code(cause_of(reply.text.view())), reply.text};
            refused_ = true;
            return Progress::failed;
        }
        if (progress == Progress::waiting) return progress;
        if (progress == Progress::failed) {
            const Failure& failure = sign_in_.failure();
            return fail(failure.cause, failure.text.view());
        }
        if (stream.is_open()) return Progress::done;
        return fail(make_error_code(errc::protocol_error), "a reply too many");
    }

    const Endpoint& endpoint_;
    const Runtime& runtime_;
    LookupFunction function_;
    Lookup lookup_;
    Phase phase_ = Phase::connecting;
    Deadline by_{};
    Deadline attempt_by_{};
    AddressList addresses_;
    std::size_t tried_ = 0;
    Exchange sign_in_;
    std::size_t commands_ = 0;
    std::array<Reply, 2> replies_{};
    bool refused_ = false;
    Failure failure_;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
