#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/fixed_text.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/lock/detail/quorum_size.hpp>
#include <leaselock/lock/options.hpp>
#include <leaselock/redis/classify.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

/// What the answers of many nodes come to: pure. Source: design, "Quorum".
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// One node's answer to one question, in one try.
struct Vote {
    Answer answer = Answer::unsent;
    std::error_code cause{};
    bool open = false; ///< it may still come; the answer is what it counts as if it does not
};

/// Room for one vote of each node.
using VoteList = std::array<Vote, most_nodes>;

/// What a try has come to.
enum class Verdict : std::uint8_t {
    open,   ///< the votes that are missing may decide it
    yes,    ///< a majority said yes
    no,     ///< so many said no that a majority no longer can
    failed, ///< neither, and no vote that is missing can change that
};

/// The votes of one try. They are never added to those of another: between two tries keys expire.
struct Tally {
    std::size_t nodes = 0;
    std::size_t yes = 0;
    std::size_t no = 0;
    std::size_t refused = 0;
    std::size_t unsent = 0;
    std::size_t unknown = 0;
    std::size_t open = 0; ///< of those above, how many may still become another

    constexpr void count(Answer answer, bool is_open = false) noexcept {
        ++nodes;
        switch (answer) {
        case Answer::yes: ++yes; break;
        case Answer::no: ++no; break;
        case Answer::refused: ++refused; break;
        case Answer::unsent: ++unsent; break;
        case Answer::unknown: ++unknown; break;
        }
        if (is_open) ++open;
    }

    [[nodiscard]] constexpr std::size_t majority() const noexcept { return majority_of(nodes); }
    [[nodiscard]] constexpr std::size_t minority() const noexcept { return nodes - majority(); }

    [[nodiscard]] constexpr Verdict verdict() const noexcept {
        if (yes >= majority()) return Verdict::yes;
        if (no > minority()) return Verdict::no;
        return yes + open >= majority() || no + open > minority() ? Verdict::open : Verdict::failed;
    }

    /// What a try to take the key is that has failed: unknown while the silent could make it a majority,
    /// else surely no acquisition, whatever a minority did: that is deleted again.
    [[nodiscard]] constexpr Answer failed_take() const noexcept {
        if (unsent == nodes) return Answer::unsent;
        return yes + unknown >= majority() ? Answer::unknown : Answer::refused;
    }
    /// What a renewal or a release is that has failed: it did something where it was answered with yes,
    /// and may have where it was not answered.
    [[nodiscard]] constexpr Answer failed_change() const noexcept {
        if (unsent == nodes) return Answer::unsent;
        return yes + unknown != 0 ? Answer::unknown : Answer::refused;
    }
};

[[nodiscard]] constexpr Tally tally_of(std::span<const Vote> votes) noexcept {
    Tally tally;
    for (const Vote& vote : votes) tally.count(vote.answer, vote.open);
    return tally;
}

/// The cause that most votes of this answer name, the earliest of equals; none without such a vote.
[[nodiscard]] inline std::error_code leading_cause(std::span<const Vote> votes,
                                                   Answer answer) noexcept {
    std::error_code best;
    std::ptrdiff_t most = 0;
    for (const Vote& vote : votes) {
        if (vote.answer != answer) continue;
        const auto same = std::count_if(votes.begin(), votes.end(), [&](const Vote& other) {
            return other.answer == answer && other.cause == vote.cause;
        });
        if (same > most) {
            most = same;
            best = vote.cause;
        }
    }
    return best;
}

/// Why neither yes nor no was reached: a cause that waiting cannot cure, where that alone keeps the
/// nodes from a majority; else that they did not come to one.
[[nodiscard]] inline std::error_code cause_of_failure(std::span<const Vote> votes) noexcept {
    const Tally tally = tally_of(votes);
    std::size_t incurable = 0;
    std::error_code first;
    for (const Vote& vote : votes) {
        if (vote.answer == Answer::yes || may_pass_by_waiting(vote.cause)) continue;
        if (vote.answer == Answer::no) continue; // the state of the key, no trouble
        if (incurable++ == 0) first = vote.cause;
    }
    return incurable > tally.minority() ? first : make_error_code(errc::no_majority);
}

/// When so many keys have gone that a majority of nodes is free, by what each has left to live.
/// @param left per node; none: not known
[[nodiscard]] inline std::optional<std::chrono::milliseconds>
majority_left(std::span<const std::optional<std::chrono::milliseconds>> left) noexcept {
    const std::size_t wanted = majority_of(left.size());
    std::array<std::chrono::milliseconds, most_nodes> known{};
    std::size_t count = 0;
    for (const auto& span : left) {
        if (span) known[count++] = *span;
    }
    if (count < wanted) return std::nullopt;
    std::sort(known.begin(), known.begin() + count);
    return known[wanted - 1];
}

/// What one node said, in words: the server's own line where it refused, else who and why.
[[nodiscard]] inline ServerText answer_in_words(const Vote& vote, std::string_view words) noexcept {
    ServerText text;
    if (vote.open) return text.append("no answer yet");
    if (vote.answer == Answer::refused && !words.empty()) return text.append(words);
    if (vote.answer != Answer::no && !words.empty()) text.append(words).append(" ");
    std::array<char, 64> buffer{};
    return text.append(message_of(vote.cause, buffer));
}

/// How many said yes, and the answer of each node that did not, in one line: each gets its share of
/// the room, so that none is left out. Empty where all said yes.
/// @param words of the nodes, in the same order
[[nodiscard]] inline ServerText describe_votes(std::span<const Vote> votes,
                                               std::span<const std::string_view> words) noexcept {
    const Tally tally = tally_of(votes);
    ServerText text;
    if (tally.yes == tally.nodes) return text;
    append_number(text, static_cast<std::int64_t>(tally.yes));
    text.append(" of ");
    append_number(text, static_cast<std::int64_t>(tally.nodes));
    text.append(" nodes");
    std::size_t to_come = tally.nodes - tally.yes;
    for (std::size_t i = 0; i < votes.size(); ++i) {
        if (votes[i].answer == Answer::yes) continue;
        const std::size_t share = (ServerText::capacity() - text.size()) / to_come--;
        ServerText item{"; "};
        append_number(item, static_cast<std::int64_t>(i + 1));
        item.append(": ").append(answer_in_words(votes[i], words[i]).view());
        text.append(item.view().substr(0, share));
    }
    return text;
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
