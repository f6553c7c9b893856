#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/redis/reply.hpp>
#include <leaselock/testing/detail/memory_state.hpp>
#include <leaselock/testing/fault.hpp>
#include <leaselock/testing/memory_redis.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace testing::detail {

/// The faults that are still to come.
class FaultQueue {
public:
    void next(Fault fault) { next_.push_back(std::move(fault)); }
    void on(std::string_view name, Fault fault) {
        on_.push_back({lowered(name), std::move(fault)});
    }
    void always(std::optional<Fault> fault) { always_ = std::move(fault); }
    void clear() { *this = {}; }

    /// What strikes a call as a whole, from its command `Fault::after` on.
    std::optional<Fault> take_for_call() {
        if (next_.empty()) return always_;
        Fault fault = std::move(next_.front());
        next_.pop_front();
        return fault;
    }
    std::optional<Fault> take_for_command(std::string_view name) {
        const auto found = std::find_if(on_.begin(), on_.end(), [&](const Awaited& awaited) {
            return is_word(name, awaited.name);
        });
        if (found == on_.end()) return std::nullopt;
        Fault fault = std::move(found->fault);
        on_.erase(found);
        return fault;
    }

private:
    struct Awaited {
        std::string name;
        Fault fault;
    };
    std::deque<Fault> next_;
    std::vector<Awaited> on_;
    std::optional<Fault> always_;
};

/// One call on its way: what will be executed, and what its caller will hear, and when.
class MemoryFlight {
public:
    explicit MemoryFlight(std::uint64_t connection)
        : sent_(std::make_shared<MemoryBatch>(MemoryBatch{connection})),
          held_(std::make_shared<MemoryBatch>(MemoryBatch{connection})) {}

    void add(Words argv, std::optional<Fault> fault);
    /// Sends what gets through, by way of a network that needs so long.
    void depart(MemoryRedis& redis, LeaseClock::duration there, LeaseClock::duration back,
                Deadline by);

    /// When the caller has all that it will ever have.
    [[nodiscard]] Deadline ready() const noexcept { return ready_; }
    [[nodiscard]] bool broke_stream() const noexcept { return broken_ && !is_silent(*broken_); }
    /// Commands that arrive when the test says so; may be empty.
    [[nodiscard]] std::shared_ptr<MemoryBatch> held() const noexcept { return held_; }
    void land(const MemoryRedis& redis, std::span<Reply> replies) const noexcept;

private:
    static constexpr auto no_slot = static_cast<std::size_t>(-1);

    /// What a command will hear: what the batch's replies say there, or what is certain already.
    struct Verdict {
        std::size_t slot = no_slot;
        Reply fixed{};
    };

    static bool is_silent(Fault::Kind kind) noexcept {
        return kind == Fault::lost_request || kind == Fault::lost_reply || kind == Fault::held;
    }
    static void announce(Fault::Kind kind, Reply& reply) noexcept;
    [[nodiscard]] MemoryBatch* destination() const noexcept;

    std::shared_ptr<MemoryBatch> sent_;
    std::shared_ptr<MemoryBatch> held_;
    std::vector<Verdict> verdicts_;
    std::optional<Fault::Kind> broken_; ///< how the stream broke, at the last command added
    LeaseClock::duration more_there_{};
    LeaseClock::duration more_back_{};
    Deadline ready_{};
};

inline void MemoryFlight::add(Words argv, std::optional<Fault> fault) {
    Verdict verdict;
    if (fault && !broken_) {
        switch (fault->kind) {
        case Fault::slow:
            more_there_ = (std::max)(more_there_, fault->there);
            more_back_ = (std::max)(more_back_, fault->back);
            break;
        case Fault::error:
            verdict.fixed.set_text(Reply::error, fault->text);
            verdicts_.push_back(verdict);
            return;
        default: broken_ = fault->kind;
        }
    }
    if (broken_) {
        announce(*broken_, verdict.fixed);
    } else {
        verdict.slot = sent_->commands.size();
    }
    if (MemoryBatch* const batch = destination()) {
        batch->commands.emplace_back(argv.begin(), argv.end());
    }
    verdicts_.push_back(verdict);
}

inline void MemoryFlight::announce(Fault::Kind kind, Reply& reply) noexcept {
    switch (kind) {
    case Fault::refused:
        reply.set_unsent(std::make_error_code(std::errc::connection_refused));
        break;
    case Fault::cut_request:
    case Fault::cut_reply: reply.set_unknown(make_error_code(errc::connection_lost)); break;
    case Fault::garbage: reply.set_unknown(make_error_code(errc::protocol_error)); break;
    default: reply.set_unknown(make_error_code(errc::timed_out));
    }
}

inline MemoryBatch* MemoryFlight::destination() const noexcept {
    if (!broken_) return sent_.get();
    switch (*broken_) {
    case Fault::refused:
    case Fault::lost_request:
    case Fault::cut_request: return nullptr;
    case Fault::held: return held_.get();
    default: return sent_.get();
    }
}

inline void MemoryFlight::depart(MemoryRedis& redis, LeaseClock::duration there,
                                 LeaseClock::duration back, Deadline by) {
    const Deadline now = redis.runtime().now();
    const Deadline arrival = later(now, there + more_there_);
    const bool any_sent = std::any_of(verdicts_.begin(), verdicts_.end(), [](const Verdict& v) {
        return v.slot != no_slot || v.fixed.kind != Reply::unsent;
    });
    ready_ = any_sent ? later(arrival, back + more_back_) : now;
    if (any_sent && (ready_ > by || by <= now)) {
        for (Verdict& verdict : verdicts_) {
            if (verdict.slot == no_slot && verdict.fixed.kind == Reply::unsent) continue;
            verdict.slot = no_slot;
            announce(Fault::lost_reply, verdict.fixed);
        }
        ready_ = by;
    }
    if (broken_ && is_silent(*broken_)) ready_ = by;
    if (!sent_->commands.empty()) redis.deliver(sent_, arrival);
}

inline void MemoryFlight::land(const MemoryRedis& redis, std::span<Reply> replies) const noexcept {
    const bool executed = redis.has_executed(*sent_);
    for (std::size_t i = 0; i < replies.size() && i < verdicts_.size(); ++i) {
        const Verdict& verdict = verdicts_[i];
        if (verdict.slot == no_slot) {
            replies[i] = verdict.fixed;
        } else if (executed) {
            sent_->replies[verdict.slot].write_to(replies[i]);
        } else { // the server was restarted meanwhile
            announce(Fault::cut_request, replies[i]);
        }
    }
}

} // namespace testing::detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
