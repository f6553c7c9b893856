#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <cstddef>
#include <string_view>

/// What OpenSSL's errors mean to us.
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// The reason in OpenSSL's line `error:code:library:function:reason`; it may hold colons itself.
[[nodiscard]] constexpr std::string_view reason_in(std::string_view line) noexcept {
    std::string_view rest = line;
    for (int colons = 0; colons < 4; ++colons) {
        const std::size_t colon = rest.find(':');
        if (colon == std::string_view::npos) return line;
        rest.remove_prefix(colon + 1);
    }
    return rest;
}

/// The reason of an error, such as `no start line` or `No such file or directory`.
[[nodiscard]] inline ServerText tls_reason(unsigned long code) noexcept {
    std::array<char, 256> line{};
    ERR_error_string_n(code, line.data(), line.size());
    return {reason_in(line.data())};
}

/// Takes all errors of this thread. @return the reason of the first, which names the root of it
[[nodiscard]] inline ServerText take_tls_reason() noexcept {
    const unsigned long first = ERR_peek_error();
    ERR_clear_error();
    return first == 0 ? ServerText{"no reason given"} : tls_reason(first);
}

/// An alert by which the other side ended the stream; 0 for any other error.
[[nodiscard]] constexpr int alert_of(int reason) noexcept {
    return reason > SSL_AD_REASON_OFFSET && reason <= SSL_AD_REASON_OFFSET + 255
               ? reason - SSL_AD_REASON_OFFSET
               : 0;
}

/// The cause that an error of the SSL library stands for.
/// @param asked whether the server has asked for a certificate of ours: without it, one that speaks
/// TLS 1.2 ends the handshake by an alert that has many meanings
[[nodiscard]] constexpr errc cause_of_tls(int reason, bool asked) noexcept {
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) return errc::insecure;
    switch (alert_of(reason)) { // RFC 8446, section 6.2
    case SSL3_AD_BAD_CERTIFICATE:
    case SSL3_AD_UNSUPPORTED_CERTIFICATE:
    case SSL3_AD_CERTIFICATE_REVOKED:
    case SSL3_AD_CERTIFICATE_EXPIRED:
    case SSL3_AD_CERTIFICATE_UNKNOWN:
    case TLS1_AD_UNKNOWN_CA:
    case TLS1_AD_ACCESS_DENIED:
    case TLS13_AD_CERTIFICATE_REQUIRED: return errc::insecure;
    case SSL3_AD_HANDSHAKE_FAILURE: return asked ? errc::insecure : errc::protocol_error;
    default: return errc::protocol_error;
    }
}

/// Whether the first bytes of the other side were no TLS at all.
[[nodiscard]] constexpr bool is_plain_text(int reason) noexcept {
    return reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG ||
           reason == SSL_R_HTTP_REQUEST;
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
