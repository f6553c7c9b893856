// SPDX-License-Identifier: MIT
#pragma once

// What the stories of TLS have in common.

#include "certificates.hpp"
#include "tls_front.hpp"

#include "../connection_contract.hpp"

#include <leaselock/hiredis/hiredis_connection.hpp>
#include <leaselock/hiredis/multiplexed_connection.hpp>
#include <leaselock/hiredis/tls.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace leaselock::test {

/// Who can show what to whom. Made once: keys take time.
struct Cast {
    Certificates certificates;
    Identity authority = certificates.authority("our authority");
    Identity other_authority = certificates.authority("their authority");
    /// For this machine.
    Identity server = certificates.make(
        {.common_name = "localhost", .names = "DNS:localhost,IP:127.0.0.1"}, &authority);
    Identity client = certificates.make({.common_name = "worker-7"}, &authority);

    [[nodiscard]] Identity server_named(const std::string& names) {
        return certificates.make({.names = names}, &authority);
    }
};

inline Cast& cast() {
    static Cast all;
    return all;
}

/// Trusts our authority.
inline const Tls& our_tls() {
    static const Tls tls{{.ca_file = cast().authority.certificate_file}};
    return tls;
}

inline ServerTls server_tls(bool asks_clients = false) {
    return {cast().server.certificate_file, cast().server.key_file,
            asks_clients ? cast().authority.certificate_file : ""};
}

/// While it lives, every new server speaks TLS.
class AllServersSpeakTls {
public:
    AllServersSpeakTls() { RedisServer::tls_for_all() = server_tls(); }
    AllServersSpeakTls(const AllServersSpeakTls&) = delete;
    AllServersSpeakTls& operator=(const AllServersSpeakTls&) = delete;
    ~AllServersSpeakTls() { RedisServer::tls_for_all().reset(); }
};

/// The URL with TLS, and time enough for a handshake under a sanitizer.
inline std::string secure_url(const std::string& url) {
    const std::string_view plain = "redis://";
    std::string text = url.starts_with(plain) ? "rediss://" + url.substr(plain.size()) : url;
    return text + (text.find('?') == std::string::npos ? "?" : "&") + "connect_timeout=20s";
}

inline bool has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

/// Every name is this machine.
inline int everybody_is_here(const char*, std::uint16_t port, detail::AddressList& found) {
    return detail::query_addresses("127.0.0.1", port, AI_NUMERICHOST, found);
}

/// A connection whose host need not be in any name service.
inline std::unique_ptr<HiredisConnection> connect_to(Endpoint endpoint) {
    return std::make_unique<HiredisConnection>(std::move(endpoint), system_runtime(),
                                               everybody_is_here);
}
inline std::unique_ptr<HiredisConnection> connect_to(const std::string& url,
                                                     const Tls& tls = our_tls()) {
    return connect_to(tls.endpoint(secure_url(url)));
}

} // namespace leaselock::test
