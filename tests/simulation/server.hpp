#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/world.hpp"

#include <leaselock/core/runtime.hpp>
#include <leaselock/testing/memory_redis.hpp>
#include <leaselock/testing/memory_reply.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace leaselock::simulation {

/// The clock of a server: a `MemoryRedis` takes nothing else from its runtime.
class ServerClock final : public Runtime {
public:
    ServerClock(const World& world, Clock clock) noexcept : world_(world), clock_(clock) {}

    void step(Time by) noexcept { clock_.offset += by; }

    [[nodiscard]] Deadline now() const noexcept override {
        return Deadline{LeaseClock::duration{clock_.at(world_.now())}};
    }
    void sleep_until(Deadline /*by*/) noexcept override {}
    bool wait_until(const std::atomic<std::uint32_t>& /*word*/, std::uint32_t /*old*/,
                    Deadline /*by*/) noexcept override {
        return false;
    }
    void notify_all(const std::atomic<std::uint32_t>& /*word*/) noexcept override {}
    [[nodiscard]] std::error_code fill_random(std::span<std::byte> /*bytes*/) noexcept override {
        return std::make_error_code(std::errc::not_supported);
    }
    [[nodiscard]] ProcessId process() const noexcept override { return 0; }
    [[nodiscard]] std::error_code start_thread(ThreadHandle& /*handle*/, void* (* /*entry*/)(void*),
                                               void* /*argument*/) noexcept override {
        return std::make_error_code(std::errc::not_supported);
    }
    void join(ThreadHandle /*handle*/) noexcept override {}
    void detach(ThreadHandle /*handle*/) noexcept override {}

private:
    const World& world_;
    Clock clock_;
};

/// A server of the simulation: an in-memory Redis that can be stopped, restarted and promoted, and that
/// writes down all that it executes.
class Server {
    World& world_;
    std::string name_;
    ServerClock clock_;

public:
    Server(World& world, std::string name, Clock clock)
        : world_(world), name_(std::move(name)), clock_(world, clock), redis(clock_) {}
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    testing::MemoryRedis redis;
    bool up = true;
    std::string
        error; ///< the error line that it answers all commands with; empty: it executes them

    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    /// Streams of an earlier life are dead.
    [[nodiscard]] std::uint64_t life() const noexcept { return life_; }

    /// A client's commands have arrived: `what` happens now, or when the server is no longer paused.
    void arrive(std::function<void()> what);
    /// One command, written down and replicated.
    testing::MemoryReply execute(std::uint64_t id, const std::vector<std::string>& argv);

    void pause() noexcept { paused_ = true; }
    void unpause();
    void restart(testing::MemoryRedis::Restart how);
    void step_clock(Time by) noexcept { clock_.step(by); }
    /// From now on all changes go to `replica`, so much later; null: to none, and what is on its way is
    /// lost.
    void replicate_to(Server* replica, Time lag) noexcept;

private:
    void replicate(std::string_view key);

    std::vector<std::function<void()>> inbox_; ///< while it is paused
    bool paused_ = false;
    std::uint64_t life_ = 0;
    Server* replica_ = nullptr;
    Time lag_ = 0;
    std::uint64_t link_ = 0; ///< to the replica: what an earlier one carries is lost
    Time last_change_ = 0;   ///< when it reaches the replica
};

} // namespace leaselock::simulation
