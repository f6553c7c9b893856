// SPDX-License-Identifier: MIT
// A service's file with every kind of connection, and what takes one.
#include "own.hpp"

#include <leaselock/hiredis/tls.hpp>
#include <leaselock/leaselock.hpp>
#include <leaselock/testing/manual_runtime.hpp>
#include <leaselock/testing/memory_connection.hpp>
#include <leaselock/testing/memory_redis.hpp>

#include <chrono>
#include <mutex>

using namespace std::chrono_literals;

namespace {

/// Whether a guard and a renewer over it can do what they can without a server.
template <class B>
bool works(B& backend) {
    using Options = typename leaselock::LeaseLock<B>::options_type;
    leaselock::LeaseLock lock{backend, "key", Options{.ttl = 10s, .timeout = 50ms},
                              std::defer_lock};
    leaselock::Renewer renewer{backend};
    return lock.try_acquire().answer != leaselock::Answer::yes && !lock.owns_lock() &&
           lock.renew().cause == leaselock::errc::not_held &&
           renewer.try_keep(lock).cause == leaselock::errc::not_held && !lock.detach();
}

template <class C>
bool looks(C& connection) {
    return leaselock::inspect(connection, "key", 50ms).state ==
               leaselock::Inspection::State::unknown &&
           works(connection);
}

/// As in a service's unit test.
bool excludes() {
    leaselock::testing::ManualRuntime runtime;
    leaselock::testing::MemoryRedis server{runtime};
    leaselock::testing::MemoryConnection a{server};
    leaselock::testing::MemoryConnection b{server};
    leaselock::LeaseLock first{a, "key", 10s};
    leaselock::LeaseLock second{b, "key", 10s, std::defer_lock};
    return first.owns_lock() && second.try_acquire().cause == leaselock::errc::busy &&
           first.unlock() && second.try_lock();
}

} // namespace

bool all_kinds_work() {
    const char* const nobody = "redis://127.0.0.1:1"; // the attempt is answered, at once
    leaselock::HiredisConnection plain{nobody};
    leaselock::HiredisConnection second{nobody};
    leaselock::HiredisConnection third{nobody};
    leaselock::Quorum quorum{plain, second, third};
    leaselock::MultiplexedConnection shared{nobody};
    leaselock::ClusterConnection cluster{nobody};
    leaselock::Endpoint impatient;
    impatient.connect_timeout = 20ms;
    leaselock::SentinelConnection<> sentinel{{nobody}, "master", impatient};
    leaselock::SentinelConnection<leaselock::MultiplexedConnection> shared_sentinel{
        {nobody}, "master", impatient};
    redisContext context{};
    context.err = REDIS_ERR_IO; // it says so before anything of it is used
    leaselock::BorrowedHiredisConnection borrowed{context};
    const leaselock::Tls tls;
    leaselock::HiredisConnection secure{tls.endpoint("rediss://127.0.0.1:1")};
    own::Connection mine;
    return looks(plain) && looks(shared) && looks(cluster) && looks(sentinel) &&
           looks(shared_sentinel) && looks(borrowed) && looks(secure) && looks(mine) &&
           works(quorum) && excludes();
}
