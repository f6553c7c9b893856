// SPDX-License-Identifier: MIT
//
// Sequences of calls: guards on one Redis and on a quorum, renewers, leases that are handed over, faults of
// every kind, and somebody who meddles with the servers. The bytes say what is done; after each step
// everything that is promised is looked at, against what the servers in memory hold.

#include "fuzz/api_trace.hpp"
#include "fuzz/api_world.hpp"

#include <leaselock/core/error.hpp>
#include <leaselock/lock/inspect.hpp>
#include <leaselock/testing/fault.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

namespace {

using namespace std::chrono_literals;
using namespace fuzz;
using leaselock::Answer;
using leaselock::errc;
using leaselock::Lease;
using leaselock::LeaseLock;
using leaselock::Outcome;
using leaselock::testing::Fault;

constexpr std::array<milliseconds, 8> ttls{1000ms, 100ms, 300ms, 3000ms, 10000ms, 2ms, 0ms, 1ms};
constexpr std::array<milliseconds, 8> spans{1ms, 0ms, 10ms, 99ms, 333ms, 1000ms, 3000ms, 11000ms};
constexpr std::array<std::string_view, 8> error_lines{
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script.",
    "READONLY You can't write against a read only replica.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "NOSCRIPT No matching script. Please use EVAL.",
    "ERR Connection timed out",
    "NOPERM this user has no permissions",
    "MOVED 1 127.0.0.1:7001",
};

class Sequence {
public:
    explicit Sequence(Choices choices) : choices_(choices) {}

    void run() {
        for (int steps = 0; steps < 48 && !choices_.empty(); ++steps) {
            step();
            world_.check_all();
        }
        finish();
    }

private:
    void step() {
        const std::uint8_t what = choices_.byte();
        trace_.step(what % 16, what >= 160  ? "on a guard of nodes"
                               : what >= 64 ? "on a guard"
                                            : "");
        if (what >= 160) return on_guard(world_.guards_of_nodes, what % 16);
        if (what >= 64) return on_guard(world_.guards, what % 16);
        switch (what % 16) {
        case 0:
        case 1:
        case 2: return pass(spans[choices_.below(spans.size())], what % 16 == 2);
        case 3:
        case 4:
        case 5: return break_connection();
        case 6: return world_.connections[choices_.below(12)]->heal();
        case 7: return world_.connections[choices_.below(12)]->deliver_held();
        case 8:
        case 9: return meddle();
        case 10: return swap_guards();
        case 11: return look_inside();
        case 12: return renew_renewers();
        case 13: return be_a_child();
        case 14: return fail_the_machine();
        default:
            return world_.connections[choices_.below(12)]->set_delay(spans[choices_.below(5)],
                                                                     spans[choices_.below(5)]);
        }
    }

    template <class Guards>
    void on_guard(Guards& all, int what) {
        auto& guard = all[choices_.below(all.size())];
        if (what == 0 || !guard.lock) return make(guard);
        switch (what) {
        case 1:
        case 2:
        case 3: return acquire(guard, {});
        case 4: return acquire(guard, spans[choices_.below(7)]);
        case 5:
        case 6: return renew(guard);
        case 7:
        case 8: return unlock(guard);
        case 9: return guard.lock.reset();
        case 10: return detach(guard);
        case 11: return adopt(guard);
        case 12:
        case 13: return keep(guard);
        case 14: return take_token(guard);
        default: return detach_and_adopt(guard);
        }
    }

    // --- one guard ---------------------------------------------------------------------------

    [[nodiscard]] MemoryConnection& backend(const Guard<MemoryConnection>& guard) {
        return &guard == &world_.guards[2] ? world_.other : world_.one;
    }
    [[nodiscard]] Nodes& backend(const Guard<Nodes>& guard) {
        return &guard == &world_.guards_of_nodes[1] ? world_.other_nodes : world_.nodes;
    }

    template <class B>
    void make(Guard<B>& guard) {
        typename LeaseLock<B>::options_type options;
        const std::uint8_t bits = choices_.byte();
        options.ttl = ttls[bits % 8];
        options.timeout = std::array{1000ms, 50ms, 10ms, 200ms}[bits >> 3U & 3U];
        if ((bits & 32U) != 0) options.margin = 0ms;
        if ((bits & 64U) != 0) options.owner = "worker-7";
        if constexpr (std::is_same_v<B, MemoryConnection>) options.fencing = (bits & 128U) != 0;
        if (trace_.is_on()) options.observer = &trace_;
        guard.begin();
        guard.key = choices_.below(lock_keys.size());
        guard.timeout = options.timeout;
        guard.lease = options.ttl - options.margin.value_or(0ms);
        if (!options.margin) guard.lease -= leaselock::default_margin(options.ttl);
        guard.lock.emplace(backend(guard), lock_keys[guard.key], options, std::defer_lock);
        check(!guard.lock->owns_lock() && guard.lock->loss() == Loss::none, "a new guard is empty");
    }

