#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/random.hpp"
#include "simulation/server.hpp"
#include "simulation/world.hpp"

#include <leaselock/testing/memory_reply.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
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
    std::atomic<std::uint32_t>* bell = nullptr;  ///< rung then, for one who waits for many
};

/// The way from one machine to one node, and what is wrong with it.
struct Link {
    Random random;
    std::size_t node = 0;
    Time latency = 200 * us; ///< at least, one way; at most three times that
    Time slow_there = 0;     ///< more, at most
    Time slow_back = 0;
    unsigned loses_there = 0; ///< of a thousand calls
    unsigned loses_back = 0;
    unsigned lies = 0;      ///< a proxy answers with an error for what has been executed
    bool refuses = false;   ///< new connections: nobody listens
    bool swallows = false;  ///< new connections: nobody answers
    bool misroutes = false; ///< new connections: the next node answers
    std::vector<std::weak_ptr<Stream>> streams{};
};

/// Where the servers are.
struct Network {
    World& world;
    SimulatedRuntime& runtime;
    std::vector<Server*> nodes{}; ///< who connects to one reaches the server that stands here then

    /// All streams of a link break: their clients hear so; what is on its way may still arrive.
    void cut(Link& link);
    /// All streams to a server break.
    void cut(const Server& server, std::span<Link> links);

    [[nodiscard]] Server& reach(const Link& link) const {
        return *nodes[(link.node + (link.misroutes ? 1 : 0)) % nodes.size()];
    }
    [[nodiscard]] Time travel(Link& link, Time slow) const;
    void send(Link& link, const std::shared_ptr<Exchange>& exchange);

private:
    void execute(Link& link, const std::shared_ptr<Exchange>& exchange, std::size_t count);
    void answer(Link& link, const std::shared_ptr<Exchange>& exchange,
                std::vector<testing::MemoryReply> replies);
    void break_stream(Link& link, Stream& stream);
    void end(Exchange& exchange) const;
};

} // namespace leaselock::simulation
