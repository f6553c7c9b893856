// SPDX-License-Identifier: MIT

#include <leaselock/hiredis/detail/socket.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

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

struct Pair {
    Pair() {
        std::array<int, 2> ends{-1, -1};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
        ours = detail::Socket{ends[0]};
        theirs = detail::Socket{ends[1]};
    }
    detail::Socket ours;
    detail::Socket theirs;
};

std::string_view name(detail::IoState state) {
    switch (state) {
    case detail::IoState::moved: return "moved";
    case detail::IoState::again: return "again";
    case detail::IoState::end: return "end";
    case detail::IoState::failed: break;
    }
    return "failed";
}

TEST(Socket, N13IsSilentUntilAnythingComes) {
    struct Row {
        std::string_view what;
        void (*happens)(Pair&);
        std::string_view then_received;
    };
    const Row rows[] = {
        {"nothing", [](Pair&) {}, "again"},
        {"a byte", [](Pair& p) { (void)detail::send_some(p.theirs.descriptor(), "+"); }, "moved"},
        {"no more to come", [](Pair& p) { (void)::shutdown(p.theirs.descriptor(), SHUT_WR); },
         "end"},
        {"the end", [](Pair& p) { p.theirs.close(); }, "end"},
        {"a reset: the other side is gone, and has not read what it was sent",
         [](Pair& p) {
             (void)detail::send_some(p.ours.descriptor(), "unread");
             p.theirs.close();
         },
         "failed"},
        {"the descriptor is none", [](Pair& p) { p.ours = detail::Socket{1'000'000}; }, "failed"},
    };
    for (const Row& row : rows) {
        Pair pair;
        row.happens(pair);
        const int socket = pair.ours.descriptor();
        EXPECT_EQ(detail::is_silent(socket), row.then_received == "again") << row.what;
        std::array<char, 8> room{};
        EXPECT_EQ(name(detail::receive_some(socket, room).state), row.then_received) << row.what;
    }
}

/// The descriptor blocks, so that one receive can wait. Nothing else does.
TEST(Socket, N14NeitherASendNorAReceiveWaitsOnABlockingDescriptor) {
    Pair pair;
    const int socket = pair.ours.descriptor();
    (void)::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
    EXPECT_FALSE(pair.ours.waits());
    pair.ours.let_wait();
    ASSERT_TRUE(pair.ours.waits());
    ASSERT_EQ(::fcntl(socket, F_GETFL) & O_NONBLOCK, 0);
    std::array<char, 8> room{};
    EXPECT_EQ(name(detail::receive_some(socket, room).state), "again");
    const std::string bytes(64 * 1024, 'x');
    std::size_t sent = 0; // until the other side, which reads nothing, has no more room
    detail::Io io = detail::send_some(socket, bytes);
    for (; io.state == detail::IoState::moved; io = detail::send_some(socket, bytes)) {
        sent += io.bytes;
    }
    EXPECT_EQ(name(io.state), "again");
    EXPECT_GT(sent, 0U);
    // what has come is not waited for, either
    ASSERT_EQ(name(detail::send_some(pair.theirs.descriptor(), "+OK\r\n").state), "moved");
    io = detail::receive_waiting(socket, room);
    EXPECT_EQ(name(io.state), "moved");
    EXPECT_EQ(io.bytes, 5U);
    // it goes along with the descriptor
    const detail::Socket moved = std::move(pair.ours);
    EXPECT_TRUE(moved.waits());
    EXPECT_FALSE(detail::Socket{}.waits());
}

} // namespace
} // namespace leaselock::test
