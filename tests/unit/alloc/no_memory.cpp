// SPDX-License-Identifier: MIT
// P15: what is allocated, and what happens where nothing can be. `operator new` is the test's own.

#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/renewer.hpp>
#include <leaselock/testing/manual_runtime.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <string_view>

namespace {

std::atomic<bool> counting{false};
std::atomic<long> allocations{0};
std::atomic<long> allowed{0}; ///< while counting: how many succeed

void* allocate(std::size_t size) noexcept {
    if (counting && allocations++ >= allowed) return nullptr;
    return std::malloc(size != 0 ? size : 1);
}
void* allocate_or_throw(std::size_t size) {
    void* const memory = allocate(size);
    if (memory == nullptr) throw std::bad_alloc{};
    return memory;
}

/// While it lives, so many allocations succeed, of any thread, and no more.
class Memory {
public:
    explicit Memory(long left) {
        allocations = 0;
        allowed = left;
        counting = true;
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() { counting = false; }
    [[nodiscard]] long asked_for() const noexcept { return allocations; }
};

} // namespace

// the forms that others end in; the library asks for no alignment
void* operator new(std::size_t size) { return allocate_or_throw(size); }
void* operator new[](std::size_t size) { return allocate_or_throw(size); }
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
    return allocate(size);
}
void* operator new[](std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
    return allocate(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t& /*tag*/) noexcept { std::free(memory); }

namespace leaselock::test {
namespace {

using namespace std::chrono_literals;
using testing::ManualRuntime;

/// A Redis that says yes, or what it is told to, and allocates nothing.
struct Yes {
    static constexpr bool is_shareable = true;

    Runtime& runtime;
    std::atomic<std::int64_t> script_says{1};
    std::atomic<int> sets{0};
    std::atomic<int> scripts{0};

    void call(std::span<const Command> commands, std::span<Reply> replies,
              Deadline /*by*/) noexcept {
        for (std::size_t i = 0; i < commands.size(); ++i) {
            const std::string_view name = commands[i].argv.front();
            if (name == "SET") {
                ++sets;
                replies[i].set_text(Reply::status, "OK");
            } else if (name.starts_with("EVAL")) {
                ++scripts;
                replies[i].set_integer(script_says);
            } else {
                replies[i].set_integer(-2); // PTTL
            }
        }
    }
    friend Runtime& runtime_of(const Yes& yes) noexcept { return yes.runtime; }
};

/// As many servers as there are last letters of keys.
struct RoutedYes : Yes {
    std::atomic<bool> one_server{false};
    std::uint32_t lane(std::string_view key) noexcept {
        return one_server ? 'a' : static_cast<unsigned char>(key.back());
    }
};

struct NoMemoryTest : ::testing::Test {
    ManualRuntime clock;
    Yes redis{clock};
    LeaseLock<Yes> warm{redis, "warm", 3s, std::defer_lock}; // what is made once per process
    static constexpr Options options{.ttl = 3s};
};

TEST_F(NoMemoryTest, P15AGuardThatCannotBeMadeThrowsBeforeAnythingIsSent) {
    bool thrown = false;
    {
        const Memory none{0};
        try {
            const LeaseLock lock{redis, "k", options};
        } catch (const std::bad_alloc&) {
            thrown = true;
        }
    }
    EXPECT_TRUE(thrown);
    EXPECT_EQ(redis.sets, 0);
    EXPECT_EQ(redis.scripts, 0);
}

TEST_F(NoMemoryTest, AGuardTakesOneAllocationAndItsVerbsTakeNone) {
    std::optional<LeaseLock<Yes>> lock;
    std::optional<Memory> memory{std::in_place, 1};
    lock.emplace(redis, "k", options);
    const bool renewed = static_cast<bool>(lock->renew());
    const bool unlocked = static_cast<bool>(lock->unlock());
    const bool again = static_cast<bool>(lock->try_acquire());
    const bool waited = lock->unlock() && lock->try_acquire_for(1s);
    LeaseLock moved{std::move(*lock)};
    const bool owned = moved.owns_lock() && moved.remaining() > 0s;
    const bool released = static_cast<bool>(moved.unlock());
    lock.reset();
    const long asked_for = memory->asked_for();
    memory.reset();
    EXPECT_TRUE(renewed && unlocked && again && waited && owned && released);
    // the line of waiting threads is the second, once per process, and waiting works without
    EXPECT_LE(asked_for, 2);
}

TEST_F(NoMemoryTest, P15ADestructorReleasesWithoutMemory) {
    std::optional<LeaseLock<Yes>> lock{std::in_place, redis, "k", options};
    {
        const Memory none{0};
        lock.reset();
    }
    EXPECT_EQ(redis.scripts, 1);
}

TEST_F(NoMemoryTest, AStopTokenThatCannotBeMadeIsStoppedAndTheLeaseGoesOn) {
    LeaseLock lock{redis, "k", options};
    std::optional<std::stop_token> token;
    {
        const Memory none{0};
        token = lock.stop_token();
    }
    EXPECT_TRUE(token->stop_requested());
    EXPECT_TRUE(lock.owns_lock());
    EXPECT_FALSE(lock.stop_token().stop_requested()) << "there is memory again";
}

TEST_F(NoMemoryTest, DetachingWithoutMemoryKeepsTheLease) {
    LeaseLock lock{redis, "a key that is too long for the room inside a string", options};
    std::optional<Lease> lease;
    {
        const Memory none{0};
        lease = lock.detach();
    }
    EXPECT_FALSE(*lease);
    EXPECT_TRUE(lock.owns_lock());
    EXPECT_TRUE(lock.detach());
}

TEST_F(NoMemoryTest, KeepSaysSoWhereverMemoryEnds) {
    long needed = 0;
    for (;; ++needed) {
        ASSERT_LT(needed, 100);
        Yes wire{clock};
        Renewer<Yes> renewer{wire};
        LeaseLock lock{redis, "k", options};
        Outcome outcome;
        {
            const Memory some{needed};
            outcome = renewer.try_keep(lock);
        }
        EXPECT_TRUE(lock.owns_lock());
        EXPECT_EQ(lock.loss(), Loss::none);
        clock.advance(1500ms);
        if (outcome) {
            EXPECT_GT(wire.scripts, 0);
            EXPECT_GT(lock.remaining(), 2s);
            break;
        }
        EXPECT_EQ(outcome.answer, Answer::unsent) << needed;
        EXPECT_EQ(outcome.cause, std::errc::not_enough_memory) << needed;
        EXPECT_EQ(wire.scripts, 0) << needed;
        // and nothing is the worse for it
        EXPECT_TRUE(renewer.try_keep(lock)) << needed;
        clock.advance(5s);
        EXPECT_TRUE(lock.owns_lock()) << needed;
        EXPECT_TRUE(lock.unlock()) << needed;
    }
    EXPECT_GT(needed, 0);
}

TEST_F(NoMemoryTest, WhereNoLaneCanBeHadALeaseIsKeptInOneThatThereIs) {
    long needed = 0;
    for (bool short_of_it = true; short_of_it; needed += short_of_it ? 1 : 0) {
        ASSERT_LT(needed, 100);
        RoutedYes server{{clock}};
        RoutedYes wire{{clock}};
        Renewer<RoutedYes> renewer{wire};
        LeaseLock first{server, "1a", options};
        LeaseLock second{server, "2a", options};
        LeaseLock third{server, "3a", options};
        for (LeaseLock<RoutedYes>* lock : {&first, &second, &third}) renewer.keep(*lock);
        clock.settle();
        LeaseLock lock{server, "1b", options};
        const std::stop_token told = lock.stop_token();
        Outcome outcome;
        {
            const Memory some{needed};
            outcome = renewer.try_keep(lock);
            short_of_it = some.asked_for() > needed;
        }
        EXPECT_TRUE(outcome) << needed;
        clock.advance(10s);
        EXPECT_TRUE(lock.owns_lock()) << needed;
        EXPECT_FALSE(told.stop_requested()) << needed;
    }
    EXPECT_GT(needed, 5) << "a lane, its four heaps, and a thread";
}

TEST_F(NoMemoryTest, ALeaseThatCannotFollowItsKeyIsRenewedWhereItIs) {
    RoutedYes wire{{clock}};
    Renewer<RoutedYes> renewer{wire};
    LeaseLock here{wire, "a", options};
    LeaseLock there{wire, "b", options};
    renewer.keep(here);
    renewer.keep(there);
    clock.advance(10s);
    long asked_for = 0;
    {
        const Memory none{0};
        wire.one_server = true;
        clock.advance(10s);
        asked_for = none.asked_for();
    }
    EXPECT_GT(asked_for, 0);
    EXPECT_TRUE(here.owns_lock());
    EXPECT_TRUE(there.owns_lock());
    clock.advance(10s);
    EXPECT_TRUE(there.owns_lock());
}

TEST_F(NoMemoryTest, P15RenewalAllocatesNothingAndALossIsSignalledWithoutMemory) {
    Yes wire{clock};
    Renewer<Yes> renewer{wire};
    LeaseLock lock{redis, "k", options};
    LeaseLock other{redis, "j", options};
    renewer.keep(lock);
    renewer.keep(other);
    const std::stop_token told = lock.stop_token();
    std::atomic<int> called{0};
    const std::stop_callback callback{told, [&] { ++called; }};
    clock.advance(10s); // the simulation has what it needs, too
    const int before = wire.scripts;
    long asked_for = -1; // told outside: an expectation that fails needs memory
    {
        const Memory none{0};
        clock.advance(100s);
        asked_for = none.asked_for();
    }
    EXPECT_EQ(asked_for, 0);
    EXPECT_EQ(wire.scripts, before + 200);
    EXPECT_TRUE(lock.owns_lock());
    wire.script_says = 0;
    {
        const Memory none{0};
        clock.advance(1s);
    }
    EXPECT_FALSE(lock.owns_lock());
    EXPECT_EQ(lock.loss(), Loss::taken);
    EXPECT_TRUE(told.stop_requested());
    EXPECT_EQ(called, 1);
}

TEST_F(NoMemoryTest, AGuardWhoseRecordIsStillInUseSaysSoWhereItCannotHaveAnother) {
    Yes wire{clock};
    Renewer<Yes> renewer{wire};
    LeaseLock lock{redis, "k", options};
    renewer.keep(lock);
    const std::stop_token told = lock.stop_token();
    std::optional<Outcome> outcome;
    wire.script_says = -1;
    { // inside its own callback the record is the renewer's as well
        const std::stop_callback callback{told, [&] {
                                              const Memory none{0};
                                              outcome = lock.try_acquire();
                                          }};
        clock.advance(2s);
    }
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->answer, Answer::unsent);
    EXPECT_EQ(outcome->cause, std::errc::not_enough_memory);
    EXPECT_TRUE(lock.try_acquire());
}

} // namespace
} // namespace leaselock::test
