// SPDX-License-Identifier: MIT
#include <leaselock/hiredis/detail/tls_name.hpp>

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace leaselock::test {
namespace {

TEST(TlsName, IsTheHostLessWhatBelongsToThisMachine) {
    const struct {
        std::string_view host;
        std::string_view name;
        bool is_address;
    } rows[] = {
        {"redis.example.org", "redis.example.org", false},
        {"redis.example.org.", "redis.example.org", false},
        {"localhost", "localhost", false},
        {"127.0.0.1", "127.0.0.1", true},
        {"::1", "::1", true},
        {"fe80::1%eth0", "fe80::1", true},
        {"::ffff:192.0.2.1", "::ffff:192.0.2.1", true},
        // getaddrinfo takes them for addresses: as names they are in no certificate
        {"127.1", "127.1", false},
        {"2130706433", "2130706433", false},
        {"127.0.0.1.", "127.0.0.1", false},
    };
    for (const auto& row : rows) {
        const detail::TlsName name = detail::tls_name(row.host);
        EXPECT_EQ(name.text.view(), row.name);
        EXPECT_EQ(name.is_address, row.is_address) << row.host;
    }
}

TEST(TlsName, NeedsNoNullBehindTheHost) {
    const std::string_view longer = "127.0.0.15";
    EXPECT_EQ(detail::tls_name(longer.substr(0, 9)).text.view(), "127.0.0.1");
    EXPECT_TRUE(detail::tls_name(longer.substr(0, 9)).is_address);
    const std::string longest(253, 'h');
    EXPECT_EQ(detail::tls_name(longest).text.view(), longest);
    EXPECT_FALSE(detail::tls_name(longest).is_address);
}

} // namespace
} // namespace leaselock::test
