#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/network.hpp"
#include "simulation/plan.hpp"
#include "simulation/random.hpp"
#include "simulation/surroundings.hpp"
#include "simulation/world.hpp"

#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/token.hpp>
#include <leaselock/lock/lease.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/options.hpp>
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
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

namespace leaselock::simulation {

/// One thread of a client: it takes locks, works under them, and gives them back, in ways that its seed
/// decides, and writes down what it asks for and what it is told.
template <class C>
class Client {
public:
    Client(Surroundings& around, C& redis, Link& link, std::optional<Renewer<C>>& renewer,
           Random random, std::atomic<std::uint32_t>& forks, bool alone)
        : around_(around), world_(around.world), redis_(redis), link_(link), renewer_(renewer),
          random_(random), forks_(forks), alone_(alone) {}

    /// Until the horizon, or its death.
    void work();
    /// Takes each key once, waiting; each has to be free within its ttl.
    void probe();

private:
    using Lock = LeaseLock<C>;
    struct Guard {
        std::string name;
        std::string key;
        Options options;
        std::unique_ptr<Recorder> recorder{};
        std::optional<Lock> lock{};
    };
    /// What a stop token calls back.
    struct OnStop {
        Client& client;
        const Guard& guard;
        std::string token;
        Time takes;
        std::shared_ptr<std::atomic<std::uint32_t>> running;
        void operator()() const noexcept;
    };

    [[nodiscard]] bool over() const {
        return world_.process().killed || world_.now() >= around_.plan.horizon;
    }
    void sleep(Time span) { world_.sleep_until(world_.reading() + span); }
    template <class Verb>
    Outcome call(const Guard& guard, std::string_view verb, Time limit, const Verb& run,
                 bool must = false);
    Guard make_guard(std::string key);
    void session();
    Outcome acquire(Guard& guard);
    Outcome adopt(Guard& guard, const Lease& lease);
    void hold(Guard& guard);
    void work_under(Guard& guard, bool fenced);
    void give_back(Guard& guard);
    bool owns(const Guard& guard);
    void fork(Guard& guard);
    void live_as_child(Guard& inherited, std::atomic<std::uint32_t>& looked);
    [[nodiscard]] Time timeout() const { return around_.plan.timeout_ms * ms; }

