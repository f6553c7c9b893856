// SPDX-License-Identifier: MIT

#include <leaselock/hiredis/endpoint.hpp>

#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace leaselock::test {
namespace {

using namespace std::chrono_literals;
using namespace std::string_view_literals;
using ::testing::HasSubstr;
using ::testing::Not;

struct Good {
    std::string_view url;
    Endpoint expected;
    std::string_view label;
};

void PrintTo(const Good& good, std::ostream* out) { *out << good.url; }

class GoodUrl : public ::testing::TestWithParam<Good> {};

TEST_P(GoodUrl, IsRead) {
    const auto& [url, expected, label] = GetParam();
    Endpoint e;
    const Outcome outcome = Endpoint::parse(url, e);
    ASSERT_EQ(outcome.answer, Answer::yes) << outcome.text.view();
    EXPECT_FALSE(outcome.cause);
    EXPECT_EQ(e.host, expected.host);
    EXPECT_EQ(e.port, expected.port);
    EXPECT_EQ(e.unix_path, expected.unix_path);
    EXPECT_EQ(e.user, expected.user);
    EXPECT_EQ(e.password, expected.password);
    EXPECT_EQ(e.db, expected.db);
    EXPECT_EQ(e.connect_timeout, expected.connect_timeout);
    EXPECT_EQ(e.keepalive, expected.keepalive);
    EXPECT_EQ(e.client_name, expected.client_name);
    EXPECT_EQ(e.tls, expected.tls);
    EXPECT_EQ(e.label().view(), label);
    EXPECT_EQ(static_cast<bool>(e.check()), !e.tls); // nobody has said how
}

INSTANTIATE_TEST_SUITE_P(
    Table, GoodUrl,
    ::testing::Values(
        Good{"redis://127.0.0.1:6379", {}, "127.0.0.1:6379"},
        Good{"redis://redis", {.host = "redis"}, "redis:6379"},
        Good{"REDIS://Redis-1.example_x", {.host = "Redis-1.example_x"}, "Redis-1.example_x:6379"},
        Good{"valkey://h:1", {.host = "h", .port = 1}, "h:1"},
        Good{"redis://h:65535/", {.host = "h", .port = 65535}, "h:65535"},
        Good{"redis://h/0", {.host = "h"}, "h:6379"},
        Good{"redis://h/15", {.host = "h", .db = 15}, "h:6379"},
        Good{"redis://h/2147483647", {.host = "h", .db = 2147483647}, "h:6379"},
        Good{"redis://h?db=3", {.host = "h", .db = 3}, "h:6379"},
        Good{"redis://h/?db=3", {.host = "h", .db = 3}, "h:6379"},
        Good{"redis://[::1]", {.host = "::1"}, "[::1]:6379"},
        Good{"redis://u:p@[2001:db8::7]:7000/2",
             {.host = "2001:db8::7", .port = 7000, .user = "u", .password = "p", .db = 2},
             "[2001:db8::7]:7000"},
        Good{"redis://[fe80::1%25eth0]", {.host = "fe80::1%eth0"}, "[fe80::1%eth0]:6379"},
        Good{"redis://:secret@h", {.host = "h", .password = "secret"}, "h:6379"},
        Good{"redis://worker:secret@h",
             {.host = "h", .user = "worker", .password = "secret"},
             "h:6379"},
        Good{"redis://worker:@h", {.host = "h", .user = "worker"}, "h:6379"},
        Good{"redis://:@h", {.host = "h"}, "h:6379"},
        Good{"redis://:a:b@h", {.host = "h", .password = "a:b"}, "h:6379"},
        Good{"redis://w%40x:p%40%3A%2F%25%3f%23%20%0a%FF@h",
             {.host = "h", .user = "w@x", .password = "p@:/%?# \n\xff"},
             "h:6379"},
        Good{"redis://h?connect_timeout=250ms", {.host = "h", .connect_timeout = 250ms}, "h:6379"},
        Good{"redis://h/1?connect_timeout=2s",
             {.host = "h", .db = 1, .connect_timeout = 2s},
             "h:6379"},
        Good{"redis://h?connect_timeout=3600s&db=1",
             {.host = "h", .db = 1, .connect_timeout = 1h},
             "h:6379"},
        Good{"redis://h?keepalive=0s", {.host = "h", .keepalive = 0s}, "h:6379"},
        Good{"redis://h?keepalive=32767s", {.host = "h", .keepalive = 32'767s}, "h:6379"},
        Good{"redis://h?client_name=orders-7%40eu",
             {.host = "h", .client_name = "orders-7@eu"},
             "h:6379"},
        Good{"rediss://:p@h:6380/1",
             {.host = "h", .port = 6380, .password = "p", .db = 1, .tls = true},
             "h:6380"},
        Good{"valkeys://h", {.host = "h", .tls = true}, "h:6379"},
        Good{"unix:///run/redis.sock", {.unix_path = "/run/redis.sock"}, "unix:/run/redis.sock"},
        Good{"unix://u:p@/run/a%20b%40.sock?db=1",
             {.unix_path = "/run/a b@.sock", .user = "u", .password = "p", .db = 1},
             "unix:/run/a b@.sock"}));

struct Bad {
    std::string url;
    std::string_view says;
};

void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.url; }

class BadUrl : public ::testing::TestWithParam<Bad> {};

TEST_P(BadUrl, IsRefusedWithItsReason) {
    Endpoint e{.host = "untouched"};
    const Outcome outcome = Endpoint::parse(GetParam().url, e);
    EXPECT_EQ(outcome.answer, Answer::unsent);
    EXPECT_EQ(outcome.cause, errc::invalid_argument);
    EXPECT_THAT(std::string{outcome.text.view()}, HasSubstr(std::string{GetParam().says}));
    EXPECT_FALSE(outcome.text.truncated());
    EXPECT_EQ(e.host, "untouched");
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadUrl,
    ::testing::Values(
        Bad{"", "no scheme"}, Bad{"127.0.0.1:6379", "no scheme"}, Bad{"redis:/h", "no scheme"},
        Bad{"://h", "unknown scheme"}, Bad{"http://h", "unknown scheme"},
        Bad{"redis+unix:///run/r.sock", "unknown scheme"},
        // host
        Bad{"redis://", "host: missing"}, Bad{"redis://:6379", "host: missing"},
        Bad{"redis:///0", "host: missing"}, Bad{"redis://u:p@/0", "host: missing"},
        Bad{"redis://h%41", "host: 1 to 253"}, Bad{"redis://h%00", "host: 1 to 253"},
        Bad{"redis://h\"x", "host: 1 to 253"},
        Bad{"redis://" + std::string(254, 'h'), "host: 1 to 253"},
        Bad{"redis://::1", "an IPv6 address needs brackets"}, Bad{"redis://[::1", "without ']'"},
        Bad{"redis://[]", "host: missing"}, Bad{"redis://[h]", "IPv6"},
        Bad{"redis://[1.2.3.4]", "IPv6"}, Bad{"redis://[::1]x", "only a port"},
        Bad{"redis://[fe80::1%eth0]", "two hex digits"}, Bad{"redis://[fe80::1%25]", "IPv6"},
        // port
        Bad{"redis://h:", "port: a number from 1 to 65535"}, Bad{"redis://h:0", "65535"},
        Bad{"redis://h:65536", "65535"}, Bad{"redis://h:-1", "65535"}, Bad{"redis://h:+1", "65535"},
        Bad{"redis://h:6379x", "65535"}, Bad{"redis://h:0x10", "65535"},
        Bad{"redis://h: 1", "spaces"}, Bad{"redis://h:99999999999999999999", "65535"},
        Bad{"redis://[::1]:", "65535"},
        // db
        Bad{"redis://h/x", "db: a number from 0 to 2147483647"}, Bad{"redis://h/-1", "db:"},
        Bad{"redis://h/2147483648", "db:"}, Bad{"redis://h/1/", "db:"}, Bad{"redis://h?db=", "db:"},
        Bad{"redis://h/1?db=1", "given twice"}, Bad{"redis://h?db=1&db=1", "given twice"},
        // parameters
        Bad{"redis://h?", "unknown parameter"}, Bad{"redis://h?db=1&", "unknown parameter"},
        Bad{"redis://h?DB=1", "unknown parameter"},
        Bad{"redis://h?timeout=1s", "unknown parameter"},
        Bad{"redis://h?connect_timeout", "connect_timeout: from 1ms"},
        Bad{"redis://h?connect_timeout=5", "its unit"}, Bad{"redis://h?connect_timeout=0ms", "1ms"},
        Bad{"redis://h?connect_timeout=3601s", "3600s"}, Bad{"redis://h?connect_timeout=ms", "1ms"},
        Bad{"redis://h?connect_timeout=1.5s", "a whole number"},
        Bad{"redis://h?connect_timeout=3600001ms", "3600s"},
        Bad{"redis://h?connect_timeout=1s&connect_timeout=1s", "given twice"},
        Bad{"redis://h?keepalive=1", "its unit, s"}, Bad{"redis://h?keepalive=-1s", "from 0s"},
        Bad{"redis://h?keepalive=32768s", "to 32767s"}, Bad{"redis://h?keepalive=5ms", "keepalive"},
        Bad{"redis://h?keepalive=5s&keepalive=5s", "given twice"},
        Bad{"redis://h?client_name=", "client_name: 1 to 64"},
        Bad{"redis://h?client_name", "client_name: 1 to 64"},
        Bad{"redis://h?client_name=a%20b", "without a space"},
        Bad{"redis://h?client_name=%ff", "printable"},
        Bad{"redis://h?client_name=%7f", "printable"},
        Bad{"redis://h?client_name=" + std::string(65, 'n'), "1 to 64"},
        Bad{"redis://h?client_name=a&client_name=a", "given twice"},
        // user and password
        Bad{"redis://secret@h", "user without password"},
        Bad{"redis://@h", "user without password"}, Bad{"redis://:sec@ret@h", "%40"},
        Bad{"redis://:sec/ret@h", "%2F"}, Bad{"redis://:sec?ret@h", "%3F"},
        Bad{"redis://:sec#ret@h", "%23"}, Bad{"redis://:sec%ret@h", "two hex digits"},
        Bad{"redis://:secret%@h", "two hex digits"}, Bad{"redis://:secret%2@h", "two hex digits"},
        Bad{"redis://:secret%2g@h", "two hex digits"}, Bad{"redis://:secret%00@h", "%00"},
        Bad{"redis://se%00cret:p@h", "%00"}, Bad{"redis://:sec ret@h", "percent-encoded"},
        Bad{"redis://:sec\nret@h", "percent-encoded"},
        Bad{"redis://:sec\x7fret@h", "percent-encoded"},
        Bad{std::string{"redis://h\0x"sv}, "percent-encoded"}, Bad{"redis://h#f", "fragment"},
        // unix
        Bad{"unix://", "absolute"}, Bad{"unix:///", "absolute"},
        Bad{"unix://run/r.sock", "absolute"}, Bad{"unix:///" + std::string(107, 'p'), "2 to 107"},
        Bad{"unix:///a%00b", "%00"}, Bad{"unix://:1/x", "absolute"},
        Bad{"unix:///x?port=1", "unknown parameter"}));

TEST(Endpoint, TlsWithoutItsMeansIsRefusedAndSaysWhereTheyAre) {
    const Outcome outcome = Endpoint{.tls = true}.check();
    EXPECT_EQ(outcome.cause, errc::invalid_argument);
    EXPECT_THAT(std::string{outcome.text.view()}, HasSubstr("leaselock/hiredis/tls.hpp"));
    EXPECT_FALSE(outcome.text.truncated());
}

/// Escaping is easily forgotten, and then the password is somewhere else in the URL.
TEST(Endpoint, MessagesNeverQuoteTheUrl) {
    const std::string places[] = {
        "secret",           "secret://h",         "redis://secret@h",    "redis://:secret@h:x",
        "redis://:secret",  "redis://h:secret",   "redis://h/secret@x",  "redis://:x/secret@h",
        "redis://h?secret", "redis://h?secret=1", "redis://h?db=secret", "redis://[secret]",
        "redis://:secret%", "unix://secret/x",    "redis://:secret@@h",  "redis://secret secret@h",
    };
    for (const std::string& url : places) {
        Endpoint e;
        const Outcome outcome = Endpoint::parse(url, e);
        EXPECT_EQ(outcome.answer, Answer::unsent) << url;
        EXPECT_FALSE(outcome.text.empty());
        EXPECT_THAT(std::string{outcome.text.view()}, Not(HasSubstr("secret"))) << url;
    }
}

/// Half of it would be plain text that looks secure.
TEST(Endpoint, TlsAndItsSecurityGoTogether) {
    struct Security final : TransportSecurity {
        [[nodiscard]] std::unique_ptr<detail::SecureLayer>
        secure(int, std::string_view, std::error_code&) const noexcept override {
            return nullptr;
        }
    };
    const auto security = std::make_shared<const Security>();
    EXPECT_TRUE((Endpoint{.tls = true, .security = security}.check()));
    EXPECT_THAT(std::string{Endpoint{.tls = true}.check().text.view()},
                HasSubstr("leaselock/hiredis/tls.hpp, target leaselock::tls"));
    const Outcome plain = Endpoint{.security = security}.check();
    EXPECT_EQ(plain.cause, errc::invalid_argument);
    EXPECT_THAT(std::string{plain.text.view()}, HasSubstr("rediss://"));
}

TEST(Endpoint, LabelHasNeitherUserNorPassword) {
    const Endpoint e{.host = "h", .user = "worker", .password = "secret"};
    EXPECT_EQ(e.label().view(), "h:6379");
}

TEST(Endpoint, LabelOfTheLongestHostKeepsItsPort) {
    const Endpoint e{.host = std::string(Endpoint::max_host_size, 'h')};
    EXPECT_TRUE(e.label().view().ends_with("h:6379"));
    EXPECT_FALSE(e.label().truncated());
}

TEST(Endpoint, FieldsAreCheckedAsTheUrlIs) {
    const std::vector<Endpoint> bad{
        {.host = ""},
        {.host = std::string(254, 'h')},
        {.host = std::string{"h\0x"sv}},
        {.host = "[::1]"},
        {.port = 0},
        {.unix_path = "relative"},
        {.unix_path = "/" + std::string(107, 'p')},
        {.unix_path = std::string{"/a\0b"sv}},
        {.db = -1},
        {.connect_timeout = 0ms},
        {.connect_timeout = -1ms},
        {.connect_timeout = 3'600'001ms},
        {.keepalive = -1s},
        {.keepalive = 32'768s},
        {.client_name = "a b"},
        {.client_name = std::string(65, 'n')},
        {.unix_path = "/run/r.sock", .tls = true},
    };
    for (const Endpoint& e : bad) {
        const Outcome outcome = e.check();
        EXPECT_EQ(outcome.answer, Answer::unsent) << e.label().view();
        EXPECT_EQ(outcome.cause, errc::invalid_argument);
        EXPECT_THAT(std::string{outcome.text.view()}, HasSubstr("endpoint: "));
    }
    EXPECT_TRUE((Endpoint{.user = "any %thing", .password = std::string{"\0\xff"sv}}.check()));
}

} // namespace
} // namespace leaselock::test
