// SPDX-License-Identifier: MIT
#include <leaselock/redis/command.hpp>

#include <gtest/gtest.h>

#include <string_view>
#include <type_traits>

namespace {

using leaselock::Command;
using namespace std::string_view_literals;

static_assert(std::is_trivially_copyable_v<Command>); // views only: it owns nothing

TEST(Command, RefersToWordsOfAnyBytes) {
    const std::string_view argv[] = {"SET", "k\0\r\n"sv, ""};
    const Command command{argv, argv[1]};
    EXPECT_EQ(command.argv.size(), 3U);
    EXPECT_EQ(command.argv[1], "k\0\r\n"sv);
    EXPECT_EQ(command.key.data(), argv[1].data());
    EXPECT_TRUE(Command{}.key.empty());
    EXPECT_TRUE(Command{}.argv.empty());
}

} // namespace
