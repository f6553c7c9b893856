// SPDX-License-Identifier: MIT

#include <leaselock/hiredis/detail/resp_writer.hpp>

#include <gmock/gmock.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace leaselock::test {
namespace {

using namespace std::string_view_literals;
using Words = std::vector<std::string_view>;

/// The same by the simplest means.
std::string expected(const std::vector<Words>& commands) {
    std::string bytes;
    for (const Words& words : commands) {
        bytes += "*" + std::to_string(words.size()) + "\r\n";
        for (const std::string_view word : words) {
            bytes += "$" + std::to_string(word.size()) + "\r\n" + std::string{word} + "\r\n";
        }
    }
    return bytes;
}

std::vector<Command> commands_of(const std::vector<Words>& all) {
    std::vector<Command> commands;
    for (const Words& words : all) commands.push_back({words, {}});
    return commands;
}

TEST(RespWriter, WritesOneCommand) {
    const Words words{"SET", "k", "", "a longer value"};
    const Command command{words, "k"};
    detail::RespWriter writer;
    ASSERT_TRUE(writer.write({&command, 1}));
    EXPECT_EQ(writer.view(), "*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n$14\r\na longer value\r\n");
}

TEST(RespWriter, X1_BytesOfAnyKindArriveExact) {
    std::string all_bytes;
    for (int byte = 0; byte < 256; ++byte) all_bytes.push_back(static_cast<char>(byte));
    const std::vector<Words> cases{{"GET", "\0"sv},
                                   {"GET", "a\r\nb"},
                                   {"GET", "%s %n *3\r\n$1\r\n"},
                                   {"GET", all_bytes},
                                   {"GET", " "}};
    detail::RespWriter writer;
    for (const Words& words : cases) {
        const Command command{words, {}};
        ASSERT_TRUE(writer.write({&command, 1}));
        EXPECT_EQ(writer.view(), expected({words}));
    }
}

TEST(RespWriter, WritesLengthsOfEveryNumberOfDigits) {
    detail::RespWriter writer;
    for (const std::size_t size : {0U, 1U, 9U, 10U, 11U, 19U, 99U, 100U, 101U, 109U, 110U, 999U,
                                   1'000U, 1'024U, 9'999U, 10'000U, 65'535U, 1'000'000U}) {
        const std::string word(size, 'x');
        const Words words{word};
        const Command command{words, {}};
        ASSERT_TRUE(writer.write({&command, 1}));
        EXPECT_TRUE(writer.view() == expected({words})) << size; // not EXPECT_EQ: a megabyte
    }
    const Words many(123, "w");
    const Command command{many, {}};
    ASSERT_TRUE(writer.write({&command, 1}));
    EXPECT_EQ(writer.view(), expected({many}));
}

TEST(RespWriter, WritesBatchesAndForgetsTheLastOne) {
    const std::vector<Words> first{{"SET", "k", "v"}, {"EVALSHA", "0123", "1", "k"}, {"PING"}};
    detail::RespWriter writer;
    ASSERT_TRUE(writer.write(commands_of(first)));
    EXPECT_EQ(writer.view(), expected(first));
    ASSERT_TRUE(writer.write(commands_of({{"PING"}})));
    EXPECT_EQ(writer.view(), expected({{"PING"}}));
    ASSERT_TRUE(writer.write({}));
    EXPECT_TRUE(writer.view().empty());
}

TEST(RespWriter, KeepsItsBufferButNotAHugeOne) {
    detail::RespWriter writer;
    ASSERT_TRUE(writer.write(commands_of({{"PING"}})));
    const char* const buffer = writer.view().data();
    ASSERT_TRUE(writer.write(commands_of({{"SET", "k", "0123456789abcdef", "NX", "PX", "10000"}})));
    EXPECT_EQ(writer.view().data(), buffer);
    const std::string huge(1'000'000, 'x');
    ASSERT_TRUE(writer.write(commands_of({{"SET", "k", huge}})));
    EXPECT_GT(writer.capacity(), huge.size());
    ASSERT_TRUE(writer.write(commands_of({{"PING"}})));
    EXPECT_LE(writer.capacity(), std::size_t{64} * 1024);
}

TEST(RespWriter, RefusesWhatMemoryCannotHold) {
    // No such word exists: it is refused before it is read.
    const std::string_view endless{"x", PTRDIFF_MAX / 2};
    const Words words{"SET", "k", endless};
    const Command command{words, {}};
    detail::RespWriter writer;
    EXPECT_FALSE(writer.write({&command, 1}));
    EXPECT_TRUE(writer.view().empty());
    ASSERT_TRUE(writer.write(commands_of({{"PING"}})));
    EXPECT_EQ(writer.view(), expected({{"PING"}}));
}

/// What decides between *unsent* and *unknown*: checked against every possible cut.
TEST(RespWriter, CountsTheCommandsOfWhichAByteWentOut) {
    const std::string long_word(1'234, 'x');
    const std::vector<Words> batch{
        {"SET", "*1\r\n$4\r\nPING\r\n", ""}, {"PING"}, {"GET", long_word}, {"PING"}};
    detail::RespWriter writer;
    ASSERT_TRUE(writer.write(commands_of(batch)));
    std::size_t cut = 0;
    EXPECT_EQ(writer.count_begun(0), 0U);
    for (std::size_t begun = 1; begun <= batch.size(); ++begun) {
        const std::vector<Words> head{batch.begin(),
                                      batch.begin() + static_cast<std::ptrdiff_t>(begun)};
        for (const std::size_t end = expected(head).size(); cut < end;) {
            ASSERT_EQ(writer.count_begun(++cut), begun) << "after " << cut << " bytes";
        }
    }
    EXPECT_EQ(cut, writer.size());
    EXPECT_EQ(writer.count_begun(cut + 1), batch.size());
}

} // namespace
} // namespace leaselock::test
