// SPDX-License-Identifier: MIT
#include <leaselock/core/token.hpp>
#include <leaselock/testing/manual_runtime.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <system_error>

namespace {

using leaselock::Token;
using leaselock::testing::ManualRuntime;

std::string draw(leaselock::Runtime& runtime) {
    Token token;
    EXPECT_FALSE(token.draw(runtime));
    return std::string{token.view()};
}

TEST(Token, Is32LowerCaseHexDigits) {
    const std::string token = draw(leaselock::system_runtime());
    EXPECT_EQ(token.size(), 32U);
    EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos) << token;
}

TEST(Token, NeverRepeats) {
    std::set<std::string> tokens;
    for (int i = 0; i < 2000; ++i) {
        EXPECT_TRUE(tokens.insert(draw(leaselock::system_runtime())).second);
    }
}

TEST(Token, UsesAllOfItsBits) { // a narrow seed behind it would show as columns that stand still
    std::set<char> seen[Token::size];
    for (int i = 0; i < 2000; ++i) {
        const std::string token = draw(leaselock::system_runtime());
        for (std::size_t at = 0; at < Token::size; ++at) seen[at].insert(token[at]);
    }
    for (const std::set<char>& column : seen) EXPECT_EQ(column.size(), 16U);
}

TEST(Token, WritesTheBytesOfTheRuntimeInOrder) {
    struct Counting : leaselock::Runtime { // 00 01 02 ... f0 in the last place
        leaselock::Deadline now() const noexcept override { return {}; }
        void sleep_until(leaselock::Deadline) noexcept override {}
        bool wait_until(const std::atomic<std::uint32_t>&, std::uint32_t,
                        leaselock::Deadline) noexcept override {
            return false;
        }
        void notify_all(const std::atomic<std::uint32_t>&) noexcept override {}
        std::error_code fill_random(std::span<std::byte> bytes) noexcept override {
            unsigned next = 0;
            for (std::byte& b : bytes) b = static_cast<std::byte>(next++);
            bytes.back() = std::byte{0xf0};
            return {};
        }
        leaselock::ProcessId process() const noexcept override { return 0; }
        std::error_code start_thread(leaselock::ThreadHandle&, void* (*)(void*),
                                     void*) noexcept override {
            return {};
        }
        void join(leaselock::ThreadHandle) noexcept override {}
        void detach(leaselock::ThreadHandle) noexcept override {}
    } counting;
    EXPECT_EQ(draw(counting), "000102030405060708090a0b0c0d0ef0");
}

TEST(Token, P16_FailsWithTheSourceAndHasNoFallback) {
    ManualRuntime runtime;
    runtime.fail_random(std::make_error_code(std::errc::function_not_supported));
    Token token;
    EXPECT_EQ(token.draw(runtime), std::errc::function_not_supported);
    runtime.fail_random({});
    EXPECT_FALSE(token.draw(runtime));
}

TEST(Token, OnlyEightDigitsMayBeShown) {
    EXPECT_EQ(leaselock::fingerprint_of("0123456789abcdef0123456789abcdef:worker"), "01234567");
    EXPECT_EQ(leaselock::fingerprint_of("abc"), "abc");
    EXPECT_EQ(leaselock::fingerprint_of(""), "");
}

} // namespace
