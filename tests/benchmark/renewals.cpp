// SPDX-License-Identifier: MIT
// What it takes to keep many leases: one renewer, one connection, a private server.
//
//   leaselock_renewals [--leases N,N,...] [--ttl MS] [--periods P] [--json FILE]
//
// A period is a third of the ttl: each lease is renewed once in it. Prints a table for each number of
// leases, medians over the periods. Exits with 1 when a lease was lost.
#include "benchmark/support/arguments.hpp"
#include "benchmark/support/crowd.hpp"
#include "benchmark/support/records.hpp"
#include "benchmark/support/statistics.hpp"
#include "integration/support/redis_server.hpp"
#include "integration/support/resources.hpp"

#include <leaselock/leaselock.hpp>

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <vector>

using namespace leaselock;
using namespace leaselock::bench;
using namespace leaselock::test;

namespace {

struct Plan {
    std::vector<long> leases{100'000};
    long ttl_ms = 30'000;
    long periods = 6;
    std::string json;
};

/// A connection that counts: one call is one write.
class Counted {
public:
    static constexpr bool is_shareable = false;

    explicit Counted(const std::string& url) : way_{url} {}
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        const Deadline start = LeaseClock::now();
        way_.call(commands, replies, by);
        const auto took = (LeaseClock::now() - start).count();
        ++calls_;
        commands_ += commands.size();
        longest_ = std::max<std::int64_t>(longest_, took);
        largest_ = std::max<std::size_t>(largest_, commands.size());
    }
    [[nodiscard]] Dialect& dialect() noexcept { return way_.dialect(); }
    friend Runtime& runtime_of(Counted& counted) noexcept { return runtime_of(counted.way_); }

