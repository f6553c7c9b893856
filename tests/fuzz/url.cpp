// SPDX-License-Identifier: MIT
//
// URLs: `Endpoint::parse`. What it takes is within its limits, and survives being written out and read
// again; what it refuses leaves the endpoint alone; and no message quotes any part of a URL.
//
// The first byte says where a mark is put into the rest, for the second look: no complaint may show it.

#include "fuzz/fuzz.hpp"

#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/hiredis/endpoint.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace {

using fuzz::check;
using leaselock::Answer;
using leaselock::Endpoint;
using leaselock::Outcome;
using std::chrono::milliseconds;

bool same(const Endpoint& a, const Endpoint& b) {
    return a.host == b.host && a.port == b.port && a.unix_path == b.unix_path && a.user == b.user &&
           a.password == b.password && a.db == b.db && a.connect_timeout == b.connect_timeout &&
           a.keepalive == b.keepalive && a.client_name == b.client_name && a.tls == b.tls &&
           a.resolver == b.resolver && a.security == b.security &&
           a.must_be_master == b.must_be_master;
}

Endpoint unlike_any() {
    Endpoint endpoint;
    endpoint.host = "as.it.was";
    endpoint.port = 1;
    endpoint.password = "as it was";
    endpoint.connect_timeout = milliseconds{77};
    return endpoint;
}

std::string escaped(std::string_view plain) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    std::string text;
    for (const char c : plain) {
        const auto byte = static_cast<unsigned char>(c);
        const bool safe =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (safe || c == '/' || c == ':') {
            text += c;
        } else {
            text.append("%").append(1, digits[byte >> 4U]).append(1, digits[byte & 15U]);
        }
    }
    return text;
}

/// The endpoint as another URL for it.
std::string written(const Endpoint& e) {
    std::string url = e.is_unix() ? "unix://" : e.tls ? "rediss://" : "redis://";
    const auto of_userinfo = [](std::string_view plain) {
        std::string text = escaped(plain);
        for (std::size_t at = text.find_first_of(":/"); at != std::string::npos;
             at = text.find_first_of(":/", at)) {
            text.replace(at, 1, text[at] == ':' ? "%3A" : "%2F");
        }
        return text;
    };
    if (e.needs_auth()) url += of_userinfo(e.user) + ":" + of_userinfo(e.password) + "@";
    if (e.is_unix()) {
        url += escaped(e.unix_path);
    } else {
        const bool v6 = e.host.find(':') != std::string::npos;
        url += v6 ? "[" + escaped(e.host) + "]" : e.host;
        url += ":" + std::to_string(e.port);
    }
    url += "?db=" + std::to_string(e.db);
    url += "&connect_timeout=" + std::to_string(e.connect_timeout.count()) + "ms";
    url += "&keepalive=" + std::to_string(e.keepalive.count()) + "s";
    if (!e.client_name.empty()) url += "&client_name=" + escaped(e.client_name);
    return url;
}

void check_limits(const Endpoint& e) {
    check(e.port >= 1 && e.db >= 0, "port and db within their limits");
    check(e.connect_timeout >= milliseconds{1} && e.connect_timeout <= std::chrono::hours{1},
          "connect_timeout within its limits");
    check(e.keepalive.count() >= 0 && e.keepalive.count() <= 32'767, "keepalive within its limits");
    check(e.client_name.size() <= 64, "client_name within its limits");
    for (const char c : e.client_name) check(c > ' ' && c < 0x7f, "client_name in ASCII");
    for (const std::string* text : {&e.host, &e.unix_path, &e.user, &e.password}) {
        check(text->find('\0') == std::string::npos, "no NUL anywhere");
    }
    if (e.is_unix()) {
        check(e.unix_path.front() == '/' && e.unix_path.size() >= 2 && e.unix_path.size() <= 107,
              "a path of a unix socket");
        check(!e.tls, "no TLS on a unix socket");
    } else {
        check(!e.host.empty() && e.host.size() <= 253, "a host of 1 to 253 bytes");
        check(e.host.find_first_of("/@?# \r\n\t[]") == std::string::npos, "a host without more");
    }
    check(e.check().answer == (e.tls ? Answer::unsent : Answer::yes), "check agrees");
    check(!e.label().truncated(), "its label is whole");
}

Outcome parse(std::string_view url, Endpoint& endpoint) {
    endpoint = unlike_any();
    const Outcome outcome = Endpoint::parse(url, endpoint);
    if (!outcome) {
        check(outcome.answer == Answer::unsent &&
                  outcome.cause == leaselock::errc::invalid_argument,
              "a malformed URL is unsent, invalid_argument");
        check(outcome.text.view().starts_with("endpoint: ") && !outcome.text.truncated(),
              "a malformed URL is told what is wrong");
        check(same(endpoint, unlike_any()), "what is refused leaves the endpoint alone");
    }
    return outcome;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Choices choices{fuzz::as_text(data, std::min<std::size_t>(size, 2048))};
    const std::size_t place = choices.byte();
    const std::string_view url = choices.rest();

    Endpoint endpoint;
    if (parse(url, endpoint)) {
        check_limits(endpoint);
        Endpoint again;
        check(static_cast<bool>(parse(written(endpoint), again)), "written out, it is read again");
        check(same(endpoint, again), "written out and read again, it is the same");
    }

    // nothing that stands in a URL comes back, wherever it stands; a label has host or path alone
    constexpr std::string_view mark = "hUnTeR2";
    std::string marked{url};
    marked.insert(marked.empty() ? 0 : place % (marked.size() + 1), mark);
    const Outcome outcome = parse(marked, endpoint);
    check(outcome.text.view().find(mark) == std::string_view::npos, "no message quotes the URL");
    if (outcome) {
        const std::string_view shown = endpoint.is_unix() ? endpoint.unix_path : endpoint.host;
        check(shown.find(mark) != std::string_view::npos ||
                  endpoint.label().view().find(mark) == std::string_view::npos,
              "a label shows the host or the path alone");
    }
    try {
        (void)Endpoint::from_plain_url(marked);
    } catch (const leaselock::Error& error) {
        check(std::string_view{error.what()}.find(mark) == std::string_view::npos,
              "no exception quotes the URL");
    }
    return 0;
}
