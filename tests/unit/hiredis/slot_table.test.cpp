// SPDX-License-Identifier: MIT
#include <leaselock/hiredis/detail/query.hpp>
#include <leaselock/hiredis/detail/slot_table.hpp>

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace leaselock::test {
namespace {

using detail::check_slots;
using detail::for_each_range;
using detail::ReplyTree;
using detail::SlotRange;
using detail::TreeReader;

std::string integer(long long value) { return ":" + std::to_string(value) + "\r\n"; }
std::string bulk(std::string_view text) {
    return "$" + std::to_string(text.size()) + "\r\n" + std::string{text} + "\r\n";
}
std::string array(const std::vector<std::string>& parts) {
    std::string text = "*" + std::to_string(parts.size()) + "\r\n";
    for (const std::string& part : parts) text += part;
    return text;
}
const std::string nil = "$-1\r\n";

std::string node(std::string_view host, long long port) {
    return array({bulk(host), integer(port), bulk("09dbe9720cda62f7865eabc5fd8857c5d2678366")});
}
std::string slots(long long first, long long last, const std::string& master) {
    return array({integer(first), integer(last), master});
}

ReplyTree read(const std::string& bytes) {
    TreeReader reader;
    ReplyTree tree;
    EXPECT_TRUE(reader.feed(bytes, tree)) << reader.complaint();
    EXPECT_NE(tree, nullptr) << bytes;
    return tree;
}

/// Each range as `first-last host port`.
std::vector<std::string> ranges(const std::string& bytes) {
    const ReplyTree tree = read(bytes);
    EXPECT_EQ(check_slots(*tree), "");
    std::vector<std::string> all;
    EXPECT_TRUE(for_each_range(*tree, [&](const SlotRange& range) {
        all.push_back(std::to_string(range.first) + "-" + std::to_string(range.last) + " " +
                      std::string{range.host} + " " + std::to_string(range.port));
        return true;
    }));
    return all;
}

std::string complaint(const std::string& bytes) { return std::string{check_slots(*read(bytes))}; }

using Ranges = std::vector<std::string>;

TEST(SlotTable, AsServersGiveIt) {
    // replicas behind the master, metadata behind the id (Redis 7): of no matter
    const std::string with_replica =
        array({integer(0), integer(5460), node("127.0.0.1", 30001), node("127.0.0.1", 30004)});
    const std::string with_metadata =
        array({integer(5461), integer(16383),
               array({bulk("10.0.0.2"), integer(30002), bulk("id"),
                      array({bulk("hostname"), bulk("host-2.example.org")})})});
    EXPECT_EQ(ranges(array({with_replica, with_metadata})),
              (Ranges{"0-5460 127.0.0.1 30001", "5461-16383 10.0.0.2 30002"}));
    // before Redis 4 there was no id
    EXPECT_EQ(ranges(array({slots(0, 1, array({bulk("a"), integer(1)}))})), (Ranges{"0-1 a 1"}));
}

TEST(SlotTable, HostsOfEveryKind) {
    EXPECT_EQ(ranges(array({slots(0, 0, node("host-1.example.org", 1))})),
              (Ranges{"0-0 host-1.example.org 1"}));
    EXPECT_EQ(ranges(array({slots(0, 0, node("2001:db8::1", 65535))})),
              (Ranges{"0-0 2001:db8::1 65535"}));
    // that of the node that was asked
    EXPECT_EQ(ranges(array({slots(0, 0, node("", 1))})), (Ranges{"0-0  1"}));
    EXPECT_EQ(ranges(array({slots(0, 0, node("?", 1))})), (Ranges{"0-0  1"}));
    EXPECT_EQ(ranges(array({slots(0, 0, array({nil, integer(1), bulk("id")}))})),
              (Ranges{"0-0  1"}));
    const std::string longest(253, 'h');
    EXPECT_EQ(ranges(array({slots(0, 0, node(longest, 1))})), (Ranges{"0-0 " + longest + " 1"}));
}

TEST(SlotTable, SlotsMayBeMissing) {
    EXPECT_EQ(ranges("*0\r\n"), Ranges{});
    EXPECT_EQ(ranges(array({slots(16383, 16383, node("b", 2)), slots(1, 2, node("a", 1))})),
              (Ranges{"16383-16383 b 2", "1-2 a 1"}));
}

TEST(SlotTable, OneSlotEach) {
    std::vector<std::string> all;
    for (int slot = 0; slot < hash_slots; ++slot) all.push_back(slots(slot, slot, node("a", 1)));
    EXPECT_EQ(ranges(array(all)).size(), 16384U);
    all.push_back(slots(77, 77, node("a", 1)));
    EXPECT_EQ(complaint(array(all)), "a slot with two masters");
}

TEST(SlotTable, WhatIsWrongIsSaid) {
    const std::string good = node("a", 1);
    const std::string bad_slots = "slots that do not go up from 0 to 16383";
    const struct {
        std::string reply;
        std::string complaint;
    } rows[] = {
        {"+OK\r\n", "no array"},
        {nil, "no array"},
        {":0\r\n", "no array"},
        {array({integer(1)}), "an entry without slots"},
        {array({bulk("x")}), "an entry without slots"},
        {array({array({})}), "an entry without slots"},
        {array({array({integer(0)})}), "an entry without slots"},
        {array({array({integer(0), integer(1)})}), "slots without a node"},
        {array({slots(-1, 5, good)}), bad_slots},
        {array({slots(0, -1, good)}), bad_slots},
        {array({slots(0, 16384, good)}), bad_slots},
        {array({slots(16384, 16384, good)}), bad_slots},
        {array({slots(5, 4, good)}), bad_slots},
        {array({slots(0, 65536, good)}), bad_slots},
        {array({slots(0, 4294967296LL, good)}), bad_slots},
        {array({slots(-9223372036854775807LL, 9223372036854775807LL, good)}), bad_slots},
        {array({array({bulk("0"), bulk("1"), good})}), bad_slots},
        {array({slots(0, 1, integer(1))}), "a node without host and port"},
        {array({slots(0, 1, array({}))}), "a node without host and port"},
        {array({slots(0, 1, array({bulk("a")}))}), "a node without host and port"},
        {array({slots(0, 1, array({integer(1), integer(1)}))}), "a node whose host is no string"},
        {array({slots(0, 1, node("a b", 1))}), "a node whose host is no host"},
        {array({slots(0, 1, node("a\r\nb", 1))}), "a node whose host is no host"},
        {array({slots(0, 1, node(std::string(254, 'h'), 1))}), "a node whose host is no host"},
        {array({slots(0, 1, node(std::string(100'000, 'h'), 1))}), "a node whose host is no host"},
        {array({slots(0, 1, node("a", 0))}), "a node whose port is no port"},
        {array({slots(0, 1, node("a", 65536))}), "a node whose port is no port"},
        {array({slots(0, 1, node("a", -1))}), "a node whose port is no port"},
        {array({slots(0, 1, array({bulk("a"), bulk("1")}))}), "a node whose port is no port"},
        {array({slots(0, 10, good), slots(10, 20, good)}), "a slot with two masters"},
        {array({slots(5, 5, good), slots(0, 16383, node("b", 2))}), "a slot with two masters"},
        // wherever it is
        {array({slots(0, 10, good), slots(11, 20, node("a", 0))}), "a node whose port is no port"},
    };
    for (const auto& row : rows) EXPECT_EQ(complaint(row.reply), row.complaint) << row.reply;
}

TEST(SlotTable, ReadingEndsWhenTheReaderSaysSo) {
    const ReplyTree tree = read(array({slots(0, 1, node("a", 1)), slots(2, 3, node("b", 1))}));
    int calls = 0;
    EXPECT_FALSE(for_each_range(*tree, [&](const SlotRange&) {
        ++calls;
        return false;
    }));
    EXPECT_EQ(calls, 1);
}

} // namespace
} // namespace leaselock::test
