#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/hiredis/endpoint.hpp>

#include <memory>
#include <string>
#include <string_view>

#if LEASELOCK_DEFINES
#include <leaselock/core/error.hpp>
#include <leaselock/hiredis/detail/host.hpp>
#include <leaselock/hiredis/detail/secure_layer.hpp>
#include <leaselock/hiredis/detail/tls_context.hpp>
#include <leaselock/hiredis/detail/tls_layer.hpp>

#include <openssl/err.h>

#include <utility>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// Whom to trust, and who we are. All files are PEM.
struct TlsOptions {
    /// Certificates of the authorities that may vouch for a server. Without `ca_file` and `ca_path`:
    /// the system's (those that OpenSSL knows; `SSL_CERT_FILE` and `SSL_CERT_DIR` lead elsewhere).
    std::string ca_file{};
    std::string ca_path{}; ///< a folder of such certificates, as `openssl rehash` leaves it
    std::string certificate_file{}; ///< of this client, its chain behind it; empty for none
    std::string key_file{}; ///< of that certificate, without a pass phrase; empty: in the same file
    /// The name or address that the certificate has to be for, and that SNI asks for, where it is
    /// not the host of the endpoint, or that which its resolver found.
    std::string server_name{};
};

/// TLS for the streams of endpoints, by OpenSSL: 1.2 or newer, and never without.
///
/// A server is authenticated before anything else is said to it, the password above all: its
/// certificate has to be valid now, signed by a trusted authority, and for the host of the endpoint. If
/// it is not, each call answers unsent, `errc::insecure`, with OpenSSL's words. There is no way to
/// switch that off, and none back to plain text.
///
/// What is read from files is read once: to take new ones, make a new `Tls`. Nothing of it is needed
/// any more once an endpoint has it. Copies share one state.
///
/// Thread-safety: that of a `std::shared_ptr`; any number of connections and threads may share it.
/// Fork: a child may go on to use it, if no other thread of its parent was inside OpenSSL at the fork.
/// Source: design, "The connection".
class Tls {
public:
#if LEASELOCK_EXCEPTIONS
    /// @throws Error, `errc::invalid_argument`, if a file cannot be used: which, and OpenSSL's reason;
    ///         std::bad_alloc
    explicit Tls(const TlsOptions& options = {});

    /// An endpoint from a URL, with TLS.
    /// @throws Error for a malformed URL, and for one that is neither `rediss://` nor `valkeys://`;
    ///         std::bad_alloc
    [[nodiscard]] Endpoint endpoint(std::string_view url) const;

    /// For an endpoint of your own: it goes to `Endpoint::security`.
    [[nodiscard]] const std::shared_ptr<const TransportSecurity>& security() const noexcept {
        return security_;
    }
#else
    Tls() = delete;
#endif

    /// The form that does not throw: as the constructor, straight to `Endpoint::security`.
    /// @return yes, with `security` set; or unsent, `errc::invalid_argument` and a text that names the
    ///         option, its file and OpenSSL's reason, with `security` as it was
    /// @throws std::bad_alloc
    static Outcome load(const TlsOptions& options,
                        std::shared_ptr<const TransportSecurity>& security);

#if LEASELOCK_EXCEPTIONS
private:
    std::shared_ptr<const TransportSecurity> security_;
#endif
};

#if LEASELOCK_DEFINES
LEASELOCK_INLINE Outcome Tls::load(const TlsOptions& options,
                                   std::shared_ptr<const TransportSecurity>& security) {
    if (!options.server_name.empty() && !detail::is_host_name(options.server_name) &&
        !detail::is_ipv6_address(options.server_name)) {
        return detail::tls_complaint("server_name", options.server_name, detail::bad_host);
    }
    auto context = detail::make_tls_context();
    if (!context) return {Answer::unsent, std::make_error_code(std::errc::not_enough_memory)};
    if (Outcome trusted = detail::trust(*context, options.ca_file, options.ca_path); !trusted) {
        return trusted;
    }
    if (Outcome known = detail::identify(*context, options.certificate_file, options.key_file);
        !known) {
        return known;
    }
    ERR_clear_error(); // a success may leave some as well
    security = std::make_shared<const detail::TlsContext>(std::move(context), options.server_name);
    return {Answer::yes};
}

#if LEASELOCK_EXCEPTIONS
LEASELOCK_INLINE Tls::Tls(const TlsOptions& options) {
    if (const Outcome outcome = load(options, security_); !outcome) {
        throw Error{outcome, "set up", "TLS"};
    }
}

LEASELOCK_INLINE Endpoint Tls::endpoint(std::string_view url) const {
    Endpoint endpoint = Endpoint::from_url(url);
    endpoint.security = security_;
    if (const Outcome outcome = endpoint.check(); !outcome) {
        throw Error{outcome, "read", "the URL of the server"};
    }
    return endpoint;
}
#endif
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
