#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/outcome.hpp>

#include <chrono>
#include <cstdint>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// What an event is about.
enum class Verb : std::uint8_t {
    acquire,  ///< one attempt
    renew,    ///< one try to extend the lease
    release,  ///< unlock, or the destructor
    clean_up, ///< deletion, by its token, of what an unanswered acquire may have left
    wait,     ///< the end of a waiting call; each of its attempts is an `acquire`
    adopt,    ///< taking over of a lease that another holder detached
    lose,     ///< the end of a lease that was not given back: once; the cause says why
};

[[nodiscard]] constexpr std::string_view to_string(Verb verb) noexcept {
    switch (verb) {
    case Verb::acquire: return "acquire";
    case Verb::renew: return "renew";
    case Verb::release: return "release";
    case Verb::clean_up: return "clean_up";
    case Verb::wait: return "wait";
    case Verb::adopt: return "adopt";
    case Verb::lose: return "lose";
    }
    return "?";
}

/// One outcome, for logs and metrics. The views live as long as the call that hands them over.
struct Event {
    Verb verb;
    std::string_view key;
    const Outcome& outcome;
    std::chrono::nanoseconds elapsed;   ///< from the start of the verb to its answer
    std::chrono::nanoseconds remaining; ///< of the lease; 0 when it is not owned
    std::string_view owner;             ///< the owner label; may be empty
    std::string_view fingerprint;       ///< first 8 digits of the token, never more
};

/// Hears every outcome. It is called on the thread of the verb, from destructors too, so it must
/// not throw, should be quick, and must not use the guard that the event is about. What a renewer does
/// it hears on the renewer's threads, at the same time as others: it must be thread-safe there. It
/// outlives the guards; behind a guard's destructor it is not called for it any more.
class Observer {
public:
    virtual void on_event(const Event& event) noexcept = 0;

protected:
    Observer() = default;
    Observer(const Observer&) = default;
    Observer& operator=(const Observer&) = default;
    ~Observer() = default;
};

} // namespace LEASELOCK_ABI
} // namespace leaselock
