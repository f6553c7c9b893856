// SPDX-License-Identifier: MIT
// What it takes to keep many leases: one renewer, one connection, a private server.
//
//   leaselock_renewals [--leases N] [--ttl MS] [--seconds S]
//
// Prints a table. Exits with 1 when a lease was lost.
#include "integration/support/redis_server.hpp"
#include "integration/support/resources.hpp"

#include <leaselock/leaselock.hpp>

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

struct Plan {
    long leases = 100'000;
    long ttl_ms = 30'000;
    long seconds = 60;
};

bool read_plan(std::span<char*> arguments, Plan& plan) {
    for (std::size_t i = 0; i + 1 < arguments.size(); i += 2) {
        const std::string_view name = arguments[i];
        const std::string_view value = arguments[i + 1];
        long* const target = name == "--leases"    ? &plan.leases
                             : name == "--ttl"     ? &plan.ttl_ms
                             : name == "--seconds" ? &plan.seconds
                                                   : nullptr;
        if (target == nullptr) {
            return false;
        }
        const auto end = value.data() + value.size();
        if (std::from_chars(value.data(), end, *target).ptr != end || *target < 1) {
            return false;
        }
    }
    return arguments.size() % 2 == 0;
}

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

/// The processor time of the server, from its own account.
double server_seconds(RawClient& outside) {
    const std::string info = outside.command({"INFO", "cpu"});
    double sum = 0;
    for (const char* name : {"used_cpu_sys:", "used_cpu_user:"}) {
        const std::size_t at = info.find(name);
        if (at != std::string::npos) {
            sum += std::atof(info.c_str() + at + std::string_view{name}.size());
        }
    }
    return sum;
}

double seconds_of(std::chrono::nanoseconds span) {
    return std::chrono::duration<double>{span}.count();
}

} // namespace

int main(int argc, char** argv) {
    Plan plan;
    if (!read_plan(std::span{argv, static_cast<std::size_t>(argc)}.subspan(1), plan)) {
        std::fprintf(stderr, "usage: %s [--leases N] [--ttl MS] [--seconds S]\n", argv[0]);
        return 2;
    }
    const auto count = static_cast<std::size_t>(plan.leases);
    RedisServer server;
    auto outside = server.client();
    Counted redis{server.url()};
    Counted wire{server.url()};
    Renewer<Counted> renewer{wire};

    const Deadline start = LeaseClock::now();
    const std::size_t before = memory_in_use();
    std::vector<LeaseLock<Counted>> locks;
    locks.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        locks.emplace_back(redis, "lock:renewals:" + std::to_string(i),
                           std::chrono::milliseconds{plan.ttl_ms});
        renewer.keep(locks.back());
    }
    const std::size_t memory = memory_in_use() - before;
    const auto acquiring = LeaseClock::now() - start;
    const std::size_t first_calls = wire.calls();
    const std::size_t first_commands = wire.commands();

    wire.reset();
    outside.reset_stats();
    const double server_before = server_seconds(outside);
    const auto processor_before = processor_time();
    const Deadline measured = LeaseClock::now();
    std::this_thread::sleep_for(std::chrono::seconds{plan.seconds});
    const double span = seconds_of(LeaseClock::now() - measured);
    const double processor = seconds_of(processor_time() - processor_before);
    const double server_processor = server_seconds(outside) - server_before;
    const std::size_t calls = wire.calls();
    const std::size_t commands = wire.commands();

    std::size_t lost = 0;
    std::chrono::nanoseconds least = std::chrono::nanoseconds::max();
    for (const auto& lock : locks) {
        lost += lock.owns_lock() ? 0U : 1U;
        least = std::min(least, lock.remaining());
    }
    const auto per = [](std::size_t a, std::size_t b) {
        return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
    };
    std::printf("%s\n", RedisServer::version().c_str());
    std::printf("leases                       %12zu   ttl %ld ms, key of %zu bytes\n", count,
                plan.ttl_ms, locks.back().key().size());
    std::printf("acquired and kept in         %12.1f s\n", seconds_of(acquiring));
    std::printf("  renewals meanwhile         %12zu   %.1f per write\n", first_commands,
                per(first_commands, first_calls));
    std::printf("memory per kept lease        %12.0f bytes, guard of %zu included\n",
                per(memory, count), sizeof(locks.back()));
    std::printf("measured for                 %12.1f s\n", span);
    std::printf("renewals                     %12zu   %.0f per second\n", commands,
                static_cast<double>(commands) / span);
    std::printf("writes                       %12zu   %.1f commands each, %zu at most\n", calls,
                per(commands, calls), wire.largest());
    std::printf("slowest round trip           %12.1f ms\n", seconds_of(wire.longest()) * 1000);
    std::printf("this process                 %12.1f %% of one core, %.2f us per renewal\n",
                100 * processor / span,
                commands == 0 ? 0 : 1e6 * processor / static_cast<double>(commands));
    std::printf("the server                   %12.1f %% of one core\n",
                100 * server_processor / span);
    std::printf("shortest lease left          %12.0f ms\n", seconds_of(least) * 1000);
    std::printf("lost                         %12zu\n", lost);
    return lost == 0 ? 0 : 1;
}
