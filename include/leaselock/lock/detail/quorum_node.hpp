#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/fixed_text.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/lock/detail/quorum_tally.hpp>
#include <leaselock/lock/detail/verbs.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/reply.hpp>
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
#include <system_error>
#include <utility>
#include <vector>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// What all nodes of a quorum are asked at once: a SET and what goes with it, or calls of one script.
struct Question {
    enum class Kind : std::uint8_t { take, renew, release, clean_up };

    Kind kind;
    std::span<const Command> commands{};
    std::span<ScriptCall> calls{};
    Deadline by{};
    std::uint32_t* holders = nullptr; ///< see `LeaseView`
    bool patient = false; ///< waits for every node that is not known to be down, decided or not

    [[nodiscard]] std::size_t items() const noexcept { return calls.empty() ? 1 : calls.size(); }
    [[nodiscard]] bool deletes() const noexcept {
        return kind == Kind::release || kind == Kind::clean_up;
    }
};

/// From a failure of a node to the next try to reach it.
[[nodiscard]] constexpr std::chrono::milliseconds node_pause(unsigned failures) noexcept {
    return std::chrono::milliseconds{100} * (1U << std::min(failures - 1, 4U));
}

/// One node of a quorum: what it is being asked, what it said, and whether it is there. It never waits.
///
/// A node that failed is down. It is asked nothing then but who it is, and that not before its pause is
/// over: no key can be left behind on it, and nobody waits for it. An answer that came too late for its
/// call is read in front of the next question, so that the order of commands at the node is that of the
/// calls.
template <class C>
class QuorumNode {
public:
    void attach(C& connection) noexcept { connection_ = &connection; }

    /// Puts the question, or says why not.
    /// @param owed the node may hold what is to be deleted: it is told so, down or not
    /// @param dial it is tried even in its pause, since the others are too few
    void begin(const Question& question, bool owed, bool dial, Deadline now) noexcept;
    /// Goes on as far as possible.
    void advance(const Question& question, Deadline now) noexcept;
    /// The call is over. What it still waited for is read in front of the next one.
    void leave() noexcept {
        if (flight_ == Flight::asking || flight_ == Flight::vouching) flight_ = Flight::late;
        met_ = true;
    }
    /// In a forked child: all that was under way is the parent's.
    void forget_all() noexcept {
        flight_ = Flight::none;
        own_dialect_.reset();
        run_id_.clear();
        met_ = down_ = false;
    }

    [[nodiscard]] bool is_open() const noexcept { return open_; } ///< its votes may still come
    /// Whether the call stays for it even when decided: at the first meeting, for that is when two nodes
    /// show to be one server; where the question has to go out behind an unanswered one; by patience.
    [[nodiscard]] bool is_awaited(const Question& question) const noexcept {
        if (!open_) return false;
        const bool behind = question.deletes() && flight_ == Flight::late;
        return !met_ || (!down_ && (question.patient || behind));
    }
    [[nodiscard]] Vote vote(std::size_t item) const noexcept {
        if (!open_) return votes_[item];
        return {asked_ ? Answer::unknown : Answer::unsent, make_error_code(errc::timed_out), true};
    }
    [[nodiscard]] std::string_view words() const noexcept { return words_.view(); }
    [[nodiscard]] bool is_down() const noexcept { return down_; }
    [[nodiscard]] bool was_asked() const noexcept { return asked_; }
    /// Whether what it was asked to set may be there, or get there.
    [[nodiscard]] bool may_hold() const noexcept { return asked_ && (open_ || may_hold_); }
    /// What the key has left to live, where that was asked.
    [[nodiscard]] std::optional<std::chrono::milliseconds> left() const noexcept { return left_; }
    /// Who answers there now; empty when that is not known.
    [[nodiscard]] std::string_view run_id() noexcept {
        return !down_ && dialect().is_identified() ? run_id_.view() : std::string_view{};
    }

private:
    enum class Flight : std::uint8_t {
        none,
        asking,   ///< the question
        vouching, ///< who it is, behind answers that came on a new stream
        probing,  ///< who it is, before it is asked anything
        late,     ///< an earlier question, whose call is over
    };

    static constexpr unsigned bit_of(const Script& script) noexcept {
        if (&script == &scripts::compare_and_delete) return 1;
        return &script == &scripts::compare_and_expire ? 2 : 4;
    }
    [[nodiscard]] Dialect& dialect() noexcept { return find_dialect(*connection_, own_dialect_); }
    void next(const Question& question, Deadline now) noexcept;
    void put(const Question& question) noexcept;
    void ask_for_identity(Flight flight, Deadline by) noexcept;
    void start(Flight flight, std::span<const Command> commands, Deadline by) noexcept;
    [[nodiscard]] bool take_health(Deadline now) noexcept;
    void fail(const Outcome& why, Deadline now) noexcept;
    void take_identity(const Reply& reply) noexcept;
    void take_answers(const Question& question, Deadline now) noexcept;
    [[nodiscard]] std::size_t take_calls(const Question& question, std::size_t first) noexcept;
    void take_set(const Question& question, std::size_t first) noexcept;
    void record(std::size_t item, const Outcome& outcome) noexcept;
    void close(const Outcome& all) noexcept;

