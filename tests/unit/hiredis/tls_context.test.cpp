// SPDX-License-Identifier: MIT
#include <leaselock/hiredis/detail/tls_context.hpp>

#include <openssl/ssl.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace leaselock::test {
namespace {

TEST(TlsContext, VerifiesAndSpeaksNothingOld) {
    const auto context = detail::make_tls_context();
    ASSERT_NE(context, nullptr);
    EXPECT_EQ(SSL_CTX_get_verify_mode(context.get()), SSL_VERIFY_PEER);
    EXPECT_EQ(SSL_CTX_get_verify_callback(context.get()), nullptr); // nobody has a word in it
    EXPECT_GE(SSL_CTX_get_min_proto_version(context.get()), TLS1_2_VERSION);
    EXPECT_NE(SSL_CTX_get_options(context.get()) & SSL_OP_NO_RENEGOTIATION, 0U);
}

/// Threads that are left behind in OpenSSL are still there when the process ends.
TEST(TlsContextDeathTest, LeavesOpenSslUsableToTheEndOfTheProcess) {
    // a process of its own, in which nobody else has used OpenSSL
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    const auto end = [] {
        // runs behind all that is registered later
        (void)std::atexit([] { std::_Exit(OPENSSL_init_ssl(0, nullptr) == 1 ? 0 : 1); });
        std::exit(detail::make_tls_context() != nullptr ? 2 : 3);
    };
    EXPECT_EXIT(end(), testing::ExitedWithCode(0), "");
}

/// The reason comes last, and has to be there whatever comes before it.
TEST(TlsContext, AComplaintKeepsItsReasonBehindALongPath) {
    const std::string path = "/" + std::string(4'000, 'x') + "/ca.pem";
    const Outcome outcome = detail::tls_complaint("ca_file", path, "No such file or directory");
    EXPECT_EQ(outcome.answer, Answer::unsent);
    EXPECT_EQ(outcome.cause, errc::invalid_argument);
    EXPECT_FALSE(outcome.text.truncated());
    EXPECT_THAT(std::string{outcome.text.view()},
                testing::AllOf(testing::StartsWith("tls: ca_file ...xxx"),
                               testing::EndsWith("xxx/ca.pem: No such file or directory")));
    EXPECT_EQ(detail::tls_complaint("ca_file", "/ca.pem", "why").text.view(),
              "tls: ca_file /ca.pem: why");
}

} // namespace
} // namespace leaselock::test
