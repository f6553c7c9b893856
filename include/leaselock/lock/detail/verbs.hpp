#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/lock/detail/renewal_schedule.hpp>
#include <leaselock/lock/options.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/reply.hpp>
#include <leaselock/redis/script_call.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// How long a fence counter outlives its last issue.
inline constexpr std::string_view fence_keep = "86400000"; // ms: a day

/// What one acquisition is about; views into a guard's record.
struct LeaseView {
    std::string_view key;
    std::string_view value;
    std::string_view fence_key; ///< empty without fencing
    std::string_view ttl;       ///< in milliseconds
    /// Of a quorum, a bit for each node: it may hold the value, and has not been sent its deletion.
    std::uint32_t* holders = nullptr;
    /// Of a quorum: what a node may take to answer, where the call ends sooner.
    std::chrono::milliseconds timeout{};
};

/// The end of one attempt to acquire or to adopt.
struct Attempt {
    Outcome outcome;
    Answer set = Answer::unsent; ///< what came of the SET, or the swap, alone
    std::uint64_t fencing_token = 0;
    /// What the holder's key has left to live, where that was asked for and there is a ttl.
    std::optional<std::chrono::milliseconds> holder_left{};
};

/// Up to 64 renewals that travel together, and the room to build them in.
struct RenewalBatch {
    static constexpr std::size_t limit = RenewalSchedule::batch_limit;

    std::array<LeaseView, limit> leases;
    std::array<Outcome, limit> outcomes;
    std::size_t size = 0;

    std::array<ScriptCall, limit> calls;
    std::array<Command, limit> commands;
    std::array<Reply, limit> replies;
    std::array<std::size_t, limit> pending{}; ///< which leases the commands are about
    std::array<ScriptStep, limit> steps{};
};

/// The verbs on one Redis, or one cluster: what goes over the wire, and what its answer means.
/// A quorum has its own. Source: design, "The wire".
template <class B>
struct Verbs {
    static_assert(Connection<B>, "LeaseLock<B>: B is to be a leaselock::Connection; see "
                                 "leaselock/redis/connection.hpp for what that asks for");

    /// One SET; behind it, in the same round trip, compare-and-fence where fencing is on, and PTTL
    /// where the caller waits.
    static Attempt acquire(B& connection, Dialect& own, const LeaseView& lease, bool waiting,
                           Deadline by) noexcept {
        const std::array<std::string_view, 6> set{"SET", lease.key, lease.value,
                                                  "NX",  "PX",      lease.ttl};
        const Command set_command{set, lease.key};
        if (lease.fence_key.empty() && !waiting) {
            Attempt attempt;
            Reply reply;
            connection.call(std::span{&set_command, 1}, std::span{&reply, 1}, by);
            attempt.outcome = classify_set(reply);
            attempt.set = attempt.outcome.answer;
            return attempt;
        }
        return take(connection, own, lease, set_command, nullptr, waiting, by);
    }

    /// compare-and-adopt, with compare-and-fence behind it where fencing is on.
    static Attempt adopt(B& connection, Dialect& own, const LeaseView& lease,
                         std::string_view old_value, Deadline by) noexcept {
        ScriptCall swap{
            scripts::compare_and_adopt, lease.key, {}, {old_value, lease.value, lease.ttl}};
        return take(connection, own, lease, swap.command(find_dialect(connection, own)), &swap,
                    false, by);
    }

    /// compare-and-expire.
    static Outcome renew(B& connection, Dialect& own, const LeaseView& lease,
                         Deadline by) noexcept {
        ScriptCall call{scripts::compare_and_expire, lease.key, {}, {lease.value, lease.ttl}};
        return compare(connection, own, call, by);
    }

