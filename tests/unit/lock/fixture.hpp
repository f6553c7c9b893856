#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/observer.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/testing/manual_runtime.hpp>
#include <leaselock/testing/memory_connection.hpp>
#include <leaselock/testing/memory_redis.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <ostream>
#include <string>
#include <vector>

namespace leaselock {
inline namespace LEASELOCK_ABI {

// how googletest prints what the expectations compare
inline void PrintTo(Answer answer, std::ostream* out) { *out << to_string(answer); }
inline void PrintTo(Loss loss, std::ostream* out) { *out << to_string(loss); }
inline void PrintTo(Deadline at, std::ostream* out) {
    *out << at.time_since_epoch().count() << " ns";
}
inline void PrintTo(const Outcome& outcome, std::ostream* out) {
    *out << to_string(outcome.answer) << ", " << outcome.cause.message() << ", "
         << outcome.text.view();
}

} // namespace LEASELOCK_ABI
} // namespace leaselock

namespace leaselock::test {

using namespace std::chrono_literals;
using leaselock::testing::Fault;
using leaselock::testing::ManualRuntime;
using leaselock::testing::MemoryConnection;
using leaselock::testing::MemoryRedis;
using Lock = LeaseLock<MemoryConnection>;

/// Remembers what it hears.
struct Recorder final : Observer {
    struct Heard {
        Verb verb;
        std::string key;
        Answer answer;
        std::error_code cause;
        std::string text;
        std::chrono::nanoseconds elapsed;
        std::chrono::nanoseconds remaining;
        std::string owner;
        std::string fingerprint;
        int confirmed;
    };

    void on_event(const Event& event) noexcept override {
        const std::lock_guard lock{mutex};
        all.push_back({event.verb, std::string{event.key}, event.outcome.answer,
                       event.outcome.cause, std::string{event.outcome.text.view()}, event.elapsed,
                       event.remaining, std::string{event.owner}, std::string{event.fingerprint},
                       event.outcome.confirmed});
    }
    /// All that was heard of a verb.
    std::vector<Heard> of(Verb verb) const {
        const std::lock_guard lock{mutex};
        std::vector<Heard> some;
        for (const Heard& heard : all) {
            if (heard.verb == verb) some.push_back(heard);
        }
        return some;
    }

    mutable std::mutex mutex;
    std::vector<Heard> all;
};

/// An in-memory Redis, two ways to it, and a clock that stands still.
struct LockTest : ::testing::Test {
    ManualRuntime clock;
    MemoryRedis server{clock};
    MemoryConnection redis{server};
    MemoryConnection other{server};
    Recorder recorder;
};

inline ::testing::AssertionResult is(const Outcome& outcome, Answer answer) {
    if (outcome.answer == answer && !outcome.cause) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << ::testing::PrintToString(outcome);
}
inline ::testing::AssertionResult is(const Outcome& outcome, Answer answer, errc cause) {
    if (outcome.answer == answer && outcome.cause == cause) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << ::testing::PrintToString(outcome);
}

} // namespace leaselock::test