    template <class B>
    void acquire(Guard<B>& guard, milliseconds span) {
        const bool owned = guard.lock->owns_lock();
        const Deadline start = world_.runtime.now();
        world_.servers[0].redis.clear_log();
        const Outcome outcome = guard.lock->try_acquire_for(span);
        // one call to clean up what was there, one that may outlast the span, one to clean up behind it
        check(world_.runtime.now() <= start + span + 3 * guard.timeout, "a wait is bounded");
        take(guard, start, owned, outcome);
    }

    template <class B>
    void adopt(Guard<B>& guard) {
        const auto& leases = world_.leases_of(guard);
        const Lease lease = leases.empty() ? Lease{} : leases[choices_.below(leases.size())];
        const bool owned = guard.lock->owns_lock();
        const bool ours = lease && lease.key() == guard.lock->key();
        const Deadline start = world_.runtime.now();
        world_.servers[0].redis.clear_log();
        const Outcome outcome = guard.lock->try_adopt(lease);
        check(world_.runtime.now() <= start + 3 * guard.timeout, "an adoption is bounded");
        if (!ours) return check(outcome.cause == errc::invalid_argument, "no lease of this key");
        take(guard, start, owned, outcome);
    }

    /// What came of taking the key.
    template <class B>
    void take(Guard<B>& guard, Deadline start, bool owned, const Outcome& outcome) {
        check(outcome ? !outcome.cause : static_cast<bool>(outcome.cause),
              "all but yes has a cause");
        if (owned) {
            return check(outcome.answer == Answer::unsent && outcome.cause == errc::already_held,
                         "who holds it already is told so");
        }
        guard.begin();
        const Deadline now = world_.runtime.now();
        check(static_cast<bool>(outcome) == guard.lock->owns_lock(),
              "yes is owned, all else is not");
        if constexpr (std::is_same_v<B, MemoryConnection>) note_what_was_sent(outcome);
        if (!outcome) return;
        guard.held = true;
        guard.deadline = guard.lock->deadline();
        check(guard.deadline >= start + guard.lease && guard.deadline <= now + guard.lease,
              "the deadline counts from before the send");
        if constexpr (std::is_same_v<B, MemoryConnection>) {
            const std::uint64_t fence = guard.lock->fencing_token();
            check(fence == 0 || fence > world_.fences[guard.key], "fencing tokens go up");
            if (fence != 0) world_.fences[guard.key] = fence;
        }
    }

    /// Refused and busy mean that what was sent is not there, unsent that it has never been.
    void note_what_was_sent(const Outcome& outcome) {
        if (outcome || outcome.answer == Answer::unknown) return;
        const auto log = world_.servers[0].redis.log();
        // of a waiting call only the last attempt is spoken of
        std::string last;
        std::size_t sets = 0;
        for (const auto& executed : log) {
            if (executed.argv.front() != "SET") continue;
            last = executed.argv[2];
            ++sets;
        }
        if (outcome.answer == Answer::unsent) {
            check(sets == 0 || outcome.cause != errc::not_held, "unsent is not executed");
            return;
        }
        if (!last.empty()) world_.dead.insert(last);
    }

    template <class B>
    void renew(Guard<B>& guard) {
        const bool owned = guard.lock->owns_lock();
        const Deadline before = guard.lock->deadline();
        const Deadline start = world_.runtime.now();
        const Outcome outcome = guard.lock->renew();
        check(world_.runtime.now() <= start + guard.timeout, "a renewal is bounded");
        check(outcome ? !outcome.cause : static_cast<bool>(outcome.cause),
              "all but yes has a cause");
        if (!owned) return check(outcome.answer == Answer::unsent, "there is nothing to renew");
        const Deadline after = guard.lock->deadline();
        switch (outcome.answer) {
        case Answer::yes:
            return check(after >= before && after >= start + guard.lease, "yes extends the lease");
        case Answer::no: return check(after == Deadline{}, "no ends it");
        default:
            check(after == before || after == Deadline{} || guard.kept,
                  "nothing but a yes moves the deadline");
        }
    }

