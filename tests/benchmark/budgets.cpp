// SPDX-License-Identifier: MIT
// What tests/benchmark/budgets measures, in pieces that valgrind and strace can look at.
//
//   leaselock_budgets cycles WAY URL N          N pairs of acquire and release, over WAY: hiredis or
//                                               multiplexed
//   leaselock_budgets renewals URL LEASES N     N renewals of LEASES leases, or a few more; prints how
//                                               many, in how many writes
//   leaselock_budgets inside                    all that can be seen from inside, on a private server
//
// It prints lines of a name and a number. Exits with 1 when something was not taken or not released.
#include "integration/support/fault_proxy.hpp"
#include "integration/support/redis_server.hpp"

#include <leaselock/leaselock.hpp>

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

// The counting allocator: malloc is this program's own, for hiredis and the standard library too.

namespace {

std::atomic<long> allocations{0};
std::atomic<long> asked_for{0}; ///< bytes, of all allocations
std::atomic<long> in_use{0};    ///< bytes that live, with what the allocator adds

constexpr long header = sizeof(std::size_t); // glibc's, of each block

void* counted(void* memory, std::size_t size) noexcept {
    if (memory == nullptr) return nullptr;
    allocations.fetch_add(1, std::memory_order_relaxed);
    asked_for.fetch_add(static_cast<long>(size), std::memory_order_relaxed);
    in_use.fetch_add(static_cast<long>(malloc_usable_size(memory)) + header,
                     std::memory_order_relaxed);
    return memory;
}
void discount(void* memory) noexcept {
    if (memory == nullptr) return;
    in_use.fetch_sub(static_cast<long>(malloc_usable_size(memory)) + header,
                     std::memory_order_relaxed);
}

} // namespace

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): glibc's names
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* memory);
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)

void* malloc(std::size_t size) { return counted(__libc_malloc(size), size); }
void* calloc(std::size_t count, std::size_t size) {
    return counted(__libc_calloc(count, size), count * size);
}
void* realloc(void* memory, std::size_t size) {
    discount(memory);
    return counted(__libc_realloc(memory, size), size);
}
void* memalign(std::size_t alignment, std::size_t size) {
    return counted(__libc_memalign(alignment, size), size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
    *memory = memalign(alignment, size);
    return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
    discount(memory);
    __libc_free(memory);
}
}

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

void print(const char* name, double value) { std::printf("%s %.6g\n", name, value); }

double share(long a, long b) { return static_cast<double>(a) / static_cast<double>(b); }

template <class C>
void cycle(LeaseLock<C>& lock) {
    if (!lock.try_acquire()) throw std::runtime_error{"not acquired"};
    if (!lock.unlock()) throw std::runtime_error{"not released"};
}

template <class C>
void cycles(const std::string& url, long count) {
    C redis{url};
    LeaseLock<C> lock{redis, "lock:budgets", 30s, std::defer_lock};
    for (long i = 0; i < count; ++i) cycle(lock);
}

/// A connection that counts: one call is one write.
class Counted {
public:
    static constexpr bool is_shareable = false;

    explicit Counted(const std::string& url) : way_{url} {}
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        way_.call(commands, replies, by);
        const std::lock_guard lock{mutex_};
        ++count_.calls;
        count_.commands += static_cast<long>(commands.size());
    }
    [[nodiscard]] Dialect& dialect() noexcept { return way_.dialect(); }
    friend Runtime& runtime_of(Counted& counted) noexcept { return runtime_of(counted.way_); }

    struct Count {
        long calls = 0;
        long commands = 0;
    };
    [[nodiscard]] Count count() const {
        const std::lock_guard lock{mutex_};
        return count_;
    }

private:
    HiredisConnection way_;
    mutable std::mutex mutex_;
    Count count_;
};

using Locks = std::vector<LeaseLock<Counted>>;

void keep_many(Counted& redis, Renewer<Counted>& renewer, Locks& locks, long count) {
    locks.reserve(static_cast<std::size_t>(count));
    for (long i = 0; i < count; ++i) {
        locks.emplace_back(redis, "lock:budgets:" + std::to_string(i), 3s);
        renewer.keep(locks.back());
    }
}

/// Waits for so many renewals, or a few more.
Counted::Count await_renewals(const Counted& wire, long commands) {
    while (wire.count().commands < commands) std::this_thread::sleep_for(20ms);
    return wire.count();
}

void expect_all_held(const Locks& locks) {
    if (!std::all_of(locks.begin(), locks.end(), [](const auto& lock) { return lock.owns_lock(); }))
        throw std::runtime_error{"a kept lease was lost"};
}

void renewals(const std::string& url, long leases, long count) {
    Counted redis{url};
    Counted wire{url};
    Renewer<Counted> renewer{wire};
    Locks locks;
    keep_many(redis, renewer, locks, leases);
    const auto before = await_renewals(wire, 4 * leases); // until they have come together
    const auto after = await_renewals(wire, before.commands + count);
    print("renewals", static_cast<double>(after.commands - before.commands));
    print("writes", static_cast<double>(after.calls - before.calls));
    expect_all_held(locks);
}