    Surroundings& around_;
    World& world_;
    C& redis_;
    Link& link_;
    std::optional<Renewer<C>>& renewer_;
    Random random_;
    std::atomic<std::uint32_t>& forks_; ///< that this process has still to make
    bool alone_;                        ///< no other thread uses the renewer
};

template <class C>
void Client<C>::OnStop::operator()() const noexcept {
    client.world_.line("signal").put("guard", guard.name).put("token", token);
    if (takes == 0) return;
    running->store(1);
    client.sleep(takes);
    running->store(0);
    client.world_.notify_all(*running);
}

/// Writes a call down, and its return.
/// @param must it has to say yes
template <class C>
template <class Verb>
Outcome Client<C>::call(const Guard& guard, std::string_view verb, Time limit, const Verb& run,
                        bool must) {
    const std::uint64_t id = world_.new_id();
    {
        auto line = world_.line("call");
        line.put_unsigned("call", id).put("guard", guard.name).put("verb", verb);
        line.put("limit", limit);
        if (must) line.put("must", "yes");
    }
    const Outcome outcome = run();
    auto line = world_.line("return");
    line.put_unsigned("call", id).put("answer", to_string(outcome.answer));
    line.put("cause", outcome.cause ? outcome.cause.message() : std::string{});
    if (guard.lock) {
        line.put("token", guard.lock->fingerprint());
        line.put("deadline", guard.lock->deadline().time_since_epoch().count());
        line.put_unsigned("fence", guard.lock->fencing_token());
    }
    return outcome;
}

template <class C>
typename Client<C>::Guard Client<C>::make_guard(std::string key) {
    Guard guard{"g" + std::to_string(world_.new_id()), std::move(key), {}};
    const Plan& plan = around_.plan;
    Options& options = guard.options;
    options.ttl = std::chrono::milliseconds{random_.chance(750) ? plan.ttl_ms : 2 * plan.ttl_ms};
    options.timeout = std::chrono::milliseconds{plan.timeout_ms};
    options.fencing = random_.chance(plan.fenced);
    options.owner = random_.chance(300) ? "label" : "";
    options.wait_cap = std::chrono::milliseconds{std::max<std::int64_t>(10, plan.ttl_ms / 4)};
    if (plan.wide_margin) options.margin = options.ttl / 10;
    guard.recorder = std::make_unique<Recorder>(world_, guard.name);
    options.observer = guard.recorder.get();
    world_.line("guard")
        .put("guard", guard.name)
        .put("key", guard.key)
        .put("ttl", options.ttl.count())
        .put("margin", leaselock::detail::margin_of(options).count())
        .put("fenced", options.fencing ? 1 : 0)
        .put("nodes", 1)
        .put("cap", options.wait_cap.count());
    return guard;
}

template <class C>
void Client<C>::work() {
    sleep(random_.between(0, 50 * ms));
    while (!over()) {
        session();
        if (!over()) sleep(random_.between(0, around_.plan.ttl_ms * ms / 2));
    }
}

template <class C>
void Client<C>::probe() {
    for (std::size_t i = 0; i < around_.plan.keys; ++i) {
        Guard guard = make_guard("k" + std::to_string(i));
        guard.lock.emplace(redis_, guard.key, guard.options, std::defer_lock);
        // twice the ttl is the longest, plus what the servers' clocks may differ by, and a poll
        const Time span = 2 * around_.plan.ttl_ms * ms * 102 / 100 + s;
        (void)call(
            guard, "wait", span,
            [&] { return guard.lock->try_acquire_for(std::chrono::nanoseconds{span}); }, true);
        (void)call(guard, "unlock", timeout(), [&] { return guard.lock->unlock(); });
    }
}

/// A guard's whole life.
template <class C>
void Client<C>::session() {
    std::string key = "k" + std::to_string(random_.below(around_.plan.keys));
    std::optional<Lease> lease;
    if (!around_.mailbox.empty() && random_.chance(500)) {
        lease = around_.mailbox.front();
        // delivered twice, now and then
        if (random_.chance(700)) around_.mailbox.pop_front();
        key = lease->key();
    }
    Guard guard = make_guard(std::move(key));
    guard.lock.emplace(redis_, guard.key, guard.options, std::defer_lock);
    for (int attempts = 1;; ++attempts) {
        const Outcome outcome = lease ? adopt(guard, *lease) : acquire(guard);
        lease.reset();
        if (outcome) hold(guard);
        if (attempts == 3 || over() || random_.chance(500)) break;
        sleep(random_.between(0, around_.plan.ttl_ms * ms / 4));
    }
    (void)call(guard, "end", timeout(), [&] {
        guard.lock.reset();
        return Outcome{Answer::yes};
    });
}

template <class C>
Outcome Client<C>::acquire(Guard& guard) {
    if (!random_.chance(around_.plan.waiting)) {
        return call(guard, "acquire", 2 * timeout(), [&] { return guard.lock->try_acquire(); });
    }
    const Time span = random_.between(0, 3 * around_.plan.ttl_ms * ms / 2);
    return call(guard, "wait", span == 0 ? 2 * timeout() : span,
                [&] { return guard.lock->try_acquire_for(std::chrono::nanoseconds{span}); });
}

template <class C>
Outcome Client<C>::adopt(Guard& guard, const Lease& lease) {
    world_.line("offered").put("guard", guard.name).put("token", fingerprint_of(lease.value()));
    return call(guard, "adopt", 2 * timeout(), [&] { return guard.lock->try_adopt(lease); });
}

template <class C>
bool Client<C>::owns(const Guard& guard) {
    const bool is = guard.lock->owns_lock();
    world_.line("owns")
        .put("guard", guard.name)
        .put("token", guard.lock->fingerprint())
        .put("is", is ? 1 : 0)
        .put("deadline", guard.lock->deadline().time_since_epoch().count())
        .put("loss", to_string(guard.lock->loss()));
    return is;
}

template <class C>
void Client<C>::hold(Guard& guard) {
    const bool fenced = guard.options.fencing;
    const std::string token{guard.lock->fingerprint()};
    if (random_.chance(around_.plan.kept) && renewer_) {
        const std::chrono::milliseconds most = guard.options.ttl * random_.between(1, 3);
        const bool bounded = random_.chance(200);
        (void)call(guard, "keep", 0, [&] {
            return renewer_->try_keep(*guard.lock, bounded ? most : std::chrono::milliseconds{0});
        });
    }
    const auto running = std::make_shared<std::atomic<std::uint32_t>>(0);
    std::optional<std::stop_callback<OnStop>> listener;
    if (random_.chance(600)) {
        world_.line("listen").put("guard", guard.name).put("token", token);
        const Time takes = random_.chance(150) ? random_.between(0, 20 * ms) : 0;
        listener.emplace(guard.lock->stop_token(), OnStop{*this, guard, token, takes, running});
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

template <class C>
void Client<C>::work_under(Guard& guard, bool fenced) {
    const std::string token{guard.lock->fingerprint()};
    const std::uint64_t fence = guard.lock->fencing_token();
    const auto ask = [&](std::string_view what) {
        return around_.store.ask(what, guard.key, token, fence, random_);
    };
    if (fenced && !ask("register")) return;
    const Time ttl = guard.options.ttl / std::chrono::nanoseconds{1};
    for (std::uint64_t steps = random_.below(8); steps != 0 && !over(); --steps) {
        if (!owns(guard)) return;
        if (fenced && !ask("write")) return;
        if (forks_.load() != 0) fork(guard);
        if (random_.chance(250)) {
            const Outcome outcome =
                call(guard, "renew", timeout(), [&] { return guard.lock->renew(); });
            if (!outcome && !owns(guard)) return;
        }
        if (renewer_ && alone_ && random_.chance(10)) {
            renewer_.reset(); // it goes before what it keeps
            (void)owns(guard);
        }
        sleep(random_.between(0, random_.chance(100) ? ttl : ttl / 3));
    }
}

template <class C>
void Client<C>::give_back(Guard& guard) {
    const std::uint64_t way = random_.below(10);
    if (way < 6) {
        for (int tries = 0; tries < 2; ++tries) {
            const Outcome outcome =
                call(guard, "unlock", timeout(), [&] { return guard.lock->unlock(); });
            (void)owns(guard);
            if (outcome.answer == Answer::yes || random_.chance(500)) return;
        }
    } else if (way == 6) {
        (void)call(guard, "detach", 0, [&] {
            Lease lease = guard.lock->detach();
            const bool any = static_cast<bool>(lease);
            if (any && !world_.process().killed) around_.mailbox.push_back(std::move(lease));
            return any ? Outcome{Answer::yes} : Outcome{Answer::unsent, errc::not_held};
        });
        (void)owns(guard);
    } else if (way == 7 && !over()) {
        sleep(guard.options.ttl / std::chrono::nanoseconds{1}); // forgets about it
        (void)owns(guard);
    }
    // else the destructor sees to it, or the next attempt
}

/// The child looks at what it has inherited, before the parent goes on; then it works on its own.
template <class C>
void Client<C>::fork(Guard& guard) {
    forks_.fetch_sub(1);
    Process& parent = world_.process();
    if (parent.killed) return;
    Process& child =
        world_.start_process(parent.name + "f" + std::to_string(world_.new_id()), parent.clock);
    world_.line("fork").put("child", child.name);
    const auto looked = std::make_shared<std::atomic<std::uint32_t>>(0);
    world_.start_thread(child, [this, &guard, looked, random = Random{random_.next()}]() mutable {
        Surroundings& around = around_;
        Link& link = link_;
        live_as_child(guard, *looked);
        // from here on nothing of the parent's is touched, which may be gone by now
        C own{around.network, link};
        std::optional<Renewer<C>> renewer{std::in_place, own};
        std::atomic<std::uint32_t> no_forks{0};
        Client child_of_its_own{around, own, link, renewer, random, no_forks, true};
        child_of_its_own.session();
    });
    (void)world_.wait_until(*looked, 0, std::numeric_limits<Time>::max());
}

template <class C>
void Client<C>::live_as_child(Guard& inherited, std::atomic<std::uint32_t>& looked) {
    (void)owns(inherited);
    (void)call(inherited, "renew", 0, [&] { return inherited.lock->renew(); });
    (void)call(inherited, "unlock", 0, [&] { return inherited.lock->unlock(); });
    (void)call(inherited, "acquire", 0, [&] { return inherited.lock->try_acquire(); });
    if (renewer_) {
        (void)call(inherited, "keep", 0, [&] { return renewer_->try_keep(*inherited.lock); });
    }
    looked.store(1);
    world_.notify_all(looked);
}

} // namespace leaselock::simulation
