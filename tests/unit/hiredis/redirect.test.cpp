// SPDX-License-Identifier: MIT
#include <leaselock/hiredis/detail/redirect.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace leaselock::test {
namespace {

using detail::parse_redirect;
using detail::Redirect;

struct Line {
    std::string_view text;
    Redirect::Kind kind;
    std::uint16_t slot;
    std::string_view host;
    std::uint16_t port;
};

constexpr Line lines[] = {
    {"MOVED 3999 127.0.0.1:6381", Redirect::moved, 3999, "127.0.0.1", 6381},
    {"ASK 3999 127.0.0.1:6381", Redirect::ask, 3999, "127.0.0.1", 6381},
    {"MOVED 0 a:1", Redirect::moved, 0, "a", 1},
    {"MOVED 16383 redis-3.example.org:65535", Redirect::moved, 16383, "redis-3.example.org", 65535},
    // the last colon splits
    {"MOVED 1 ::1:6381", Redirect::moved, 1, "::1", 6381},
    {"ASK 1 fe80::1%eth0:7", Redirect::ask, 1, "fe80::1%eth0", 7},
    {"MOVED 1 2001:db8::ff00:42:8329:6379", Redirect::moved, 1, "2001:db8::ff00:42:8329", 6379},
    // the host is that of the node that says so
    {"MOVED 1 :6381", Redirect::moved, 1, "", 6381},
    {"ASK 1 ?:6381", Redirect::ask, 1, "", 6381},
};

TEST(Redirect, IsTakenApart) {
    for (const Line& line : lines) {
        const Redirect found = parse_redirect(line.text);
        EXPECT_EQ(found.kind, line.kind) << line.text;
        EXPECT_EQ(found.slot, line.slot) << line.text;
        EXPECT_EQ(found.host, line.host) << line.text;
        EXPECT_EQ(found.port, line.port) << line.text;
    }
}

TEST(Redirect, MayHaveTheLongestHost) {
    const std::string host(253, 'h');
    const Redirect found = parse_redirect("MOVED 16383 " + host + ":65535");
    EXPECT_EQ(found.kind, Redirect::moved);
    EXPECT_EQ(found.host.size(), 253U);
    EXPECT_EQ(parse_redirect("MOVED 16383 " + host + "h:65535").kind, Redirect::none);
}

TEST(Redirect, OfNonsenseLeadsNowhere) {
    const std::string_view nonsense[] = {"",
                                         "MOVED",
                                         "MOVED ",
                                         "MOVED 1",
                                         "MOVED 1 ",
                                         "MOVED  1 a:1",
                                         "MOVED 1 a",
                                         "MOVED 1 a:",
                                         "MOVED 1 a:0",
                                         "MOVED 1 a:65536",
                                         "MOVED 1 a:-1",
                                         "MOVED 1 a:+1",
                                         "MOVED 1 a:1x",
                                         "MOVED 1 a:99999999999999999999",
                                         "MOVED 1 a:1 b",
                                         "MOVED -1 a:1",
                                         "MOVED 16384 a:1",
                                         "MOVED 99999999999999999999 a:1",
                                         "MOVED x a:1",
                                         "MOVED 1 a b:1",
                                         "MOVED 1 [::1]:1",
                                         "MOVED 1 a:b:1",
                                         "MOVED 1 ../x:1",
                                         {"MOVED 1 ::\0:1", 13}, // inet_pton reads up to a NUL
                                         "MOVED 1 %s:1",
                                         "moved 1 a:1",
                                         "MOVEDX 1 a:1",
                                         "ASKING 1 a:1",
                                         "ERR MOVED 1 a:1",
                                         "TRYAGAIN Multiple keys request during rehashing of slot"};
    for (const std::string_view line : nonsense) {
        EXPECT_EQ(parse_redirect(line).kind, Redirect::none) << line;
    }
    const std::string_view with_nul{"MOVED 1 a\0:1", 12};
    EXPECT_EQ(parse_redirect(with_nul).kind, Redirect::none);
}

} // namespace
} // namespace leaselock::test
