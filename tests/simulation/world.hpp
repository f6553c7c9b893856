#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/clock.hpp"
#include "simulation/fiber.hpp"
#include "simulation/history.hpp"
#include "simulation/random.hpp"

#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace leaselock::simulation {

struct Thread;

/// A process of the simulation: it can be stopped, killed, and forked.
struct Process {
    std::string name;
    ProcessId id;
    Clock clock;
    Random random;
    bool stopped = false;
    bool killed = false;
    bool sluggish = false;                     ///< its threads are slow to wake up, now and then
    bool no_random = false;                    ///< there are no random bytes
    bool no_threads = false;                   ///< no thread can be started
    Time afterlife = 0;                        ///< what its clock says once it has been killed
    std::vector<std::function<void()>> held{}; ///< what happens when it is no longer stopped
};

/// Time, threads and processes: a queue of what happens when. Everything that is left open, such as
/// which of two threads wakes up first, is decided by the seed.
///
/// A killed process gets an afterlife: its threads run on to their ends, in no time and without any
/// effect on the world, so that everything that they own is destroyed. Its lines are not written down,
/// and its connections carry nothing.
class World {
public:
    explicit World(std::uint64_t seed) : seed_(seed), random_(seed, 1) {}
    ~World();
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    [[nodiscard]] Time now() const noexcept { return now_; }
    [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
    [[nodiscard]] const std::string& history() const noexcept { return history_.text(); }

    /// Something happens at that time, or now if it has passed.
    void at(Time time, std::function<void()> what);
    /// Lets everything happen, up to that time.
    /// @return false when it did not come to an end: too much happened
    bool run(Time until);
    [[nodiscard]] std::size_t threads() const noexcept; ///< that have not ended

    // processes

    Process& start_process(std::string name, Clock clock);
    Thread& start_thread(Process& process, std::function<void()> body);
    void stop(Process& process);
    void resume(Process& process);
    void kill(Process& process);

    // of the thread that calls

    [[nodiscard]] Process& process() const noexcept;
    /// Until its process's clock says so, and the thread has woken up.
    void sleep_until(Time reading);
    bool wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t old, Time reading);
    void notify_all(const std::atomic<std::uint32_t>& word);
    [[nodiscard]] Time reading() const noexcept; ///< of the process's clock

    // the history

    /// As the process of the thread that calls; of a killed one nothing is written down.
    History::Line line(std::string_view what) { return line(process(), what); }
    History::Line line(const Process& process, std::string_view what) {
        return process.killed ? History::nothing() : history_.add(now_, process.name, what);
    }
    History::Line line(std::string_view actor, std::string_view what) {
        return history_.add(now_, actor, what);
    }
    [[nodiscard]] std::uint64_t new_id() noexcept { return ++ids_; }

private:
    friend class SimulatedRuntime;
    struct Happening {
        Time time;
        std::uint64_t order; ///< drawn: what happens at one time happens in any order
        std::function<void()> what;
    };
    struct Later {
        bool operator()(const Happening& a, const Happening& b) const noexcept {
            return a.time != b.time ? a.time > b.time : a.order > b.order;
        }
    };

    void wake(Thread& thread, Time time);
    void run_thread(Thread& thread, std::uint64_t ticket);
    void park(const std::atomic<std::uint32_t>* word, Time reading);
    [[nodiscard]] Time latency(Process& process);
    [[nodiscard]] Thread& current() const noexcept;

    std::uint64_t seed_;
    Random random_;
    Time now_ = 0;
    std::uint64_t ids_ = 0;
    History history_;
    std::vector<Happening> queue_; ///< a heap
    std::vector<std::unique_ptr<Process>> processes_;
    std::vector<std::unique_ptr<Thread>> threads_;
    std::uint64_t happened_ = 0;
    std::uint32_t tokens_ = 0;
};

struct Thread {
    Thread(Process& its_process, std::function<void()> body)
        : process(&its_process), fiber(std::move(body)) {}

    Process* process;
    Fiber fiber;
    std::uint64_t ticket = 0; ///< of the next wake-up; those with another are out of date
    const std::atomic<std::uint32_t>* word = nullptr;
    bool parked = false;
    bool finite = false; ///< parked until some time
    std::atomic<std::uint32_t> ended{0};
};

/// The runtime that the library's code gets: that of the process whose thread calls.
class SimulatedRuntime final : public Runtime {
public:
    explicit SimulatedRuntime(World& world) noexcept : world_(world) {}

    [[nodiscard]] Deadline now() const noexcept override {
        return Deadline{LeaseClock::duration{world_.reading()}};
    }
    void sleep_until(Deadline by) noexcept override {
        world_.sleep_until(by.time_since_epoch().count());
    }
    bool wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t old,
                    Deadline by) noexcept override {
        return world_.wait_until(word, old, by.time_since_epoch().count());
    }
    void notify_all(const std::atomic<std::uint32_t>& word) noexcept override {
        world_.notify_all(word);
    }
    [[nodiscard]] std::error_code fill_random(std::span<std::byte> bytes) noexcept override;
    [[nodiscard]] ProcessId process() const noexcept override { return world_.process().id; }
    [[nodiscard]] std::error_code start_thread(ThreadHandle& handle, void* (*entry)(void*),
                                               void* argument) noexcept override;
    void join(ThreadHandle handle) noexcept override;
    void detach(ThreadHandle /*handle*/) noexcept override {}

private:
    World& world_;
};

} // namespace leaselock::simulation
