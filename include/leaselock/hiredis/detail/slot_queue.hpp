#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/hiredis/detail/resp_writer.hpp>
#include <leaselock/hiredis/detail/slot.hpp>
#include <leaselock/hiredis/detail/stream.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// The calls on one stream: those that wait to be written, and those that wait for their replies, in
/// order. Pure bookkeeping, under its owner's mutex.
class SlotQueue {
public:
    /// Takes in those who have come.
    void add_from(Entrance& entrance) noexcept { entrance.take(pending_); }
    [[nodiscard]] bool has_pending() const noexcept { return pending_.first != nullptr; }

    /// Whether nothing is in flight; and whether nothing is pending, either.
    [[nodiscard]] bool is_idle() const noexcept { return head_ == in_flight_.size(); }
    [[nodiscard]] bool is_empty() const noexcept { return !has_pending() && is_idle(); }

    /// Whether the server owes a reply: to a command of which at least a byte has gone out.
    [[nodiscard]] bool owed() const noexcept {
        return !is_idle() && in_flight_[head_].begin < base_ + sent_;
    }
    /// Whether the kernel has not taken all that is written.
    [[nodiscard]] bool has_output() const noexcept { return sent_ < out_.size(); }
    [[nodiscard]] std::string_view output() const noexcept { return out_.view().substr(sent_); }
    void mark_sent(std::size_t bytes) noexcept { sent_ += bytes; }
    /// What is written will go out, though it has not been sent: the stream holds on to it.
    void commit_output() noexcept { committed_ = base_ + out_.size(); }

    /// Writes what waits, up to a limit that keeps the batches behind it from waiting for long.
    void write_pending() noexcept {
        while (pending_.first != nullptr && (!has_output() || out_.size() < batch_bytes)) {
            Slot& slot = *pending_.pop();
            if (!write(slot.commands, &slot)) {
                conclude(slot, {std::make_error_code(std::errc::not_enough_memory), {}});
            }
        }
    }
    /// Writes a call whose caller does not wait. @return false for want of memory
    [[nodiscard]] bool write_for_nobody(std::span<const Command> commands) noexcept {
        return write(commands, nullptr);
    }

    /// Where the next reply belongs; null when none is waited for.
    [[nodiscard]] Reply* expected() noexcept {
        if (is_idle()) return nullptr;
        Slot* const slot = in_flight_[head_].slot;
        if (slot == nullptr || slot->answered >= slot->replies.size()) return &surplus_;
        return &slot->replies[slot->answered];
    }
    /// The next reply has come. @return false where its command has not gone out: no Redis does that,
    /// but for an error about half a command
    [[nodiscard]] bool take_reply(const Reply& reply) noexcept {
        Entry& entry = in_flight_[head_];
        if (has_output() && !was_sent(entry, reply.kind == Reply::error)) return false;
        if (entry.slot != nullptr) ++entry.slot->answered;
        if (--entry.left == 0) {
            if (entry.slot != nullptr) finish(*entry.slot);
            drop_front();
        }
        return true;
    }

    /// Takes a call out whose caller waits no longer, and gives its verdicts. What has gone out goes its
    /// way, and its replies are dropped when they come; of the rest nothing is sent any more.
    void abandon(Slot& slot, const Failure& failure) noexcept {
        if (slot.is_done()) return;
        if (!slot.written) {
            (void)pending_.remove(slot);
            return verdicts(slot, failure, 0);
        }
        verdicts(slot, failure, gone());
        for (std::size_t i = head_; i < in_flight_.size(); ++i) {
            if (in_flight_[i].slot == &slot) return withdraw(i);
        }
    }
    /// The stream has fallen: all that was written gets its verdicts, or, where the server turned the
    /// connection away without reading anything, its words.
    void fall(const Failure& failure, bool by_server) noexcept {
        const std::uint64_t sent = gone();
        for (const Entry& entry : flying()) {
            if (entry.slot == nullptr) continue;
            if (by_server) {
                refuse(*entry.slot, failure);
            } else {
                verdicts(*entry.slot, failure, sent);
                finish(*entry.slot);
            }
        }
        in_flight_.clear();
        head_ = 0;
        base_ = sent_ = committed_ = 0;
        out_.clear();
    }
    /// There is no stream to be had: all that waits is unsent, or refused by the server's own words.
    void refuse_pending(const Failure& failure, bool by_server) noexcept {
        while (Slot* const slot = pending_.pop()) {
            if (by_server) {
                refuse(*slot, failure);
            } else {
                conclude(*slot, failure);
            }
        }
    }

    /// Who is to be told, of all that became done since the last time.
    [[nodiscard]] Bells::Set take_bells() noexcept { return std::exchange(bells_, 0); }
    /// Makes a call lead whose thread waits, if there is any: the oldest, or the oldest that can be woken
    /// alone.
    /// @param awake whether threads need not be woken, most likely
    [[nodiscard]] bool appoint(bool awake) noexcept {
        Slot* best = nullptr;
        const auto is_best = [&](Slot* slot) {
            if (slot == nullptr || !slot->attended) return false;
            const bool sleeps = slot->state.load(std::memory_order_relaxed) == Slot::asleep;
            const bool good = awake || (sleeps && slot->bell == 0);
            if (best == nullptr || good) best = slot;
            return good;
        };
        std::size_t i = head_;
        while (i < in_flight_.size() && !is_best(in_flight_[i].slot)) ++i;
        Slot* slot = i == in_flight_.size() ? pending_.first : nullptr;
        while (slot != nullptr && !is_best(slot)) slot = slot->next;
        if (best != nullptr) bells_ |= Bells::change(*best, Slot::leading);
        return best != nullptr;
    }

private:
    struct Entry {
        Slot* slot; ///< null: nobody waits for its replies
        std::size_t left;
        std::uint64_t begin;
    };

