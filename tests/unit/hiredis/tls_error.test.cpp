// SPDX-License-Identifier: MIT
#include <leaselock/hiredis/detail/tls_error.hpp>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace leaselock::test {
namespace {

TEST(TlsError, ReasonIsTheLastOfFiveParts) {
    const struct {
        std::string_view line;
        std::string_view reason;
    } rows[] = {
        {"error:80000002:system library::No such file or directory", "No such file or directory"},
        {"error:02001002:system library:fopen:No such file or directory",
         "No such file or directory"}, // 1.1.1
        {"error:0480006C:PEM routines::no start line", "no start line"},
        {"error:1:a:b:c:d", "c:d"},
        {"error:1:a:b:", ""},
        {"no such line", "no such line"},
        {"", ""},
    };
    for (const auto& row : rows) EXPECT_EQ(detail::reason_in(row.line), row.reason) << row.line;
}

TEST(TlsError, TheFirstOfAQueueIsTaken) {
    ASSERT_EQ(OPENSSL_init_ssl(OPENSSL_INIT_LOAD_SSL_STRINGS, nullptr),
              1); // a context does it, too
    ERR_clear_error();
    EXPECT_EQ(detail::take_tls_reason().view(), "no reason given");
    ERR_put_error(ERR_LIB_SSL, 0, SSL_R_UNSUPPORTED_PROTOCOL, "", 0);
    ERR_put_error(ERR_LIB_SSL, 0, SSL_R_NO_CIPHERS_AVAILABLE, "", 0);
    EXPECT_EQ(detail::take_tls_reason().view(), "unsupported protocol");
    EXPECT_EQ(ERR_peek_error(), 0U);
}

TEST(TlsError, AlertsAreToldFromOtherReasons) {
    EXPECT_EQ(detail::alert_of(SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED), 116);
    EXPECT_EQ(detail::alert_of(SSL_R_TLSV1_ALERT_UNKNOWN_CA), 48);
    EXPECT_EQ(detail::alert_of(SSL_R_CERTIFICATE_VERIFY_FAILED), 0);
    EXPECT_EQ(detail::alert_of(SSL_AD_REASON_OFFSET), 0);
    EXPECT_EQ(detail::alert_of(SSL_AD_REASON_OFFSET + 256), 0);
}

TEST(TlsError, Causes) {
    const struct {
        int reason;
        errc unasked;
        errc asked; ///< where the server has asked for a client certificate
    } rows[] = {
        {SSL_R_CERTIFICATE_VERIFY_FAILED, errc::insecure, errc::insecure},
        {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, errc::insecure, errc::insecure},
        {SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE, errc::insecure, errc::insecure},
        {SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED, errc::insecure, errc::insecure},
        {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, errc::insecure, errc::insecure},
        {SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, errc::insecure, errc::insecure},
        {SSL_R_TLSV1_ALERT_UNKNOWN_CA, errc::insecure, errc::insecure},
        {SSL_R_TLSV1_ALERT_ACCESS_DENIED, errc::insecure, errc::insecure},
        {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, errc::insecure, errc::insecure},
        {SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE, errc::protocol_error, errc::insecure},
        {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, errc::protocol_error, errc::protocol_error},
        {SSL_R_TLSV1_ALERT_INTERNAL_ERROR, errc::protocol_error, errc::protocol_error},
        {SSL_R_WRONG_VERSION_NUMBER, errc::protocol_error, errc::protocol_error},
        {SSL_R_UNSUPPORTED_PROTOCOL, errc::protocol_error, errc::protocol_error},
    };
    for (const auto& row : rows) {
        EXPECT_EQ(detail::cause_of_tls(row.reason, false), row.unasked) << row.reason;
        EXPECT_EQ(detail::cause_of_tls(row.reason, true), row.asked) << row.reason;
    }
}

TEST(TlsError, PlainTextIsKnownByWhatItIsTakenFor) {
    EXPECT_TRUE(detail::is_plain_text(SSL_R_WRONG_VERSION_NUMBER));
    EXPECT_TRUE(detail::is_plain_text(SSL_R_PACKET_LENGTH_TOO_LONG));
    EXPECT_TRUE(detail::is_plain_text(SSL_R_HTTP_REQUEST));
    EXPECT_FALSE(detail::is_plain_text(SSL_R_CERTIFICATE_VERIFY_FAILED));
    EXPECT_FALSE(detail::is_plain_text(SSL_R_UNSUPPORTED_PROTOCOL));
}

} // namespace
} // namespace leaselock::test
