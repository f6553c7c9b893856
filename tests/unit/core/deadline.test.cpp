// SPDX-License-Identifier: MIT
#include <leaselock/core/deadline.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>

namespace {

using leaselock::ceil_saturated;
using leaselock::Deadline;
using leaselock::later;
using leaselock::to_ttl;
using namespace std::chrono;
using namespace std::chrono_literals;

constexpr Deadline at(std::int64_t ns) { return Deadline{nanoseconds{ns}}; }
constexpr std::int64_t top = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t bottom = std::numeric_limits<std::int64_t>::min();

static_assert(later(at(1), 2ns) == at(3)); // usable in constant expressions

TEST(Later, AddsWithinTheClockAndStopsAtItsEnds) {
    struct Row {
        std::int64_t at, span, expected;
    };
    for (const Row& row : {
             Row{5, 7, 12},
             Row{5, -7, -2},
             Row{5, 0, 5},
             Row{top, 0, top},
             Row{top, 1, top},
             Row{top - 1, 1, top},
             Row{top - 1, 2, top},
             Row{0, top, top},
             Row{1, top, top},
             Row{-1, top, top - 1},
             Row{top, top, top},
             Row{bottom, 0, bottom},
             Row{bottom, -1, bottom},
             Row{bottom + 1, -1, bottom},
             Row{bottom + 1, -2, bottom},
             Row{0, bottom, bottom},
             Row{-1, bottom, bottom},
             Row{1, bottom, bottom + 1},
             Row{bottom, bottom, bottom},
             Row{top, bottom, -1},
             Row{bottom, top, -1},
         }) {
        EXPECT_EQ(later(at(row.at), nanoseconds{row.span}), at(row.expected))
            << row.at << " + " << row.span;
    }
}

TEST(CeilSaturated, RoundsUp) {
    EXPECT_EQ(to_ttl(0ns), 0ms);
    EXPECT_EQ(to_ttl(1ns), 1ms);
    EXPECT_EQ(to_ttl(999'999ns), 1ms);
    EXPECT_EQ(to_ttl(1'000'000ns), 1ms);
    EXPECT_EQ(to_ttl(1'000'001ns), 2ms);
    EXPECT_EQ(to_ttl(1500us), 2ms);
    EXPECT_EQ(to_ttl(10s), 10'000ms);
    EXPECT_EQ(to_ttl(2h), 7'200'000ms);
    EXPECT_EQ(to_ttl(duration<int, std::ratio<1, 3>>{1}), 334ms);
    EXPECT_EQ(to_ttl(duration<int, std::ratio<7, 3>>{3}), 7'000ms);
}

TEST(CeilSaturated, RoundsNegativesUpToo) {
    EXPECT_EQ(to_ttl(-1ns), 0ms);
    EXPECT_EQ(to_ttl(-999'999ns), 0ms);
    EXPECT_EQ(to_ttl(-1'000'000ns), -1ms);
    EXPECT_EQ(to_ttl(-1'000'001ns), -1ms);
    EXPECT_EQ(to_ttl(-5s), -5000ms);
}

TEST(CeilSaturated, NeverOverflows) {
    EXPECT_EQ(to_ttl(hours::max()), milliseconds::max());
    EXPECT_EQ(to_ttl(hours::min()), milliseconds::min());
    EXPECT_EQ(to_ttl(seconds::max()), milliseconds::max());
    EXPECT_EQ(to_ttl(seconds::min()), milliseconds::min());
    EXPECT_EQ(to_ttl(nanoseconds::max()), milliseconds{top / 1'000'000 + 1});
    EXPECT_LE(to_ttl(nanoseconds::min()), milliseconds{bottom / 1'000'000});
    EXPECT_EQ(to_ttl(milliseconds::max()), milliseconds::max());
    EXPECT_EQ(to_ttl(seconds{top / 1000}), milliseconds{top / 1000 * 1000});
    EXPECT_EQ(to_ttl(seconds{top / 1000 + 1}), milliseconds::max());
    EXPECT_EQ(ceil_saturated<nanoseconds>(years{1000}), nanoseconds::max());
    EXPECT_EQ(ceil_saturated<nanoseconds>(milliseconds{top / 1'000'000}),
              nanoseconds{top / 1'000'000 * 1'000'000});
}

TEST(CeilSaturated, TakesUnsignedAndNarrowCounts) {
    using U64 = duration<std::uint64_t, std::milli>;
    EXPECT_EQ(to_ttl(U64{5}), 5ms);
    EXPECT_EQ(to_ttl(U64{std::numeric_limits<std::uint64_t>::max()}), milliseconds::max());
    EXPECT_EQ(to_ttl(U64{std::uint64_t{1} << 63U}), milliseconds::max());
    EXPECT_EQ(to_ttl(duration<std::int8_t>{127}), 127'000ms);
    EXPECT_EQ(to_ttl(duration<std::int8_t>{-128}), -128'000ms);
    EXPECT_EQ(to_ttl(duration<std::uint32_t>{4'000'000'000U}), milliseconds{4'000'000'000'000});
}

TEST(CeilSaturated, TakesFloats) {
    using Seconds = duration<double>;
    EXPECT_EQ(to_ttl(Seconds{0.0}), 0ms);
    EXPECT_EQ(to_ttl(Seconds{1.5}), 1500ms);
    EXPECT_EQ(to_ttl(Seconds{1e-9}), 1ms);
    EXPECT_EQ(to_ttl(Seconds{-1e-9}), 0ms);
    EXPECT_EQ(to_ttl(Seconds{-2.0}), -2000ms);
    EXPECT_EQ(to_ttl(duration<float, std::milli>{2.25F}), 3ms);
    EXPECT_EQ(to_ttl(duration<long double, std::nano>{1.0L}), 1ms);
    EXPECT_EQ(to_ttl(Seconds{1e300}), milliseconds::max());
    EXPECT_EQ(to_ttl(Seconds{-1e300}), milliseconds::min());
    EXPECT_EQ(to_ttl(duration<double, std::milli>{9223372036854775808.0}), milliseconds::max());
    EXPECT_EQ(to_ttl(Seconds{std::numeric_limits<double>::infinity()}), milliseconds::max());
    EXPECT_EQ(to_ttl(Seconds{-std::numeric_limits<double>::infinity()}), milliseconds::min());
}

TEST(CeilSaturated, NotANumberIsTheLeast) {
    EXPECT_EQ(to_ttl(duration<double>{std::numeric_limits<double>::quiet_NaN()}),
              milliseconds::min());
    EXPECT_EQ(to_ttl(duration<float>{std::numeric_limits<float>::quiet_NaN()}),
              milliseconds::min());
}

TEST(Margin, IsAHundredthAndTwoMilliseconds) {
    EXPECT_EQ(leaselock::default_margin(10s), 102ms);
    EXPECT_EQ(leaselock::default_margin(60ms), 2'600us);
    EXPECT_EQ(leaselock::default_margin(1ms), 2'010us);
    EXPECT_EQ(leaselock::default_margin(leaselock::max_ttl),
              nanoseconds{leaselock::max_ttl} / 100 + 2ms);
}

TEST(LeaseDeadline, CountsFromBeforeTheSendLessTheMargin) {
    EXPECT_EQ(leaselock::lease_deadline(at(0) + 100s, 10s, 102ms), at(0) + 109'898ms);
    EXPECT_EQ(leaselock::lease_deadline(Deadline::max(), 10s, 102ms), Deadline::max());
    EXPECT_EQ(leaselock::max_ttl.count(), 2'147'483'647);
}

} // namespace
