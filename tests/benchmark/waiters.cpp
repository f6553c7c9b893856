// SPDX-License-Identifier: MIT
// What waiting costs: N threads wait for one key that another holds.
//
//   leaselock_waiters [--waiters N,N,...] [--held MS] [--grants N] [--most MS] [--json FILE]
//
// Three ways: all on one `MultiplexedConnection`, where they line up; each on a `HiredisConnection`;
// and each in a hand-written loop that asks every 10 ms, which is what people write.
//   1. The key is held for MS: commands a second that the waiting makes the server run.
//   2. It goes from hand to hand, until so many grants or the time is up: how long a release takes to
//      become somebody else's grant. There are always N who wait.
// Exits with 1 when a lock could not be given back.
#include "benchmark/support/arguments.hpp"
#include "benchmark/support/by_hand.hpp"
#include "benchmark/support/crowd.hpp"
#include "benchmark/support/records.hpp"
#include "benchmark/support/statistics.hpp"
#include "integration/support/redis_server.hpp"
#include "integration/support/resources.hpp"

#include <leaselock/leaselock.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace leaselock;
using namespace leaselock::bench;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

constexpr std::string_view the_key = "lock:contended";

struct Plan {
    std::vector<long> waiters{1, 16, 256};
    long held_ms = 2000;
    long grants = 100;
    long most_ms = 5000;
    std::string json;
};

/// One party that wants the key.
struct Contender {
    std::function<bool(std::stop_token)> wait; ///< until it has it, or is told to stop
    std::function<bool()> release;
};

template <Connection C>
Contender with_guard(std::shared_ptr<C> connection) {
    static constexpr Options options{.ttl = 30s, .timeout = 10s};
    auto lock = std::make_shared<LeaseLock<C>>(*connection, the_key, options, std::defer_lock);
    return {[connection, lock](std::stop_token stop) {
                return static_cast<bool>(lock->try_acquire_for(24h, std::move(stop)));
            },
            [lock] { return static_cast<bool>(lock->unlock()); }};
}

Contender polling(std::uint16_t port, std::size_t number) {
    auto connection = std::make_shared<ByHand>(port);
    auto pair = std::make_shared<Pair>(std::string{the_key}, number);
    return {[connection, pair](const std::stop_token& stop) {
                while (!stop.stop_requested()) {
                    if (connection->call(pair->acquire())) return true;
                    std::this_thread::sleep_for(10ms);
                }
                return false;
            },
            [connection, pair] { return connection->call(pair->release()); }};
}

/// Where the key is, and how it changed hands.
class Relay {
public:
    /// The holder says so before it releases.
    void about_to_release() { released_ = LeaseClock::now(); }
    /// Whoever has it next says so. The first holder has it from nobody.
    void granted() {
        const Deadline now = LeaseClock::now();
        const Deadline released = released_;
        if (released != Deadline{}) {
            const std::scoped_lock hold{mutex_};
            delays_ms_.push_back(std::chrono::duration<double, std::milli>(now - released).count());
        }
        ++grants_;
        grants_.notify_all();
    }
    /// Nobody needs to wait for another grant. After the stop request.
    void close() {
        ++grants_;
        grants_.notify_all();
    }
    [[nodiscard]] std::size_t grants() const noexcept { return grants_; }
    void await_grant_after(std::size_t seen) const { grants_.wait(seen); }
    [[nodiscard]] std::vector<double> delays_ms() {
        const std::scoped_lock hold{mutex_};
        return delays_ms_;
    }

private:
    std::atomic<Deadline> released_{};
    std::atomic<std::size_t> grants_{0};
    std::mutex mutex_;
    std::vector<double> delays_ms_;
};

/// Takes the key, holds it for 20 to 40 ms, gives it back, and lets somebody else have it first.
void take_turns(const Contender& contender, Relay& relay, std::stop_token stop) {
    while (contender.wait(stop)) {
        relay.granted();
        const std::size_t grants = relay.grants();
        std::this_thread::sleep_for(20ms + std::chrono::milliseconds{grants * 7 % 21});
        const bool last = stop.stop_requested();
        relay.about_to_release();
        if (!contender.release()) ++failures;
        if (last) return;
        relay.await_grant_after(grants);
    }
}

