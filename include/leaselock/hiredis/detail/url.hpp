#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

/// Taking URLs apart: pure. Source: RFC 3986, sections 2.1 and 3.
///
/// Complaints are returned, empty when there is none. They never quote the URL: a password whose
/// special characters were not escaped may have slipped into any of its parts.
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// The parts of a URL, still escaped; they refer to its text.
struct Url {
    std::string_view scheme;
    std::string_view user;
    std::string_view password;
    std::string_view host; ///< without brackets
    std::string_view port;
    std::string_view path; ///< with its `/`
    std::string_view query;
    bool has_userinfo = false;
    bool has_port = false;
    bool has_query = false;
    bool bracketed = false;
};

[[nodiscard]] constexpr bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const auto lower = [](char c) {
            return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
        };
        if (lower(a[i]) != lower(b[i])) return false;
    }
    return true;
}

/// A number from `least` to `most`, digits only.
[[nodiscard]] inline bool parse_number(std::string_view digits, long long least, long long most,
                                       long long& value) noexcept {
    if (digits.empty() || digits.front() < '0' || digits.front() > '9') return false;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    return error == std::errc{} && stop == end && value >= least && value <= most;
}

[[nodiscard]] constexpr int hex_value(char c) noexcept {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/// Undoes percent-encoding. NUL is refused: no host, path or password holds one.
[[nodiscard]] inline std::string_view unescape(std::string_view text, std::string& plain) {
    plain.clear();
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            plain.push_back(text[i]);
            continue;
        }
        const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
        const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
        if (high < 0 || low < 0)
            return "'%' has to be followed by two hex digits ('%' itself is %25)";
        const int byte = high * 16 + low;
        if (byte == 0) return "%00 is not allowed";
        plain.push_back(static_cast<char>(byte));
        i += 2;
    }
    return {};
}

/// `user:password` as far as the last `@`; the first `:` splits it.
[[nodiscard]] constexpr std::string_view split_userinfo(std::string_view info, Url& url) noexcept {
    url.has_userinfo = true;
    if (info.find('@') != std::string_view::npos) {
        return "more than one '@': in user and password it is written %40";
    }
    const std::size_t colon = info.find(':');
    if (colon == std::string_view::npos) {
        return "user without password: user:password@ or :password@";
    }
    url.user = info.substr(0, colon);
    url.password = info.substr(colon + 1);
    return {};
}

/// `host`, `host:port` or `[address]:port`.
[[nodiscard]] constexpr std::string_view split_host(std::string_view text, Url& url) noexcept {
    std::string_view behind;
    if (text.starts_with('[')) {
        const std::size_t close = text.find(']');
        if (close == std::string_view::npos) return "'[' without ']' around an IPv6 address";
        url.bracketed = true;
        url.host = text.substr(1, close - 1);
        behind = text.substr(close + 1);
        if (!behind.empty() && behind.front() != ':') return "only a port may follow ']'";
    } else {
        const std::size_t colon = text.find(':');
        url.host = text.substr(0, colon);
        if (colon != std::string_view::npos) behind = text.substr(colon);
        if (behind.find(':', 1) != std::string_view::npos) {
            return "more than one ':' in host and port: an IPv6 address needs brackets, and in "
                   "user "
                   "and password '@' is written %40";
        }
    }
    url.has_port = !behind.empty();
    if (url.has_port) url.port = behind.substr(1);
    return {};
}

/// Splits `scheme://user:password@host:port/path?query`.
[[nodiscard]] constexpr std::string_view split_url(std::string_view text, Url& url) noexcept {
    for (const char c : text) {
        if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) {
            return "spaces and control characters have to be percent-encoded";
        }
        if (c == '#') return "no fragment is allowed ('#' itself is %23)";
    }
    const std::size_t scheme = text.find("://");
    if (scheme == std::string_view::npos) return "no scheme: redis://host:port or unix:///path";
    url.scheme = text.substr(0, scheme);
    text.remove_prefix(scheme + 3);

    std::string_view authority = text.substr(0, text.find_first_of("/?"));
    text.remove_prefix(authority.size());
    if (text.find('@') != std::string_view::npos) {
        return "'@' behind the host: in user and password '/' is written %2F, '?' %3F and '@' %40";
    }
    url.path = text.substr(0, text.find('?'));
    text.remove_prefix(url.path.size());
    url.has_query = !text.empty();
    if (url.has_query) url.query = text.substr(1);

    if (const std::size_t at = authority.rfind('@'); at != std::string_view::npos) {
        const std::string_view complaint = split_userinfo(authority.substr(0, at), url);
        if (!complaint.empty()) return complaint;
        authority.remove_prefix(at + 1);
    }
    return split_host(authority, url);
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
