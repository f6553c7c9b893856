#pragma once
// SPDX-License-Identifier: MIT

#include "chaos/job.hpp"
#include "chaos/store.hpp"
#include "chaos/told.hpp"
#include "chaos/told_guard.hpp"
#include "chaos/witness.hpp"

#include "simulation/clock.hpp"
#include "simulation/random.hpp"

#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/token.hpp>
#include <leaselock/lock/lease.hpp>
#include <leaselock/lock/options.hpp>
#include <leaselock/lock/renewer.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace leaselock::chaos {

using simulation::ms;
using simulation::Random;

/// How one thread of a worker gets to one server.
template <class C>
struct Way {
    C& redis;
    Renewer<C>& renewer;
};

/// One thread of a worker: it takes locks, works under them, and gives them back, in ways that its seed
/// decides, and writes down what it asks for and what it is told.
template <class C>
class Holder {
public:
    Holder(const Job& job, const Scribe& scribe, Ids& ids, Witness& witness, StoreClient& store,
           std::vector<Way<C>> ways, std::uint64_t thread)
        : job_(job), scribe_(scribe), ids_(ids), witness_(witness), store_(store),
          ways_(std::move(ways)), random_(job.seed, job.serial * 16 + thread),
          who_(static_cast<std::uint16_t>((job.serial * 4 + thread) % 65'535 + 1)) {}

    [[noreturn]] void work() {
        for (;;) {
            session();
            sleep(random_.between(0, 40 * ms));
        }
    }
    /// Takes each key once, waiting. Each has to be free in time.
    void probe();

private:
    using Guard = ToldGuard<C>;
    struct OnStop {
        const Scribe& scribe;
        std::string guard;
        std::string token;
        void operator()() const noexcept {
            scribe.line("signal",
                        [&](History::Line& line) { line.put("guard", guard).put("token", token); });
        }
    };

    static constexpr Time timeout = 250 * ms;

    void sleep(Time span) const { std::this_thread::sleep_for(std::chrono::nanoseconds{span}); }
    [[nodiscard]] Options draw_options();
    void session();
    Outcome acquire(Guard& guard, const std::optional<Lease>& lease);
    void hold(Guard& guard, Way<C>& way, std::size_t place);
    void work_under(Guard& guard, std::size_t place);
    bool still_owns(Guard& guard, std::size_t place);
    void give_back(Guard& guard);

    const Job& job_;
    const Scribe& scribe_;
    Ids& ids_;
    Witness& witness_;
    StoreClient& store_;
    std::vector<Way<C>> ways_;
    Random random_;
    std::uint16_t who_;
};

template <class C>
Options Holder<C>::draw_options() {
    static constexpr std::array<int, 3> ttls{400, 700, 1200};
    Options options;
    options.ttl = std::chrono::milliseconds{random_.pick(ttls)};
    options.timeout = std::chrono::milliseconds{timeout / ms};
    options.fencing = random_.chance(850);
    options.owner = random_.chance(300) ? "label" : "";
    options.wait_cap = std::chrono::milliseconds{100};
    return options;
}

/// A guard's whole life.
template <class C>
void Holder<C>::session() {
    std::size_t server = static_cast<std::size_t>(random_.below(ways_.size()));
    std::size_t key = static_cast<std::size_t>(random_.below(job_.keys));
    std::optional<Lease> lease;
    if (random_.chance(150)) lease = store_.fetch();
    if (lease) { // s1:k2
        server = static_cast<std::size_t>(lease->key()[1] - '0');
        key = std::stoul(std::string{lease->key().substr(4)});
    }
    Guard guard{scribe_, ids_, ways_[server].redis, key_name(server, key), draw_options()};
    const std::size_t place = server * job_.keys + key;
    for (int attempts = 1;; ++attempts) {
        const Outcome outcome = acquire(guard, lease);
        lease.reset();
        if (outcome) hold(guard, ways_[server], place);
        if (attempts == 3 || random_.chance(500)) break;
        sleep(random_.between(0, 60 * ms));
    }
    witness_.leave(place, who_);
    guard.end(timeout);
}

template <class C>
Outcome Holder<C>::acquire(Guard& guard, const std::optional<Lease>& lease) {
    if (lease) {
        const std::string_view offered{lease->value()};
        scribe_.line("offered", [&](History::Line& line) {
            line.put("guard", guard.name()).put("token", fingerprint_of(offered));
        });
        return guard.call("adopt", 2 * timeout, [&] { return guard.lock().try_adopt(*lease); });
    }
    if (random_.chance(300)) {
        return guard.call("acquire", 2 * timeout, [&] { return guard.lock().try_acquire(); });
    }
    const Time span = random_.between(50 * ms, 2000 * ms);
    return guard.call("wait", span,
                      [&] { return guard.lock().try_acquire_for(std::chrono::nanoseconds{span}); });
}

template <class C>
void Holder<C>::hold(Guard& guard, Way<C>& way, std::size_t place) {
    const std::string token = scribe_.token(guard.lock().fingerprint());
    if (random_.chance(600)) {
        const bool bounded = random_.chance(150);
        (void)guard.call("keep", 0, [&] {
            return way.renewer.try_keep(guard.lock(), bounded ? guard.options().ttl * 2
                                                              : std::chrono::milliseconds{0});
        });
    }
    std::optional<std::stop_callback<OnStop>> listener;
    if (random_.chance(500)) {
        scribe_.line("listen", [&](History::Line& line) {
            line.put("guard", guard.name()).put("token", token);
        });
        listener.emplace(guard.lock().stop_token(), OnStop{scribe_, guard.name(), token});
    }
    work_under(guard, place);
    witness_.leave(place, who_);
    give_back(guard);
    if (!listener) return;
    listener.reset();
    scribe_.line("unlisten",
                 [&](History::Line& line) { line.put("guard", guard.name()).put("token", token); });
}

/// Inside of the critical section. Some look whether they still own the lock before each write, as they
/// should; some do not look again, and it is the store's to refuse them.
template <class C>
void Holder<C>::work_under(Guard& guard, std::size_t place) {
    const std::string token = scribe_.token(guard.lock().fingerprint());
    const std::uint64_t fence = guard.lock().fencing_token();
    const bool fenced = guard.options().fencing;
    const bool careless = fenced && random_.chance(400);
    const Time ttl = guard.options().ttl / std::chrono::nanoseconds{1};
    if (fenced && !store_.ask("register", guard.key(), token, fence)) return;
    for (std::uint64_t steps = random_.below(8); steps != 0; --steps) {
        if (!still_owns(guard, place) && !careless) return;
        if (random_.chance(300)) sleep(random_.between(0, 5 * ms)); // between looking and writing
        if (fenced && !store_.ask("write", guard.key(), token, fence)) return;
        if (random_.chance(200)) {
            (void)guard.call("renew", timeout, [&] { return guard.lock().renew(); });
        }
        sleep(random_.between(0, random_.chance(100) ? ttl : ttl / 5));
    }
}

template <class C>
bool Holder<C>::still_owns(Guard& guard, std::size_t place) {
    const Deadline deadline = guard.lock().deadline();
    if (!guard.owns()) return false;
    const Time now = scribe_.now();
    const Time left = (deadline - LeaseClock::now()).count();
    if (left <= 0) return true; // renewed since; it is told of at the next step
    const Time until = now + left * 1000 / (1'000'000 + job_.ppm) * 1000;
    if (witness_.enter(place, who_, now, until)) {
        scribe_.line("overlap", [&](History::Line& line) {
            line.put("key", guard.key()).put("token", scribe_.token(guard.lock().fingerprint()));
        });
    }
    return true;
}

template <class C>
void Holder<C>::give_back(Guard& guard) {
    const std::uint64_t way = random_.below(10);
    if (way < 7) {
        for (int tries = 0; tries < 2; ++tries) {
            const Outcome outcome =
                guard.call("unlock", timeout, [&] { return guard.lock().unlock(); });
            (void)guard.owns();
            if (outcome.answer == Answer::yes || random_.chance(500)) return;
        }
    } else if (way == 7) {
        (void)guard.call("detach", 0, [&] {
            const Lease lease = guard.lock().detach();
            if (!lease) return Outcome{Answer::unsent, errc::not_held};
            store_.post(lease);
            return Outcome{Answer::yes};
        });
        (void)guard.owns();
    }
    // else the destructor sees to it, or the next attempt
}

template <class C>
void Holder<C>::probe() {
    for (std::size_t server = 0; server < ways_.size(); ++server) {
        for (std::size_t key = 0; key < job_.keys; ++key) {
            Guard guard{scribe_, ids_, ways_[server].redis, key_name(server, key), draw_options()};
            const auto take = [&] {
                return guard.lock().try_acquire_for(std::chrono::nanoseconds{job_.probe});
            };
            (void)guard.call("wait", job_.probe, take, true);
            (void)guard.call("unlock", timeout, [&] { return guard.lock().unlock(); });
            guard.end(timeout);
        }
    }
}

} // namespace leaselock::chaos
