#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/reply.hpp>
#include <leaselock/redis/script_call.hpp>
#include <leaselock/testing/detail/memory_flight.hpp>
#include <leaselock/testing/fault.hpp>
#include <leaselock/testing/memory_redis.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace testing {

/// A way to a `MemoryRedis`, with faults on demand. Waiting moves the clock of a `ManualRuntime`.
///
/// Where `by` has passed when the call is made, the commands are sent all the same and executed;
/// the replies are unknown, for nobody waits for them.
/// Thread-safety: any number of threads, as on a multiplexed connection: a mutex guards each step,
/// and is not held while waiting. The split form serves one thread at a time.
class MemoryConnection {
public:
    static constexpr bool is_shareable = true;

    /// The server outlives the connection.
    explicit MemoryConnection(MemoryRedis& redis) noexcept
        : redis_(redis), id_(redis.new_connection_id()) {}
    MemoryConnection(const MemoryConnection&) = delete;
    MemoryConnection& operator=(const MemoryConnection&) = delete;

    // Source: redis/connection.hpp, `SplitConnection`.
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept;
    void start(std::span<const Command> commands, Deadline by) noexcept;
    [[nodiscard]] bool finish(std::span<Reply> replies) noexcept;
    static void wait_any(std::span<MemoryConnection* const> all, Deadline by) noexcept;

    [[nodiscard]] Dialect& dialect() noexcept { return dialect_; }
    [[nodiscard]] MemoryRedis& redis() const noexcept { return redis_; }
    [[nodiscard]] std::uint64_t id() const noexcept { return id_; } ///< as in the server's log
    friend Runtime& runtime_of(const MemoryConnection& connection) noexcept {
        return connection.redis_.runtime();
    }

    // Faults. One of `next`, else `always`, strikes the call; one of `on` each command that has none
    // from the call.
    void next(Fault fault);                      ///< for the next call, of whatever commands
    void on(std::string_view name, Fault fault); ///< for the next command of this name, any case
    void always(Fault fault);                    ///< for every call that has no `next`
    void go_down() { always({Fault::refused}); } ///< nobody listens there any more
    void come_up();                              ///< ends `always`; the connection is a new one
    void heal();                                 ///< forgets all faults and delays
    void deliver_held();                         ///< what `Fault::held` kept arrives now, in order
    /// From now on each call travels this long. A reply that would come after its deadline leaves
    /// the caller there with *unknown*; the request arrives in its own time even so.
    void set_delay(LeaseClock::duration there, LeaseClock::duration back);

    [[nodiscard]] std::size_t calls() const;    ///< round trips, also those that failed
    [[nodiscard]] std::size_t commands() const; ///< in all calls
    void reset_counters();

private:
    using Lock = std::lock_guard<std::mutex>;

    detail::MemoryFlight depart(std::span<const Command> commands, Deadline by);

    MemoryRedis& redis_;
    const std::uint64_t id_;
    Dialect dialect_;
    mutable std::mutex mutex_;
    detail::FaultQueue faults_;
    std::vector<std::shared_ptr<MemoryBatch>> held_;
    std::optional<detail::MemoryFlight> split_;
    LeaseClock::duration there_{};
    LeaseClock::duration back_{};
    std::size_t calls_ = 0;
    std::size_t commands_ = 0;
};

inline void MemoryConnection::call(std::span<const Command> commands, std::span<Reply> replies,
                                   Deadline by) noexcept {
    const detail::MemoryFlight flight = depart(commands, by);
    Runtime& runtime = redis_.runtime();
    if (flight.ready() > runtime.now()) runtime.sleep_until(flight.ready());
    flight.land(redis_, replies);
}

inline void MemoryConnection::start(std::span<const Command> commands, Deadline by) noexcept {
    detail::MemoryFlight flight = depart(commands, by);
    const Lock lock{mutex_};
    split_ = std::move(flight);
}

inline bool MemoryConnection::finish(std::span<Reply> replies) noexcept {
    const Lock lock{mutex_};
    if (!split_) {
        for (Reply& reply : replies) {
            reply.set_unsent(std::make_error_code(std::errc::not_connected));
        }
        return true;
    }
    if (split_->ready() > redis_.runtime().now()) return false;
    split_->land(redis_, replies);
    split_.reset();
    return true;
}

inline void MemoryConnection::wait_any(std::span<MemoryConnection* const> all,
                                       Deadline by) noexcept {
    if (all.empty()) return;
    Deadline first = by;
    for (const MemoryConnection* const connection : all) {
        const Lock lock{connection->mutex_};
        if (connection->split_) first = (std::min)(first, connection->split_->ready());
    }
    Runtime& runtime = all.front()->redis_.runtime();
    if (first > runtime.now()) runtime.sleep_until(first);
}

inline detail::MemoryFlight MemoryConnection::depart(std::span<const Command> commands,
                                                     Deadline by) {
    detail::MemoryFlight flight{id_};
    const Lock lock{mutex_};
    ++calls_;
    commands_ += commands.size();
    const std::optional<Fault> of_call = faults_.take_for_call();
    for (std::size_t i = 0; i < commands.size(); ++i) {
        const std::span<const std::string_view> argv = commands[i].argv;
        const bool strikes = of_call && i >= of_call->after;
        flight.add(argv, strikes ? of_call : faults_.take_for_command(argv.front()));
    }
    flight.depart(redis_, there_, back_, by);
    if (!flight.held()->commands.empty()) held_.push_back(flight.held());
    if (flight.broke_stream()) dialect_.reset();
    return flight;
}

inline void MemoryConnection::next(Fault fault) {
    const Lock lock{mutex_};
    faults_.next(std::move(fault));
}

inline void MemoryConnection::on(std::string_view name, Fault fault) {
    const Lock lock{mutex_};
    faults_.on(name, std::move(fault));
}

inline void MemoryConnection::always(Fault fault) {
    const Lock lock{mutex_};
    faults_.always(std::move(fault));
}

inline void MemoryConnection::come_up() {
    const Lock lock{mutex_};
    faults_.always(std::nullopt);
    dialect_.reset();
}

inline void MemoryConnection::heal() {
    const Lock lock{mutex_};
    faults_.clear();
    there_ = back_ = {};
}

inline void MemoryConnection::deliver_held() {
    const Lock lock{mutex_};
    for (const std::shared_ptr<MemoryBatch>& batch : std::exchange(held_, {})) {
        redis_.deliver(batch, redis_.runtime().now());
    }
}

inline void MemoryConnection::set_delay(LeaseClock::duration there, LeaseClock::duration back) {
    const Lock lock{mutex_};
    there_ = there;
    back_ = back;
}

inline std::size_t MemoryConnection::calls() const {
    const Lock lock{mutex_};
    return calls_;
}

inline std::size_t MemoryConnection::commands() const {
    const Lock lock{mutex_};
    return commands_;
}

inline void MemoryConnection::reset_counters() {
    const Lock lock{mutex_};
    calls_ = commands_ = 0;
}

} // namespace testing
} // namespace LEASELOCK_ABI
} // namespace leaselock
