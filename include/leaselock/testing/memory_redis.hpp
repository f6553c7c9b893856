#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/testing/detail/memory_commands.hpp>
#include <leaselock/testing/detail/memory_execute.hpp>
#include <leaselock/testing/detail/memory_state.hpp>
#include <leaselock/testing/memory_reply.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace testing {

/// One command that a `MemoryRedis` has executed.
struct Executed {
    Deadline time;
    std::uint64_t connection; ///< `MemoryConnection::id()`; 0 for `execute` without one
    std::vector<std::string> argv;
    MemoryReply reply;
};

/// Commands on their way to a server, and then its replies.
struct MemoryBatch {
    std::uint64_t connection = 0;
    std::vector<std::vector<std::string>> commands{};
    std::vector<MemoryReply> replies{}; ///< all of them, once executed
};

/// A Redis 7.0 with one database, in memory: what a lock sends, answered to the letter.
///
/// It knows SET, GET, GETEX, GETRANGE, PTTL, DEL, EXISTS, PEXPIRE (without its options), PERSIST,
/// RENAME, TIME, PING, SELECT 0, FLUSHALL, SCRIPT LOAD, EXISTS and FLUSH, and EVAL and EVALSHA of the
/// library's own scripts (the run id's as EVAL). Keys expire by the clock of the runtime; nothing happens by itself.
/// Thread-safety: any number of threads.
class MemoryRedis {
public:
    /// What the server's clock says when that of the runtime says 0, but for the offset.
    static constexpr std::chrono::seconds epoch{1'700'000'000};

    /// The runtime outlives the server.
    explicit MemoryRedis(Runtime& runtime) noexcept : runtime_(runtime) { draw_run_id(); }
    MemoryRedis(const MemoryRedis&) = delete;
    MemoryRedis& operator=(const MemoryRedis&) = delete;

    [[nodiscard]] Runtime& runtime() const noexcept { return runtime_; }

    /// Executes a command now, at least one word.
    MemoryReply execute(std::span<const std::string_view> argv, std::uint64_t connection = 0);
    MemoryReply execute(std::initializer_list<std::string_view> argv) {
        return execute(std::span{argv.begin(), argv.size()});
    }

    // What the test does behind the back of all clients; none of it is logged.
    [[nodiscard]] std::optional<std::string> get(std::string_view key);
    /// @param ttl 0: none
    void set(std::string_view key, std::string_view value, std::chrono::milliseconds ttl = {});
    /// Puts a hash under the key: lock commands answer WRONGTYPE.
    void plant_hash(std::string_view key);
    bool del(std::string_view key);
    [[nodiscard]] std::int64_t pttl(std::string_view key); ///< -1 without ttl, -2 without key

    // Switches.
    /// The server's clock goes this much ahead of the runtime's. A change is a jump.
    void set_clock_offset(LeaseClock::duration offset);
    [[nodiscard]] std::chrono::microseconds clock() const; ///< what TIME says
    void set_lacks_getex(bool lacks);   ///< as before 6.2, with 7.0's wording; no PXAT either
    void set_read_only(bool read_only); ///< as a replica or a demoted master
    void set_out_of_memory(bool full);
    void flush_scripts();

    enum class Restart : std::uint8_t { forgetting, keeping_data };
    /// Scripts and what is on its way are gone in any case.
    void restart(Restart how = Restart::forgetting);

    // What happened.
    [[nodiscard]] std::vector<Executed> log() const;
    [[nodiscard]] std::size_t count(std::string_view name) const; ///< in the log; by any case
    void clear_log();

    // For connections.
    [[nodiscard]] std::uint64_t new_connection_id() noexcept;
    /// Executes the batch when the clock says `at`, now if that has passed.
    void deliver(std::shared_ptr<MemoryBatch> batch, Deadline at);
    /// Whether the batch has been executed. From then on its replies may be read.
    [[nodiscard]] bool has_executed(const MemoryBatch& batch) const;

private:
    struct Arrival {
        Deadline at;
        std::shared_ptr<MemoryBatch> batch;
    };
    using Lock = std::lock_guard<std::mutex>;

    /// Every look at the state comes through here: first happens what was due by now, each at its
    /// own time.
    detail::MemoryState& at_now() const {
        run_arrivals(runtime_.now());
        return at(runtime_.now());
    }
    detail::MemoryState& at(Deadline time) const {
        state_.now_us = std::chrono::duration_cast<std::chrono::microseconds>(
                            time.time_since_epoch() + epoch + offset_)
                            .count();
        return state_;
    }
    void run_arrivals(Deadline now) const;
    MemoryReply run(Deadline time, std::uint64_t connection,
                    std::span<const std::string_view> argv) const;
    /// Another one for each start of each server, as 40 hex digits.
    void draw_run_id() {
        static std::atomic<std::uint64_t> starts{0};
        const std::string digits = std::to_string(++starts);
        state_.run_id = std::string(40 - digits.size(), '0') + digits;
    }

    Runtime& runtime_;
    mutable std::mutex mutex_;
    mutable detail::MemoryState state_;     // mutable: looking lets time pass
    mutable std::vector<Arrival> arrivals_; ///< by time
    mutable std::vector<Executed> log_;
    LeaseClock::duration offset_{};
    std::uint64_t connections_ = 0;
};

inline MemoryReply MemoryRedis::execute(std::span<const std::string_view> argv,
                                        std::uint64_t connection) {
    const Lock lock{mutex_};
    const Deadline now = runtime_.now();
    run_arrivals(now);
    return run(now, connection, argv);
}

inline MemoryReply MemoryRedis::run(Deadline time, std::uint64_t connection,
                                    std::span<const std::string_view> argv) const {
    MemoryReply reply = detail::execute(at(time), argv);
    log_.push_back({time, connection, {argv.begin(), argv.end()}, reply});
    return reply;
}

inline void MemoryRedis::run_arrivals(Deadline now) const {
    while (!arrivals_.empty() && arrivals_.front().at <= now) {
        const Arrival arrival = std::move(arrivals_.front());
        arrivals_.erase(arrivals_.begin());
        MemoryBatch& batch = *arrival.batch;
        for (const std::vector<std::string>& words : batch.commands) {
            const std::vector<std::string_view> argv{words.begin(), words.end()};
            batch.replies.push_back(run(arrival.at, batch.connection, argv));
        }
    }
}

inline void MemoryRedis::deliver(std::shared_ptr<MemoryBatch> batch, Deadline at) {
    const Lock lock{mutex_};
    const Deadline now = runtime_.now();
    run_arrivals(now);
    const Deadline when = (std::max)(at, now);
    const auto behind =
        std::upper_bound(arrivals_.begin(), arrivals_.end(), when,
                         [](Deadline time, const Arrival& arrival) { return time < arrival.at; });
    arrivals_.insert(behind, {when, std::move(batch)});
    run_arrivals(now);
}

inline bool MemoryRedis::has_executed(const MemoryBatch& batch) const {
    const Lock lock{mutex_};
    run_arrivals(runtime_.now());
    return batch.replies.size() == batch.commands.size();
}

inline std::optional<std::string> MemoryRedis::get(std::string_view key) {
    const Lock lock{mutex_};
    const detail::Entry* const entry = at_now().find(key);
    return entry == nullptr ? std::nullopt : std::optional{entry->value};
}

inline void MemoryRedis::set(std::string_view key, std::string_view value,
                             std::chrono::milliseconds ttl) {
    const Lock lock{mutex_};
    detail::MemoryState& state = at_now();
    detail::Entry& entry = state.keys.put(key, {std::string{value}});
    if (ttl.count() != 0) entry.expires = state.now_ms() + ttl.count();
}

inline void MemoryRedis::plant_hash(std::string_view key) {
    const Lock lock{mutex_};
    at_now().keys.put(key, {{}, {}, true});
}

inline bool MemoryRedis::del(std::string_view key) {
    const Lock lock{mutex_};
    const bool was_there = at_now().find(key) != nullptr;
    state_.keys.erase(key);
    return was_there;
}

inline std::int64_t MemoryRedis::pttl(std::string_view key) {
    const Lock lock{mutex_};
    return detail::pttl(at_now(), std::initializer_list<std::string_view>{"pttl", key}).number;
}

inline void MemoryRedis::set_clock_offset(LeaseClock::duration offset) {
    const Lock lock{mutex_};
    (void)at_now();
    offset_ = offset;
}

inline std::chrono::microseconds MemoryRedis::clock() const {
    const Lock lock{mutex_};
    return std::chrono::microseconds{at_now().now_us};
}

inline void MemoryRedis::set_lacks_getex(bool lacks) {
    const Lock lock{mutex_};
    at_now().lacks_getex = lacks;
}

inline void MemoryRedis::set_read_only(bool read_only) {
    const Lock lock{mutex_};
    at_now().read_only = read_only;
}

inline void MemoryRedis::set_out_of_memory(bool full) {
    const Lock lock{mutex_};
    at_now().out_of_memory = full;
}

inline void MemoryRedis::flush_scripts() {
    const Lock lock{mutex_};
    at_now().scripts.clear();
}

inline void MemoryRedis::restart(Restart how) {
    const Lock lock{mutex_};
    detail::MemoryState& state = at_now();
    arrivals_.clear();
    state.scripts.clear();
    draw_run_id();
    if (how == Restart::forgetting) state.keys.clear();
}

inline std::vector<Executed> MemoryRedis::log() const {
    const Lock lock{mutex_};
    (void)at_now();
    return log_;
}

inline std::size_t MemoryRedis::count(std::string_view name) const {
    const Lock lock{mutex_};
    (void)at_now();
    const std::string wanted = detail::lowered(name);
    return static_cast<std::size_t>(
        std::count_if(log_.begin(), log_.end(), [&](const Executed& executed) {
            return detail::is_word(executed.argv.front(), wanted);
        }));
}

inline void MemoryRedis::clear_log() {
    const Lock lock{mutex_};
    (void)at_now();
    log_.clear();
}

inline std::uint64_t MemoryRedis::new_connection_id() noexcept {
    const Lock lock{mutex_};
    return ++connections_;
}

} // namespace testing
} // namespace LEASELOCK_ABI
} // namespace leaselock
