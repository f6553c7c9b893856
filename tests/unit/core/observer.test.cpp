// SPDX-License-Identifier: MIT
#include <leaselock/core/observer.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>

namespace {

using leaselock::Event;
using leaselock::Verb;

// Deleting through the base, or a callback that may throw, must not compile.
static_assert(!std::is_destructible_v<leaselock::Observer>);
static_assert(noexcept(std::declval<leaselock::Observer&>().on_event(std::declval<Event&>())));

TEST(Observer, EveryVerbHasAName) {
    std::set<std::string_view> names;
    for (const Verb v : {Verb::acquire, Verb::renew, Verb::release, Verb::clean_up, Verb::wait,
                         Verb::adopt, Verb::lose}) {
        EXPECT_TRUE(names.insert(to_string(v)).second);
    }
    EXPECT_FALSE(names.contains("?"));
    EXPECT_EQ(to_string(static_cast<Verb>(99)), "?");
}

TEST(Observer, HearsAnEvent) {
    struct Line : leaselock::Observer {
        std::string text;
        void on_event(const Event& event) noexcept override {
            text.append(to_string(event.verb)).append(" ").append(event.key).append(" ");
            text.append(to_string(event.outcome.answer)).append(" ").append(event.fingerprint);
        }
    } line;
    const leaselock::Outcome outcome{leaselock::Answer::yes};
    const Event event{
        Verb::renew, "lock:a",  outcome, std::chrono::milliseconds{1}, std::chrono::seconds{9},
        "worker-7",  "01234567"};
    static_cast<leaselock::Observer&>(line).on_event(event);
    EXPECT_EQ(line.text, "renew lock:a yes 01234567");
}

} // namespace
