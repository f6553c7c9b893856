#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/fixed_text.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/lock/detail/node_health.hpp>
#include <leaselock/lock/detail/quorum_ballot.hpp>
#include <leaselock/lock/detail/quorum_question.hpp>
#include <leaselock/lock/detail/verbs.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/reply.hpp>
#include <leaselock/redis/script.hpp>
#include <leaselock/redis/script_call.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

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
        met_ = false;
        health_ = {};
    }

    /// Whether the call stays for it even when decided: at the first meeting, for that is when two nodes
    /// show to be one server; where an earlier question is still unanswered, for this one has to go out
    /// behind it, or a lock would be on fewer nodes than there are; by patience.
    [[nodiscard]] bool is_awaited(const Question& question) const noexcept {
        if (!ballot_.is_open()) return false;
        const bool behind = flight_ == Flight::late;
        return !met_ || (!is_down() && (question.patient || behind));
    }
    /// Whether a deletion is on its way to it though down, or goes out behind an earlier answer.
    [[nodiscard]] bool tells_what_is_owed() const noexcept {
        return owed_ ? flight_ != Flight::none : told_what_is_owed_ && flight_ == Flight::asking;
    }
    [[nodiscard]] const Ballot& ballot() const noexcept { return ballot_; }
    [[nodiscard]] bool is_down() const noexcept { return health_.is_down(); }
    /// Who answers there now; empty when that is not known.
    [[nodiscard]] std::string_view run_id() noexcept {
        return !is_down() && dialect().is_identified() ? run_id_.view() : std::string_view{};
    }

private:
    static constexpr std::array<std::string_view, 3> who{"EVAL", scripts::run_id, "0"};

    enum class Flight : std::uint8_t {
        none,
        asking,   ///< the question
        vouching, ///< who it is, behind answers that came on a new stream
        probing,  ///< who it is, before it is asked anything
        late,     ///< an earlier question, whose call is over
    };

    static constexpr unsigned bit_of(const Script& script) noexcept { // of those that are cached
        if (&script == &scripts::compare_and_expire) return 1;
        return &script == &scripts::compare_and_adopt ? 2 : 0;
    }
    [[nodiscard]] Dialect& dialect() noexcept { return find_dialect(*connection_, own_dialect_); }
    void next(const Question& question, Deadline now) noexcept;
    void put(const Question& question, Deadline now) noexcept;
    void ask_for_identity(Flight flight, Deadline by) noexcept;
    void start(Flight flight, std::span<const Command> commands, Deadline by) noexcept;
    [[nodiscard]] bool take_health(Deadline now) noexcept;
    void take_identity(const Reply& reply) noexcept;
    void word_as_sent(ScriptCall& call, bool as_text) noexcept;
    void learn() noexcept;
    void take_answers(const Question& question, Deadline now) noexcept;
    [[nodiscard]] std::size_t take_calls(const Question& question, std::size_t first) noexcept;

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
    Ballot ballot_;
    bool owed_ = false;
    bool told_what_is_owed_ = false;
    bool dial_ = false;
    int rounds_ = 0;
    Outcome stranger_; ///< why it does not say who it is

    // what is known of it
    bool met_ = false;
    NodeHealth health_;
    unsigned cached_ = 0; ///< the scripts that it was seen to have
};

template <class C>
void QuorumNode<C>::begin(const Question& question, bool owed, bool dial, Deadline now) noexcept {
    ballot_.begin();
    owed_ = owed;
    told_what_is_owed_ = false;
    dial_ = dial;
    rounds_ = 0;
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
        if (flight == Flight::late) learn();
        switch (flight) {
        case Flight::none: break;
        case Flight::late: next(question, now); break;
        case Flight::asking: take_answers(question, now); break;
        case Flight::vouching:
            ballot_.set_open(false);
            if (!dialect().is_identified()) ballot_.close(stranger_);
            break;
        case Flight::probing:
            if (healthy && !dialect().is_identified()) health_.failed(stranger_, now);
            next(question, now);
            break;
        }
    }
}

/// The line is free: what goes out on it?
template <class C>
void QuorumNode<C>::next(const Question& question, Deadline now) noexcept {
    if (!ballot_.is_open()) return;
    if (!is_down() || owed_) {
        told_what_is_owed_ = owed_ && is_down();
        owed_ = false; // once
        pending_size_ = question.calls.size();
        for (std::size_t i = 0; i < pending_size_; ++i) pending_[i] = static_cast<std::uint8_t>(i);
        put(question, now);
    } else if (health_.may_be_tried(now) || dial_) {
        dial_ = false;
        ask_for_identity(Flight::probing, later(now, question.node_time));
    } else {
        ballot_.close(health_.why());
    }
}

