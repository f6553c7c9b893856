// SPDX-License-Identifier: MIT

#include <leaselock/hiredis/detail/socket.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace leaselock::test {
namespace {

using namespace std::chrono_literals;

TEST(Socket, WaitsInAReceiveOnlyWhereThatSurelyEndsInTime) {
    const Deadline now{LeaseClock::duration{5s}};
    struct Row {
        Deadline now;
        Deadline by;
        bool patient;
    };
    const Row rows[] = {
        {now, now + 1s, true},
        {now, now + 2 * detail::receive_limit + 1ns, true},
        {now, now + 2 * detail::receive_limit, false}, // the kernel's clock ticks, and rounds up
        {now, now + detail::receive_limit, false},
        {now, now + 1ns, false},
        {now, now, false},
        {now, now - 1s, false},
        {now, Deadline{}, false},
        {now, Deadline::max(), true},
        {now, Deadline::min(), false},
        {Deadline::max() - 1s, Deadline::max(), true},
        {Deadline::max() - detail::receive_limit, Deadline::max(), false},
        {Deadline::max(), Deadline::max(), false},
    };
    for (const Row& row : rows) {
        EXPECT_EQ(detail::is_patient(row.now, row.by), row.patient)
            << row.now.time_since_epoch().count() << " to " << row.by.time_since_epoch().count();
    }
}

} // namespace
} // namespace leaselock::test
