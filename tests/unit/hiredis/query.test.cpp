// SPDX-License-Identifier: MIT

#include <leaselock/core/error.hpp>
#include <leaselock/hiredis/detail/query.hpp>

#include <gmock/gmock.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace leaselock::test {
namespace {

using detail::ReplyTree;
using detail::TreeReader;
using ::testing::HasSubstr;

TEST(TreeReader, ReadsATreeFromPiecesOfAnySize) {
    const std::string reply = "*3\r\n:7\r\n*2\r\n$3\r\nabc\r\n$-1\r\n+OK\r\n";
    for (std::size_t size = 1; size <= reply.size(); ++size) {
        TreeReader reader;
        ReplyTree tree;
        for (std::size_t at = 0; at < reply.size(); at += size) {
            ASSERT_EQ(tree, nullptr);
            const std::string piece = reply.substr(at, size);
            ASSERT_TRUE(reader.feed(piece, tree)) << size;
        }
        ASSERT_NE(tree, nullptr) << size;
        ASSERT_EQ(tree->elements, 3U);
        EXPECT_EQ(tree->element[0]->integer, 7);
        ASSERT_EQ(tree->element[1]->elements, 2U);
        EXPECT_STREQ(tree->element[1]->element[0]->str, "abc");
        EXPECT_EQ(tree->element[1]->element[1]->type, REDIS_REPLY_NIL);
    }
}

TEST(TreeReader, KeepsAnErrorReply) {
    TreeReader reader;
    ReplyTree tree;
    ASSERT_TRUE(reader.feed(std::string_view{"-ERR no\r\n"}, tree));
    ASSERT_NE(tree, nullptr);
    EXPECT_EQ(tree->type, REDIS_REPLY_ERROR);
}

void expect_refused(std::string_view bytes, std::string_view says) {
    TreeReader reader;
    ReplyTree tree;
    EXPECT_FALSE(reader.feed(bytes, tree)) << bytes.substr(0, 40);
    EXPECT_EQ(tree, nullptr);
    EXPECT_EQ(reader.error(), errc::protocol_error);
    EXPECT_THAT(std::string{reader.complaint()}, HasSubstr(std::string{says}));
}

TEST(TreeReader, RefusesWhatIsNoReply) {
    expect_refused("HTTP/1.1 400 Bad Request\r\n", "Protocol error");
    expect_refused("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
                   "6 nested arrays");
}

TEST(TreeReader, MakesNoRoomForWhatAnArrayOnlySaysThatItHas) {
    expect_refused("*131073\r\n", "131,072 elements");
    expect_refused("*2000000000\r\n", "131,072 elements");
    // many that are small enough
    std::string nested = "*3\r\n";
    for (int i = 0; i < 3; ++i) {
        nested += "*60000\r\n";
        for (int k = 0; k < 60'000; ++k) nested += ":1\r\n";
    }
    expect_refused(nested, "131,072 elements");
}

TEST(TreeReader, RefusesMoreThanItsBytes) {
    TreeReader reader;
    ReplyTree tree;
    ASSERT_TRUE(reader.feed(std::string_view{"$2000000000\r\n"}, tree));
    const std::string piece(std::size_t{64} * 1024, 'x');
    std::size_t pieces = 1;
    while (reader.feed(piece, tree)) ++pieces;
    EXPECT_EQ(pieces, TreeReader::most_bytes / piece.size());
    EXPECT_EQ(reader.error(), errc::protocol_error);
    EXPECT_THAT(std::string{reader.complaint()}, HasSubstr("4 MiB"));
}

} // namespace
} // namespace leaselock::test
