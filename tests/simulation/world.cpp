// SPDX-License-Identifier: MIT

#include "simulation/world.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>

namespace leaselock::simulation {
namespace {

constexpr Time never = std::numeric_limits<Time>::max();

thread_local Thread* current_thread = nullptr;

} // namespace

World::~World() = default;

void World::at(Time time, std::function<void()> what) {
    queue_.push_back({std::max(time, now_), random_.next(), std::move(what)});
    std::push_heap(queue_.begin(), queue_.end(), Later{});
}

bool World::run(Time until) {
    constexpr std::uint64_t too_much = 300'000;
    while (!queue_.empty() && queue_.front().time <= until) {
        if (++happened_ > too_much) return false;
        std::pop_heap(queue_.begin(), queue_.end(), Later{});
        const Happening happening = std::move(queue_.back());
        queue_.pop_back();
        now_ = happening.time;
        happening.what();
    }
    return true;
}

std::size_t World::threads() const noexcept {
    return static_cast<std::size_t>(
        std::count_if(threads_.begin(), threads_.end(), [](auto& t) { return !t->fiber.ended(); }));
}

// --- processes

Process& World::start_process(std::string name, Clock clock) {
    const ProcessId id = processes_.size() + 1;
    processes_.push_back(
        std::make_unique<Process>(Process{std::move(name), id, clock, Random{seed_, 1000 + id}}));
    Process& process = *processes_.back();
    line(process, "clock").put("offset", clock.offset).put("ppm", clock.ppm);
    return process;
}

Thread& World::start_thread(Process& process, std::function<void()> body) {
    threads_.push_back(std::make_unique<Thread>(process, std::move(body)));
    Thread& thread = *threads_.back();
    thread.parked = true;
    wake(thread, now_ + latency(process));
    return thread;
}

/// So long a thread takes to run once it may: some µs; on a sluggish machine now and then much longer,
/// which those who measure have to know.
Time World::latency(Process& process) {
    if (process.killed) return 0;
    if (process.sluggish && process.random.chance(20)) {
        const Time stall = process.random.between(100 * us, 80 * ms);
        line(process, "stalled").put("span", stall);
        return stall;
    }
    return process.random.between(0, 40 * us);
}

void World::wake(Thread& thread, Time time) {
    at(time, [this, &thread, ticket = thread.ticket] { run_thread(thread, ticket); });
}

void World::run_thread(Thread& thread, std::uint64_t ticket) {
    if (!thread.parked || thread.ticket != ticket) return;
    Process& process = *thread.process;
    if (process.stopped) {
        process.held.emplace_back([this, &thread, ticket] { run_thread(thread, ticket); });
        return;
    }
    ++thread.ticket;
    thread.parked = false;
    thread.word = nullptr;
    current_thread = &thread;
    thread.fiber.resume();
    current_thread = nullptr;
    if (thread.fiber.ended()) {
        thread.ended.store(1);
        notify_all(thread.ended);
    }
}

void World::stop(Process& process) {
    if (process.killed || process.stopped) return;
    line(process, "stop");
    process.stopped = true;
}

void World::resume(Process& process) {
    if (!process.stopped) return;
    process.stopped = false;
    line(process, "continue");
    for (std::function<void()>& what : std::exchange(process.held, {})) {
        at(now_ + latency(process), std::move(what));
    }
}

void World::kill(Process& process) {
    if (process.killed) return;
    line(process, "kill");
    process.afterlife = process.clock.at(now_);
    process.killed = true;
    process.stopped = false;
    for (std::function<void()>& what : std::exchange(process.held, {})) at(now_, std::move(what));
    for (const auto& thread : threads_) {
        if (thread->process == &process && thread->parked && thread->finite) wake(*thread, now_);
    }
}

// --- of the thread that calls

Thread& World::current() const noexcept {
    if (current_thread == nullptr) std::abort();
    return *current_thread;
}

Process& World::process() const noexcept { return *current().process; }

Time World::reading() const noexcept {
    const Process& its = process();
    return its.killed ? its.afterlife : its.clock.at(now_);
}

/// Gives way until somebody wakes it: at a time, if there is one, or by notifying.
void World::park(const std::atomic<std::uint32_t>* word, Time reading) {
    Thread& thread = current();
    Process& its = *thread.process;
    thread.word = word;
    thread.parked = true;
    thread.finite = reading != never;
    if (thread.finite) {
        if (its.killed) {
            its.afterlife = std::max(its.afterlife, reading);
            wake(thread, now_);
        } else {
            wake(thread, std::max(its.clock.when(reading), now_) + latency(its));
        }
    }
    Fiber::suspend();
}

void World::sleep_until(Time reading_wanted) {
    do park(nullptr, reading_wanted);
    while (reading() < reading_wanted);
}

bool World::wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t old,
                       Time reading_wanted) {
    while (word.load(std::memory_order_acquire) == old) {
        if (reading() >= reading_wanted) return false;
        park(&word, reading_wanted);
    }
    return true;
}

void World::notify_all(const std::atomic<std::uint32_t>& word) {
    for (const auto& thread : threads_) {
        if (thread->parked && thread->word == &word) {
            wake(*thread, now_ + latency(*thread->process));
        }
    }
}

// --- the runtime

/// The first four bytes of what is asked for as a token differ in all of a run, so that the history
/// can name a token by its fingerprint.
std::error_code SimulatedRuntime::fill_random(std::span<std::byte> bytes) noexcept {
    Process& process = world_.process();
    if (process.no_random) return std::make_error_code(std::errc::resource_unavailable_try_again);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(process.random.next());
    if (bytes.size() == 16) {
        const auto first = static_cast<std::uint32_t>(world_.seed_ << 16U) ^
                           (++world_.tokens_ * 0x9e3779b1U); // odd: no two are the same
        std::memcpy(bytes.data(), &first, sizeof first);
    }
    return {};
}

std::error_code SimulatedRuntime::start_thread(ThreadHandle& handle, void* (*entry)(void*),
                                               void* argument) noexcept {
    if (world_.process().no_threads) {
        return std::make_error_code(std::errc::resource_unavailable_try_again);
    }
    (void)world_.start_thread(world_.process(), [entry, argument] { (void)entry(argument); });
    handle.value = world_.threads_.size() - 1;
    return {};
}

void SimulatedRuntime::join(ThreadHandle handle) noexcept {
    (void)world_.wait_until(world_.threads_[handle.value]->ended, 0, never);
}

} // namespace leaselock::simulation
