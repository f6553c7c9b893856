#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/network.hpp"
#include "simulation/plan.hpp"
#include "simulation/random.hpp"
#include "simulation/world.hpp"

#include <leaselock/core/observer.hpp>
#include <leaselock/lock/lease.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace leaselock::simulation {

/// What the holders of locks write to: it registers fencing tokens, and refuses smaller ones.
class Store {
public:
    explicit Store(World& world) noexcept : world_(world) {}
    /// @param what `register` or `write` @return whether the store did it
    bool ask(std::string_view what, std::string_view key, std::string_view token,
             std::uint64_t fence, Random& random);

private:
    World& world_;
    std::map<std::string, std::uint64_t, std::less<>> highest_;
};

/// What all clients of a run have in common.
struct Surroundings {
    World& world;
    Network& network;
    const Plan& plan;
    Store& store;
    std::deque<Lease> mailbox{}; ///< leases that were handed over, and not taken yet
};

/// Writes down what an observer hears of one guard.
class Recorder final : public Observer {
public:
    Recorder(World& world, std::string guard) noexcept : world_(world), guard_(std::move(guard)) {}
    void on_event(const Event& event) noexcept override;

private:
    World& world_;
    std::string guard_;
};

} // namespace leaselock::simulation
