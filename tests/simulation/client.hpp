#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/connection.hpp"
#include "simulation/network.hpp"
#include "simulation/plan.hpp"
#include "simulation/random.hpp"
#include "simulation/surroundings.hpp"
#include "simulation/told_guard.hpp"
#include "simulation/world.hpp"

#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/token.hpp>
#include <leaselock/lock/lease.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/renewer.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

namespace leaselock::simulation {

/// One thread of a client: it takes locks, works under them, and gives them back, in ways that its seed
/// decides, and writes down what it asks for and what it is told.
template <class B>
class Client {
public:
    Client(Surroundings& around, B& redis, std::span<Link> links,
           std::optional<Renewer<B>>& renewer, Random random, std::atomic<std::uint32_t>& forks,
           bool alone)
        : around_(around), world_(around.world), redis_(redis), links_(links), renewer_(renewer),
          random_(random), forks_(forks), alone_(alone) {}

    /// Until the horizon, or its death.
    void work();
    /// Takes each key once, waiting; each has to be free within its ttl.
    void probe();

private:
    using Guard = ToldGuard<B>;

    [[nodiscard]] bool over() const {
        return world_.process().killed || world_.now() >= around_.plan.horizon;
    }
    void sleep(Time span) { world_.sleep_until(world_.reading() + span); }
    void session();
    Outcome acquire(Guard& guard);
    Outcome adopt(Guard& guard, const Lease& lease);
    void hold(Guard& guard);
    void work_under(Guard& guard, bool fenced);
    void give_back(Guard& guard);
    void fork(Guard& guard);
    void live_as_child(Guard& inherited, std::atomic<std::uint32_t>& looked);
    [[nodiscard]] Time timeout() const { return around_.plan.timeout_ms * ms; }