    C* connection_ = nullptr;
    Dialect own_dialect_; ///< used where the connection has none
    FixedText<64> run_id_;

    // what is under way
    Flight flight_ = Flight::none;
    std::size_t flight_size_ = 0;
    bool with_identity_ = false; ///< its first command asks who it is
    bool first_as_text_ = false; ///< its first script call is sent as text
    bool sent_without_getex_ = false;
    bool sent_without_sha_ = false;
    std::vector<Reply> replies_ = std::vector<Reply>(RenewalBatch::limit + 2);
    std::array<std::uint8_t, RenewalBatch::limit> pending_{}; ///< which calls it is about
    std::size_t pending_size_ = 0;

    // the question of this call
    bool open_ = false;
    bool asked_ = false;
    bool owed_ = false;
    bool dial_ = false;
    bool may_hold_ = false;
    int rounds_ = 0;
    std::vector<Vote> votes_ = std::vector<Vote>(RenewalBatch::limit);
    ServerText words_;
    std::optional<std::chrono::milliseconds> left_;
    Outcome stranger_; ///< why it does not say who it is

    // whether it is there
    bool met_ = false;
    bool down_ = false;
    unsigned failures_ = 0;
    Deadline retry_at_{};
    Outcome last_failure_;
    unsigned cached_ = 0; ///< the scripts that it was seen to have
};

template <class C>
void QuorumNode<C>::begin(const Question& question, bool owed, bool dial, Deadline now) noexcept {
    open_ = true;
    asked_ = may_hold_ = false;
    owed_ = owed;
    dial_ = dial;
    rounds_ = 0;
    words_.clear();
    left_.reset();
    if (flight_ == Flight::none) next(question, now);
    advance(question, now);
}

template <class C>
void QuorumNode<C>::advance(const Question& question, Deadline now) noexcept {
    while (flight_ != Flight::none &&
           connection_->finish(std::span{replies_}.first(flight_size_))) {
        const Flight flight = std::exchange(flight_, Flight::none);
        const bool healthy = take_health(now);
        if (with_identity_) take_identity(replies_.front());
        switch (flight) {
        case Flight::none: break;
        case Flight::late: next(question, now); break;
        case Flight::asking: take_answers(question, now); break;
        case Flight::vouching:
            open_ = false;
            if (!dialect().is_identified()) close(stranger_);
            break;
        case Flight::probing:
            if (healthy && !dialect().is_identified()) fail(stranger_, now);
            next(question, now);
            break;
        }
    }
}

/// The line is free: what goes out on it?
template <class C>
void QuorumNode<C>::next(const Question& question, Deadline now) noexcept {
    if (!open_) return;
    if (!down_ || owed_) {
        owed_ = false; // once: it has been told
        pending_size_ = question.calls.size();
        for (std::size_t i = 0; i < pending_size_; ++i) pending_[i] = static_cast<std::uint8_t>(i);
        put(question);
    } else if (now >= retry_at_ || dial_) {
        dial_ = false;
        ask_for_identity(Flight::probing, question.by);
    } else {
        close(last_failure_);
    }
}

template <class C>
void QuorumNode<C>::put(const Question& question) noexcept {
    std::array<Command, RenewalBatch::limit + 2> commands;
    std::size_t count = 0;
    const std::array<std::string_view, 3> who{"EVAL", scripts::run_id, "0"};
    with_identity_ = !question.deletes() && !dialect().is_identified();
    if (with_identity_) commands[count++].argv = who;
    for (const Command& command : question.commands) commands[count++] = command;
    sent_without_getex_ = dialect().lacks_getex();
    sent_without_sha_ = dialect().lacks_evalsha();
    // As text until it is known to be there: what is told to a node that goes silent has to be enough.
    first_as_text_ =
        pending_size_ != 0 && (rounds_ != 0 || (cached_ & bit_of(question.calls[0].script())) == 0);
    for (std::size_t i = 0; i < pending_size_; ++i) {
        commands[count++] =
            question.calls[pending_[i]].command(dialect(), i == 0 && first_as_text_);
    }
    asked_ = true;
    words_.clear();
    start(Flight::asking, std::span{commands}.first(count), question.by);
}

