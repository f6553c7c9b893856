#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/hiredis/endpoint.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

/// Where to begin with a cluster: pure.
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// Whether two endpoints differ in nothing but host and port.
[[nodiscard]] inline bool alike(const Endpoint& a, const Endpoint& b) noexcept {
    return a.user == b.user && a.password == b.password && a.db == b.db &&
           a.connect_timeout == b.connect_timeout && a.keepalive == b.keepalive &&
           a.client_name == b.client_name && a.must_be_master == b.must_be_master &&
           a.tls == b.tls && a.security == b.security;
}

/// Whether a cluster can be reached by these.
/// @return yes; or unsent, `errc::invalid_argument`, and a text that names what is wrong
[[nodiscard]] inline Outcome check_seeds(std::span<const Endpoint> seeds) noexcept {
    const auto flaw = [](std::string_view text) {
        return Outcome{Answer::unsent, errc::invalid_argument, text};
    };
    if (seeds.empty()) return flaw("seeds: at least one");
    for (const Endpoint& seed : seeds) {
        if (Outcome outcome = seed.check(); !outcome) return outcome;
        if (seed.is_unix())
            return flaw("seeds: no unix socket, nodes name each other by host and port");
        if (seed.resolver != nullptr)
            return flaw("seeds: no resolver, the cluster says where its nodes are");
        if (seed.db != 0) return flaw("seeds: a cluster has no other db than 0");
        if (!alike(seed, seeds.front())) {
            return flaw(
                "seeds: all but host and port has to be the same, for it holds for every node");
        }
    }
    return {Answer::yes};
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