template <class C>
void QuorumNode<C>::put(const Question& question, Deadline now) noexcept {
    std::array<Command, RenewalBatch::limit + 2> commands;
    std::size_t count = 0;
    with_identity_ = !question.deletes() && !dialect().is_identified();
    if (with_identity_) commands[count++].argv = who;
    for (const Command& command : question.commands) commands[count++] = command;
    sent_without_getex_ = dialect().lacks_getex();
    sent_without_sha_ = dialect().lacks_evalsha();
    // As text until it is known to be there, and always where it deletes: the caller may have gone by the
    // time that a node says NOSCRIPT, so what it is told has to be enough.
    first_as_text_ = pending_size_ != 0 && (rounds_ != 0 || question.deletes() ||
                                            (cached_ & bit_of(question.calls[0].script())) == 0);
    for (std::size_t i = 0; i < pending_size_; ++i) {
        commands[count++] =
            question.calls[pending_[i]].command(dialect(), i == 0 && first_as_text_);
    }
    ballot_.ask();
    start(Flight::asking, std::span{commands}.first(count), later(now, question.node_time));
}

template <class C>
void QuorumNode<C>::ask_for_identity(Flight flight, Deadline by) noexcept {
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
        health_.answered();
        return true;
    }
    own_dialect_.reset();
    cached_ = 0;
    health_.failed({Answer::unsent, last.cause, last.text.view()}, now);
    return false;
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
        const ServerText words = stranger_.text;
        stranger_.text.clear(); // cut where several nodes are told of: the cure first
        stranger_.text.append("needs +info: ").append(words.view());
    }
}

/// A call is every node's: as it last went out to this one.
template <class C>
void QuorumNode<C>::word_as_sent(ScriptCall& call, bool as_text) noexcept {
    Dialect sent;
    if (sent_without_getex_) sent.set_lacks_getex();
    if (sent_without_sha_) sent.set_lacks_evalsha();
    (void)call.command(sent, as_text);
}

/// From answers that came too late: a node slower than the majority would be asked in vain each time.
template <class C>
void QuorumNode<C>::learn() noexcept {
    ScriptCall any{scripts::compare_and_expire, {}, {}, {}};
    word_as_sent(any, false);
    for (std::size_t i = with_identity_ ? 1 : 0; i < flight_size_; ++i) {
        if (take_step(replies_[i], any, dialect()) == ScriptStep::send_text) cached_ = 0;
    }
}

template <class C>
void QuorumNode<C>::take_answers(const Question& question, Deadline now) noexcept {
    const std::size_t first = with_identity_ ? 1 : 0;
    std::size_t again = 0;
    if (question.calls.empty()) {
        ballot_.record(0, classify_set(replies_[first]));
        if (question.commands.size() == 2) ballot_.record_left(replies_[first + 1]);
    } else {
        again = take_calls(question, first);
    }
    pending_size_ = again;
    if (again != 0 && now < question.by && !is_down()) {
        ++rounds_;
        return put(question, now);
    }
    ballot_.set_open(false);
    if (question.deletes() || is_down() || dialect().is_identified()) return;
    if (with_identity_) return ballot_.close(stranger_);
    // The stream is a new one: whose answers these are shows before they count.
    ballot_.set_open(true);
    ask_for_identity(Flight::vouching, later(now, question.node_time));
}

/// @return how many calls have to be sent again; a reply that asks for it is recorded all the same
template <class C>
std::size_t QuorumNode<C>::take_calls(const Question& question, std::size_t first) noexcept {
    std::size_t again = 0;
    for (std::size_t i = 0; i < pending_size_; ++i) {
        const std::size_t item = pending_[i];
        const Reply& reply = replies_[first + i];
        ScriptCall& call = question.calls[item];
        word_as_sent(call, i == 0 && first_as_text_);
        const ScriptStep step = rounds_ < 4 ? take_step(reply, call, dialect()) : ScriptStep::done;
        if (reply.kind == Reply::integer) cached_ |= bit_of(call.script());
        if (step != ScriptStep::done) pending_[again++] = static_cast<std::uint8_t>(item);
        ballot_.record(item, classify_compare(reply, call.script()));
    }
    return again;
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
