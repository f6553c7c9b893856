#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/address.hpp>
#include <leaselock/hiredis/detail/host.hpp>
#include <leaselock/hiredis/detail/lookup.hpp>
#include <leaselock/hiredis/detail/secure_layer.hpp>
#include <leaselock/hiredis/detail/sign_in.hpp>
#include <leaselock/hiredis/detail/socket.hpp>
#include <leaselock/hiredis/detail/stream.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/hiredis/resolver.hpp>

#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// From an endpoint to a stream that commands may go out on: asks the resolver, looks the name up,
/// connects, makes it secure, signs in. It never waits.
///
/// All of it is done anew each time. The addresses are tried in turn, each with its share of the time
/// that is left, so that a dead one does not use up the time of the others. The sign-in has been
/// answered before the stream is ready: no command runs unauthenticated, in another db, or, where that
/// is asked for, on another server than a master.
class Connector {
public:
    /// Refers to both as long as it lives.
    Connector(const Endpoint& endpoint, const Runtime& runtime, LookupFunction function) noexcept
        : Connector(endpoint, runtime, function, own_lookup_) {}
    /// @param kept outlives it, and with it a lookup that it leaves behind: the next connector to the
    ///        same endpoint waits for that one
    Connector(const Endpoint& endpoint, const Runtime& runtime, LookupFunction function,
              Lookup& kept) noexcept
        : endpoint_(endpoint), runtime_(runtime), function_(function), lookup_(kept) {}

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
        server_.host = std::string_view{endpoint_.host};
        server_.port = endpoint_.resolver == nullptr ? endpoint_.port : 0;
        if (endpoint_.is_unix()) {
            add_unix_address(endpoint_.unix_path, addresses_);
        } else if (endpoint_.resolver != nullptr ||
                   !add_numeric_address(endpoint_.host.c_str(), endpoint_.port, addresses_)) {
            return begin_lookup();
        }
        return connect_next(stream, {make_error_code(errc::no_address), {}});
    }

    /// Goes on as far as possible. `done`: the stream is ready.
    [[nodiscard]] Progress advance(Stream& stream) noexcept {
        Progress progress = Progress::waiting;
        if (phase_ == Phase::looking_up) progress = finish_lookup(stream);
        if (phase_ == Phase::connecting && progress == Progress::waiting) {
            progress = finish_connect(stream);
        }
        if (phase_ == Phase::securing && progress == Progress::waiting) {
            progress = finish_handshake(stream);
        }
        if (phase_ == Phase::signing_in && progress == Progress::waiting) {
            progress = finish_sign_in(stream);
        }
        if (progress == Progress::waiting && runtime_.now() >= by_) {
            return fail({make_error_code(errc::timed_out), waits_for()});
        }
        return progress;
    }

    /// What to poll for, and until when.
    [[nodiscard]] pollfd interest(const Stream& stream) const noexcept {
        const int socket = stream.socket.descriptor();
        switch (phase_) {
        case Phase::looking_up: return {lookup_.descriptor(), POLLIN, 0};
        case Phase::connecting: return {socket, POLLOUT, 0};
        case Phase::securing: return {socket, stream.secure->events(), 0};
        case Phase::signing_in: break;
        }
        return sign_in_.interest(stream);
    }
    [[nodiscard]] Deadline wake() const noexcept {
        return phase_ == Phase::connecting ? attempt_by_ : by_;
    }

    [[nodiscard]] const Failure& failure() const noexcept { return failure_; }
    /// Whether the failure's text is the error by which the server refused the sign-in.
    [[nodiscard]] bool refused_by_server() const noexcept { return refused_; }
    /// When the time to connect is over.
    [[nodiscard]] Deadline deadline() const noexcept { return by_; }
    /// What messages call the server that was found last.
    [[nodiscard]] ServerText label() const noexcept {
        if (endpoint_.resolver == nullptr) return endpoint_.label();
        return server_.port != 0 ? label_of(server_.host.view(), server_.port)
                                 : ServerText{"resolver"};
    }

    void abandon_in_child() noexcept {
        lookup_.abandon_in_child();
        sign_in_.abandon();
    }

