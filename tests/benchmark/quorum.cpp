// SPDX-License-Identifier: MIT
// What a lock over five nodes takes, beside one over a single node.
//
//   leaselock_quorum [--rounds R] [--each N] [--delay MS] [--json FILE]
//
// Five private servers behind proxies that delay both directions by half of MS each, then without
// the delay; one node and five take turns, R rounds of N locks each. Then with one of five stopped.
// Prints a table. Exits with 1 when a lock was not taken or not released.
#include "benchmark/support/arguments.hpp"
#include "benchmark/support/records.hpp"
#include "benchmark/support/statistics.hpp"
#include "integration/support/fault_proxy.hpp"
#include "integration/support/redis_server.hpp"

#include <leaselock/leaselock.hpp>

#include <chrono>
#include <cstdio>
#include <deque>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace leaselock;
using namespace leaselock::bench;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

using Nodes = Quorum<HiredisConnection>;

struct Plan {
    long rounds = 10;
    long each = 20;
    long delay = 10;
    std::string json;
};

double in_ms(std::chrono::nanoseconds span) {
    return std::chrono::duration<double, std::milli>(span).count();
}

void expect(const Outcome& outcome, const char* verb) {
    if (!outcome) {
        throw std::runtime_error(std::string{verb} + ": " + std::string{outcome.text.view()});
    }
}

/// Milliseconds, a median for each round.
struct Times {
    std::vector<double> acquire{};
    std::vector<double> pair{}; ///< acquire and release
};

/// Takes and gives back so many locks. Each has a key of its own: a release of a quorum returns before
/// the slowest node has deleted it.
template <class B, class O>
void run_round(B& backend, const O& options, long each, Times& times) {
    static int key = 0;
    std::vector<double> acquires;
    std::vector<double> pairs;
    for (long i = 0; i < each; ++i) {
        LeaseLock lock{backend, "lock:timed:" + std::to_string(++key), options, std::defer_lock};
        const Deadline start = LeaseClock::now();
        expect(lock.try_acquire(), "acquire");
        acquires.push_back(in_ms(LeaseClock::now() - start));
        expect(lock.unlock(), "release");
        pairs.push_back(in_ms(LeaseClock::now() - start));
    }
    times.acquire.push_back(median(std::move(acquires)));
    times.pair.push_back(median(std::move(pairs)));
}

void compare(const Plan& plan, long delay, HiredisConnection& single, Nodes& nodes,
             Records& records) {
    const Options one{.ttl = 60s};
    const QuorumOptions five{.ttl = 60s, .timeout = 1s};
    Times connecting;
    run_round(single, one, 1, connecting);
    run_round(nodes, five, 1, connecting);
    Times alone;
    Times together;
    for (long round = 0; round < plan.rounds; ++round) {
        run_round(single, one, plan.each, alone);
        run_round(nodes, five, plan.each, together);
    }
    const auto row = [&](const char* what, const auto& first, const auto& second) {
        std::printf("%3ld ms   %-20s %8.3f ms %9.3f ms %10.2f\n", delay, what, median(first),
                    median(second), median(ratios(second, first)));
    };
    row("acquire", alone.acquire, together.acquire);
    row("acquire and release", alone.pair, together.pair);
    for (const auto& [nodes_asked, times] : {std::pair{1, &alone}, std::pair{5, &together}}) {
        records.add("quorum")
            .set("nodes", nodes_asked)
            .set("delay_ms", delay)
            .set("acquire_ms", times->acquire)
            .set("pair_ms", times->pair);
    }
}

void with_one_stopped(std::deque<RedisServer>& servers, Records& records) {
    std::deque<HiredisConnection> fresh;
    for (RedisServer& server : servers) fresh.emplace_back(server.url());
    servers.back().stop_process();
    Nodes nodes{fresh[0], fresh[1], fresh[2], fresh[3], fresh[4]};
    std::printf("\none of five stopped, ttl 1,000 ms, node timeout 50 ms\n");
    for (const char* when : {"first", "second", "third"}) {
        LeaseLock lock{nodes, "lock:timed", QuorumOptions{.ttl = 1s, .timeout = 50ms},
                       std::defer_lock};
        const Deadline start = LeaseClock::now();
        expect(lock.try_acquire(), "acquire with one node stopped");
        const double took = in_ms(LeaseClock::now() - start);
        std::printf("%-8s acquire %8.3f ms, %.0f ms left\n", when, took, in_ms(lock.remaining()));
        records.add("quorum_one_stopped").set("acquire", when).set("ms", took);
    }
}

int run(const Plan& plan) {
    std::deque<RedisServer> servers(5);
    std::deque<FaultProxy> proxies;
    std::deque<HiredisConnection> slow;
    std::deque<HiredisConnection> direct;
    std::deque<HiredisConnection> alone;
    for (RedisServer& server : servers) {
        slow.emplace_back(proxies.emplace_back(server.port()).url());
        direct.emplace_back(server.url());
        proxies.back().delay(std::chrono::milliseconds{plan.delay} / 2);
    }
    alone.emplace_back(proxies[0].url());
    alone.emplace_back(servers[0].url());
    Nodes slow_five{slow[0], slow[1], slow[2], slow[3], slow[4]};
    Nodes direct_five{direct[0], direct[1], direct[2], direct[3], direct[4]};

    Records records;
    std::printf("%s\nmedians of %ld rounds of %ld locks\n", RedisServer::version().c_str(),
                plan.rounds, plan.each);
    std::printf("there and back                   one node    five nodes      ratio\n");
    compare(plan, plan.delay, alone[0], slow_five, records);
    compare(plan, 0, alone[1], direct_five, records);
    with_one_stopped(servers, records);
    records.write(plan.json);
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    Plan plan;
    Arguments arguments;
    arguments.add("--rounds", plan.rounds);
    arguments.add("--each", plan.each);
    arguments.add("--delay", plan.delay, 2);
    arguments.add("--json", plan.json);
    if (!arguments.read(argc, argv)) return 2;
    try {
        return run(plan);
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "%s\n", failure.what());
        return 1;
    }
}
