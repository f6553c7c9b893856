#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/lock/detail/backoff.hpp>
#include <leaselock/lock/detail/lineup.hpp>
#include <leaselock/redis/classify.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// A waiting call: attempts, with pauses between them, until one succeeds, fails in a way that waiting
/// cannot cure, or time is over. Source: design, "Waiting".
struct Wait {
    Runtime& runtime;
    std::chrono::nanoseconds floor;
    std::chrono::nanoseconds cap;
    Deadline until;
    const void* backend; ///< where its threads line up; null where they do not
    std::string_view key;
    bool redirects; ///< MOVED is followed: another try may go elsewhere

    /// @param attempt `Outcome(std::optional<milliseconds>* holder_left)`
    template <class Attempt>
    [[nodiscard]] Outcome run(const std::stop_token& stop, const Attempt& attempt) const noexcept {
        Outcome outcome{Answer::unsent, errc::stopped};
        Sleeper sleeper{runtime, stop};
        if (sleeper.stopped()) return outcome;

        // Whoever is not at the head of the line when time runs out asks once all the same.
        const std::chrono::nanoseconds span = until - runtime.now();
        const std::chrono::nanoseconds patience = std::chrono::milliseconds{100};
        const Deadline ask_at = later(until, -(std::min)(span / 4, patience));
        std::optional<InLine> line;
        if (backend != nullptr) {
            line.emplace(backend, key, sleeper);
            if (!line->await_turn(ask_at) && sleeper.stopped()) return outcome;
        }
        for (unsigned failed = 1;; ++failed) {
            std::optional<std::chrono::milliseconds> holder_left;
            const Deadline start = runtime.now();
            outcome = attempt(&holder_left);
            if (outcome || !may_pass_by_waiting(outcome.cause)) return outcome;
            if (outcome.cause == errc::moved && !redirects) return outcome;

            const Deadline now = runtime.now();
            std::uint64_t random = 0;
            (void)runtime.fill_random(std::as_writable_bytes(std::span{&random, 1}));
            const std::optional<Deadline> next =
                next_attempt(now, backoff(floor, cap, failed, random), holder_left, until,
                             last_lead(now - start, span));
            if (!sleeper.sleep_until(next.value_or(until))) {
                outcome.cause = make_error_code(errc::stopped);
                return outcome;
            }
            if (!next) return outcome;
        }
    }
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
