#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/connector.hpp>
#include <leaselock/hiredis/detail/lookup.hpp>
#include <leaselock/hiredis/detail/shared_stream.hpp>
#include <leaselock/hiredis/detail/slot.hpp>
#include <leaselock/hiredis/detail/slot_queue.hpp>
#include <leaselock/hiredis/detail/socket.hpp>
#include <leaselock/hiredis/detail/stream.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/dialect.hpp>
#include <leaselock/redis/reply.hpp>

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// Who does the work of a `MultiplexedConnection`, and for how long.
///
/// A call enters its slot. Whoever comes when nobody leads, leads: it connects, writes, reads and hands
/// out for all, until its own call is done, and makes another that waits the leader. The others wait.
/// The lead is an exclusive right to the stream; the mutex guards what is known about it, and is free
/// while the leader waits.
class Multiplexer {
    using Guarded = std::unique_lock<std::mutex>;

public:
    Multiplexer(Endpoint&& endpoint, Runtime& runtime, LeaseClock::duration silence,
                LookupFunction lookup)
        : endpoint_(std::move(endpoint)), runtime_(runtime), connector_(endpoint_, runtime, lookup),
          shared_(std::make_unique<SharedStream>(runtime, silence, endpoint_.label())),
          process_(runtime.process()) {}
    Multiplexer(const Multiplexer&) = delete;
    Multiplexer& operator=(const Multiplexer&) = delete;
    ~Multiplexer() {
        if (!is_elsewhere()) return;
        // what another thread of the parent may have been changing is left alone
        shared_->stream().abandon();
        connector_.abandon_in_child();
        (void)shared_.release();
    }

    /// Whether this is another process than the one that made it; then the mutex may be held by a thread
    /// that is not here, and nothing but the destructor may be called.
    [[nodiscard]] bool is_elsewhere() const noexcept { return runtime_.process() != process_; }

    /// Does a call, of at least one command.
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept;
    /// The same in two halves; `by` lies ahead.
    void begin(Slot& slot) noexcept;
    /// Goes on with connecting for what was begun. @return false: there is no stream yet, at `until`
    [[nodiscard]] bool reach(Slot& slot, Deadline until) noexcept;
    void finish(Slot& slot, Deadline by) noexcept;
    /// What was begun is given up.
    void drop(Slot& slot) noexcept;

    [[nodiscard]] std::uint64_t stream_number() const noexcept {
        return stream_number_.load(std::memory_order_acquire);
    }
    [[nodiscard]] Dialect& dialect() noexcept { return dialect_; }
    [[nodiscard]] const Endpoint& endpoint() const noexcept { return endpoint_; }
    [[nodiscard]] Runtime& runtime() const noexcept { return runtime_; }

private:
    [[nodiscard]] bool is_open() const noexcept { return !connecting_ && shared_->is_open(); }
    void attend(Slot& slot, Deadline by) noexcept;
    void abandon(Slot& slot) noexcept;
    void post(std::span<const Command> commands, std::span<Reply> replies) noexcept;

    // The leader's. The mutex is held, but where it waits.
    void lead(Slot& slot, Deadline by, Deadline now, Guarded& lock) noexcept;
    void hand_over(Guarded& lock) noexcept;
    void step(Deadline by, Deadline now, Guarded& lock) noexcept {
        is_open() ? exchange(by, now, lock) : connect(by, now, lock);
    }
    void connect(Deadline by, Deadline now, Guarded& lock) noexcept;
    void exchange(Deadline by, Deadline now, Guarded& lock) noexcept;
    void let_others_in(Guarded& lock) noexcept {
        const Bells::Set bells = shared_->queue().take_bells();
        lock.unlock();
        bells_.ring(bells, runtime_);
    }

    Endpoint endpoint_;
    Runtime& runtime_;
    Entrance entrance_;
    Bells bells_;
    std::mutex mutex_; ///< of all below
    Connector connector_;
    bool connecting_ = false;
    std::unique_ptr<SharedStream> shared_;
    ProcessId process_; ///< whose stream it is
    std::atomic<std::uint64_t> stream_number_{0};
    Dialect dialect_;
};

inline void Multiplexer::call(std::span<const Command> commands, std::span<Reply> replies,
                              Deadline by) noexcept {
    const Deadline now = runtime_.now();
    if (now >= by) return post(commands, replies);
    Slot slot{.commands = commands, .replies = replies};
    if (!entrance_.enter(slot)) return attend(slot, by);
    Guarded lock{mutex_};
    lead(slot, by, now, lock);
}

inline void Multiplexer::begin(Slot& slot) noexcept {
    slot.attended = false;
    if (!entrance_.enter(slot)) return;
    Guarded lock{mutex_};
    const Deadline now = runtime_.now();
    if (!is_open() || shared_->is_unwatched()) step(now, now, lock);
    hand_over(lock);
}

inline bool Multiplexer::reach(Slot& slot, Deadline until) noexcept {
    if (slot.is_done()) return true;
    Guarded lock{mutex_};
    // where another thread leads, it does the same for its own call
    if (slot.is_done() || slot.written || !entrance_.try_lead()) return true;
    Deadline now = runtime_.now();
    while (!is_open() && !slot.is_done() && now < until) {
        connect(until, now, lock);
        now = runtime_.now();
    }
    const bool reached = is_open() || slot.is_done();
    hand_over(lock);
    return reached;
}

