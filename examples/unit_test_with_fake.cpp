// SPDX-License-Identifier: MIT

/// How a service that uses leaselock is unit-tested: with the in-memory Redis and a clock that the
/// test moves. No server, no sleeping, no hiredis: this links GoogleTest and leaselock::core.

#include <leaselock/lock/inspect.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/testing/manual_runtime.hpp>
#include <leaselock/testing/memory_connection.hpp>
#include <leaselock/testing/memory_redis.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <ostream>
#include <vector>

using namespace std::chrono_literals;

// --- the service -------------------------------------------------------------------------------

struct OrderStore {
    std::vector<int> open;
    std::vector<int> cancelled;
    /// What else happens while an order is cancelled; the tests let time pass here.
    std::function<void()> on_cancel = [] {};

    void cancel(int order) {
        cancelled.push_back(order);
        on_cancel();
    }
};

enum class JobResult { done, somebody_else_does_it, lease_lost, redis_trouble };

/// For GoogleTest's messages.
std::ostream& operator<<(std::ostream& out, JobResult result) {
    switch (result) {
    case JobResult::done: return out << "done";
    case JobResult::somebody_else_does_it: return out << "somebody else does it";
    case JobResult::lease_lost: return out << "lease lost";
    case JobResult::redis_trouble: return out << "trouble with Redis";
    }
    return out;
}

/// Cancels the orders that were not paid in time. Any number of hosts may call it; one at a time does
/// the work. The connection is a template parameter: HiredisConnection in the service,
/// MemoryConnection here.
template <leaselock::Connection C>
JobResult close_expired_orders(C& redis, OrderStore& store) {
    leaselock::LeaseLock lock{redis, "lock:order-timeout", 10s, std::defer_lock};
    const leaselock::Outcome outcome = lock.try_acquire();
    if (outcome.answer == leaselock::Answer::no) return JobResult::somebody_else_does_it;
    if (!outcome) return JobResult::redis_trouble;
    for (const int order : store.open) {
        if (!lock.owns_lock()) return JobResult::lease_lost; // the rest is the next holder's
        store.cancel(order);
    }
    return JobResult::done;
}

// --- its test ----------------------------------------------------------------------------------

namespace {

using leaselock::LeaseLock;
using leaselock::testing::Fault;
using leaselock::testing::ManualRuntime;
using leaselock::testing::MemoryConnection;
using leaselock::testing::MemoryRedis;

class CloseExpiredOrders : public testing::Test {
protected:
    ManualRuntime runtime; // the clock: it stands still until somebody moves it
    MemoryRedis server{runtime};
    MemoryConnection redis{server};
    MemoryConnection redis_of_another_host{server};
    OrderStore store{.open = {1001, 1002, 1003}, .cancelled = {}};
};

TEST_F(CloseExpiredOrders, cancels_all_and_gives_the_lock_back) {
    EXPECT_EQ(close_expired_orders(redis, store), JobResult::done);
    EXPECT_EQ(store.cancelled, store.open);
    EXPECT_FALSE(server.get("lock:order-timeout"));
}

TEST_F(CloseExpiredOrders, does_nothing_while_another_host_is_at_it) {
    const LeaseLock other{redis_of_another_host, "lock:order-timeout", 10s};

    EXPECT_EQ(close_expired_orders(redis, store), JobResult::somebody_else_does_it);
    EXPECT_TRUE(store.cancelled.empty());
    EXPECT_TRUE(other.owns_lock());
}

TEST_F(CloseExpiredOrders, takes_over_when_the_other_host_has_died) {
    // what a dead host leaves: its token, with what is left of its ttl
    server.set("lock:order-timeout", "the token of a dead host", 10s);

    EXPECT_EQ(close_expired_orders(redis, store), JobResult::somebody_else_does_it);
    runtime.advance(10s + 1ms); // at 10 s sharp the key is still there, as in Redis
    EXPECT_EQ(close_expired_orders(redis, store), JobResult::done);
}

TEST_F(CloseExpiredOrders, stops_when_its_lease_runs_out_and_leaves_the_next_holder_alone) {
    store.on_cancel = [&] {
        runtime.advance(12s); // a stall, past the lease of 10 s
        server.set("lock:order-timeout", "the token of the next holder", 10s);
    };

    EXPECT_EQ(close_expired_orders(redis, store), JobResult::lease_lost);
    EXPECT_EQ(store.cancelled, std::vector{1001});
    EXPECT_EQ(server.get("lock:order-timeout"), "the token of the next holder");
}

TEST_F(CloseExpiredOrders, reports_trouble_when_redis_is_down) {
    redis.go_down();
    EXPECT_EQ(close_expired_orders(redis, store), JobResult::redis_trouble);
    EXPECT_TRUE(store.cancelled.empty());

    redis.come_up();
    EXPECT_EQ(close_expired_orders(redis, store), JobResult::done);
}

TEST_F(CloseExpiredOrders, does_not_believe_in_a_lock_whose_answer_was_lost) {
    redis.on("SET", {Fault::lost_reply});

    EXPECT_EQ(close_expired_orders(redis, store), JobResult::redis_trouble);
    EXPECT_TRUE(store.cancelled.empty());
    // what the SET has left is deleted again, by its token
    EXPECT_FALSE(server.get("lock:order-timeout"));
}

} // namespace
