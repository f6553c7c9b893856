#pragma once
// SPDX-License-Identifier: MIT

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

/// What can be done to real workers, to their links, and to the servers.
namespace leaselock::chaos {

enum class Kind : std::uint8_t {
    stop,
    kill,
    delay_requests,
    delay_replies,
    drip_requests,
    drip_replies,
    lose_requests,
    lose_replies,
    half_open,
    cut,
    cut_reply,
    refuse,
    lose_command,
    lose_answer,
    cut_command,
    cut_answer,
    hold_command,
    client_kill,
    script_flush,
    pause_server,
    restart,
    clock_back,
    clock_forward,
    slow_clock,
    fast_clock,
    forget,
    promotion,
};

enum class Target : std::uint8_t { worker, link, server };

/// What breaks exclusion where that is nobody's fault: see the list in the README.
enum class Breaks : std::uint8_t { nothing, exclusion };

struct KindFacts {
    Kind kind;
    std::string_view name;
    Target target;
    bool safe;     ///< neither a clock nor a failover is meddled with
    Breaks breaks; ///< for the leases of its target
    int least_ms;  ///< that it lasts
    int most_ms;
    int least; ///< its amount
    int most;
    std::string_view what;
};

// clang-format off: a table
inline constexpr std::array facts{
    KindFacts{Kind::stop, "stop", Target::worker, true, Breaks::nothing, 200, 2500, 0, 0,
              "SIGSTOP, and SIGCONT later"},
    KindFacts{Kind::kill, "kill", Target::worker, true, Breaks::nothing, 10, 400, 0, 0,
              "SIGKILL, and started anew"},
    KindFacts{Kind::delay_requests, "delay-requests", Target::link, true, Breaks::nothing, 300,
              1500, 20, 700, "ms that requests are late"},
    KindFacts{Kind::delay_replies, "delay-replies", Target::link, true, Breaks::nothing, 300, 1500,
              20, 700, "ms that replies are late"},
    KindFacts{Kind::drip_requests, "drip-requests", Target::link, true, Breaks::nothing, 300, 1500,
              1, 10, "ms to each byte"},
    KindFacts{Kind::drip_replies, "drip-replies", Target::link, true, Breaks::nothing, 300, 1500, 5,
              60, "ms to each byte"},
    KindFacts{Kind::lose_requests, "lose-requests", Target::link, true, Breaks::nothing, 300, 1500,
              0, 0, "nothing arrives, replies do"},
    KindFacts{Kind::lose_replies, "lose-replies", Target::link, true, Breaks::nothing, 300, 1500, 0,
              0, "requests arrive, nothing comes back"},
    KindFacts{Kind::half_open, "half-open", Target::link, true, Breaks::nothing, 300, 2000, 0, 0,
              "nothing passes, and nobody hangs up"},
    KindFacts{Kind::cut, "cut", Target::link, true, Breaks::nothing, 0, 0, 0, 0,
              "connections reset"},
    KindFacts{Kind::cut_reply, "cut-reply", Target::link, true, Breaks::nothing, 0, 0, 1, 40,
              "reset behind so many bytes of reply"},
    KindFacts{Kind::refuse, "refuse", Target::link, true, Breaks::nothing, 200, 1200, 0, 0,
              "connections reset, new ones refused"},
    KindFacts{Kind::lose_command, "lose-command", Target::link, true, Breaks::nothing, 500, 500, 0,
              4, "one command never arrives"},
    KindFacts{Kind::lose_answer, "lose-answer", Target::link, true, Breaks::nothing, 500, 500, 0, 4,
              "one command is executed, its answer lost"},
    KindFacts{Kind::cut_command, "cut-command", Target::link, true, Breaks::nothing, 500, 500, 0, 4,
              "reset in place of a command"},
    KindFacts{Kind::cut_answer, "cut-answer", Target::link, true, Breaks::nothing, 500, 500, 0, 4,
              "reset in place of an answer"},
    KindFacts{Kind::hold_command, "hold-command", Target::link, true, Breaks::nothing, 300, 2000, 0,
              4, "one command arrives much later"},
    KindFacts{Kind::client_kill, "client-kill", Target::server, true, Breaks::nothing, 0, 0, 0, 0,
              "CLIENT KILL TYPE normal"},
    KindFacts{Kind::script_flush, "script-flush", Target::server, true, Breaks::nothing, 0, 0, 0, 0,
              "SCRIPT FLUSH"},
    KindFacts{Kind::pause_server, "pause-server", Target::server, true, Breaks::nothing, 100, 1200,
              0, 0, "SIGSTOP the server"},
    KindFacts{Kind::restart, "restart", Target::server, true, Breaks::nothing, 10, 300, 0, 1,
              "kill -9, or SIGTERM; all is kept: AOF, fsync always"},
    KindFacts{Kind::clock_back, "clock-back", Target::server, false, Breaks::nothing, 0, 0, 200,
              800, "ms that the server's clock steps"},
    KindFacts{Kind::clock_forward, "clock-forward", Target::server, false, Breaks::exclusion, 0, 0,
              200, 1500, "ms that the server's clock steps"},
    KindFacts{Kind::slow_clock, "slow-clock", Target::worker, false, Breaks::exclusion, 1500, 3000,
              150, 500, "per thousand that a worker's clock is slow"},
    KindFacts{Kind::fast_clock, "fast-clock", Target::worker, false, Breaks::nothing, 1000, 2000,
              100, 400, "per thousand that a worker's clock is fast"},
    KindFacts{Kind::forget, "forget", Target::server, false, Breaks::exclusion, 10, 300, 0, 0,
              "kill -9; nothing is kept"},
    KindFacts{Kind::promotion, "promotion", Target::server, false, Breaks::exclusion, 100, 700, 0,
              1, "a replica that lags takes over; the old master dies, or goes on for a while"},
};
// clang-format on

inline constexpr std::size_t kind_count = facts.size();

[[nodiscard]] constexpr const KindFacts& facts_of(Kind kind) noexcept {
    return facts[static_cast<std::size_t>(kind)];
}
[[nodiscard]] constexpr bool in_order() noexcept {
    for (std::size_t i = 0; i < kind_count; ++i) {
        if (static_cast<std::size_t>(facts[i].kind) != i) return false;
    }
    return static_cast<std::size_t>(Kind::promotion) + 1 == kind_count;
}
static_assert(in_order(), "a row to a kind, in the order of the kinds");

} // namespace leaselock::chaos
