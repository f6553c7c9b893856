#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/hiredis/detail/socket.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// What encrypts one stream. It neither owns its socket nor waits.
class SecureLayer {
public:
    enum class Handshake : std::uint8_t { pending, done, failed };

    SecureLayer() = default;
    SecureLayer(const SecureLayer&) = delete;
    SecureLayer& operator=(const SecureLayer&) = delete;
    virtual ~SecureLayer() = default;

    /// Goes on with the handshake; nothing may be sent or received before it is done.
    [[nodiscard]] virtual Handshake shake_hands() noexcept = 0;
    /// After `again`, the same bytes have to come first in the next send.
    [[nodiscard]] virtual Io send(std::string_view bytes) noexcept = 0;
    [[nodiscard]] virtual Io receive(std::span<char> room) noexcept = 0;
    /// True when neither data has come, nor the end, nor an error. What the layer is sent for itself is
    /// no data.
    [[nodiscard]] virtual bool is_silent() noexcept = 0;
    /// What it waits for itself: `POLLIN`, `POLLOUT` or both.
    [[nodiscard]] virtual short events() const noexcept = 0;
    /// True when the handshake is done for us, and yet the server's first words may be that it is not.
    [[nodiscard]] virtual bool may_yet_be_refused() const noexcept = 0;
    /// Why the last step failed.
    [[nodiscard]] virtual std::error_code error() const noexcept = 0;
    [[nodiscard]] virtual std::string_view complaint() const noexcept = 0;
};

} // namespace detail

/// What makes the streams of an `Endpoint` secure: comes from `leaselock::Tls`, in `leaselock/hiredis/tls.hpp`.
/// An interface of this library's, so that those who do without TLS do without OpenSSL.
class TransportSecurity {
public:
    TransportSecurity() = default;
    TransportSecurity(const TransportSecurity&) = delete;
    TransportSecurity& operator=(const TransportSecurity&) = delete;
    virtual ~TransportSecurity() = default;

    /// Begins on a connected socket. @param host whose certificate is expected, where the options name
    /// no other; not null-terminated. @return null and `error` for want of memory.
    /// Thread-safety: any number of threads.
    [[nodiscard]] virtual std::unique_ptr<detail::SecureLayer>
    secure(int socket, std::string_view host, std::error_code& error) const noexcept = 0;
};

} // namespace LEASELOCK_ABI
} // namespace leaselock
