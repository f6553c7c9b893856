#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/lock/detail/quorum_tally.hpp>
#include <leaselock/lock/detail/renewal_schedule.hpp>
#include <leaselock/redis/reply.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// What one node says to the question of one call: a vote for each of its items, open until all are in.
class Ballot {
public:
    void begin() noexcept {
        open_ = true;
        asked_ = may_hold_ = false;
        words_.clear();
        left_.reset();
    }
    /// The question has been handed to the node.
    void ask() noexcept {
        asked_ = true;
        words_.clear();
    }
    void record(std::size_t item, const Outcome& outcome) noexcept {
        votes_[item] = {outcome.answer, outcome.cause};
        if (outcome.answer == Answer::yes || outcome.answer == Answer::unknown) may_hold_ = true;
        if (!outcome.text.empty()) words_ = outcome.text;
    }
    /// The reply to the PTTL behind a SET.
    void record_left(const Reply& reply) noexcept {
        if (votes_[0].answer == Answer::yes) {
            left_ = std::chrono::milliseconds{0}; // ours, and given back if that is not enough
        } else if (reply.kind == Reply::integer && reply.number != -1) {
            left_ = std::chrono::milliseconds{
                std::clamp<std::int64_t>(reply.number, 0, max_ttl.count())};
        }
    }
    void set_open(bool open) noexcept { open_ = open; }
    /// All its votes are this one, whatever has been recorded.
    void close(const Outcome& all) noexcept {
        open_ = false;
        std::fill(votes_.begin(), votes_.end(), Vote{all.answer, all.cause});
        words_ = all.text;
    }

    [[nodiscard]] bool is_open() const noexcept { return open_; }
    [[nodiscard]] bool was_asked() const noexcept { return asked_; }
    [[nodiscard]] Vote vote(std::size_t item) const noexcept {
        if (!open_) return votes_[item];
        return {asked_ ? Answer::unknown : Answer::unsent, make_error_code(errc::timed_out), true};
    }
    [[nodiscard]] std::string_view words() const noexcept { return words_.view(); }
    /// Whether what it was asked to set may be there, or get there, counted or not.
    [[nodiscard]] bool may_hold() const noexcept { return asked_ && (open_ || may_hold_); }
    /// What the key has left to live, where that was asked.
    [[nodiscard]] std::optional<std::chrono::milliseconds> left() const noexcept { return left_; }

private:
    std::vector<Vote> votes_ = std::vector<Vote>(RenewalSchedule::batch_limit);
    bool open_ = false;
    bool asked_ = false;
    bool may_hold_ = false;
    ServerText words_;
    std::optional<std::chrono::milliseconds> left_;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
