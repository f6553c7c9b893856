#pragma once
// SPDX-License-Identifier: MIT

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstddef>
#include <string>
#include <string_view>

/// Second readings of what the library reads, in the simplest words.
namespace fuzz {

/// Digits, leading zeros too, of a number up to `most`; -1 for anything else.
inline int number_of(std::string_view digits, int most) {
    if (digits.empty()) return -1;
    int value = 0;
    for (const char c : digits) {
        if (c < '0' || c > '9') return -1;
        value = value * 10 + (c - '0');
        if (value > most) return -1;
    }
    return value;
}

/// A host name, or an IPv6 address with or without a zone.
inline bool is_host(const std::string& host) {
    constexpr const char* letters =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    const auto is_name = [&](const std::string& name) {
        return !name.empty() && name.find_first_not_of(letters) == std::string::npos;
    };
    if (host.size() > 253) return false;
    if (is_name(host)) return true;
    const std::size_t zone = host.find('%');
    if (zone != std::string::npos && !is_name(host.substr(zone + 1))) return false;
    const std::string address = host.substr(0, zone);
    in6_addr binary{};
    return address.find('\0') == std::string::npos && address.size() < INET6_ADDRSTRLEN &&
           ::inet_pton(AF_INET6, address.c_str(), &binary) == 1;
}

/// A node of a cluster may not know its own.
inline bool is_node_host(const std::string& host) {
    return host.empty() || host == "?" || is_host(host);
}

} // namespace fuzz
