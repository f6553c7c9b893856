// SPDX-License-Identifier: MIT
#include <leaselock/redis/connection.hpp>
#include <leaselock/testing/memory_connection.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace {

using leaselock::Command;
using leaselock::Connection;
using leaselock::Deadline;
using leaselock::Reply;
using leaselock::RoutedConnection;
using leaselock::SharedConnection;
using leaselock::SplitConnection;

struct Plain {
    void call(std::span<const Command>, std::span<Reply>, Deadline) noexcept {}
};
struct Throwing {
    void call(std::span<const Command>, std::span<Reply>, Deadline) {}
};
struct Chatty {
    bool call(std::span<const Command>, std::span<Reply>, Deadline) noexcept { return true; }
};
struct Split : Plain {
    void start(std::span<const Command>, Deadline) noexcept {}
    bool finish(std::span<Reply>) noexcept { return true; }
    static void wait_any(std::span<Split* const>, Deadline) noexcept {}
};
struct HalfSplit : Plain {
    void start(std::span<const Command>, Deadline) noexcept {}
    bool finish(std::span<Reply>) noexcept { return true; }
};
struct ThrowingSplit : Plain {
    void start(std::span<const Command>, Deadline) {}
    bool finish(std::span<Reply>) noexcept { return true; }
    static void wait_any(std::span<ThrowingSplit* const>, Deadline) noexcept {}
};
struct Shared : Plain {
    static constexpr bool is_shareable = true;
};
struct Unshared : Plain {
    static constexpr bool is_shareable = false;
};
struct Routed : Shared {
    std::uint32_t lane(std::string_view) noexcept { return 0; }
};
struct RoutedAlone : Unshared {
    std::uint32_t lane(std::string_view) noexcept { return 0; }
};
struct ThrowingRoutes : Shared {
    std::uint32_t lane(std::string_view) { return 0; }
};
struct NamedRoutes : Shared {
    std::string_view lane(std::string_view key) noexcept { return key; }
};
struct SharedNothing {
    static constexpr bool is_shareable = true;
};

static_assert(Connection<Plain>);
static_assert(!Connection<Throwing>);
static_assert(!Connection<Chatty>);
static_assert(!Connection<int>);
static_assert(!Connection<std::unique_ptr<Plain>>);

static_assert(SplitConnection<Split>);
static_assert(!SplitConnection<Plain>);
static_assert(!SplitConnection<HalfSplit>);
static_assert(!SplitConnection<ThrowingSplit>);

static_assert(SharedConnection<Shared>);
static_assert(!SharedConnection<Plain>);
static_assert(!SharedConnection<Unshared>);
static_assert(!SharedConnection<SharedNothing>);

static_assert(RoutedConnection<Routed>);
static_assert(!RoutedConnection<Shared>);
static_assert(!RoutedConnection<RoutedAlone>);
static_assert(!RoutedConnection<ThrowingRoutes>);
static_assert(!RoutedConnection<NamedRoutes>);

using leaselock::testing::MemoryConnection;
static_assert(SplitConnection<MemoryConnection> && SharedConnection<MemoryConnection>);

TEST(ConnectionConcepts, AFlagAloneMakesNoConnection) {
    EXPECT_TRUE(SharedNothing::is_shareable && Shared::is_shareable && !Unshared::is_shareable);
    EXPECT_FALSE(SharedConnection<SharedNothing>);
}

} // namespace
