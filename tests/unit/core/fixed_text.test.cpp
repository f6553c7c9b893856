// SPDX-License-Identifier: MIT
#include <leaselock/core/fixed_text.hpp>

#include <gtest/gtest.h>

#include <string_view>
#include <type_traits>

namespace {

using Text = leaselock::FixedText<8>;
using namespace std::string_view_literals;

static_assert(std::is_nothrow_copy_constructible_v<Text>);
static_assert(std::is_nothrow_copy_assignable_v<Text>);
static_assert(std::is_nothrow_constructible_v<Text, std::string_view>);
static_assert(Text::capacity() == 8);

TEST(FixedText, StartsEmpty) {
    const Text text;
    EXPECT_TRUE(text.empty());
    EXPECT_EQ(text.size(), 0U);
    EXPECT_EQ(text.view(), "");
    EXPECT_FALSE(text.truncated());
}

TEST(FixedText, HoldsWhatFits) {
    const Text text{"12345678"};
    EXPECT_EQ(text.view(), "12345678");
    EXPECT_FALSE(text.truncated());
}

TEST(FixedText, CutsWhatDoesNotFitAndSaysSo) {
    const Text text{"123456789"};
    EXPECT_EQ(text.view(), "12345678");
    EXPECT_TRUE(text.truncated());
}

TEST(FixedText, AppendsUpToTheBrim) {
    Text text{"12345"};
    text.append("678");
    EXPECT_EQ(text.view(), "12345678");
    EXPECT_FALSE(text.truncated());
    text.append("");
    EXPECT_FALSE(text.truncated());
    text.append("9");
    EXPECT_EQ(text.view(), "12345678");
    EXPECT_TRUE(text.truncated());
}

TEST(FixedText, StaysTruncatedWhenMoreIsAppended) {
    Text text{"123456789"};
    text.append("");
    EXPECT_TRUE(text.truncated());
}

TEST(FixedText, KeepsAnyBytes) {
    const Text text{"a\0\r\n%s"sv};
    EXPECT_EQ(text.view(), "a\0\r\n%s"sv);
}

TEST(FixedText, CopiesBytesAndFlag) {
    const Text cut{"123456789"};
    Text copy{cut};
    EXPECT_EQ(copy.view(), "12345678");
    EXPECT_TRUE(copy.truncated());
    copy = Text{"ab"};
    EXPECT_EQ(copy.view(), "ab");
    EXPECT_FALSE(copy.truncated());
    const Text& itself = copy;
    copy = itself;
    EXPECT_EQ(copy.view(), "ab");
}

TEST(FixedText, ClearsBytesAndFlag) {
    Text text{"123456789"};
    text.clear();
    EXPECT_TRUE(text.empty());
    EXPECT_FALSE(text.truncated());
    EXPECT_EQ(text.append("x").view(), "x");
}

TEST(FixedText, ComparesTheBytes) {
    EXPECT_EQ(Text{"a"}, Text{"a"});
    EXPECT_FALSE(Text{"a"} == Text{"b"});
    EXPECT_FALSE(Text{"a"} == Text{"a\0"sv});
    EXPECT_EQ(Text{}, Text{""});
}

} // namespace