    /// compare-and-expire of all leases of a batch, in one write. Those that the server does not
    /// know the script for are sent again, in one write, the first as text.
    static void renew_many(B& connection, Dialect& own, RenewalBatch& batch, Deadline by) noexcept {
        Dialect& dialect = find_dialect(connection, own);
        for (std::size_t i = 0; i < batch.size; ++i) {
            const LeaseView& lease = batch.leases[i];
            batch.calls[i] = {scripts::compare_and_expire, lease.key, {}, {lease.value, lease.ttl}};
            batch.pending[i] = i;
            batch.steps[i] = ScriptStep::done;
        }
        std::size_t count = batch.size;
        for (int round = 0; count != 0; ++round) {
            bool as_text = false;
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t lease = batch.pending[i];
                // one text serves them all, but for a cluster, where the others live elsewhere
                const bool text =
                    batch.steps[lease] == ScriptStep::send_text && (!as_text || round > 1);
                as_text = as_text || text;
                batch.commands[i] = batch.calls[lease].command(dialect, text);
            }
            connection.call(std::span{batch.commands}.first(count),
                            std::span{batch.replies}.first(count), by);
            std::size_t again = 0;
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t lease = batch.pending[i];
                const Reply& reply = batch.replies[i];
                const ScriptStep step =
                    round < 4 ? take_step(reply, batch.calls[lease], dialect) : ScriptStep::done;
                batch.steps[lease] = step;
                if (step == ScriptStep::done) {
                    batch.outcomes[lease] = classify_compare(reply, scripts::compare_and_expire);
                } else {
                    batch.pending[again++] = lease;
                }
            }
            count = again;
        }
    }

    /// compare-and-delete.
    static Outcome release(B& connection, Dialect& own, const LeaseView& lease,
                           Deadline by) noexcept {
        ScriptCall call{scripts::compare_and_delete, lease.key, {}, {lease.value}};
        return compare(connection, own, call, by);
    }

    /// compare-and-delete of a token whose acquire went unanswered: sent as a text that every server
    /// takes, so that one write is enough wherever it lands, answered or not.
    static Outcome clean_up(B& connection, Dialect& own, const LeaseView& lease,
                            Deadline by) noexcept {
        Dialect& dialect = find_dialect(connection, own);
        ScriptCall call{scripts::compare_and_delete_anywhere, lease.key, {}, {lease.value}};
        const Command command = call.command(dialect, true);
        Reply reply;
        connection.call(std::span{&command, 1}, std::span{&reply, 1}, by);
        finish_script(connection, dialect, call, reply, by);
        return classify_compare(reply, call.script());
    }

private:
    static Outcome compare(B& connection, Dialect& own, ScriptCall& call, Deadline by) noexcept {
        Reply reply;
        call_script(connection, find_dialect(connection, own), call, reply, by);
        return classify_compare(reply, call.script());
    }

    /// Takes the key, by SET or by a swap, and what goes with it.
    static Attempt take(B& connection, Dialect& own, const LeaseView& lease, const Command& first,
                        ScriptCall* swap, bool waiting, Deadline by) noexcept {
        Dialect& dialect = find_dialect(connection, own);
        const bool fencing = !lease.fence_key.empty();
        ScriptCall fence{
            scripts::compare_and_fence, lease.key, lease.fence_key, {lease.value, fence_keep}};
        const std::array<std::string_view, 2> pttl{"PTTL", lease.key};
        std::array<Command, 3> commands{first};
        std::size_t count = 1;
        if (fencing) commands[count++] = fence.command(dialect);
        if (waiting) commands[count++] = {pttl, lease.key};
        std::array<Reply, 3> replies;
        connection.call(std::span{commands}.first(count), std::span{replies}.first(count), by);

        Attempt attempt;
        bool overtaken = false; // the fence ran ahead of a swap that had to be sent again
        if (swap != nullptr) {
            overtaken = next_step(replies[0], *swap) != ScriptStep::done;
            finish_script(connection, dialect, *swap, replies[0], by);
            attempt.outcome = classify_compare(replies[0], swap->script());
        } else {
            attempt.outcome = classify_set(replies[0]);
        }
        attempt.set = attempt.outcome.answer;
        if (attempt.outcome && fencing) {
            if (overtaken && replies[1].kind == Reply::string) {
                call_script(connection, dialect, fence, replies[1], by);
            } else {
                finish_script(connection, dialect, fence, replies[1], by);
            }
            attempt.outcome = classify_fence(replies[1], attempt.fencing_token);
        }
        // a key that went between SET and PTTL has nothing left to live
        const Reply& left = replies[count - 1];
        if (waiting && left.kind == Reply::integer && left.number != -1) {
            attempt.holder_left = std::chrono::milliseconds{
                std::clamp<std::int64_t>(left.number, 0, max_ttl.count())};
        }
        return attempt;
    }
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
