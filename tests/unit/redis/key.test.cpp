// SPDX-License-Identifier: MIT
#include <leaselock/redis/key.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

namespace {

using leaselock::hash_slot;
using leaselock::hash_tag;
using leaselock::helper_form;
using leaselock::HelperForm;
using leaselock::HelperKey;
using namespace std::string_view_literals;

static_assert(leaselock::detail::crc16("123456789") == 0x31C3); // the specification's own check
static_assert(hash_slot("foo") == 12182);
static_assert(leaselock::max_key_size == 1024);

std::string write(std::string_view key, std::string_view suffix) {
    const HelperKey helper{key, suffix};
    std::string out(helper.size() + 1, '#');
    helper.write(out.data());
    EXPECT_EQ(out.back(), '#') << "wrote more than size()";
    out.pop_back();
    return out;
}

TEST(Key, HashTagIsBetweenTheFirstBraceAndTheNextClosingOne) {
    struct Row {
        std::string_view key, tag;
    };
    for (const Row& row : {
             Row{"", ""},
             Row{"a", ""},
             Row{"x{y}z", "y"},
             Row{"{}a", ""},
             Row{"a}b{", ""},
             Row{"{user1000}.following", "user1000"},
             Row{"foo{}{bar}", ""},
             Row{"foo{{bar}}zap", "{bar"},
             Row{"foo{bar}{zap}", "bar"},
             Row{"}{x}", "x"},
             Row{"{", ""},
             Row{"}", ""},
             Row{"{}", ""},
             Row{"{x", ""},
             Row{"a{\0}b"sv, "\0"sv},
         }) {
        EXPECT_EQ(hash_tag(row.key), row.tag) << row.key;
    }
}

TEST(Key, SlotsAreThoseOfRedis) { // CLUSTER KEYSLOT of Redis 7.0
    struct Row {
        std::string_view key;
        std::uint16_t slot;
    };
    for (const Row& row : {
             Row{"", 0},
             Row{"foo", 12182},
             Row{"123456789", 12739},
             Row{"somekey", 11058},
             Row{"foo{hash_tag}", 2515},
             Row{"bar{hash_tag}", 2515},
             Row{"hash_tag", 2515},
             Row{"user1000", 3443},
             Row{"{user1000}.following", 3443},
             Row{"{user1000}.followers", 3443},
         }) {
        EXPECT_EQ(hash_slot(row.key), row.slot) << row.key;
    }
    EXPECT_EQ(hash_slot("foo{}{bar}"), leaselock::detail::crc16("foo{}{bar}") % 16384);
    EXPECT_EQ(hash_slot("foo{{bar}}zap"), hash_slot("{bar"));
    EXPECT_NE(hash_slot("\xff\x80"sv), hash_slot("\x7f\x00"sv)); // bytes, whatever char's sign
}

TEST(Key, HelperKeysShareTheSlotAndNameTheLock) {
    struct Row {
        std::string_view key;
        HelperForm form;
        std::string_view helper;
    };
    for (const Row& row : {
             Row{"a", HelperForm::braced, "{a}:s"},
             Row{"order:{", HelperForm::braced, "{order:{}:s"},
             Row{"{a", HelperForm::braced, "{{a}:s"},
             Row{"with space\r\n\0"sv, HelperForm::braced, "{with space\r\n\0}:s"sv},
             Row{"x{y}z", HelperForm::plain, "x{y}z:s"},
             Row{"}{x}", HelperForm::plain, "}{x}:s"},
             Row{"{x}y", HelperForm::plain, "{x}y:s"},
             Row{"{x}", HelperForm::tag_alone, "{x}s"},
             Row{"{{x}", HelperForm::tag_alone, "{{x}s"},
             Row{"{{x}}", HelperForm::plain, "{{x}}:s"},
             Row{"{}a", HelperForm::impossible, ""},
             Row{"a}b{", HelperForm::impossible, ""},
             Row{"}", HelperForm::impossible, ""},
             Row{"{}{a}", HelperForm::impossible, ""},
         }) {
        EXPECT_EQ(helper_form(row.key), row.form) << row.key;
        if (row.form == HelperForm::impossible) continue;
        EXPECT_EQ(write(row.key, ":s"), row.helper);
        EXPECT_EQ(hash_slot(row.helper), hash_slot(row.key)) << row.key;
    }
}

TEST(Key, HelperKeysBelongToOneLockAlone) {
    namespace suffix = leaselock::helper_suffix;
    std::set<std::string> seen;
    for (const std::string_view key :
         {"a", "{a}", "{a", "{{a}", "{a}b", "a{b}", "{a}{a}", "{a}:"}) {
        for (const std::string_view name : {suffix::fence, suffix::waiters, suffix::wake}) {
            EXPECT_TRUE(seen.insert(write(key, name)).second) << write(key, name);
        }
    }
}

TEST(Key, HelperSuffixesAreLaidDown) {
    namespace suffix = leaselock::helper_suffix;
    EXPECT_EQ(write("a", suffix::fence), "{a}:leaselock:fence");
    EXPECT_EQ(write("{a}b", suffix::waiters), "{a}b:leaselock:waiters");
    EXPECT_EQ(write("a", suffix::wake), "{a}:leaselock:wake:");
}

} // namespace
