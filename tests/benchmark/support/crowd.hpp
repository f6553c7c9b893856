// SPDX-License-Identifier: MIT
#pragma once

#include "benchmark/support/by_hand.hpp"
#include "integration/support/raw_client.hpp"

#include <leaselock/leaselock.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace leaselock::bench {

/// Pairs that did not come to what they should: a lock not taken, or not released.
inline std::atomic<std::size_t> failures{0};

/// One thread's work, again and again. @return how many pairs that was
using Step = std::function<std::size_t()>;

/// Lets `threads` threads work for a while. @param make a thread's step, given its number
/// @return pairs a second
inline double measure(std::size_t threads, std::chrono::milliseconds span,
                      const std::function<Step(std::size_t)>& make) {
    std::atomic<std::size_t> ready{0};
    std::atomic<bool> go{false};
    std::atomic<bool> stop{false};
    std::atomic<std::size_t> pairs{0};
    std::vector<std::thread> all;
    for (std::size_t i = 0; i < threads; ++i) {
        all.emplace_back([&, i] {
            const Step step = make(i);
            (void)step(); // connects
            ++ready;
            go.wait(false);
            std::size_t mine = 0;
            while (!stop.load(std::memory_order_relaxed)) mine += step();
            pairs += mine;
        });
    }
    while (ready != threads) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    const Deadline start = LeaseClock::now();
    go = true;
    go.notify_all();
    std::this_thread::sleep_for(span);
    stop = true;
    const std::chrono::duration<double> took = LeaseClock::now() - start;
    for (auto& thread : all) thread.join();
    return static_cast<double>(pairs) / took.count();
}

/// Guards of the library, all over one connection.
template <Connection C>
double over(C& connection, std::size_t threads, std::chrono::milliseconds span) {
    static constexpr Options options{.ttl = std::chrono::seconds{30},
                                     .timeout = std::chrono::seconds{10}};
    return measure(threads, span, [&](std::size_t i) -> Step {
        auto lock = std::make_shared<LeaseLock<C>>(connection, key_of(i), options, std::defer_lock);
        return [lock]() -> std::size_t {
            const bool taken = static_cast<bool>(lock->try_acquire());
            if (!taken || !lock->unlock()) ++failures;
            return 1;
        };
    });
}

/// Hand-written loops, each on a connection of its own. @param port_of the server of a thread's key
inline double by_hand(const std::function<std::uint16_t(const std::string&)>& port_of,
                      std::size_t threads, std::chrono::milliseconds span) {
    return measure(threads, span, [&](std::size_t i) -> Step {
        auto pair = std::make_shared<Pair>(i);
        auto connection = std::make_shared<ByHand>(port_of(pair->key()));
        return [=]() -> std::size_t {
            const bool taken = connection->call(pair->acquire());
            if (!taken || !connection->call(pair->release())) ++failures;
            return 1;
        };
    });
}

/// The threads' commands without the threads: all acquires in one write, then all releases.
inline double pipelined(std::uint16_t port, std::size_t pairs_at_a_time,
                        std::chrono::milliseconds span) {
    return measure(1, span, [=](std::size_t) -> Step {
        auto connection = std::make_shared<ByHand>(port);
        auto pairs = std::make_shared<std::vector<Pair>>();
        for (std::size_t i = 0; i < pairs_at_a_time; ++i) pairs->emplace_back(i);
        return [=]() -> std::size_t {
            std::size_t yes = 0;
            for (const Pair& pair : *pairs) connection->begin(pair.acquire());
            for (std::size_t i = 0; i < pairs->size(); ++i) yes += connection->finish() ? 1U : 0U;
            for (const Pair& pair : *pairs) connection->begin(pair.release());
            for (std::size_t i = 0; i < pairs->size(); ++i) yes += connection->finish() ? 1U : 0U;
            failures += 2 * pairs->size() - yes;
            return pairs->size();
        };
    });
}

/// What a hand-written loop has ready, too.
inline void load_script(test::RawClient& server) {
    (void)server.command({"SCRIPT", "LOAD", std::string{scripts::compare_and_delete.get.text}});
}

/// The processor time that the server has used so far, from its own account.
inline double server_seconds(test::RawClient& server) {
    const std::string info = server.command({"INFO", "cpu"});
    double sum = 0;
    for (const char* name : {"used_cpu_sys:", "used_cpu_user:"}) {
        const std::size_t at = info.find(name);
        if (at != std::string::npos) {
            sum += std::atof(info.c_str() + at + std::string_view{name}.size());
        }
    }
    return sum;
}

} // namespace leaselock::bench
