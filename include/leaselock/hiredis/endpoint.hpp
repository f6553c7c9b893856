#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/hiredis/resolver.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#if LEASELOCK_DEFINES
#include <leaselock/core/error.hpp>
#include <leaselock/hiredis/detail/host.hpp>
#include <leaselock/hiredis/detail/secure_layer.hpp>
#include <leaselock/hiredis/detail/url.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {

class TransportSecurity;

/// Where a Redis is and how to sign in there. Pure: it opens nothing.
///
/// Its password is never part of a message of this library.
struct Endpoint {
    static constexpr std::size_t max_host_size = 253;      ///< RFC 1035
    static constexpr std::size_t max_unix_path_size = 107; ///< `sockaddr_un::sun_path` less its NUL
    static constexpr std::size_t max_client_name_size = 64;
    static constexpr std::chrono::milliseconds max_connect_timeout = std::chrono::hours{1};
    static constexpr std::chrono::seconds max_keepalive{32'767}; ///< of the kernel

    std::string host = "127.0.0.1"; ///< a name, or an IPv4 or IPv6 address without brackets
    std::uint16_t port = 6379;      ///< 1 to 65535
    std::string unix_path{};        ///< if not empty, a unix socket: host and port are not used
    std::string user{};             ///< empty: the server's default user
    std::string password{};         ///< with an empty user too: no AUTH
    std::int32_t db = 0;            ///< 0 is where a connection begins: no SELECT
    /// Until name, connection, handshake and sign-in are done; the call's own deadline counts as well.
    std::chrono::milliseconds connect_timeout{1'000};
    /// TCP: silence until the kernel asks whether the server is there still; a dead one shows after
    /// twice that. 0 for never; at most 32,767 s.
    std::chrono::seconds keepalive{15};
    /// What `CLIENT LIST` calls us: 1 to 64 printable characters without a space; empty for no name.
    /// A server that does not let this user set it is used without.
    std::string client_name{};
    /// Asked at each connect in place of host and port; null for none.
    std::shared_ptr<Resolver> resolver{};
    bool must_be_master = false; ///< each connect makes sure, by INFO; a replica is not used
    bool tls = false;            ///< `rediss://`: never without, whatever the server says
    /// How: from `leaselock::Tls`. `tls` and `security` go together: with one of them alone, an endpoint
    /// is refused.
    std::shared_ptr<const TransportSecurity> security{};

    /// Reads a URL: `redis://[[user]:password@]host[:port][/db][?parameters]`, `valkey://` alike,
    /// `rediss://` and `valkeys://` with TLS, or `unix://[[user]:password@]/path[?parameters]`. In user,
    /// password and path, special characters are percent-encoded: `@:/%` as `%40%3A%2F%25`. Parameters:
    /// `db=1`, `connect_timeout=500ms`, `keepalive=60s`, `client_name=orders-7`, joined by `&`.
    /// @return yes, with `result` set; or unsent, `errc::invalid_argument` and a text that names the
    ///         part and its limit, with `result` as it was. The text never quotes the URL.
    /// @throws std::bad_alloc
    static Outcome parse(std::string_view url, Endpoint& result);

#if LEASELOCK_EXCEPTIONS
    /// `parse` that throws. @throws Error for a malformed URL; std::bad_alloc
    [[nodiscard]] static Endpoint from_url(std::string_view url);
    /// `from_url`, for use as it is. @throws Error also for `rediss://`, which takes a `leaselock::Tls`
    [[nodiscard]] static Endpoint from_plain_url(std::string_view url);
#endif

    /// Whether every field is within its limits; the outcome is as that of `parse`.
    [[nodiscard]] Outcome check() const noexcept;

    /// What messages call it: `127.0.0.1:6379`, `[::1]:6379`, `unix:/run/redis.sock`.
    [[nodiscard]] ServerText label() const noexcept;

    [[nodiscard]] bool is_unix() const noexcept { return !unix_path.empty(); }
    [[nodiscard]] bool needs_auth() const noexcept { return !user.empty() || !password.empty(); }
};

#if LEASELOCK_DEFINES
namespace detail {

inline constexpr std::string_view bad_host =
    "host: 1 to 253 letters, digits, '-', '.' or '_', or an IPv6 address";
inline constexpr std::string_view bad_path = "path of the unix socket: absolute, 2 to 107 bytes";
inline constexpr std::string_view bad_db = "db: a number from 0 to 2147483647";
inline constexpr std::string_view bad_timeout =
    "connect_timeout: from 1ms to 3600s, a whole number and its unit, ms or s";
inline constexpr std::string_view bad_keepalive =
    "keepalive: from 0s to 32767s, a whole number and its unit, s";
inline constexpr std::string_view bad_name =
    "client_name: 1 to 64 printable ASCII characters without a space";
inline constexpr std::string_view no_security =
    "TLS (rediss://) needs leaselock::Tls, in leaselock/hiredis/tls.hpp, target leaselock::tls";
inline constexpr std::string_view plain_text =
    "security is set, and the URL is one without TLS: rediss://host:port has it";

static_assert(Endpoint::max_host_size == max_host_size);

[[nodiscard]] inline bool is_client_name(std::string_view name) noexcept {
    return name.size() <= Endpoint::max_client_name_size &&
           std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

/// What is wrong with an endpoint's fields, or empty.
[[nodiscard]] inline std::string_view complaint_about(const Endpoint& e) noexcept {
    if (e.is_unix()) {
        if (e.resolver != nullptr) return "resolver: it names hosts, there can be no unix socket";
        if (e.unix_path.front() != '/' || e.unix_path.size() < 2 ||
            e.unix_path.size() > Endpoint::max_unix_path_size ||
            e.unix_path.find('\0') != std::string::npos) {
            return bad_path;
        }
    } else {
        if (!is_host_name(e.host) && !is_ipv6_address(e.host)) return bad_host;
        if (e.port == 0) return "port: a number from 1 to 65535";
    }
    if (e.db < 0) return bad_db;
    if (e.connect_timeout.count() < 1 || e.connect_timeout > Endpoint::max_connect_timeout) {
        return bad_timeout;
    }
    if (e.keepalive.count() < 0 || e.keepalive > Endpoint::max_keepalive) return bad_keepalive;
    if (!is_client_name(e.client_name)) return bad_name;
    if (e.tls && e.is_unix()) return "tls: not on a unix socket";
    return {};
}

[[nodiscard]] inline std::string_view set_db(std::string_view digits, Endpoint& e) noexcept {
    long long number = 0;
    if (!parse_number(digits, 0, INT32_MAX, number)) return bad_db;
    e.db = static_cast<std::int32_t>(number);
    return {};
}

[[nodiscard]] inline std::string_view set_timeout(std::string_view text, Endpoint& e) noexcept {
    const bool millis = text.ends_with("ms");
    if (!millis && !text.ends_with('s')) return bad_timeout;
    text.remove_suffix(millis ? 2 : 1);
    const std::chrono::milliseconds unit =
        millis ? std::chrono::milliseconds{1} : std::chrono::seconds{1};
    long long number = 0;
    if (!parse_number(text, 1, Endpoint::max_connect_timeout / unit, number)) return bad_timeout;
    e.connect_timeout = number * unit;
    return {};
}

[[nodiscard]] inline std::string_view set_keepalive(std::string_view text, Endpoint& e) noexcept {
    long long number = 0;
    if (!text.ends_with('s')) return bad_keepalive;
    text.remove_suffix(1);
    if (!parse_number(text, 0, Endpoint::max_keepalive.count(), number)) return bad_keepalive;
    e.keepalive = std::chrono::seconds{number};
    return {};
}

[[nodiscard]] inline std::string_view set_client_name(std::string_view text, Endpoint& e) {
    const std::string_view complaint = unescape(text, e.client_name);
    return complaint.empty() && text.empty() ? bad_name : complaint;
}

/// What may follow a URL's `?`, each once. `twice` is what is said of a second one.
struct UrlParameter {
    std::string_view name;
    std::string_view twice;
    std::string_view (*set)(std::string_view value, Endpoint& e);
};
inline constexpr UrlParameter url_parameters[] = {
    {"db", "db: given twice", set_db},
    {"connect_timeout", "connect_timeout: given twice", set_timeout},
    {"keepalive", "keepalive: given twice", set_keepalive},
    {"client_name", "client_name: given twice", set_client_name},
};

/// `db=1&connect_timeout=2s`
[[nodiscard]] inline std::string_view set_parameters(std::string_view query, bool has_db,
                                                     Endpoint& e) {
    std::array<bool, std::size(url_parameters)> given{has_db};
    for (bool last = false; !last;) {
        const std::size_t end = query.find('&');
        last = end == std::string_view::npos;
        const std::string_view parameter = query.substr(0, end);
        if (!last) query.remove_prefix(end + 1);

        const std::size_t equals = parameter.find('=');
        const std::string_view name = parameter.substr(0, equals);
        const std::string_view value =
            equals == std::string_view::npos ? std::string_view{} : parameter.substr(equals + 1);
        std::string_view complaint =
            "unknown parameter: there are db, connect_timeout, keepalive and client_name";
        for (std::size_t i = 0; i < given.size(); ++i) {
            if (name != url_parameters[i].name) continue;
            complaint = given[i] ? url_parameters[i].twice : url_parameters[i].set(value, e);
            given[i] = true;
        }
        if (!complaint.empty()) return complaint;
    }
    return {};
}

/// Host, port and db of a `redis://` URL.
[[nodiscard]] inline std::string_view set_tcp(const Url& url, Endpoint& e, bool& has_db) {
    if (url.host.empty()) return "host: missing";
    if (url.bracketed) {
        const std::string_view complaint = unescape(url.host, e.host); // a zone: %25eth0
        if (!complaint.empty()) return complaint;
        if (!is_ipv6_address(e.host)) return "host: in brackets there has to be an IPv6 address";
    } else {
        e.host = url.host;
        if (!is_host_name(e.host)) return bad_host;
    }
    if (url.has_port) {
        long long number = 0;
        if (!parse_number(url.port, 1, 65'535, number)) return "port: a number from 1 to 65535";
        e.port = static_cast<std::uint16_t>(number);
    }
    has_db = url.path.size() > 1;
    return has_db ? set_db(url.path.substr(1), e) : std::string_view{};
}

[[nodiscard]] inline std::string_view set_unix(const Url& url, Endpoint& e) {
    if (!url.host.empty() || url.has_port || url.bracketed) return bad_path;
    const std::string_view complaint = unescape(url.path, e.unix_path);
    return complaint.empty() && e.unix_path.empty() ? bad_path : complaint;
}

[[nodiscard]] inline std::string_view parse_endpoint(std::string_view text, Endpoint& e) {
    Url url;
    if (const auto complaint = split_url(text, url); !complaint.empty()) return complaint;
    const auto scheme_is = [&](std::string_view s) { return equal_ignoring_case(url.scheme, s); };
    bool has_db = false;
    std::string_view complaint;
    e.tls = scheme_is("rediss") || scheme_is("valkeys");
    if (e.tls || scheme_is("redis") || scheme_is("valkey")) {
        complaint = set_tcp(url, e, has_db);
    } else if (scheme_is("unix")) {
        complaint = set_unix(url, e);
    } else {
        return "unknown scheme: redis://, rediss:// or unix://";
    }
    if (complaint.empty() && url.has_userinfo) complaint = unescape(url.user, e.user);
    if (complaint.empty() && url.has_userinfo) complaint = unescape(url.password, e.password);
    if (complaint.empty() && url.has_query) complaint = set_parameters(url.query, has_db, e);
    return complaint.empty() ? complaint_about(e) : complaint;
}

[[nodiscard]] inline Outcome endpoint_outcome(std::string_view complaint) noexcept {
    if (complaint.empty()) return {Answer::yes};
    Outcome outcome{Answer::unsent, errc::invalid_argument, "endpoint: "};
    outcome.text.append(complaint);
    return outcome;
}

} // namespace detail

LEASELOCK_INLINE Outcome Endpoint::parse(std::string_view url, Endpoint& result) {
    Endpoint parsed;
    Outcome outcome = detail::endpoint_outcome(detail::parse_endpoint(url, parsed));
    if (outcome) result = std::move(parsed);
    return outcome;
}

#if LEASELOCK_EXCEPTIONS
LEASELOCK_INLINE Endpoint Endpoint::from_url(std::string_view url) {
    Endpoint endpoint;
    if (const Outcome outcome = parse(url, endpoint); !outcome) {
        throw Error{outcome, "read", "the URL of the server"};
    }
    return endpoint;
}

LEASELOCK_INLINE Endpoint Endpoint::from_plain_url(std::string_view url) {
    Endpoint endpoint = from_url(url);
    if (const Outcome outcome = endpoint.check(); !outcome) {
        throw Error{outcome, "use", "the URL of the server"};
    }
    return endpoint;
}

namespace detail {

template <class Text>
[[nodiscard]] std::vector<Endpoint> read_urls(const std::vector<Text>& urls) {
    std::vector<Endpoint> endpoints;
    endpoints.reserve(urls.size());
    for (const std::string_view url : urls) endpoints.push_back(Endpoint::from_url(url));
    return endpoints;
}

} // namespace detail
#endif

LEASELOCK_INLINE Outcome Endpoint::check() const noexcept {
    std::string_view complaint = detail::complaint_about(*this);
    if (complaint.empty() && tls && security == nullptr) complaint = detail::no_security;
    if (complaint.empty() && !tls && security != nullptr) complaint = detail::plain_text;
    return detail::endpoint_outcome(complaint);
}

LEASELOCK_INLINE ServerText Endpoint::label() const noexcept {
    if (is_unix()) return ServerText{"unix:"}.append(unix_path);
    return detail::label_of(host, port);
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
