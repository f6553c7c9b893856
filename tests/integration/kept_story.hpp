// SPDX-License-Identifier: MIT
#pragma once

// What the stories of kept leases have in common.

#include "story.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <stop_token>

namespace leaselock::test {

using Keeper = Renewer<HiredisConnection>;

/// Under g++'s ThreadSanitizer a forked child cannot start threads: the sanitizer itself fails.
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
inline constexpr bool children_start_threads = false;
#else
inline constexpr bool children_start_threads = true;
#endif

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
inline bool renewed_again(const Lock& lock, std::chrono::milliseconds ttl) {
    const Deadline least = lease_deadline(LeaseClock::now(), ttl, default_margin(ttl));
    return eventually([&] { return lock.deadline() > least; }, std::chrono::seconds{20});
}

/// Waits for the signal, and checks that all the ways of asking agree.
inline void check_signalled(const Lock& lock, Loss why, const std::stop_token& told) {
    CHECK(eventually([&] { return told.stop_requested(); }, std::chrono::seconds{30}));
    CHECK_FALSE(lock.owns_lock());
    CHECK(to_string(lock.loss()) == to_string(why));
    CHECK(lock.remaining() == std::chrono::nanoseconds{0});
    CHECK(lock.stop_token().stop_requested());
}

/// What a program has written.
inline std::string text_of(const std::filesystem::path& file) {
    std::ifstream stream{file};
    return {std::istreambuf_iterator<char>{stream}, {}};
}

/// A lease that a renewer keeps, and all that it takes.
struct Kept {
    /// @param way the URL that the renewer takes
    Kept(const std::string& url, const std::string& way, const std::string& key,
         std::chrono::milliseconds lease_ttl)
        : redis{patient_url(url)}, wire{patient_url(way)}, ttl{lease_ttl},
          lock{redis,
               key,
               {.ttl = ttl, .timeout = std::chrono::seconds{20}, .observer = &hearsay},
               std::defer_lock} {
        REQUIRE(lock.try_acquire());
        told = lock.stop_token();
        renewer.keep(lock);
        REQUIRE(eventually([&] { return hearsay.renewed() >= 1; }));
    }
    Kept(RedisServer& server, const std::string& key, std::chrono::milliseconds lease_ttl)
        : Kept{server.url(), server.url(), key, lease_ttl} {}

    /// Renewed after this call, and never told of a loss.
    void check_alive() const {
        CHECK(renewed_again(lock, ttl));
        CHECK(lock.owns_lock());
        CHECK(to_string(lock.loss()) == "none");
        CHECK_FALSE(told.stop_requested());
        CHECK(hearsay.count(Verb::lose) == 0);
    }
    /// Told of the loss, once.
    void check_lost(Loss why) const {
        check_signalled(lock, why, told);
        CHECK(hearsay.count(Verb::lose) == 1);
    }

    HiredisConnection redis;
    HiredisConnection wire;
    Hearsay hearsay;
    Keeper renewer{wire};
    std::chrono::milliseconds ttl;
    Lock lock;
    std::stop_token told;
};

} // namespace leaselock::test
