#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/lock/detail/quorum_node.hpp>
#include <leaselock/lock/detail/quorum_question.hpp>
#include <leaselock/lock/detail/quorum_tally.hpp>
#include <leaselock/lock/detail/verbs.hpp>
#include <leaselock/lock/options.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/script.hpp>
#include <leaselock/redis/script_call.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// The verbs on a quorum. The dialects are the nodes' own. Source: design, "Quorum".
template <class C>
struct Verbs<Quorum<C>> {
    using B = Quorum<C>;
    using Kind = Question::Kind;

    /// One SET to every node; PTTL behind it, where the caller waits.
    static Attempt acquire(B& nodes, Dialect& /*own*/, const LeaseView& lease, bool waiting,
                           Deadline by) noexcept {
        const std::array<std::string_view, 6> set{"SET", lease.key, lease.value,
                                                  "NX",  "PX",      lease.ttl};
        const std::array<std::string_view, 2> pttl{"PTTL", lease.key};
        const std::array<Command, 2> commands{Command{set, lease.key}, Command{pttl, lease.key}};
        const Question question{.kind = Kind::take,
                                .commands = std::span{commands}.first(waiting ? 2 : 1),
                                .by = by,
                                .node_time = lease.timeout,
                                .holders = lease.holders};
        return take(nodes, question);
    }

    /// compare-and-adopt on every node.
    static Attempt adopt(B& nodes, Dialect& /*own*/, const LeaseView& lease,
                         std::string_view old_value, Deadline by) noexcept {
        ScriptCall swap{
            scripts::compare_and_adopt, lease.key, {}, {old_value, lease.value, lease.ttl}};
        const Question question{.kind = Kind::take,
                                .calls = {&swap, 1},
                                .by = by,
                                .node_time = lease.timeout,
                                .holders = lease.holders};
        return take(nodes, question);
    }

    /// compare-and-expire on every node.
    static Outcome renew(B& nodes, Dialect& /*own*/, const LeaseView& lease, Deadline by) noexcept {
        ScriptCall call{scripts::compare_and_expire, lease.key, {}, {lease.value, lease.ttl}};
        const Question question{
            .kind = Kind::renew, .calls = {&call, 1}, .by = by, .node_time = lease.timeout};
        return change(nodes, question);
    }

    /// The same for all leases of a batch, in one write to every node. It waits for all nodes that are not
    /// down: nobody waits for a renewer, and how many confirm is to be heard.
    static void renew_many(B& nodes, Dialect& /*own*/, RenewalBatch& batch, Deadline by) noexcept {
        for (std::size_t i = 0; i < batch.size; ++i) {
            const LeaseView& lease = batch.leases[i];
            batch.calls[i] = {scripts::compare_and_expire, lease.key, {}, {lease.value, lease.ttl}};
        }
        const auto outcomes = std::span{batch.outcomes}.first(batch.size);
        if (const Outcome ready = nodes.begin(); !ready) {
            return std::fill(outcomes.begin(), outcomes.end(), ready);
        }
        const Question question{.kind = Kind::renew,
                                .calls = std::span{batch.calls}.first(batch.size),
                                .by = by,
                                .patient = true};
        nodes.ask(question);
        for (std::size_t i = 0; i < batch.size; ++i) outcomes[i] = changed(nodes, question, i);
        nodes.end();
    }

    /// compare-and-delete on every node.
    static Outcome release(B& nodes, Dialect& /*own*/, const LeaseView& lease,
                           Deadline by) noexcept {
        ScriptCall call{scripts::compare_and_delete_anywhere, lease.key, {}, {lease.value}};
        const Question question{.kind = Kind::release,
                                .calls = {&call, 1},
                                .by = by,
                                .node_time = lease.timeout,
                                .holders = lease.holders};
        return change(nodes, question);
    }

    /// compare-and-delete of what an attempt that came to nothing has left. It waits for every node that
    /// is not down; where a majority knows, the guard may go on: what the rest may hold is none, has been
    /// told to go, and ends with its ttl.
    static Outcome clean_up(B& nodes, Dialect& /*own*/, const LeaseView& lease,
                            Deadline by) noexcept {
        ScriptCall call{scripts::compare_and_delete_anywhere, lease.key, {}, {lease.value}};
        const Question question{.kind = Kind::clean_up,
                                .calls = {&call, 1},
                                .by = by,
                                .node_time = lease.timeout,
                                .holders = lease.holders,
                                .patient = true};
        return change(nodes, question);
    }

private:
    /// What a try to take the key came to.
    static Attempt take(B& nodes, const Question& question) noexcept {
        Attempt attempt;
        if (attempt.outcome = nodes.begin(); !attempt.outcome) return attempt;
        nodes.ask(question);
        VoteList list;
        const std::span<const Vote> votes = nodes.votes(question, 0, list);
        attempt.outcome = judged(nodes, votes, tally_of(votes).failed_take());
        attempt.set = attempt.outcome.answer;
        if (nodes.twins_ != 0) {
            attempt.outcome.answer = Answer::refused;
            attempt.outcome.cause = make_error_code(errc::same_server);
            attempt.set = Answer::yes; // answered, and to be deleted
        } else if (!attempt.outcome && *question.holders != 0) {
            attempt.set = Answer::unknown; // no acquisition, but some of it is there
        }
        if (question.commands.size() == 2) attempt.holder_left = holder_left(nodes);
        nodes.end();
        return attempt;
    }

    static Outcome change(B& nodes, const Question& question) noexcept {
        Outcome outcome = nodes.begin();
        if (!outcome) return outcome;
        nodes.ask(question);
        outcome = changed(nodes, question, 0);
        nodes.end();
        return outcome;
    }
    static Outcome changed(B& nodes, const Question& question, std::size_t item) noexcept {
        VoteList list;
        const std::span<const Vote> votes = nodes.votes(question, item, list);
        const Tally tally = tally_of(votes);
        Outcome outcome = judged(nodes, votes, tally.failed_change());
        if (question.kind == Kind::clean_up && tally.yes + tally.no >= tally.majority()) {
            outcome.answer = tally.yes != 0 ? Answer::yes : Answer::no;
            outcome.cause = tally.yes != 0 ? std::error_code{} : leading_cause(votes, Answer::no);
        }
        return outcome;
    }

    /// @param failure the answer where there is neither a yes nor a no
    static Outcome judged(const B& nodes, std::span<const Vote> votes, Answer failure) noexcept {
        Outcome outcome{failure};
        const Tally tally = tally_of(votes);
        switch (tally.verdict()) {
        case Verdict::yes: outcome.answer = Answer::yes; break;
        case Verdict::no:
            outcome.answer = Answer::no;
            outcome.cause = leading_cause(votes, Answer::no);
            break;
        case Verdict::open:
        case Verdict::failed: outcome.cause = cause_of_failure(votes); break;
        }
        outcome.confirmed = static_cast<std::uint8_t>(tally.yes);
        outcome.nodes = static_cast<std::uint8_t>(tally.nodes);
        outcome.text = nodes.describe(votes);
        return outcome;
    }

    static std::optional<std::chrono::milliseconds> holder_left(const B& nodes) noexcept {
        std::array<std::optional<std::chrono::milliseconds>, most_nodes> left;
        std::size_t count = 0;
        for (const QuorumNode<C>& node : nodes.nodes_) left[count++] = node.ballot().left();
        return majority_left(std::span{left}.first(count));
    }
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
