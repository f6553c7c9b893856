// SPDX-License-Identifier: MIT

#include <leaselock/hiredis/detail/sentinel_order.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace leaselock::test {
namespace {

using detail::SentinelOrder;
using Line = std::vector<std::size_t>;

Line line_of(const SentinelOrder& order, std::size_t count = 3) {
    Line line;
    std::uint32_t asked = 0;
    for (;;) {
        const std::size_t i = order.next(count, asked);
        if (i == count) return line;
        asked |= std::uint32_t{1} << i;
        line.push_back(i);
    }
}

TEST(SentinelOrder, BeginsAsGivenAndAsksEachOnce) {
    const SentinelOrder order;
    EXPECT_EQ(line_of(order), (Line{0, 1, 2}));
    EXPECT_EQ(line_of(order, 0), Line{});
    EXPECT_EQ(line_of(order, SentinelOrder::most).size(), SentinelOrder::most);
}

TEST(SentinelOrder, WhoAnsweredComesFirstWhoDidNotComesLast) {
    SentinelOrder order;
    order.failed(0);
    order.answered(1);
    EXPECT_EQ(line_of(order), (Line{1, 2, 0}));
    order.failed(1);
    order.failed(2);
    order.answered(0);
    EXPECT_EQ(line_of(order), (Line{0, 1, 2}));
}

TEST(SentinelOrder, WhoMisleadsComesBehindTheOthersThatAnswer) {
    SentinelOrder order;
    order.answered(0);
    order.misled();
    EXPECT_EQ(line_of(order), (Line{1, 2, 0}));
    order.failed(1); // silent
    order.answered(2);
    order.misled();
    EXPECT_EQ(line_of(order), (Line{0, 2, 1})); // one that is silent comes behind all that lie
    order.answered(0);
    order.misled();
    EXPECT_EQ(line_of(order),
              (Line{2, 0, 1})); // in turn, for it may be the sentinels that are late
}

} // namespace
} // namespace leaselock::test
