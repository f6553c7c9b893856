// SPDX-License-Identifier: MIT
#include <leaselock/redis/reply.hpp>

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

namespace {

using leaselock::errc;
using leaselock::Reply;

static_assert(std::is_nothrow_copy_constructible_v<Reply>);
static_assert(std::is_nothrow_copy_assignable_v<Reply>);
static_assert(std::is_nothrow_default_constructible_v<Reply>);

TEST(Reply, StartsUnsent) {
    const Reply reply;
    EXPECT_EQ(reply.kind, Reply::unsent);
    EXPECT_FALSE(reply.answered());
}

TEST(Reply, EachSetterLeavesNothingOfTheOneBefore) {
    Reply reply;
    reply.set_text(Reply::error, "ERR syntax error");
    EXPECT_EQ(reply.kind, Reply::error);
    EXPECT_EQ(reply.text.view(), "ERR syntax error");
    EXPECT_TRUE(reply.answered());

    reply.set_integer(-7);
    EXPECT_EQ(reply.kind, Reply::integer);
    EXPECT_EQ(reply.number, -7);
    EXPECT_TRUE(reply.text.empty());
    EXPECT_TRUE(reply.answered());

    reply.set_unknown(make_error_code(errc::timed_out));
    EXPECT_EQ(reply.kind, Reply::unknown);
    EXPECT_EQ(reply.cause, errc::timed_out);
    EXPECT_EQ(reply.number, 0);
    EXPECT_FALSE(reply.answered());

    reply.set_nil();
    EXPECT_EQ(reply.kind, Reply::nil);
    EXPECT_FALSE(reply.cause);
    EXPECT_TRUE(reply.answered());

    reply.set_unsent(make_error_code(errc::no_address));
    EXPECT_EQ(reply.kind, Reply::unsent);
    EXPECT_EQ(reply.cause, errc::no_address);
    EXPECT_FALSE(reply.answered());
}

TEST(Reply, HoldsAMovedWithTheLongestHostName) {
    const std::string moved = "MOVED 16383 " + std::string(253, 'h') + ":65535";
    Reply reply;
    reply.set_text(Reply::error, moved);
    EXPECT_EQ(reply.text.view(), moved);
    EXPECT_FALSE(reply.text.truncated());
}

TEST(Reply, CutsLongStringsAndFlagsIt) {
    Reply reply;
    reply.set_text(Reply::string, std::string(10'000, 'x'));
    EXPECT_TRUE(reply.text.truncated());
    EXPECT_EQ(reply.text.size(), leaselock::ServerText::capacity());
}

TEST(Reply, AnErrorRepeatsNoArguments) {
    Reply reply;
    reply.set_text(Reply::error,
                   "ERR unknown command 'AUTH', with args beginning with: 'user' 'secret' ");
    EXPECT_EQ(reply.text.view(), "ERR unknown command 'AUTH'");
    reply.set_text(Reply::string, "a, with args beginning with: b");
    EXPECT_EQ(reply.text.view(), "a, with args beginning with: b");
}

} // namespace