    static constexpr std::size_t batch_bytes = std::size_t{64} * 1024;
    static constexpr std::size_t compact_at = 1024;

    [[nodiscard]] bool write(std::span<const Command> commands, Slot* slot) noexcept {
        if (!has_output()) {
            base_ += out_.size();
            out_.clear();
            sent_ = 0;
        }
        const std::uint64_t begin = base_ + out_.size();
#if LEASELOCK_EXCEPTIONS
        try {
            in_flight_.push_back({slot, commands.size(), begin});
        } catch (const std::bad_alloc&) {
            return false;
        }
#else
        in_flight_.push_back({slot, commands.size(), begin});
#endif
        if (!out_.append(commands)) {
            in_flight_.pop_back();
            return false;
        }
        if (slot != nullptr) {
            slot->begin = begin;
            slot->written = true;
        }
        return true;
    }

    /// The end of what has gone out, or surely will.
    [[nodiscard]] std::uint64_t gone() const noexcept {
        return (std::max)(base_ + sent_, committed_);
    }

    /// Whether the command that is to be answered next has gone out, wholly or, where that is enough, in
    /// part. Of an abandoned call nothing is left but what had begun to.
    [[nodiscard]] bool was_sent(const Entry& entry, bool in_part) const noexcept {
        const std::uint64_t sent = base_ + sent_;
        if (entry.slot == nullptr) return entry.begin < sent;
        std::uint64_t begin = entry.begin;
        const auto commands = entry.slot->commands;
        for (std::size_t i = 0; i < entry.slot->answered; ++i) {
            begin += RespWriter::size_of(commands[i]);
        }
        const std::uint64_t end = begin + RespWriter::size_of(commands[entry.slot->answered]);
        return in_part ? begin < sent : end <= sent;
    }
    /// Leaves a call's place to nobody, and cuts out those of its commands that are wholly unsent.
    void withdraw(std::size_t at) noexcept {
        const Slot& slot = *in_flight_[at].slot;
        in_flight_[at].slot = nullptr;
        std::uint64_t begin = slot.begin;
        std::size_t kept = 0;
        for (; kept < slot.commands.size() && begin < gone(); ++kept) {
            begin += RespWriter::size_of(slot.commands[kept]);
        }
        std::size_t bytes = 0;
        for (std::size_t i = kept; i < slot.commands.size(); ++i) {
            bytes += RespWriter::size_of(slot.commands[i]);
        }
        if (bytes == 0) return;
        out_.erase(static_cast<std::size_t>(begin - base_), bytes);
        in_flight_[at].left -= slot.commands.size() - kept;
        for (std::size_t i = at + 1; i < in_flight_.size(); ++i) {
            in_flight_[i].begin -= bytes;
            if (in_flight_[i].slot != nullptr) in_flight_[i].slot->begin -= bytes;
        }
        if (in_flight_[at].left == 0) {
            in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(at));
        }
    }

    [[nodiscard]] std::span<Entry> flying() noexcept {
        return std::span{in_flight_}.subspan(head_);
    }
    void drop_front() noexcept {
        ++head_;
        if (is_idle()) {
            in_flight_.clear();
            head_ = 0;
        } else if (head_ == compact_at) {
            in_flight_.erase(in_flight_.begin(),
                             in_flight_.begin() + static_cast<std::ptrdiff_t>(head_));
            head_ = 0;
        }
    }
    void refuse(Slot& slot, const Failure& failure) noexcept {
        for (Reply& reply : slot.replies) reply.set_text(Reply::error, failure.text.view());
        finish(slot);
    }

    /// Unsent are those commands of which not a byte lies below `sent`.
    static void verdicts(Slot& slot, const Failure& failure, std::uint64_t sent) noexcept {
        std::uint64_t begin = slot.begin;
        for (std::size_t i = 0; i < slot.commands.size(); ++i) {
            const bool out = begin < sent;
            begin += RespWriter::size_of(slot.commands[i]);
            if (i < slot.answered || i >= slot.replies.size()) continue;
            if (out) {
                slot.replies[i].set_unknown(failure.cause);
            } else {
                slot.replies[i].set_unsent(failure.cause);
            }
            slot.replies[i].text = failure.text;
        }
    }
    void conclude(Slot& slot, const Failure& failure) noexcept {
        verdicts(slot, failure, 0);
        finish(slot);
    }
    /// From here on the slot is its caller's.
    void finish(Slot& slot) noexcept { bells_ |= Bells::change(slot, Slot::done); }

    SlotList pending_;
    Bells::Set bells_ = 0;
    std::vector<Entry> in_flight_; ///< from `head_` on
    std::size_t head_ = 0;
    RespWriter out_;
    std::size_t sent_ = 0;        ///< of `out_`
    std::uint64_t base_ = 0;      ///< what went out on the stream ahead of `out_`
    std::uint64_t committed_ = 0; ///< see `commit_output`
    Reply surplus_;               ///< takes what nobody waits for
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
