#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/lock/options.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/reply.hpp>
#include <leaselock/redis/script_call.hpp>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// How long a fence counter outlives its last issue.
inline constexpr std::chrono::milliseconds fence_keep = std::chrono::hours{24};

/// Milliseconds in decimal, as an argument.
class MillisecondText {
public:
    explicit MillisecondText(std::chrono::milliseconds span) noexcept
        : end_(std::to_chars(digits_.data(), digits_.data() + digits_.size(), span.count()).ptr) {}
    [[nodiscard]] std::string_view view() const noexcept {
        return {digits_.data(), static_cast<std::size_t>(end_ - digits_.data())};
    }

private:
    std::array<char, 20> digits_;
    const char* end_;
};

/// What one acquisition is about; views into a guard's record.
struct LeaseView {
    std::string_view key;
    std::string_view value;
    std::string_view fence_key; ///< empty without fencing
    std::chrono::milliseconds ttl;
};

/// The end of one attempt to acquire.
struct Attempt {
    Outcome outcome;
    Answer set = Answer::unsent; ///< what came of the SET alone
    std::uint64_t fencing_token = 0;
};

/// The verbs on one Redis, or one cluster: what goes over the wire, and what its answer means.
/// A quorum has its own. Source: design, "The wire".
template <class B>
struct Verbs {
    static_assert(Connection<B>, "LeaseLock<B>: B is to be a leaselock::Connection; see "
                                 "leaselock/redis/connection.hpp for what that asks for");

    /// One SET, with compare-and-fence behind it in the same round trip where fencing is on.
    static Attempt acquire(B& connection, Dialect& own, const LeaseView& lease,
                           Deadline by) noexcept {
        Dialect& dialect = find_dialect(connection, own);
        const MillisecondText ttl{lease.ttl};
        const std::array<std::string_view, 6> set{"SET", lease.key, lease.value, "NX", "PX",
                                                  ttl.view()};
        const Command set_command{set, lease.key};
        Attempt attempt;
        if (lease.fence_key.empty()) {
            Reply reply;
            connection.call(std::span{&set_command, 1}, std::span{&reply, 1}, by);
            attempt.outcome = classify_set(reply);
            attempt.set = attempt.outcome.answer;
            return attempt;
        }

        const MillisecondText keep{fence_keep};
        ScriptCall fence{scripts::compare_and_fence, lease.key, lease.fence_key,
                         {lease.value, keep.view()}};
        const std::array<Command, 2> commands{set_command, fence.command(dialect)};
        std::array<Reply, 2> replies;
        connection.call(commands, replies, by);
        attempt.outcome = classify_set(replies[0]);
        attempt.set = attempt.outcome.answer;
        if (attempt.outcome) {
            finish_script(connection, dialect, fence, replies[1], by);
            attempt.outcome = classify_fence(replies[1], attempt.fencing_token);
        }
        return attempt;
    }

    /// compare-and-expire.
    static Outcome renew(B& connection, Dialect& own, const LeaseView& lease,
                         Deadline by) noexcept {
        const MillisecondText ttl{lease.ttl};
        ScriptCall call{scripts::compare_and_expire, lease.key, {}, {lease.value, ttl.view()}};
        return compare(connection, own, call, by);
    }

    /// compare-and-delete.
    static Outcome release(B& connection, Dialect& own, const LeaseView& lease,
                           Deadline by) noexcept {
        ScriptCall call{scripts::compare_and_delete, lease.key, {}, {lease.value}};
        return compare(connection, own, call, by);
    }

    /// compare-and-delete of a token whose acquire went unanswered: sent as text, so that one
    /// write is enough wherever it lands, answered or not.
    static Outcome clean_up(B& connection, Dialect& own, const LeaseView& lease,
                            Deadline by) noexcept {
        Dialect& dialect = find_dialect(connection, own);
        ScriptCall call{scripts::compare_and_delete, lease.key, {}, {lease.value}};
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
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