inline void Multiplexer::finish(Slot& slot, Deadline by) noexcept {
    if (slot.is_done()) return;
    Guarded lock{mutex_};
    if (slot.is_done()) return;
    slot.attended = true;
    if (entrance_.try_lead()) return lead(slot, by, runtime_.now(), lock);
    lock.unlock();
    attend(slot, by);
}

inline void Multiplexer::drop(Slot& slot) noexcept {
    if (slot.is_done()) return;
    const Guarded lock{mutex_};
    abandon(slot);
}

/// Waits for the one who leads, or for the lead.
inline void Multiplexer::attend(Slot& slot, Deadline by) noexcept {
    bells_.await(slot, by, runtime_);
    if (slot.is_done()) return;
    Guarded lock{mutex_};
    if (slot.state.load(std::memory_order_relaxed) == Slot::leading) {
        return lead(slot, by, runtime_.now(), lock);
    }
    abandon(slot);
}

inline void Multiplexer::abandon(Slot& slot) noexcept {
    SlotQueue& queue = shared_->queue();
    queue.add_from(entrance_); // it may be among them
    queue.abandon(slot, shared_->failure(make_error_code(errc::timed_out)));
}

/// Works for all until the slot is done, or its deadline comes. Even behind that, what has come already
/// is read: at most what others are owed before it, and its own.
inline void Multiplexer::lead(Slot& slot, Deadline by, Deadline now, Guarded& lock) noexcept {
    while (now < by || slot.written) {
        step(by, now, lock);
        if (slot.is_done() || (now >= by && !shared_->may_have_more())) break;
        now = runtime_.now();
    }
    if (!slot.is_done()) abandon(slot);
    hand_over(lock);
}

/// Lets go of the lead. What has gathered goes out first, so that the server has it while the threads
/// wake up whose replies have come; for what was posted meanwhile there may be no other leader.
inline void Multiplexer::hand_over(Guarded& lock) noexcept {
    SlotQueue& queue = shared_->queue();
    while (!queue.is_empty() || !entrance_.try_leave()) {
        queue.add_from(entrance_);
        if ((queue.has_pending() || queue.has_output()) && is_open()) {
            shared_->write(runtime_.now());
        }
        if (queue.appoint(bells_.are_awake())) break;
        shared_->leave_alone();
        if (entrance_.try_leave()) break;
    }
    let_others_in(lock);
}

/// A call whose deadline has passed: written behind the others, if there is a stream, and not waited
/// for.
inline void Multiplexer::post(std::span<const Command> commands,
                              std::span<Reply> replies) noexcept {
    Guarded lock{mutex_};
    const bool leads = entrance_.try_lead();
    // its like may have gone ahead of it, and nobody has read since
    if (leads && is_open() && shared_->is_unwatched()) {
        const Deadline now = runtime_.now();
        step(now, now, lock);
    }
    const bool written = !connecting_ && shared_->write_for_nobody(commands, leads);
    const Failure late = shared_->failure(make_error_code(errc::timed_out));
    for (Reply& reply : replies) {
        if (written) {
            reply.set_unknown(late.cause);
        } else {
            reply.set_unsent(late.cause);
        }
        reply.text = late.text;
    }
    if (leads) hand_over(lock);
}

/// One step towards a stream.
inline void Multiplexer::connect(Deadline by, Deadline now, Guarded& lock) noexcept {
    Progress progress = Progress::waiting;
    const bool stale = connecting_ && now >= connector_.deadline();
    if (!connecting_) {
        // of the endpoint's own time: others wait for it too, and the next leader goes on with it
        progress = connector_.begin(later(now, endpoint_.connect_timeout), shared_->stream());
        connecting_ = true;
        stream_number_.fetch_add(1, std::memory_order_acq_rel);
    }
    if (progress == Progress::waiting) {
        let_others_in(lock);
        pollfd alone = connector_.interest(shared_->stream());
        wait_ready({&alone, 1}, (std::min)(by, connector_.wake()), runtime_);
        progress = connector_.advance(shared_->stream());
        lock.lock();
    }
    if (progress == Progress::waiting) return;
    connecting_ = false;
    shared_->begin(connector_.label());
    if (progress == Progress::done) {
        shared_->stream().socket.let_wait();
        return dialect_.reset();
    }
    shared_->stream().close();
    if (stale) return; // one that was left behind is no reason to fail now
    const Failure& why = connector_.failure();
    shared_->queue().add_from(entrance_);
    shared_->queue().refuse_pending(why, connector_.refused_by_server() &&
                                             why.cause != errc::server_error);
}

/// One round: writes what has gathered, waits, reads what has come.
inline void Multiplexer::exchange(Deadline by, Deadline now, Guarded& lock) noexcept {
    shared_->queue().add_from(entrance_);
    shared_->write(now);
    if (shared_->queue().is_idle()) return; // there is nothing to wait for
    const bool due = shared_->is_due(now);
    const Deadline until = (std::min)(by, shared_->fall_at());
    const bool patient = !due && shared_->is_patient(now, until);
    pollfd alone = shared_->interest();
    let_others_in(lock);
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): see its type
    SharedStream::Chunk chunk;
    Failure failed;
    Io io;
    if (patient) io = shared_->receive_waiting(chunk, failed);
    if (io.state == IoState::again) {
        if (!due) wait_ready({&alone, 1}, until, runtime_);
        io = shared_->receive(chunk, failed);
    }
    lock.lock();
    shared_->absorb(io, chunk, failed, now);
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
