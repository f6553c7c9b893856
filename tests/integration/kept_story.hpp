// SPDX-License-Identifier: MIT
#pragma once

// What the stories of kept leases have in common.

#include "story.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <stop_token>

namespace leaselock::test {

using Keeper = Renewer<HiredisConnection>;

/// Keeps what an observer hears from several threads.
class Hearsay final : public Observer {
public:
    void on_event(const Event& event) noexcept override {
        const std::lock_guard guard{mutex_};
        heard_.emplace_back(event.verb, test::said(event.outcome));
    }

    /// What was said of one verb, in order.
    [[nodiscard]] std::vector<std::string> of(Verb verb) const {
        const std::lock_guard guard{mutex_};
        std::vector<std::string> lines;
        for (const auto& [about, line] : heard_) {
            if (about == verb) {
                lines.push_back(line);
            }
        }
        return lines;
    }
    [[nodiscard]] std::size_t count(Verb verb, std::string_view beginning = {}) const {
        const auto lines = of(verb);
        return static_cast<std::size_t>(
            std::count_if(lines.begin(), lines.end(),
                          [&](const std::string& line) { return line.starts_with(beginning); }));
    }
    [[nodiscard]] std::size_t renewed() const { return count(Verb::renew, "yes"); }
    [[nodiscard]] std::size_t failed() const { return count(Verb::renew) - renewed(); }

private:
    mutable std::mutex mutex_;
    std::vector<std::pair<Verb, std::string>> heard_;
};

/// Counts the calls of a stop callback, and keeps the time of the last.
struct Called {
    void operator()() {
        at = LeaseClock::now();
        ++times;
    }
    std::atomic<int> times{0};
    std::atomic<Deadline> at{Deadline{}};
};

/// Waits until a renewal that was sent after this call has been confirmed.
inline bool renewed_again(const Lock& lock, std::chrono::milliseconds limit = std::chrono::seconds{20}) {
    // its deadline lies a whole lease behind now, less the margin
    const Deadline now = LeaseClock::now();
    const Deadline first = lock.deadline();
    return eventually([&] { return lock.deadline() > first && lock.deadline() > now; }, limit);
}

/// Waits for the signal, and checks that all the ways of asking agree.
inline void check_signalled(const Lock& lock, Loss why, const std::stop_token& told) {
    CHECK(eventually([&] { return told.stop_requested(); }, std::chrono::seconds{30}));
    CHECK_FALSE(lock.owns_lock());
    CHECK(to_string(lock.loss()) == to_string(why));
    CHECK(lock.remaining() == std::chrono::nanoseconds{0});
    CHECK(lock.stop_token().stop_requested());
}

} // namespace leaselock::test