/// All commands but those that ask.
long long commands_of(RawClient& outside) {
    long long sum = 0;
    for (const auto& [name, calls] : outside.command_stats()) {
        if (name != "info" && name.find('|') == std::string::npos) sum += calls;
    }
    return sum;
}

struct Findings {
    double commands_per_second = 0;
    std::vector<double> delays_ms{};
};

Findings wait_together(const Plan& plan, RedisServer& server, std::size_t waiters,
                       const std::function<Contender(std::size_t)>& make) {
    Findings findings;
    RawClient outside = server.client();
    load_script(outside);
    Relay relay;
    std::stop_source stop;
    const Contender first = make(waiters);
    if (!first.wait(stop.get_token())) throw std::runtime_error("the key is not free");
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < waiters; ++i) {
        threads.emplace_back([&, i] { take_turns(make(i), relay, stop.get_token()); });
    }
    // Their pauses grow to what they stay at.
    std::this_thread::sleep_for(std::chrono::milliseconds{std::min(1500L, plan.held_ms)});
    outside.reset_stats();
    const Deadline start = LeaseClock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds{plan.held_ms});
    const long long commands = commands_of(outside);
    findings.commands_per_second = static_cast<double>(commands) /
                                   std::chrono::duration<double>(LeaseClock::now() - start).count();

    relay.about_to_release();
    if (!first.release()) ++failures;
    threads.emplace_back([&] { // so that N wait while one holds
        relay.await_grant_after(0);
        take_turns(first, relay, stop.get_token());
    });
    const Deadline end = LeaseClock::now() + std::chrono::milliseconds{plan.most_ms};
    while (LeaseClock::now() < end && relay.grants() < static_cast<std::size_t>(plan.grants)) {
        std::this_thread::sleep_for(10ms);
    }
    findings.delays_ms = relay.delays_ms();
    stop.request_stop();
    relay.close();
    for (auto& thread : threads) thread.join();
    return findings;
}

/// One way, with so many waiters, on a server of its own.
Findings run(const Plan& plan, std::string_view way, std::size_t waiters) {
    RedisServer server;
    if (way == "shared") {
        const auto shared = std::make_shared<MultiplexedConnection>(server.url());
        return wait_together(plan, server, waiters,
                             [&](std::size_t) { return with_guard(shared); });
    }
    return wait_together(plan, server, waiters, [&](std::size_t i) {
        return way == "own" ? with_guard(std::make_shared<HiredisConnection>(server.url()))
                            : polling(server.port(), i);
    });
}

} // namespace

int main(int argc, char** argv) {
    Plan plan;
    Arguments arguments;
    arguments.add("--waiters", plan.waiters);
    arguments.add("--held", plan.held_ms);
    arguments.add("--grants", plan.grants);
    arguments.add("--most", plan.most_ms);
    arguments.add("--json", plan.json);
    if (!arguments.read(argc, argv)) return 2;

    (void)raise_descriptor_limit();
    Records records;
    std::printf("%s\n", RedisServer::version().c_str());
    std::printf("waiters   way       commands/s while held   grants   ms from release to grant: "
                "median     99 %%\n");
    for (const long waiters : plan.waiters) {
        for (const std::string_view way : {"shared", "own", "poll"}) {
            const Findings found = run(plan, way, static_cast<std::size_t>(waiters));
            std::printf("%7ld   %-6.*s %24.0f %8zu %35.2f %8.2f\n", waiters,
                        static_cast<int>(way.size()), way.data(), found.commands_per_second,
                        found.delays_ms.size(), median(found.delays_ms),
                        percentile(found.delays_ms, 0.99));
            records.add("waiters")
                .set("way", way)
                .set("waiters", waiters)
                .set("commands_per_second_while_held", found.commands_per_second)
                .set("release_to_grant_ms", found.delays_ms);
        }
    }
    std::printf("failures %zu\n", failures.load());
    records.write(plan.json);
    return failures == 0 ? 0 : 1;
}
