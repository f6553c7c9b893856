#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/hiredis/detail/host.hpp>
#include <leaselock/hiredis/detail/url.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/redis/key.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

/// Where one node of a cluster sends its clients: pure.
/// Source: redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec, "Redirection and resharding".
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// The host of a node, as nodes tell it; empty, or `?`, where they do not know: then it is that of the
/// node that was asked.
[[nodiscard]] constexpr bool is_unknown_host(std::string_view host) noexcept {
    return host.empty() || host == "?";
}
[[nodiscard]] inline bool is_node_host(std::string_view host) noexcept {
    return is_unknown_host(host) || is_host_name(host) || is_ipv6_address(host);
}

/// `MOVED slot host:port` or `ASK slot host:port`, taken apart; it refers to the line.
struct Redirect {
    enum Kind : std::uint8_t {
        none,  ///< any other line, or one that leads nowhere
        moved, ///< for good
        ask,   ///< for the next command alone, behind ASKING
    };

    Kind kind = none;
    std::uint16_t slot = 0;
    std::string_view host{}; ///< without brackets, also of an IPv6 address; empty: unknown
    std::uint16_t port = 0;
};

[[nodiscard]] inline Redirect parse_redirect(std::string_view line) noexcept {
    Redirect found;
    if (line.starts_with("MOVED ")) {
        found.kind = Redirect::moved;
        line.remove_prefix(6);
    } else if (line.starts_with("ASK ")) {
        found.kind = Redirect::ask;
        line.remove_prefix(4);
    } else {
        return {};
    }
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) return {};
    long long slot = 0;
    if (!parse_number(line.substr(0, space), 0, hash_slots - 1, slot)) return {};
    line.remove_prefix(space + 1);

    const std::size_t colon = line.rfind(':'); // the address may hold others
    if (colon == std::string_view::npos) return {};
    long long port = 0;
    if (!parse_number(line.substr(colon + 1), 1, 65'535, port)) return {};
    const std::string_view host = line.substr(0, colon);
    if (!is_node_host(host)) return {};
    found.slot = static_cast<std::uint16_t>(slot);
    found.port = static_cast<std::uint16_t>(port);
    if (!is_unknown_host(host)) found.host = host;
    return found;
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