    template <class B>
    void unlock(Guard<B>& guard) {
        const bool owned = guard.lock->owns_lock();
        const Loss loss = guard.lock->loss();
        const Deadline start = world_.runtime.now();
        const Outcome outcome = guard.lock->unlock();
        check(world_.runtime.now() <= start + guard.timeout, "a release is bounded");
        check(!guard.lock->owns_lock(), "unlocked is not owned, whatever comes of it");
        check(guard.lock->loss() == (owned ? Loss::none : loss),
              "what is given back in time is no loss, and a loss stays one");
        guard.held = false;
        if (outcome.answer != Answer::yes && outcome.answer != Answer::no) return;
        if (owned) check(outcome || guard.disturbed, "who owned it has deleted it");
        if constexpr (std::is_same_v<B, MemoryConnection>) {
            const auto value = world_.servers[0].redis.get(lock_keys[guard.key]);
            check(!value || !value->starts_with(guard.lock->fingerprint()), "it is gone");
        }
    }

    template <class B>
    void detach(Guard<B>& guard) {
        const bool owned = guard.lock->owns_lock();
        Lease lease = guard.lock->detach();
        check(static_cast<bool>(lease) == owned, "only a lease that is held is handed over");
        check(!guard.lock->owns_lock(), "who hands it over has it no more");
        guard.held = false;
        if (!lease) return;
        check(lease.key() == lock_keys[guard.key] &&
                  lease.value().starts_with(guard.lock->fingerprint()),
              "the lease is the guard's");
        check(Lease::from_text(lease.to_text()) == lease, "it crosses process boundaries");
        world_.leases_of(guard).push_back(std::move(lease));
    }

    template <class B>
    void detach_and_adopt(Guard<B>& guard) {
        detach(guard);
        adopt(guard);
    }

    template <class B>
    void keep(Guard<B>& guard) {
        auto& renewer = world_.renewer_of(guard);
        if (!renewer) return;
        const bool owned = guard.lock->owns_lock();
        const milliseconds max_hold = std::array{0ms, 0ms, 1000ms, 20000ms}[choices_.below(4)];
        const Outcome outcome = renewer->try_keep(*guard.lock, max_hold);
        check(outcome.answer == Answer::yes || outcome.answer == Answer::unsent, "kept, or not");
        check(!outcome || owned, "only what is owned is kept");
        guard.kept = guard.kept || outcome;
        world_.runtime.settle();
    }

    template <class B>
    void take_token(Guard<B>& guard) {
        const bool owned = guard.lock->owns_lock();
        std::stop_token token = guard.lock->stop_token();
        if (owned) {
            guard.token = std::move(token);
        } else {
            check(token.stop_requested(), "without a lease it is set already");
        }
    }

    // --- the world ---------------------------------------------------------------------------

    void pass(LeaseClock::duration span, bool asleep) {
        if (world_.spent > 60s) return; // each renewal takes real time
        world_.spent += span;
        if (asleep) {
            world_.for_each_guard([](auto& guard) { guard.overslept = true; });
            world_.runtime.suspend(span);
        } else {
            world_.runtime.advance(span);
        }
    }

    void break_connection() {
        constexpr std::array kinds{Fault::refused, Fault::lost_request, Fault::lost_reply,
                                   Fault::held,    Fault::cut_request,  Fault::cut_reply,
                                   Fault::garbage, Fault::error,        Fault::slow};
        MemoryConnection& connection = *world_.connections[choices_.below(12)];
        const std::uint8_t bits = choices_.byte();
        Fault fault{kinds[bits % kinds.size()]};
        fault.text = error_lines[choices_.below(error_lines.size())];
        fault.after = bits >> 6U & 1U;
        fault.there = spans[choices_.below(spans.size())];
        fault.back = spans[choices_.below(5)];
        switch (bits >> 4U & 3U) {
        case 0: return connection.always(fault);
        case 1: return connection.on((bits & 128U) != 0 ? "EVALSHA" : "SET", fault);
        default: return connection.next(fault);
        }
    }

    void meddle() {
        const std::size_t number = choices_.below(4);
        Server& server = world_.servers[number];
        MemoryRedis& redis = server.redis;
        const std::size_t key = choices_.below(lock_keys.size());
        const std::uint8_t bits = choices_.byte();
        switch (bits % 10) {
        case 0:
            for (std::size_t k = 0; k < lock_keys.size(); ++k) world_.disturb(number, k);
            world_.fences = {};
            return redis.restart();
        case 1: return redis.restart(MemoryRedis::Restart::keeping_data);
        case 2: world_.disturb(number, key); return (void)redis.del(lock_keys[key]);
        case 3:
            world_.disturb(number, key);
            server.foreign[key] = "another's";
            server.may_lack_ttl[key] = true;
            return redis.set(lock_keys[key], "another's");
        case 4:
            world_.disturb(number, key);
            server.may_lack_ttl[key] = true;
            return redis.plant_hash(lock_keys[key]);
        case 5: return redis.flush_scripts();
        case 6: return redis.set_read_only((bits & 128U) != 0);
        case 7: return redis.set_out_of_memory((bits & 128U) != 0);
        case 8: return redis.set_lacks_getex((bits & 128U) != 0);
        default: server.may_lack_ttl[key] = true; (void)redis.execute({"PERSIST", lock_keys[key]});
        }
    }