template <class C>
void QuorumNode<C>::ask_for_identity(Flight flight, Deadline by) noexcept {
    const std::array<std::string_view, 3> who{"EVAL", scripts::run_id, "0"};
    const Command command{who, {}};
    with_identity_ = true;
    start(flight, {&command, 1}, by);
}

template <class C>
void QuorumNode<C>::start(Flight flight, std::span<const Command> commands, Deadline by) noexcept {
    flight_ = flight;
    flight_size_ = commands.size();
    connection_->start(commands, by);
}

/// Whether the flight that has ended was answered to its end.
template <class C>
bool QuorumNode<C>::take_health(Deadline now) noexcept {
    const Reply& last = replies_[flight_size_ - 1];
    if (last.answered()) {
        down_ = false;
        failures_ = 0;
        return true;
    }
    own_dialect_.reset();
    cached_ = 0;
    fail({Answer::unsent, last.cause, last.text.view()}, now);
    return false;
}

/// @param why what its vote is as long as it is not asked
template <class C>
void QuorumNode<C>::fail(const Outcome& why, Deadline now) noexcept {
    down_ = true;
    retry_at_ = later(now, node_pause(++failures_));
    last_failure_ = why;
}

template <class C>
void QuorumNode<C>::take_identity(const Reply& reply) noexcept {
    if (reply.kind == Reply::string && !reply.text.empty()) {
        run_id_.clear();
        run_id_.append(reply.text.view());
        dialect().set_identified();
        return;
    }
    stranger_ = classify_failure(reply);
    // of a key nothing is proved: its vote does not count, and that is all
    if (stranger_.answer == Answer::unknown && reply.answered()) stranger_.answer = Answer::refused;
    if (stranger_.cause == errc::script_not_permitted) {
        stranger_.text.append(" (a quorum needs +info)");
    }
}

template <class C>
void QuorumNode<C>::take_answers(const Question& question, Deadline now) noexcept {
    const std::size_t first = with_identity_ ? 1 : 0;
    std::size_t again = 0;
    if (question.calls.empty()) {
        take_set(question, first);
    } else {
        again = take_calls(question, first);
    }
    pending_size_ = again;
    if (again != 0 && now < question.by && !down_) {
        ++rounds_;
        return put(question);
    }
    open_ = false;
    if (question.deletes() || down_ || dialect().is_identified()) return;
    if (with_identity_) return close(stranger_);
    // The stream is a new one: whose answers these are shows before they count.
    open_ = true;
    ask_for_identity(Flight::vouching, question.by);
}

/// @return how many calls have to be sent again; a reply that asks for it is recorded all the same
template <class C>
std::size_t QuorumNode<C>::take_calls(const Question& question, std::size_t first) noexcept {
    Dialect sent;
    if (sent_without_getex_) sent.set_lacks_getex();
    if (sent_without_sha_) sent.set_lacks_evalsha();
    std::size_t again = 0;
    for (std::size_t i = 0; i < pending_size_; ++i) {
        const std::size_t item = pending_[i];
        const Reply& reply = replies_[first + i];
        ScriptCall& call = question.calls[item];
        (void)call.command(sent, i == 0 && first_as_text_); // as it went out to this node
        const ScriptStep step = rounds_ < 4 ? take_step(reply, call, dialect()) : ScriptStep::done;
        if (reply.kind == Reply::integer) cached_ |= bit_of(call.script());
        if (step != ScriptStep::done) pending_[again++] = static_cast<std::uint8_t>(item);
        record(item, classify_compare(reply, call.script()));
    }
    return again;
}

template <class C>
void QuorumNode<C>::take_set(const Question& question, std::size_t first) noexcept {
    record(0, classify_set(replies_[first]));
    if (question.commands.size() < 2) return;
    const Reply& left = replies_[first + 1]; // PTTL
    if (votes_[0].answer == Answer::yes) {
        left_ = std::chrono::milliseconds{0}; // ours, and given back again where that is not enough
    } else if (left.kind == Reply::integer && left.number != -1) {
        left_ =
            std::chrono::milliseconds{std::clamp<std::int64_t>(left.number, 0, max_ttl.count())};
    }
}

template <class C>
void QuorumNode<C>::record(std::size_t item, const Outcome& outcome) noexcept {
    votes_[item] = {outcome.answer, outcome.cause};
    if (outcome.answer == Answer::yes || outcome.answer == Answer::unknown) may_hold_ = true;
    if (!outcome.text.empty()) words_ = outcome.text;
}

/// All its votes are this one.
template <class C>
void QuorumNode<C>::close(const Outcome& all) noexcept {
    open_ = false;
    std::fill(votes_.begin(), votes_.end(), Vote{all.answer, all.cause});
    words_ = all.text;
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