void look_at_cycles(const std::string& url) {
    constexpr long count = 1'000;
    HiredisConnection redis{url};
    LeaseLock lock{redis, "lock:budgets", 30s, std::defer_lock};
    for (int i = 0; i < 100; ++i) cycle(lock);
    const long before = allocations;
    for (long i = 0; i < count; ++i) cycle(lock);
    print("cycle.allocations", share(allocations - before, count));
}

void look_at_commands(RedisServer& server) {
    constexpr long count = 1'000;
    HiredisConnection redis{server.url()};
    LeaseLock lock{redis, "lock:budgets", 30s, std::defer_lock};
    cycle(lock);
    RawClient outside = server.client();
    outside.reset_stats();
    for (long i = 0; i < count; ++i) cycle(lock);
    long commands = 0;
    for (const auto& [name, calls] : outside.command_stats()) {
        // what the script calls inside the server is no command on the wire
        if (name != "getex" && name != "get" && name != "del" && !name.starts_with("config"))
            commands += calls;
    }
    print("cycle.commands", share(commands, count));
}

std::size_t round_trips(FaultProxy& proxy, bool fencing, long count) {
    HiredisConnection redis{proxy.url()};
    LeaseLock lock{redis, "lock:budgets", Options{.fencing = fencing}, std::defer_lock};
    cycle(lock);
    proxy.reset_traffic();
    for (long i = 0; i < count; ++i) cycle(lock);
    return proxy.traffic().round_trips;
}

/// The medians of cycles with and without a fence, in turns, over a link with 1 ms each way.
void look_at_fencing(RedisServer& server) {
    FaultProxy proxy{server.port()};
    constexpr long count = 100;
    const auto plain = static_cast<double>(round_trips(proxy, false, count));
    const auto fenced = static_cast<double>(round_trips(proxy, true, count));
    print("fencing.round_trips", (fenced - plain) / count);

    proxy.delay(1ms);
    HiredisConnection redis{proxy.url()};
    std::vector<double> took[2];
    for (int i = 0; i < 101; ++i) {
        for (const bool fencing : {false, true}) {
            LeaseLock lock{redis, "lock:budgets", Options{.fencing = fencing}, std::defer_lock};
            const Deadline start = LeaseClock::now();
            cycle(lock);
            const std::chrono::duration<double, std::milli> span = LeaseClock::now() - start;
            took[fencing ? 1 : 0].push_back(span.count());
        }
    }
    double median[2];
    for (const int i : {0, 1}) {
        std::nth_element(took[i].begin(), took[i].begin() + 50, took[i].end());
        median[i] = took[i][50];
    }
    print("delayed.plain_ms", median[0]);
    print("delayed.fenced_ms", median[1]);
    print("delayed.ratio", median[1] / median[0]);
}

void look_at_sizes(const std::string& url) {
    Counted redis{url};
    constexpr std::string_view key = "lock:budgets:size";
    (void)LeaseLock{redis, key, 30s, std::defer_lock}; // what the first guard makes for all
    const long before = asked_for;
    const LeaseLock lock{redis, key, 30s, std::defer_lock};
    const long extra = asked_for - before - static_cast<long>(key.size() + Token::size);
    print("guard.bytes", static_cast<double>(extra) + sizeof lock);
}

void look_at_kept(const std::string& url) {
    constexpr long count = 4'097; // what grows by doubling has just done so
    Counted redis{url};
    Counted wire{url};
    Renewer<Counted> renewer{wire};
    Locks locks;
    const long before = in_use;
    keep_many(redis, renewer, locks, count);
    await_renewals(wire, count);
    print("kept.bytes", share(in_use - before, count));
    const long renewed = await_renewals(wire, 2 * count).commands; // all that grows has grown
    const long allocated = allocations;
    const long after = await_renewals(wire, renewed + count).commands;
    print("renewal.allocations", share(allocations - allocated, after - renewed));
    expect_all_held(locks);
}

int usage(const char* self) {
    std::fprintf(stderr,
                 "usage: %s cycles hiredis|multiplexed URL N | renewals URL LEASES N | inside\n",
                 self);
    return 2;
}

int run(std::span<char*> arguments) {
    const std::vector<std::string> words{arguments.begin() + 1, arguments.end()};
    const auto number = [&](std::size_t i) { return std::atol(words[i].c_str()); };
    const std::string what = words.empty() ? "" : words[0];
    if (what == "cycles" && words.size() == 4 && words[1] == "hiredis") {
        cycles<HiredisConnection>(words[2], number(3));
    } else if (what == "cycles" && words.size() == 4 && words[1] == "multiplexed") {
        cycles<MultiplexedConnection>(words[2], number(3));
    } else if (what == "renewals" && words.size() == 4) {
        renewals(words[1], number(2), number(3));
    } else if (what == "inside" && words.size() == 1) {
        RedisServer server;
        look_at_sizes(server.url());
        look_at_cycles(server.url());
        look_at_commands(server);
        look_at_fencing(server);
        look_at_kept(server.url());
    } else {
        return usage(arguments[0]);
    }
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    try {
        return run({argv, static_cast<std::size_t>(argc)});
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