    void reset() noexcept {
        calls_ = 0;
        commands_ = 0;
        longest_ = 0;
        largest_ = 0;
    }
    [[nodiscard]] std::size_t calls() const noexcept { return calls_; }
    [[nodiscard]] std::size_t commands() const noexcept { return commands_; }
    [[nodiscard]] std::size_t largest() const noexcept { return largest_; }
    [[nodiscard]] std::chrono::nanoseconds longest() const noexcept {
        return std::chrono::nanoseconds{longest_};
    }

private:
    HiredisConnection way_;
    std::atomic<std::size_t> calls_{0};
    std::atomic<std::size_t> commands_{0};
    std::atomic<std::size_t> largest_{0};
    std::atomic<std::int64_t> longest_{0};
};

std::size_t memory_in_use() noexcept {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

double seconds_of(std::chrono::nanoseconds span) {
    return std::chrono::duration<double>{span}.count();
}

/// What was seen of so many leases.
struct Findings {
    double taking = 0;          ///< seconds until all were acquired and kept
    double memory = 0;          ///< bytes for one, guard included
    double span = 0;            ///< seconds measured
    std::vector<double> here{}; ///< for each period: percent of one core, and of it the server's
    std::vector<double> there{};
    std::size_t renewals = 0;
    std::size_t writes = 0;
    std::size_t largest_write = 0;
    double slowest_ms = 0;    ///< round trip
    double least_left_ms = 0; ///< of any lease, at the end
    std::size_t lost = 0;

    [[nodiscard]] double per_write() const {
        return writes == 0 ? 0 : static_cast<double>(renewals) / static_cast<double>(writes);
    }
};

/// Lets them be renewed, and watches both processes.
void watch(const Plan& plan, RawClient& outside, Counted& wire, Findings& findings) {
    const std::chrono::milliseconds period{plan.ttl_ms / 3};
    wire.reset();
    const Deadline start = LeaseClock::now();
    for (long i = 0; i < plan.periods; ++i) {
        const double there = server_seconds(outside);
        const auto here = processor_time();
        const Deadline begin = LeaseClock::now();
        std::this_thread::sleep_for(period);
        const double span = seconds_of(LeaseClock::now() - begin);
        findings.here.push_back(100 * seconds_of(processor_time() - here) / span);
        findings.there.push_back(100 * (server_seconds(outside) - there) / span);
    }
    findings.span = seconds_of(LeaseClock::now() - start);
    findings.renewals = wire.commands();
    findings.writes = wire.calls();
    findings.largest_write = wire.largest();
    findings.slowest_ms = 1000 * seconds_of(wire.longest());
}

Findings keep(const Plan& plan, std::size_t count) {
    RedisServer server;
    RawClient outside = server.client();
    Counted redis{server.url()};
    Counted wire{server.url()};
    Renewer<Counted> renewer{wire};
    Findings findings;

    const Deadline start = LeaseClock::now();
    const std::size_t before = memory_in_use();
    std::vector<LeaseLock<Counted>> locks;
    locks.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        locks.emplace_back(redis, "lock:renewals:" + std::to_string(i),
                           std::chrono::milliseconds{plan.ttl_ms});
        renewer.keep(locks.back());
    }
    findings.memory = static_cast<double>(memory_in_use() - before) / static_cast<double>(count);
    findings.taking = seconds_of(LeaseClock::now() - start);

    watch(plan, outside, wire, findings);
    std::chrono::nanoseconds least = std::chrono::nanoseconds::max();
    for (const auto& lock : locks) {
        findings.lost += lock.owns_lock() ? 0U : 1U;
        least = std::min(least, lock.remaining());
    }
    findings.least_left_ms = 1000 * seconds_of(least);
    server.kill_hard(); // so that giving them back is quick
    return findings;
}

void print(const Plan& plan, std::size_t count, const Findings& found) {
    const double renewals = static_cast<double>(found.renewals);
    std::printf("\nleases                       %12zu   ttl %ld ms\n", count, plan.ttl_ms);
    std::printf("acquired and kept in         %12.1f s\n", found.taking);
    std::printf("memory per kept lease        %12.0f bytes, guard of %zu included\n", found.memory,
                sizeof(LeaseLock<Counted>));
    std::printf("measured for                 %12.1f s\n", found.span);
    std::printf("renewals                     %12zu   %.0f per second\n", found.renewals,
                renewals / found.span);
    std::printf("writes                       %12zu   %.1f commands each, %zu at most\n",
                found.writes, found.per_write(), found.largest_write);
    std::printf("slowest round trip           %12.1f ms\n", found.slowest_ms);
    std::printf("this process                 %12.2f %% of one core\n", median(found.here));
    std::printf("the server                   %12.2f %% of one core\n", median(found.there));
    std::printf("shortest lease left          %12.0f ms\n", found.least_left_ms);
    std::printf("lost                         %12zu\n", found.lost);
}

void record(const Plan& plan, std::size_t count, const Findings& found, Records& records) {
    records.add("renewals")
        .set("leases", count)
        .set("ttl_ms", plan.ttl_ms)
        .set("percent_of_a_core_here", found.here)
        .set("percent_of_a_core_there", found.there)
        .set("renewals_per_second", static_cast<double>(found.renewals) / found.span)
        .set("renewals_per_write", found.per_write())
        .set("bytes_per_lease", found.memory)
        .set("slowest_round_trip_ms", found.slowest_ms)
        .set("lost", found.lost);
}

} // namespace

int main(int argc, char** argv) {
    Plan plan;
    Arguments arguments;
    arguments.add("--leases", plan.leases);
    arguments.add("--ttl", plan.ttl_ms, 300);
    arguments.add("--periods", plan.periods);
    arguments.add("--json", plan.json);
    if (!arguments.read(argc, argv)) return 2;

    Records records;
    std::size_t lost = 0;
    std::printf("%s\n", RedisServer::version().c_str());
    for (const long leases : plan.leases) {
        const auto count = static_cast<std::size_t>(leases);
        const Findings found = keep(plan, count);
        print(plan, count, found);
        record(plan, count, found, records);
        lost += found.lost;
    }
    records.write(plan.json);
    return lost == 0 ? 0 : 1;
}
