// SPDX-License-Identifier: MIT

#include "chaos/holder.hpp"
#include "chaos/job.hpp"
#include "chaos/store.hpp"
#include "chaos/told.hpp"
#include "chaos/witness.hpp"

#include <leaselock/core/lease_clock.hpp>
#include <leaselock/hiredis/hiredis_connection.hpp>
#include <leaselock/hiredis/multiplexed_connection.hpp>
#include <leaselock/lock/renewer.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace leaselock::chaos {
namespace {

constexpr std::uint64_t threads = 2;

/// The connections of a process, and the renewers over them.
template <class C>
class Ways {
public:
    Ways(const Job& job, const Scribe& scribe, Ids& ids, Runtime& runtime) {
        // a connection that may be shared is; else each thread has its own, and the renewers theirs
        for (std::size_t i = 0; i < job.urls.size(); ++i) {
            for (std::uint64_t n = 0; n <= (C::is_shareable ? 0 : threads); ++n) {
                connections_.emplace_back(job.urls[i], "s" + std::to_string(i), scribe, ids,
                                          runtime);
            }
            renewers_.emplace_back(connections_.back());
        }
    }
    [[nodiscard]] std::vector<Way<C>> of(std::uint64_t thread) {
        std::vector<Way<C>> ways;
        const std::size_t each = connections_.size() / renewers_.size();
        for (std::size_t i = 0; i < renewers_.size(); ++i) {
            const std::size_t own = each * i + (C::is_shareable ? 0 : thread);
            ways.push_back({connections_[own], renewers_[i]});
        }
        return ways;
    }

private:
    std::deque<C> connections_; // they do not move
    std::deque<Renewer<C>> renewers_;
};

/// A worker whose clock is to be fast or slow has the shim that sees to it.
void expect_skew(const Job& job) {
    const Time real = true_time();
    const Time skew = (real - job.epoch) / 1'000'000 * job.ppm;
    const Time seen = LeaseClock::now().time_since_epoch().count() - real;
    if (std::abs(seen - skew) > std::abs(skew) / 2) {
        throw std::runtime_error("the clock shim is not at work");
    }
}

template <class C>
int work_with(const Job& job) {
    if (job.ppm != 0) expect_skew(job);
    const Scribe scribe{job.history, job.actor, job.epoch};
    Ids ids{job.serial};
    ToldRuntime runtime;
    Witness witness{job.witness};
    scribe.line("clock",
                [&](History::Line& line) { line.put("offset", Time{0}).put("ppm", job.ppm); });
    Ways<C> ways{job, scribe, ids, runtime};
    const auto run = [&](std::uint64_t thread) {
        StoreClient store{job.store};
        Holder<C> holder{job, scribe, ids, witness, store, ways.of(thread), thread};
        if (job.probe != 0) return holder.probe();
        holder.work();
    };
    if (job.probe != 0) {
        run(0);
        return 0;
    }
    std::vector<std::jthread> others;
    for (std::uint64_t thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
    run(0);
    return 0;
}

} // namespace

int work(const Job& job) {
    return job.shares ? work_with<ToldConnection<MultiplexedConnection>>(job)
                      : work_with<ToldConnection<HiredisConnection>>(job);
}

} // namespace leaselock::chaos
