// SPDX-License-Identifier: MIT
// What a lock over five nodes takes, beside one over a single node.
//
//   leaselock_quorum [--rounds N] [--delay MS]
//
// Five private servers behind proxies that delay both directions by half of MS each, then without
// the delay; then with one of them stopped. Prints a table. Exits with 1 when a lock was not taken.
#include "integration/support/fault_proxy.hpp"
#include "integration/support/redis_server.hpp"

#include <leaselock/leaselock.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

using Nodes = Quorum<HiredisConnection>;

double in_ms(std::chrono::nanoseconds span) {
    return std::chrono::duration<double, std::milli>(span).count();
}

/// How long one acquire takes; gives the lock back. Each its own key: a release of a quorum returns
/// before the slowest node has deleted it.
template <class B, class O>
std::chrono::nanoseconds time_acquire(B& backend, const O& options) {
    static int key = 0;
    LeaseLock lock{backend, "lock:timed:" + std::to_string(++key), options, std::defer_lock};
    const Deadline start = LeaseClock::now();
    const Outcome outcome = lock.try_acquire();
    const auto took = LeaseClock::now() - start;
    if (!outcome) {
        std::fprintf(stderr, "not acquired: %s\n", std::string{outcome.text.view()}.c_str());
        std::exit(1); // NOLINT(concurrency-mt-unsafe): there is no other thread of ours
    }
    return took;
}

template <class B, class O>
std::chrono::nanoseconds median(B& backend, const O& options, long rounds) {
    std::vector<std::chrono::nanoseconds> times;
    for (long i = 0; i < rounds; ++i) {
        times.push_back(time_acquire(backend, options));
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

long argument(std::span<char*> words, std::string_view name, long otherwise) {
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
        const std::string_view value = words[i + 1];
        if (words[i] == name) {
            std::from_chars(value.data(), value.data() + value.size(), otherwise);
        }
    }
    return otherwise;
}

} // namespace

int main(int argc, char** argv) {
    const std::span words{argv, static_cast<std::size_t>(argc)};
    const long rounds = std::max(1L, argument(words, "--rounds", 200));
    const auto delay = std::chrono::milliseconds{argument(words, "--delay", 10)};

    std::deque<RedisServer> servers(5);
    std::deque<FaultProxy> proxies;
    std::deque<HiredisConnection> slow;
    std::deque<HiredisConnection> direct;
    for (RedisServer& server : servers) {
        slow.emplace_back(proxies.emplace_back(server.port()).url());
        direct.emplace_back(server.url());
        proxies.back().delay(delay / 2);
    }
    const Options one{.ttl = 60s};
    const QuorumOptions five{.ttl = 60s, .timeout = 1s};
    Nodes slow_five{slow[0], slow[1], slow[2], slow[3], slow[4]};
    Nodes direct_five{direct[0], direct[1], direct[2], direct[3], direct[4]};

    std::printf("median of %ld acquires      one node   five nodes   ratio\n", rounds);
    const auto row = [&](const char* name, HiredisConnection& single, Nodes& nodes) {
        (void)time_acquire(single, one); // both are connected
        (void)time_acquire(nodes, five);
        const auto alone = median(single, one, rounds);
        const auto together = median(nodes, five, rounds);
        std::printf("%-26s %7.3f ms   %7.3f ms    %.2f\n", name, in_ms(alone), in_ms(together),
                    in_ms(together) / in_ms(alone));
    };
    const std::string name = std::to_string(delay.count()) + " ms there and back";
    row(name.c_str(), slow[0], slow_five);
    row("loopback", direct[0], direct_five);

    std::deque<HiredisConnection> fresh;
    for (RedisServer& server : servers) {
        fresh.emplace_back(server.url());
    }
    servers[4].stop_process();
    Nodes nodes{fresh[0], fresh[1], fresh[2], fresh[3], fresh[4]};
    std::printf("\none of five stopped, ttl 1,000 ms, node timeout 50 ms\n");
    for (const char* when : {"first acquire", "second", "third"}) {
        LeaseLock lock{nodes, "lock:timed", QuorumOptions{.ttl = 1s, .timeout = 50ms},
                       std::defer_lock};
        const Deadline start = LeaseClock::now();
        if (!lock.try_acquire()) {
            return 1;
        }
        std::printf("%-14s %8.3f ms, %.0f ms left\n", when, in_ms(LeaseClock::now() - start),
                    in_ms(lock.remaining()));
    }
    return 0;
}