    void swap_guards() {
        auto& one = world_.guards[choices_.below(3)];
        auto& other = world_.guards[choices_.below(3)];
        if (&one == &other || !one.lock || !other.lock) return;
        if (choices_.below(2) == 0) {
            one.lock->swap(*other.lock);
            std::swap<Known>(one, other);
            return;
        }
        *one.lock = std::move(*other.lock); // gives back what it held
        check(!other.lock->owns_lock() && other.lock->key().empty(), "moved from is empty");
        other.lock.reset();
        static_cast<Known&>(one) = std::exchange<Known>(other, {});
    }

    void look_inside() {
        const std::size_t key = choices_.below(lock_keys.size());
        const Deadline before = world_.runtime.now();
        const auto seen = leaselock::inspect(world_.other, lock_keys[key]);
        if (!seen.outcome || world_.runtime.now() != before) return;
        const std::int64_t left = world_.servers[0].redis.pttl(lock_keys[key]);
        using State = leaselock::Inspection::State;
        check(seen.state == (left == -2   ? State::free
                             : left == -1 ? State::held_without_expiry
                                          : State::held),
              "what is seen is what is there");
        check(left < 0 || seen.ttl.count() == left, "and for how long");
    }

    void renew_renewers() {
        const bool of_nodes = choices_.below(2) == 1;
        if (of_nodes && world_.renewer_of_nodes) return world_.renewer_of_nodes.reset();
        if (of_nodes) return (void)world_.renewer_of_nodes.emplace(world_.nodes_for_renewals);
        if (world_.renewer) return world_.renewer.reset();
        world_.renewer.emplace(world_.for_renewals);
    }

    /// As if behind a fork, for a moment.
    void be_a_child() {
        world_.runtime.set_process(2);
        const auto calls = [&] {
            std::size_t sum = 0;
            for (const MemoryConnection* connection : world_.connections)
                sum += connection->calls();
            return sum;
        };
        const std::size_t before = calls();
        world_.for_each_guard([&](auto& guard) {
            if (!guard.lock) return;
            check(!guard.lock->owns_lock(), "a child owns nothing");
            for (const Outcome& outcome :
                 {guard.lock->try_acquire(), guard.lock->renew(), guard.lock->unlock()}) {
                check(outcome.answer == Answer::unsent, "a child sends nothing");
            }
            check(!guard.lock->detach(), "nor does it hand anything over");
        });
        check(calls() == before, "not even to find out");
        world_.runtime.set_process(1);
    }

    void fail_the_machine() {
        const std::uint8_t bits = choices_.byte();
        const auto why = std::make_error_code(std::errc::resource_unavailable_try_again);
        world_.runtime.fail_random((bits & 1U) != 0 ? why : std::error_code{});
        world_.runtime.fail_threads((bits & 2U) != 0 ? why : std::error_code{});
    }

    /// All is well again; what is still held is given back, and what is left behind runs out.
    void finish() {
        world_.runtime.fail_random({});
        for (MemoryConnection* connection : world_.connections) {
            connection->heal();
            connection->deliver_held();
        }
        for (Server& server : world_.servers) {
            server.redis.set_read_only(false);
            server.redis.set_out_of_memory(false);
            server.redis.set_lacks_getex(false);
        }
        world_.check_all();
        for (auto& guard : world_.guards) {
            if (!guard.lock) continue;
            const std::string fingerprint{guard.lock->fingerprint()};
            const bool owned = guard.lock->owns_lock();
            guard.lock.reset();
            const auto value = world_.servers[0].redis.get(lock_keys[guard.key]);
            check(!owned || !value || !value->starts_with(fingerprint), "a destructor gives back");
        }
        for (auto& guard : world_.guards_of_nodes) guard.lock.reset();
        world_.runtime.advance(60s); // longer than any ttl, behind any delay
        world_.check_all();
        for (Server& server : world_.servers) {
            for (std::size_t key = 0; key < lock_keys.size(); ++key) {
                check(server.may_lack_ttl[key] || server.redis.pttl(lock_keys[key]) == -2,
                      "nothing of ours stays for ever");
            }
        }
    }

    Choices choices_;
    World world_;
    Trace trace_{world_.runtime};
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Sequence{fuzz::Choices{fuzz::as_text(data, size)}}.run();
    return 0;
}