    Surroundings& around_;
    World& world_;
    B& redis_;
    std::span<Link> links_; ///< a way of its own for each that needs one
    std::optional<Renewer<B>>& renewer_;
    Random random_;
    std::atomic<std::uint32_t>& forks_; ///< that this process has still to make
    bool alone_;                        ///< no other thread uses the renewer
};

template <class B>
void Client<B>::work() {
    sleep(random_.between(0, 50 * ms));
    while (!over()) {
        session();
        if (!over()) sleep(random_.between(0, around_.plan.ttl_ms * ms / 2));
    }
}

template <class B>
void Client<B>::probe() {
    const Plan& plan = around_.plan;
    // Twice the ttl is the longest, plus what the servers' clocks may differ by, and a poll. A server's
    // clock that went back lets its keys live longer.
    Time span = 2 * plan.ttl_ms * ms * 102 / 100 + s;
    for (const Fault& fault : plan.faults) {
        if (fault.kind == Kind::clock_back) span += fault.amount;
    }
    for (std::size_t i = 0; i < plan.keys; ++i) {
        Guard guard{world_, plan, random_, "k" + std::to_string(i)};
        guard.lock.emplace(redis_, guard.key, guard.options, std::defer_lock);
        (void)guard.call(
            "wait", span,
            [&] { return guard.lock->try_acquire_for(std::chrono::nanoseconds{span}); }, true);
        (void)guard.call("unlock", timeout(), [&] { return guard.lock->unlock(); });
    }
}

/// A guard's whole life.
template <class B>
void Client<B>::session() {
    std::string key = "k" + std::to_string(random_.below(around_.plan.keys));
    std::optional<Lease> lease;
    if (!around_.mailbox.empty() && random_.chance(500)) {
        lease = around_.mailbox.front();
        // delivered twice, now and then
        if (random_.chance(700)) around_.mailbox.pop_front();
        key = lease->key();
    }
    Guard guard{world_, around_.plan, random_, std::move(key)};
    guard.lock.emplace(redis_, guard.key, guard.options, std::defer_lock);
    for (int attempts = 1;; ++attempts) {
        const Outcome outcome = lease ? adopt(guard, *lease) : acquire(guard);
        lease.reset();
        if (outcome) hold(guard);
        if (attempts == 3 || over() || random_.chance(500)) break;
        sleep(random_.between(0, around_.plan.ttl_ms * ms / 4));
    }
    (void)guard.call("end", timeout(), [&] {
        guard.lock.reset();
        return Outcome{Answer::yes};
    });
}

template <class B>
Outcome Client<B>::acquire(Guard& guard) {
    if (!random_.chance(around_.plan.waiting)) {
        return guard.call("acquire", 2 * timeout(), [&] { return guard.lock->try_acquire(); });
    }
    const Time span = random_.between(0, 3 * around_.plan.ttl_ms * ms / 2);
    return guard.call("wait", span == 0 ? 2 * timeout() : span,
                      [&] { return guard.lock->try_acquire_for(std::chrono::nanoseconds{span}); });
}

template <class B>
Outcome Client<B>::adopt(Guard& guard, const Lease& lease) {
    world_.line("offered").put("guard", guard.name).put("token", fingerprint_of(lease.value()));
    return guard.call("adopt", 2 * timeout(), [&] { return guard.lock->try_adopt(lease); });
}

template <class B>
void Client<B>::hold(Guard& guard) {
    const bool fenced = guard.fenced();
    const std::string token{guard.lock->fingerprint()};
    if (random_.chance(around_.plan.kept) && renewer_) {
        const std::chrono::milliseconds most = guard.options.ttl * random_.between(1, 3);
        const bool bounded = random_.chance(200);
        (void)guard.call("keep", 0, [&] {
            return renewer_->try_keep(*guard.lock, bounded ? most : std::chrono::milliseconds{0});
        });
    }
    const auto running = std::make_shared<std::atomic<std::uint32_t>>(0);
    std::optional<std::stop_callback<OnStop>> listener;
    if (random_.chance(600)) {
        world_.line("listen").put("guard", guard.name).put("token", token);
        const Time takes = random_.chance(150) ? random_.between(0, 20 * ms) : 0;
        listener.emplace(guard.lock->stop_token(),
                         OnStop{world_, guard.name, token, takes, running});
    }
    work_under(guard, fenced);
    // Lost or not, it may be a while until somebody looks at it again.
    if (random_.chance(100))
        sleep(random_.between(0, 2 * guard.options.ttl / std::chrono::nanoseconds{1}));
    give_back(guard);
    // `~stop_callback` would wait for a callback that runs, and with it everything else
    while (running->load() != 0)
        (void)world_.wait_until(*running, 1, std::numeric_limits<Time>::max());
    if (listener) world_.line("unlisten").put("guard", guard.name).put("token", token);
}

template <class B>
void Client<B>::work_under(Guard& guard, bool fenced) {
    const std::string token{guard.lock->fingerprint()};
    const std::uint64_t fence = guard.fencing_token();
    const auto ask = [&](std::string_view what) {
        return around_.store.ask(what, guard.key, token, fence, random_);
    };
    if (fenced && !ask("register")) return;
    const Time ttl = guard.options.ttl / std::chrono::nanoseconds{1};
    for (std::uint64_t steps = random_.below(8); steps != 0 && !over(); --steps) {
        if (!guard.owns()) return;
        if (fenced && !ask("write")) return;
        if (forks_.load() != 0) fork(guard);
        if (random_.chance(250)) {
            const Outcome outcome =
                guard.call("renew", timeout(), [&] { return guard.lock->renew(); });
            if (!outcome && !guard.owns()) return;
        }
        if (renewer_ && alone_ && random_.chance(10)) {
            renewer_.reset(); // it goes before what it keeps
            (void)guard.owns();
        }
        sleep(random_.between(0, random_.chance(100) ? ttl : ttl / 3));
    }
}

template <class B>
void Client<B>::give_back(Guard& guard) {
    const std::uint64_t way = random_.below(10);
    if (way < 6) {
        for (int tries = 0; tries < 2; ++tries) {
            const Outcome outcome =
                guard.call("unlock", timeout(), [&] { return guard.lock->unlock(); });
            (void)guard.owns();
            if (outcome.answer == Answer::yes || random_.chance(500)) return;
        }
    } else if (way == 6) {
        (void)guard.call("detach", 0, [&] {
            Lease lease = guard.lock->detach();
            const bool any = static_cast<bool>(lease);
            if (any && !world_.process().killed) around_.mailbox.push_back(std::move(lease));
            return any ? Outcome{Answer::yes} : Outcome{Answer::unsent, errc::not_held};
        });
        (void)guard.owns();
    } else if (way == 7 && !over()) {
        sleep(guard.options.ttl / std::chrono::nanoseconds{1}); // forgets about it
        (void)guard.owns();
    }
    // else the destructor sees to it, or the next attempt
}

/// The child looks at what it has inherited, before the parent goes on; then it works on its own.
template <class B>
void Client<B>::fork(Guard& guard) {
    forks_.fetch_sub(1);
    Process& parent = world_.process();
    if (parent.killed) return;
    Process& child =
        world_.start_process(parent.name + "f" + std::to_string(world_.new_id()), parent.clock);
    world_.line("fork").put("child", child.name);
    const auto looked = std::make_shared<std::atomic<std::uint32_t>>(0);
    world_.start_thread(child, [this, &guard, looked, random = Random{random_.next()}]() mutable {
        Surroundings& around = around_;
        const std::span<Link> links = links_;
        live_as_child(guard, *looked);
        // from here on nothing of the parent's is touched, which may be gone by now
        Way<B> own{around.network, links};
        Way<B> for_renewal{around.network, links};
        std::optional<Renewer<B>> renewer{std::in_place, for_renewal.backend};
        std::atomic<std::uint32_t> no_forks{0};
        Client child_of_its_own{around, own.backend, links, renewer, random, no_forks, true};
        child_of_its_own.session();
    });
    (void)world_.wait_until(*looked, 0, std::numeric_limits<Time>::max());
}

template <class B>
void Client<B>::live_as_child(Guard& inherited, std::atomic<std::uint32_t>& looked) {
    (void)inherited.owns();
    (void)inherited.call("renew", 0, [&] { return inherited.lock->renew(); });
    (void)inherited.call("unlock", 0, [&] { return inherited.lock->unlock(); });
    (void)inherited.call("acquire", 0, [&] { return inherited.lock->try_acquire(); });
    if (renewer_) {
        (void)inherited.call("keep", 0, [&] { return renewer_->try_keep(*inherited.lock); });
    }
    looked.store(1);
    world_.notify_all(looked);
}

} // namespace leaselock::simulation
