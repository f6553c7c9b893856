#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/lock/detail/quorum_size.hpp>
#include <leaselock/redis/connection.hpp>

#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#if LEASELOCK_DEFINES
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/lock/detail/quorum_node.hpp>
#include <leaselock/lock/detail/quorum_question.hpp>
#include <leaselock/lock/detail/quorum_tally.hpp>
#include <leaselock/lock/detail/quorum_verbs.hpp>

#include <algorithm>
#include <chrono>
#include <system_error>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {
struct Question;
struct Vote;
template <class C>
class QuorumNode;
template <class B>
struct Verbs;
} // namespace detail

/// Independent masters, of which a majority has to agree: `LeaseLock lock{nodes, key, ttl}` is the same
/// guard over them.
///
/// All nodes are asked at once, in one round trip; the call returns as soon as the answer is decided.
/// Yes takes a majority in one try, and a deadline, counted from before the first send, that still lies
/// ahead. A lease is lost when so many nodes say that it is not there that a majority no longer can say
/// that it is. An acquisition that fails is deleted by its token on every node, those that did not
/// answer included.
///
/// A call goes out to every node that is not down, to one that has yet to answer an earlier call behind
/// that answer, and leaves the slowest answers to be read by the next call.
///
/// A node that does not answer costs its timeout at most once: from then on it is down, and is only asked
/// who it is, at growing intervals and without being waited for, until it answers. `Outcome::confirmed`
/// tells how many nodes said yes, `Outcome::text` what each of the others said.
///
/// **Renewing creates no key**, on no node. A node that restarted empty keeps saying `gone`, and the
/// lease lives on the others; the observer hears it with every renewal. To set the key again would be
/// wrong twice: an absent key may have run out and been somebody else's meanwhile, so that a vote would be
/// made out of a loss; and a SET on the renewer's stream may land behind the unlock on the guard's, and be
/// nobody's for a ttl. What a renewal does mend is a ttl that was taken off, the script cache and the
/// stream. A lease that too few nodes hold for comfort is given back and taken anew.
///
/// Two nodes that are one server (by its run id, asked once per connect: needs `+info`) have one vote,
/// and no lock is acquired on them: `errc::same_server`. A node that does not tell has none.
///
/// It takes an odd number of connections of one type, from 3 to 15, all different and of one runtime;
/// else every call answers unsent, `errc::invalid_argument`. The connections outlive it, and nobody else
/// uses them: it leaves calls under way on them. A renewer takes a quorum of its own.
///
/// It takes about 22 KiB a node, once: no call allocates.
///
/// Thread-safety: one thread at a time, whatever its connections allow; a call that finds another
/// thread's under way is unsent, `errc::in_use`. In a forked child it starts afresh, as far as its
/// connections do. Source: design, "Quorum"; redis.io, "Distributed Locks with Redis".
template <class C>
class Quorum {
    static_assert(SplitConnection<C>, "Quorum<C>: C is to be a leaselock::SplitConnection, so that "
                                      "many can be waited for at once; see "
                                      "leaselock/redis/connection.hpp");

public:
    /// Sends nothing. @throws std::bad_alloc
    template <std::same_as<C>... Rest>
    requires(sizeof...(Rest) != 0) explicit Quorum(C& first, Rest&... rest)
        : Quorum(std::span<C* const>{std::array<C*, 1 + sizeof...(Rest)>{&first, &rest...}}) {
        static_assert(
            detail::complaint_about_nodes(1 + sizeof...(Rest)).empty(),
            "a quorum takes an odd number of nodes, from 3 to 15: an even number bears no "
            "more failures than the odd one below it");
    }
    explicit Quorum(std::span<C* const> nodes);
    Quorum(const Quorum&) = delete;
    Quorum& operator=(const Quorum&) = delete;
    ~Quorum();

    /// How many nodes it was given.
    [[nodiscard]] std::size_t size() const noexcept { return connections_.size(); }
    /// Whether a connection is in both: then they are one thread's, as the connection is.
    [[nodiscard]] bool shares_connection(const Quorum& other) const noexcept;

    friend Runtime& runtime_of(const Quorum& quorum) noexcept { return *quorum.runtime_; }

private:
    friend struct detail::Verbs<Quorum>;
    using Question = detail::Question;

    static std::string_view find_complaint(std::span<C* const> nodes) noexcept;
    static Runtime& runtime_of_first(std::span<C* const> nodes) noexcept;

    /// Why nothing can be asked; yes when it can. Behind a yes, `end` is to follow.
    [[nodiscard]] Outcome begin() noexcept;
    void end() noexcept { in_call_.store(false, std::memory_order_release); }
    /// Puts a question to all nodes, and returns when it is decided.
    void ask(Question question) noexcept;
    [[nodiscard]] bool goes_on(const Question& question) const noexcept;
    [[nodiscard]] bool owes() const noexcept;
    void find_twins() noexcept;

    /// The votes on one item of the last question, one for each node.
    [[nodiscard]] std::span<const detail::Vote> votes(const Question& question, std::size_t item,
                                                      std::span<detail::Vote> list) const noexcept;
    [[nodiscard]] ServerText describe(std::span<const detail::Vote> votes) const noexcept;

    std::vector<C*> connections_;
    std::string_view complaint_;
    std::vector<detail::QuorumNode<C>> nodes_;
    Runtime* runtime_ = nullptr;
    ProcessId process_ = 0;
    std::atomic<bool> in_call_{false};
    std::uint32_t twins_ = 0; ///< nodes that are the same server as one before them
};

#if LEASELOCK_DEFINES
template <class C>
Quorum<C>::Quorum(std::span<C* const> nodes)
    : connections_(nodes.begin(), nodes.end()), complaint_(find_complaint(nodes)),
      nodes_(complaint_.empty() ? nodes.size() : 0), runtime_(&runtime_of_first(nodes)),
      process_(runtime_->process()) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) nodes_[i].attach(*connections_[i]);
}

