// SPDX-License-Identifier: MIT
// Compiled with -fno-exceptions -fno-rtti: the verbs that do not throw do the whole job.
#include <leaselock/hiredis/tls.hpp>
#include <leaselock/leaselock.hpp>
#include <leaselock/testing/manual_runtime.hpp>
#include <leaselock/testing/memory_connection.hpp>
#include <leaselock/testing/memory_redis.hpp>

#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <vector>

using namespace std::chrono_literals;
using leaselock::Answer;
using leaselock::testing::MemoryConnection;
using Guard = leaselock::LeaseLock<MemoryConnection>;

// What could only report by throwing is not there.
template <class G>
concept CanThrow = requires(G& guard) {
    guard.try_lock();
};
static_assert(!CanThrow<Guard>);
static_assert(
    !std::is_constructible_v<Guard, MemoryConnection&, std::string_view, std::chrono::seconds>);
static_assert(!std::is_constructible_v<leaselock::HiredisConnection, const char*>);
static_assert(!std::is_constructible_v<leaselock::Tls, leaselock::TlsOptions>);
static_assert(!std::is_default_constructible_v<leaselock::Tls>);
static_assert(!std::is_constructible_v<leaselock::ClusterConnection, const char*>);

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
    if (holds) return;
    std::printf("not so: %s\n", what);
    ++failures;
}

void in_memory() {
    leaselock::testing::ManualRuntime runtime;
    leaselock::testing::MemoryRedis server{runtime};
    MemoryConnection redis{server};
    Guard a{redis, "key", 10s, std::defer_lock};
    Guard b{redis, "key", 10s, std::defer_lock};

    expect(a.try_acquire().answer == Answer::yes, "a free key is acquired");
    expect(b.try_acquire().answer == Answer::no, "a held key is busy");
    expect(a.renew().answer == Answer::yes, "the owner renews");
    runtime.advance(12s);
    expect(!a.owns_lock(), "the lease ends at its deadline");
    expect(b.try_acquire().answer == Answer::yes, "an expired key is acquired");
    expect(a.unlock().answer == Answer::no, "the late unlock deletes nothing");
    expect(b.owns_lock() && b.unlock().answer == Answer::yes, "the owner unlocks");
}

void over_a_quorum() {
    leaselock::testing::ManualRuntime runtime;
    leaselock::testing::MemoryRedis servers[3]{leaselock::testing::MemoryRedis{runtime},
                                               leaselock::testing::MemoryRedis{runtime},
                                               leaselock::testing::MemoryRedis{runtime}};
    MemoryConnection a{servers[0]};
    MemoryConnection b{servers[1]};
    MemoryConnection c{servers[2]};
    leaselock::Quorum nodes{a, b, c};
    leaselock::LeaseLock lock{nodes, "key", 10s, std::defer_lock};
    c.go_down();
    expect(lock.try_acquire().answer == Answer::yes, "two of three are a majority");
    expect(lock.renew().confirmed == 2, "and renew");
    b.go_down();
    expect(lock.renew().answer == Answer::unknown, "one is none");
    expect(lock.owns_lock(), "and no loss");
}

void over_hiredis() {
    leaselock::Endpoint endpoint;
    expect(!leaselock::Endpoint::parse("http://127.0.0.1", endpoint),
           "a foreign scheme is an error");
    expect(bool{leaselock::Endpoint::parse("redis://127.0.0.1:1", endpoint)}, "a good URL parses");
    leaselock::HiredisConnection redis{endpoint}; // nobody listens there
    leaselock::LeaseLock lock{redis, "key", 10s, std::defer_lock};
    expect(lock.try_acquire().answer == Answer::unsent, "without a server nothing is sent");
    leaselock::ClusterConnection cluster{{&endpoint, 1}};
    leaselock::LeaseLock clustered{cluster, "key", 10s, std::defer_lock};
    expect(clustered.try_acquire().answer == Answer::unsent, "without a cluster nothing is sent");
}

void through_sentinel() {
    leaselock::Endpoint nobody;
    nobody.port = 1;
    const auto sentinel =
        std::make_shared<leaselock::Sentinel>(std::vector<leaselock::Endpoint>{nobody}, "mymaster");
    leaselock::SentinelConnection redis{sentinel};
    leaselock::LeaseLock lock{redis, "key", {.ttl = 10s, .timeout = 50ms}, std::defer_lock};
    expect(lock.try_acquire().answer == Answer::unsent, "without a sentinel nothing is sent");
}

void over_tls() {
    leaselock::Endpoint endpoint;
    expect(bool{leaselock::Endpoint::parse("rediss://127.0.0.1:1", endpoint)}, "rediss:// parses");
    expect(!endpoint.check(), "it needs security");
    expect(!leaselock::Tls::load({.ca_file = "/does/not/exist"}, endpoint.security),
           "a file that is not there is an error");
    expect(endpoint.security == nullptr, "and sets nothing");
    expect(bool{leaselock::Tls::load({}, endpoint.security)}, "the system's authorities do");
    leaselock::HiredisConnection redis{endpoint}; // nobody listens there
    leaselock::LeaseLock lock{redis, "key", 10s, std::defer_lock};
    expect(lock.try_acquire().cause == leaselock::condition::unreachable, "and it tries");
}

} // namespace

int main() {
    in_memory();
    over_a_quorum();
    over_hiredis();
    through_sentinel();
    over_tls();
    return failures == 0 ? 0 : 1;
}
