#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/hiredis/resolver.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>

/// Host names and addresses as text. Pure.
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

inline constexpr std::size_t max_host_size = 253; // RFC 1035

[[nodiscard]] constexpr bool is_host_name(std::string_view host) noexcept {
    for (const char c : host) {
        const bool valid = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
        if (!valid) return false;
    }
    return !host.empty() && host.size() <= max_host_size;
}

/// An IPv6 address, with or without a zone: `fe80::1%eth0`.
[[nodiscard]] inline bool is_ipv6_address(std::string_view host) noexcept {
    const std::size_t percent = host.find('%');
    if (percent != std::string_view::npos && !is_host_name(host.substr(percent + 1))) return false;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const std::string_view address = host.substr(0, percent);
    if (address.size() >= text.size() || host.size() > max_host_size) return false;
    if (address.find('\0') != std::string_view::npos) return false; // inet_pton would end there
    address.copy(text.data(), address.size());
    in6_addr binary{};
    return ::inet_pton(AF_INET6, text.data(), &binary) == 1;
}

/// Whether somebody may be asked to connect there.
[[nodiscard]] inline bool is_address(const ServerAddress& server) noexcept {
    const std::string_view host = server.host.view();
    return server.port != 0 && !server.host.truncated() &&
           (is_host_name(host) || is_ipv6_address(host));
}

/// `host:port` or `[address]:port`; the host is cut, so that a port always follows.
[[nodiscard]] inline ServerText label_of(std::string_view host, std::uint16_t port) noexcept {
    const bool brackets = host.find(':') != std::string_view::npos;
    ServerText text;
    text.append(brackets ? "[" : "").append(host.substr(0, max_host_size));
    std::array<char, 6> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), port).ptr;
    text.append(brackets ? "]:" : ":");
    return text.append({digits.data(), static_cast<std::size_t>(end - digits.data())});
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