template <class C>
Quorum<C>::~Quorum() = default;

template <class C>
bool Quorum<C>::shares_connection(const Quorum& other) const noexcept {
    return std::find_first_of(connections_.begin(), connections_.end(), other.connections_.begin(),
                              other.connections_.end()) != connections_.end();
}

template <class C>
Runtime& Quorum<C>::runtime_of_first(std::span<C* const> nodes) noexcept {
    const bool any = !nodes.empty() && nodes.front() != nullptr;
    return any ? detail::find_runtime(*nodes.front()) : system_runtime();
}

template <class C>
std::string_view Quorum<C>::find_complaint(std::span<C* const> nodes) noexcept {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        if (nodes[i] == nullptr) return "a node of the quorum is null";
        if (std::find(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(i), nodes[i]) !=
            nodes.begin() + static_cast<std::ptrdiff_t>(i)) {
            return "a connection is in the quorum twice";
        }
        if (&detail::find_runtime(*nodes[i]) != &detail::find_runtime(*nodes[0])) {
            return "the nodes of the quorum measure time by different runtimes";
        }
    }
    return detail::complaint_about_nodes(nodes.size());
}

template <class C>
Outcome Quorum<C>::begin() noexcept {
    if (!complaint_.empty()) return {Answer::unsent, errc::invalid_argument, complaint_};
    if (in_call_.exchange(true, std::memory_order_acquire)) return {Answer::unsent, errc::in_use};
    if (const ProcessId process = runtime_->process(); process != process_) {
        process_ = process;
        for (detail::QuorumNode<C>& node : nodes_) node.forget_all();
    }
    return {Answer::yes};
}

template <class C>
void Quorum<C>::ask(Question question) noexcept {
    const auto up = static_cast<std::size_t>(std::count_if(
        nodes_.begin(), nodes_.end(), [](const auto& node) { return !node.is_down(); }));
    const bool dial = up < detail::majority_of(nodes_.size());
    const std::uint32_t owed = question.deletes() ? *question.holders : 0;
    const Deadline start = runtime_->now();
    Deadline now = start;
    question.node_time = (std::max)(question.node_time, question.by - now);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        nodes_[i].begin(question, (owed >> i & 1U) != 0, dial, now);
    }
    const auto go_on = [&](Deadline by) noexcept {
        C::wait_any(connections_, by);
        now = runtime_->now();
        for (detail::QuorumNode<C>& node : nodes_) node.advance(question, now);
    };
    while (now < question.by && goes_on(question)) go_on(question.by);
    // A deletion that is on its way to a silent node gets as long again to go out: connecting takes a
    // round trip, as the answers of the others did.
    constexpr std::chrono::milliseconds shortest_linger{1};
    const Deadline linger = (std::min)(
        question.by, later(now, std::max<LeaseClock::duration>(now - start, shortest_linger)));
    while (now < linger && owes()) go_on(linger);
    find_twins();
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (question.deletes() && nodes_[i].ballot().was_asked()) *question.holders &= ~(1U << i);
        if (question.kind == Question::Kind::take && nodes_[i].ballot().may_hold()) {
            *question.holders |= 1U << i;
        }
        nodes_[i].leave();
    }
}

template <class C>
bool Quorum<C>::goes_on(const Question& question) const noexcept {
    bool open = false;
    bool up_and_open = false;
    for (const detail::QuorumNode<C>& node : nodes_) {
        if (node.is_awaited(question)) return true;
        open = open || node.ballot().is_open();
        up_and_open = up_and_open || (node.ballot().is_open() && !node.is_down());
    }
    if (!open) return false;
    for (std::size_t item = 0; item < question.items(); ++item) {
        detail::VoteList list;
        const detail::Tally tally = detail::tally_of(votes(question, item, list));
        // a deletion by token is done with where the nodes that know make a majority, whatever they say
        if (question.kind == Question::Kind::clean_up && tally.yes + tally.no >= tally.majority()) {
            continue;
        }
        // of a failure each node's own answer is told
        if (tally.verdict() == detail::Verdict::failed && up_and_open) return true;
        if (tally.verdict() == detail::Verdict::open) return true;
    }
    return false;
}

template <class C>
bool Quorum<C>::owes() const noexcept {
    return std::any_of(nodes_.begin(), nodes_.end(),
                       [](const auto& node) { return node.tells_what_is_owed(); });
}

template <class C>
void Quorum<C>::find_twins() noexcept {
    twins_ = 0;
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
        const std::string_view id = nodes_[i].run_id();
        if (id.empty()) continue;
        for (std::size_t j = 0; j < i; ++j) {
            if (nodes_[j].run_id() == id) twins_ |= 1U << i;
        }
    }
}

template <class C>
std::span<const detail::Vote> Quorum<C>::votes(const Question& question, std::size_t item,
                                               std::span<detail::Vote> list) const noexcept {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        list[i] = nodes_[i].ballot().vote(item);
        // deleting is right whoever does it; all else counts once for a server
        if ((twins_ >> i & 1U) != 0 && !question.deletes()) {
            list[i] = {Answer::refused, make_error_code(errc::same_server)};
        }
    }
    return list.first(nodes_.size());
}

template <class C>
ServerText Quorum<C>::describe(std::span<const detail::Vote> votes) const noexcept {
    std::array<std::string_view, detail::most_nodes> words;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        const bool twin = votes[i].cause == errc::same_server;
        words[i] = twin ? "the same server as another" : nodes_[i].ballot().words();
    }
    return detail::describe_votes(votes, std::span{words}.first(votes.size()));
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
