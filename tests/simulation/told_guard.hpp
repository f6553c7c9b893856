#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/plan.hpp"
#include "simulation/random.hpp"
#include "simulation/surroundings.hpp"
#include "simulation/world.hpp"

#include <leaselock/core/outcome.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/options.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace leaselock::simulation {

/// A guard of whose calls and answers every one is written down.
template <class B>
struct ToldGuard {
    using Options = typename LeaseLock<B>::options_type;
    static constexpr bool fences = std::same_as<Options, leaselock::Options>;

    /// With options that are drawn.
    ToldGuard(World& its_world, const Plan& plan, Random& random, std::string its_key);
    ToldGuard(const ToldGuard&) = delete;
    ToldGuard& operator=(const ToldGuard&) = delete;

    /// Runs a verb, and writes down that it was called, and what it returned.
    /// @param must it has to say yes
    template <class Verb>
    Outcome call(std::string_view verb, Time limit, const Verb& run, bool must = false);
    /// Whether it says that it owns the lock.
    bool owns();

    World& world;
    std::string name;
    std::string key;
    Options options{};
    Recorder recorder;
    std::optional<LeaseLock<B>> lock{};

    [[nodiscard]] bool fenced() const noexcept {
        if constexpr (fences) return options.fencing;
        return false;
    }
    [[nodiscard]] std::uint64_t fencing_token() const noexcept {
        if constexpr (fences) return lock->fencing_token();
        return 0;
    }
};

/// What a stop token calls back.
struct OnStop {
    World& world;
    std::string guard;
    std::string token;
    Time takes; ///< that it works for so long
    std::shared_ptr<std::atomic<std::uint32_t>> running;

    void operator()() const noexcept {
        world.line("signal").put("guard", guard).put("token", token);
        if (takes == 0) return;
        running->store(1);
        world.sleep_until(world.reading() + takes);
        running->store(0);
        world.notify_all(*running);
    }
};

template <class B>
ToldGuard<B>::ToldGuard(World& its_world, const Plan& plan, Random& random, std::string its_key)
    : world(its_world), name("g" + std::to_string(its_world.new_id())), key(std::move(its_key)),
      recorder(its_world, name) {
    options.ttl = std::chrono::milliseconds{random.chance(750) ? plan.ttl_ms : 2 * plan.ttl_ms};
    options.timeout = std::chrono::milliseconds{plan.timeout_ms};
    const bool fencing = random.chance(plan.fenced);
    if constexpr (fences) options.fencing = fencing;
    options.owner = random.chance(300) ? "label" : "";
    options.wait_cap = std::chrono::milliseconds{std::max<std::int64_t>(10, plan.ttl_ms / 4)};
    if (plan.wide_margin) options.margin = options.ttl / 10;
    options.observer = &recorder;
    world.line("guard")
        .put("guard", name)
        .put("key", key)
        .put("ttl", options.ttl.count())
        .put("margin", leaselock::detail::margin_of(leaselock::detail::as_options(options)).count())
        .put("fenced", fenced() ? 1 : 0)
        .put_unsigned("nodes", plan.nodes)
        .put("cap", options.wait_cap.count());
}

template <class B>
template <class Verb>
Outcome ToldGuard<B>::call(std::string_view verb, Time limit, const Verb& run, bool must) {
    const std::uint64_t id = world.new_id();
    world.line("call")
        .put_unsigned("call", id)
        .put("guard", name)
        .put("verb", verb)
        .put("limit", limit)
        .put("must", must ? "yes" : "");
    const Outcome outcome = run();
    auto line = world.line("return");
    line.put_unsigned("call", id).put("answer", to_string(outcome.answer));
    line.put("cause", outcome.cause ? outcome.cause.message() : std::string{});
    if (lock) {
        line.put("token", lock->fingerprint());
        line.put("deadline", lock->deadline().time_since_epoch().count());
        line.put_unsigned("fence", fencing_token());
    }
    return outcome;
}

template <class B>
bool ToldGuard<B>::owns() {
    const bool is = lock->owns_lock();
    world.line("owns")
        .put("guard", name)
        .put("token", lock->fingerprint())
        .put("is", is ? 1 : 0)
        .put("deadline", lock->deadline().time_since_epoch().count())
        .put("loss", to_string(lock->loss()));
    return is;
}

} // namespace leaselock::simulation
