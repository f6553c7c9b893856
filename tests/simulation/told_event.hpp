#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/history.hpp"

#include <leaselock/core/observer.hpp>
#include <leaselock/core/outcome.hpp>

#include <string>
#include <string_view>
#include <system_error>

/// What an observer hears, as the history says it.
namespace leaselock::simulation {

[[nodiscard]] inline std::string_view loss_of(const std::error_code& cause) {
    for (const Loss loss : {Loss::taken, Loss::gone, Loss::expired, Loss::max_hold, Loss::unkept}) {
        if (cause == cause_of(loss)) return to_string(loss);
    }
    return {};
}

/// @param token how the history names it
inline void put_event(History::Line& line, std::string_view guard, std::string_view token,
                      const Event& event) {
    line.put("guard", guard)
        .put("verb", to_string(event.verb))
        .put("answer", to_string(event.outcome.answer))
        .put("token", token)
        .put("elapsed", event.elapsed.count())
        .put("remaining", event.remaining.count())
        .put("cause", event.outcome.cause ? event.outcome.cause.message() : std::string{})
        .put("loss", event.verb == Verb::lose ? loss_of(event.outcome.cause) : "");
}

} // namespace leaselock::simulation
