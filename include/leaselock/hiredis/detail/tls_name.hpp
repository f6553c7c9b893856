#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/fixed_text.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// Whom a certificate has to be for.
struct TlsName {
    FixedText<253> text{};
    bool is_address =
        false; ///< the certificate has to list the address; it is never asked for by SNI
};

/// @param host as in an `Endpoint`. A zone belongs to this machine and a final dot to the name
/// service: neither is part of the name. Source: RFC 6066, section 3; RFC 9525, section 6.
[[nodiscard]] inline TlsName tls_name(std::string_view host) noexcept {
    TlsName name;
    name.text = host.substr(0, host.find('%'));
    std::array<char, decltype(name.text)::capacity() + 1> terminated{};
    name.text.view().copy(terminated.data(), name.text.size());
    in6_addr binary{};
    name.is_address = ::inet_pton(AF_INET, terminated.data(), &binary) == 1 ||
                      ::inet_pton(AF_INET6, terminated.data(), &binary) == 1;
    if (!name.is_address && host.ends_with('.')) name.text = host.substr(0, host.size() - 1);
    return name;
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
