#pragma once
// SPDX-License-Identifier: MIT

#include "chaos/scribe.hpp"

#include "simulation/deed.hpp"
#include "simulation/told_event.hpp"

#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/observer.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>
#include <leaselock/redis/script_call.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

/// The library's seams, with everything that passes them written down.
namespace leaselock::chaos {

/// A number that no other process of the run uses.
class Ids {
public:
    explicit Ids(std::uint64_t process) noexcept : next_(process << 40U) {}
    /// The first of so many, one behind the other.
    std::uint64_t next(std::uint64_t count = 1) noexcept { return next_.fetch_add(count) + 1; }

private:
    std::atomic<std::uint64_t> next_;
};

/// The machine's runtime, which remembers what it told each thread of the time.
class ToldRuntime final : public Runtime {
public:
    [[nodiscard]] Deadline now() const noexcept override { return last() = system_runtime().now(); }
    void sleep_until(Deadline by) noexcept override { system_runtime().sleep_until(by); }
    bool wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t old,
                    Deadline by) noexcept override {
        return system_runtime().wait_until(word, old, by);
    }
    void notify_all(const std::atomic<std::uint32_t>& word) noexcept override {
        system_runtime().notify_all(word);
    }
    void yield() noexcept override { system_runtime().yield(); }
    [[nodiscard]] std::error_code fill_random(std::span<std::byte> bytes) noexcept override {
        return system_runtime().fill_random(bytes);
    }
    [[nodiscard]] ProcessId process() const noexcept override { return system_runtime().process(); }
    [[nodiscard]] std::error_code start_thread(ThreadHandle& handle, void* (*entry)(void*),
                                               void* argument) noexcept override {
        return system_runtime().start_thread(handle, entry, argument);
    }
    void join(ThreadHandle handle) noexcept override { system_runtime().join(handle); }
    void detach(ThreadHandle handle) noexcept override { system_runtime().detach(handle); }

    /// What this thread was told last.
    [[nodiscard]] static Deadline& last() noexcept {
        static thread_local Deadline reading{};
        return reading;
    }
};

/// Writes down what an observer hears of one guard. The event was made at the thread's last reading of
/// the clock; its line may come later, for the thread may be stopped in between.
class Recorder final : public Observer {
public:
    Recorder(const Scribe& scribe, std::string guard) noexcept
        : scribe_(scribe), guard_(std::move(guard)) {}

    void on_event(const Event& event) noexcept override {
        const Deadline made = ToldRuntime::last();
        const Time at = scribe_.now();
        const auto late = LeaseClock::now() - made;
        scribe_.line(at, "event", [&](History::Line& line) {
            simulation::put_event(line, guard_, scribe_.token(event.fingerprint), event);
            line.put("late", late.count());
        });
    }

private:
    const Scribe& scribe_;
    std::string guard_;
};

/// A connection, and all that goes over it.
template <class C>
class ToldConnection {
public:
    static constexpr bool is_shareable = C::is_shareable;

    ToldConnection(std::string_view url, std::string server, const Scribe& scribe, Ids& ids,
                   Runtime& runtime)
        : connection_(url, runtime), server_(std::move(server)), scribe_(scribe), ids_(ids) {}

    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        const std::uint64_t first = ids_.next(commands.size());
        tell_sends(commands, first);
        connection_.call(commands, replies, by);
        tell_replies(replies, first);
    }
    [[nodiscard]] Dialect& dialect() noexcept { return connection_.dialect(); }
    [[nodiscard]] std::uint64_t stream_number() const noexcept requires requires(const C& c) {
        c.stream_number();
    }
    { return connection_.stream_number(); }
    friend Runtime& runtime_of(ToldConnection& connection) noexcept {
        return runtime_of(connection.connection_);
    }

private:
    void tell_sends(std::span<const Command> commands, std::uint64_t first) const {
        const Time now = scribe_.now();
        History history;
        for (std::size_t i = 0; i < commands.size(); ++i) {
            const simulation::Deed deed = simulation::deed_of(commands[i].argv);
            auto line = history.add(now, scribe_.actor(), "send");
            line.put_unsigned("id", first + i).put("verb", deed.verb).put("key", deed.key);
            // what is adopted is another process's
            const bool adopts = !deed.heir.empty();
            line.put("token", adopts ? std::string{deed.token} : scribe_.token(deed.token));
            line.put("heir", scribe_.token(deed.heir)).put("to", server_);
            if (deed.ttl != 0) line.put("ttl", deed.ttl);
        }
        scribe_.write(history.text());
    }
    void tell_replies(std::span<const Reply> replies, std::uint64_t first) const {
        const Time now = scribe_.now();
        History history;
        for (std::size_t i = 0; i < replies.size(); ++i) {
            history.add(now, scribe_.actor(), "reply")
                .put_unsigned("id", first + i)
                .put("is", simulation::word_of(replies[i]));
        }
        scribe_.write(history.text());
    }

    C connection_;
    std::string server_;
    const Scribe& scribe_;
    Ids& ids_;
};

} // namespace leaselock::chaos