private:
    enum class Phase : std::uint8_t { looking_up, connecting, securing, signing_in };

    [[nodiscard]] Progress fail(const Failure& why) noexcept {
        tell_resolver(why.cause);
        failure_ = {why.cause, label()};
        if (!why.text.empty()) failure_.text.append(": ").append(why.text.view());
        return Progress::failed;
    }

    /// That what it found will not do.
    void tell_resolver(const std::error_code& cause) const noexcept {
        if (endpoint_.resolver == nullptr || server_.port == 0) return;
        endpoint_.resolver->on_failure(server_, cause);
    }

    /// What took too long, where that is not what the label says.
    [[nodiscard]] std::string_view waits_for() const noexcept {
        switch (phase_) {
        case Phase::looking_up: return endpoint_.resolver != nullptr ? "" : "name lookup";
        case Phase::securing: return "TLS handshake (is it a port for TLS?)";
        case Phase::connecting:
        case Phase::signing_in: break;
        }
        return {};
    }

    [[nodiscard]] Progress begin_lookup() noexcept {
        phase_ = Phase::looking_up;
        // One that an earlier call left behind is waited for, not joined by another: a dead name
        // server costs one thread, however often somebody tries.
        if (lookup_.under_way()) return Progress::waiting;
        if (const auto error = lookup_.start(server_, endpoint_.resolver, function_)) {
            return fail({error, {}});
        }
        return Progress::waiting;
    }

    [[nodiscard]] Progress finish_lookup(Stream& stream) noexcept {
        if (lookup_.under_way()) return Progress::waiting;
        const Whereabouts found = lookup_.take();
        server_ = found.server;
        if (!found.outcome) return fail({found.outcome.cause, found.outcome.text});
        addresses_ = found.addresses;
        return connect_next(stream, {make_error_code(errc::no_address), {}});
    }

    /// Begins to connect to the next address; `last` is why the one before it failed.
    [[nodiscard]] Progress connect_next(Stream& stream, Failure last) noexcept {
        phase_ = Phase::connecting;
        stream.close();
        while (tried_ < addresses_.size()) {
            std::error_code error;
            stream.socket = begin_connect(addresses_[tried_++], endpoint_.keepalive, error);
            if (stream.is_open()) {
                const Deadline now = runtime_.now();
                const auto shares = static_cast<std::int64_t>(addresses_.size() - tried_ + 1);
                attempt_by_ = by_ > now ? now + (by_ - now) / shares : by_;
                return Progress::waiting;
            }
            last = {error, {}};
        }
        return fail(last);
    }

    [[nodiscard]] Progress finish_connect(Stream& stream) noexcept {
        std::error_code error;
        switch (connect_state(stream.socket.descriptor(), error)) {
        case ConnectState::pending:
            if (runtime_.now() < attempt_by_) return Progress::waiting;
            return connect_next(stream, {make_error_code(errc::timed_out), {}});
        case ConnectState::failed: return connect_next(stream, {error, {}});
        case ConnectState::connected: break;
        }
        if (!endpoint_.tls) return begin_sign_in(stream);
        phase_ = Phase::securing;
        stream.secure =
            endpoint_.security->secure(stream.socket.descriptor(), server_.host.view(), error);
        return stream.secure ? Progress::waiting : fail({error, {}});
    }

    [[nodiscard]] Progress finish_handshake(Stream& stream) noexcept {
        switch (stream.secure->shake_hands()) {
        case SecureLayer::Handshake::pending: return Progress::waiting;
        case SecureLayer::Handshake::failed:
            return fail({stream.secure->error(), stream.secure->complaint()});
        case SecureLayer::Handshake::done: break;
        }
        return begin_sign_in(stream);
    }

    [[nodiscard]] Progress begin_sign_in(Stream& stream) noexcept {
        phase_ = Phase::signing_in;
        stream.fresh = true;
        if (sign_in_.begin(endpoint_, stream)) return Progress::waiting;
        return fail({std::make_error_code(std::errc::not_enough_memory), {}});
    }

    [[nodiscard]] Progress finish_sign_in(Stream& stream) noexcept {
        const Progress progress = sign_in_.advance(stream);
        if (progress != Progress::failed) return progress;
        refused_ = sign_in_.refused_by_server();
        if (!refused_) return fail(sign_in_.failure());
        tell_resolver(sign_in_.failure().cause);
        failure_ = sign_in_.failure();
        return progress;
    }

    const Endpoint& endpoint_;
    const Runtime& runtime_;
    LookupFunction function_;
    Lookup own_lookup_;
    Lookup& lookup_;
    Phase phase_ = Phase::connecting;
    Deadline by_{};
    Deadline attempt_by_{};
    ServerAddress server_;
    AddressList addresses_;
    std::size_t tried_ = 0;
    SignIn sign_in_;
    bool refused_ = false;
    Failure failure_;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
