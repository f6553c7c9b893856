#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/random.hpp"
#include "simulation/server.hpp"
#include "simulation/world.hpp"

#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>
#include <leaselock/redis/script_call.hpp>
#include <leaselock/testing/memory_reply.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace leaselock::simulation {

/// One TCP connection: in each direction things arrive in order, up to where they are lost; behind
/// that, nothing arrives any more.
struct Stream {
    Server* server;
    std::uint64_t life;  ///< the server's
    bool open = true;    ///< as far as its client knows
    bool deaf = false;   ///< nothing reaches the server any more
    bool mute = false;   ///< nothing comes back any more
    bool lost = false;   ///< what is on its way does not arrive either
    Time last_there = 0; ///< arrival of the last request
    Time last_back = 0;  ///< arrival of the last reply
    Time heard = 0;      ///< when its client last heard of it
    std::vector<std::weak_ptr<struct Exchange>> waiting{};
};

/// One call of a connection: its commands, and what has come back so far.
struct Exchange {
    std::shared_ptr<Stream> stream;
    std::vector<std::vector<std::string>> commands{};
    std::vector<std::uint64_t> ids{};
    std::vector<testing::MemoryReply> replies{}; ///< those that have arrived, in order
    std::atomic<std::uint32_t> over{0};          ///< 1: all that will come is there
};

/// The way from one machine to the servers, and what is wrong with it.
struct Link {
    Random random;
    Time latency = 200 * us; ///< at least, one way; at most three times that
    Time slow_there = 0;     ///< more, at most
    Time slow_back = 0;
    unsigned loses_there = 0; ///< of a thousand calls
    unsigned loses_back = 0;
    unsigned lies = 0;     ///< a proxy answers with an error for what has been executed
    bool refuses = false;  ///< new connections: nobody listens
    bool swallows = false; ///< new connections: nobody answers
    std::vector<std::weak_ptr<Stream>> streams{};
};

/// Where the servers are. A client that connects reaches the one that is the master then.
struct Network {
    World& world;
    SimulatedRuntime& runtime;
    Server* master = nullptr;

    /// All streams of a link break: their clients hear so; what is on its way may still arrive.
    void cut(Link& link);
    /// All streams to a server break.
    void cut(const Server& server, std::span<Link> links);

    [[nodiscard]] Time travel(Link& link, Time slow) const;
    void send(Link& link, const std::shared_ptr<Exchange>& exchange);

private:
    void execute(Link& link, const std::shared_ptr<Exchange>& exchange, std::size_t count);
    void answer(Link& link, const std::shared_ptr<Exchange>& exchange,
                std::vector<testing::MemoryReply> replies);
    void break_stream(Link& link, Stream& stream);
};

/// A connection as the library sees it. It keeps the contract of redis/connection.hpp over a network
/// that keeps none.
class SimulatedConnection {
public:
    SimulatedConnection(Network& network, Link& link) noexcept : network_(network), link_(link) {}
    SimulatedConnection(const SimulatedConnection&) = delete;
    SimulatedConnection& operator=(const SimulatedConnection&) = delete;

    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        call(commands, replies, by, false);
    }
    [[nodiscard]] Dialect& dialect() noexcept { return dialect_; }
    friend Runtime& runtime_of(const SimulatedConnection& connection) noexcept {
        return connection.network_.runtime;
    }

protected:
    /// @param shared a late reply is thrown away, and not the stream
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by,
              bool shared) noexcept;

private:
    [[nodiscard]] std::error_code connect(Time by);
    void collect(const Exchange& exchange, std::span<Reply> replies, bool timed_out) const;

    Network& network_;
    Link& link_;
    std::shared_ptr<Stream> stream_;
    Dialect dialect_;
};

/// The same for any number of threads.
class SharedSimulatedConnection : public SimulatedConnection {
public:
    static constexpr bool is_shareable = true;
    using SimulatedConnection::SimulatedConnection;
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        SimulatedConnection::call(commands, replies, by, true);
    }
};

} // namespace leaselock::simulation
