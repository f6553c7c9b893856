#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/network.hpp"

#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/lock/quorum.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>
#include <leaselock/redis/script_call.hpp>

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace leaselock::simulation {

/// A connection as the library sees it. It keeps the contract of redis/connection.hpp over a network
/// that keeps none.
class SimulatedConnection {
public:
    /// @param via of a quorum: what all of its connections are called in the history
    SimulatedConnection(Network& network, Link& link, std::string via = {}) noexcept
        : network_(network), link_(link), via_(std::move(via)) {}
    SimulatedConnection(const SimulatedConnection&) = delete;
    SimulatedConnection& operator=(const SimulatedConnection&) = delete;

    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        call(commands, replies, by, false);
    }
    void start(std::span<const Command> commands, Deadline by) noexcept;
    [[nodiscard]] bool finish(std::span<Reply> replies) noexcept;
    static void wait_any(std::span<SimulatedConnection* const> all, Deadline by) noexcept;

    [[nodiscard]] Dialect& dialect() noexcept { return dialect_; }
    friend Runtime& runtime_of(const SimulatedConnection& connection) noexcept {
        return connection.network_.runtime;
    }

protected:
    /// @param shared a late reply is thrown away, and not the stream
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by,
              bool shared) noexcept;

private:
    /// What was started, and is not finished.
    struct Flight {
        std::shared_ptr<Exchange> exchange; ///< without a stream while it connects
        Time by;
        Time connected;          ///< when that is so, by the clock of the process
        Time asked;              ///< in the time of the run
        std::error_code error{}; ///< why nothing was sent
        bool over = false;
    };

    /// The thread may lose the processor, behind whatever it has decided.
    void stall();
    [[nodiscard]] std::error_code connect(Time by);
    [[nodiscard]] std::error_code open();
    [[nodiscard]] std::shared_ptr<Exchange> pack(std::span<const Command> commands) const;
    void say(std::string_view what, const Exchange& exchange, Time asked) const;
    void collect(const Exchange& exchange, std::span<Reply> replies, bool timed_out) const;
    void depart(Flight& flight);
    [[nodiscard]] bool goes_on(Flight& flight);

    Network& network_;
    Link& link_;
    std::string via_;
    std::shared_ptr<Stream> stream_;
    std::optional<Flight> flight_;
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

using SimulatedQuorum = Quorum<SimulatedConnection>;

/// What locks are taken over: a connection, or connections and a quorum of them.
template <class B>
struct Way {
    Way(Network& network, std::span<Link> links) : backend(network, links.front()) {}
    B backend;
};

template <>
struct Way<SimulatedQuorum> {
    Way(Network& network, std::span<Link> links) : backend(connect(network, links)) {}

    std::deque<SimulatedConnection> connections{};
    SimulatedQuorum backend;

private:
    std::vector<SimulatedConnection*> connect(Network& network, std::span<Link> links) {
        const std::string via = "q" + std::to_string(network.world.new_id());
        std::vector<SimulatedConnection*> all;
        for (Link& link : links) all.push_back(&connections.emplace_back(network, link, via));
        return all;
    }
};

} // namespace leaselock::simulation
