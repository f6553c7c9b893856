#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/checker.hpp"
#include "simulation/history.hpp"
#include "simulation/ledger.hpp"
#include "simulation/votes.hpp"

#include <cstdint>
#include <string_view>

namespace leaselock::simulation::detail {

/// What holders are told, against what went over the wire: exclusion, deadline, honesty, finality,
/// answers, ghosts, time limits.
class HolderRules {
public:
    HolderRules(Ledger& ledger, Report& report, const Tolerance& tolerance) noexcept
        : ledger_(ledger), report_(report), tolerance_(tolerance) {}

    void see(const HistoryLine& line);
    void end();

private:
    // of processes
    void see_process(const HistoryLine& line);
    [[nodiscard]] Time local(const HistoryLine& line) const;
    /// When an event was told of; it may have been written down later.
    [[nodiscard]] Time told(const HistoryLine& line) const;
    [[nodiscard]] Time held_up(std::string_view actor, Time now) const;

    // of the wire
    void see_send(const HistoryLine& line);
    void see_dial(const HistoryLine& line);
    void note_line(const HistoryLine& line, std::uint64_t id);
    void see_reply(const HistoryLine& line);
    void confirm(const Send& send, TokenFacts& token);
    void confirm(const Try& by_nodes, TokenFacts& token);
    void confirm_untold(TokenFacts& token);
    void note_renewal(const HistoryLine& line, const Send& send, TokenFacts& token);

    // of outcomes
    void see_event(const HistoryLine& line);
    void see_attempt(const HistoryLine& line, std::string_view name, TokenFacts& token);
    void note_attempt(const HistoryLine& line, GuardFacts& guard);
    /// The earliest deadline that it can have.
    [[nodiscard]] Time least_of(const TokenFacts& token) const;
    [[nodiscard]] bool is_late(const TokenFacts& token) const;
    void grant(const HistoryLine& line, std::string_view name, TokenFacts& token);
    void see_renewal(const HistoryLine& line, std::string_view name, TokenFacts& token);
    void see_deletion(const HistoryLine& line, std::string_view name, TokenFacts& token);
    void see_loss(const HistoryLine& line, std::string_view name, TokenFacts& token);
    void check_told(const GuardFacts& guard);
    void check_exclusion(const HistoryLine& line, std::string_view name, const TokenFacts& token);
    [[nodiscard]] bool is_excused(const TokenFacts& token, const TokenFacts& other,
                                  Time granted) const;

    // of what an answer takes
    struct Question {
        const HistoryLine& event;
        std::string_view name; ///< of the token
        const TokenFacts& token;
        std::string_view verb; ///< of the commands
        const GuardFacts& guard;
    };
    void check_answer(const HistoryLine& event, std::string_view name, const TokenFacts& token,
                      std::string_view verb);
    void check_reply(const Question& question) const;
    void check_votes(const Question& question) const;
    void demand(const Question& question, bool kept, std::string_view what) const;
    [[nodiscard]] Time beginning(const HistoryLine& event) const;
    [[nodiscard]] bool ran(const Send& send) const;

    // of calls and claims
    void see_call(const HistoryLine& line);
    void see_return(const HistoryLine& line);
    void note_fence(const HistoryLine& line, const GuardFacts& guard);
    void see_end(const HistoryLine& line, const OpenCall& call);
    void see_claim(const HistoryLine& line, std::string_view guard, bool owns, Time deadline);
    void see_signal(const HistoryLine& line);
    void see_unlisten(const HistoryLine& line);
    static void finish(TokenFacts& token, Time at);
    static void be_over(TokenFacts& token, Time at);

    Ledger& ledger_;
    Report& report_;
    const Tolerance& tolerance_;
};

} // namespace leaselock::simulation::detail
