#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

#if LEASELOCK_DEFINES
#include <leaselock/core/detail/linux.hpp>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// A process, told apart from its parent and its children; forking makes a new one.
using ProcessId = std::uint64_t;

/// A thread started by a `Runtime`. It has to be joined, or detached.
struct ThreadHandle {
    std::uintptr_t value = 0;
};

/// All that the library takes from the machine besides its sockets: time, sleep, random bytes, the
/// identity of the process, threads. A simulation replaces the whole of it.
///
/// `runtime_of(connection)`, found by ADL, names the one to use; it outlives the connection.
/// Thread-safety: every member may be called by any thread. Nothing throws.
class Runtime {
public:
    Runtime() = default;
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;

    [[nodiscard]] virtual Deadline now() const noexcept = 0;

    /// Returns at `by`, not before it.
    virtual void sleep_until(Deadline by) noexcept = 0;

    /// Sleeps until `word` is no longer `old` and somebody notified, or until `by`.
    /// @return false when `by` passed with `word` still `old`
    virtual bool wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t old,
                            Deadline by) noexcept = 0;
    /// Wakes all that wait on `word`; to be called behind its change.
    virtual void notify_all(const std::atomic<std::uint32_t>& word) noexcept = 0;

    /// Lets other threads run that could. A hint: doing nothing is right, too.
    virtual void yield() noexcept {}

    /// Fills `bytes` from a source that nobody can predict or repeat, or says why it cannot.
    [[nodiscard]] virtual std::error_code fill_random(std::span<std::byte> bytes) noexcept = 0;

    [[nodiscard]] virtual ProcessId process() const noexcept = 0;

    /// Runs `entry(argument)` on a new thread that takes no signals, or says why it cannot.
    [[nodiscard]] virtual std::error_code start_thread(ThreadHandle& handle, void* (*entry)(void*),
                                                       void* argument) noexcept = 0;
    virtual void join(ThreadHandle handle) noexcept = 0;
    /// For a thread that cannot be joined: it lets go of itself.
    virtual void detach(ThreadHandle handle) noexcept = 0;

protected:
    ~Runtime() = default;
};

/// The machine's own runtime, alive as long as anything may ask for it.
[[nodiscard]] Runtime& system_runtime() noexcept;

#if LEASELOCK_DEFINES
/// The machine itself. Stateless: one serves all.
class SystemRuntime final : public Runtime {
public:
    [[nodiscard]] Deadline now() const noexcept override { return LeaseClock::now(); }

    void sleep_until(Deadline by) noexcept override {
        detail::sleep_until_boot_time(by.time_since_epoch().count());
    }

    /// A suspend during the wait is noticed within a second of waking up.
    bool wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t old,
                    Deadline by) noexcept override {
        while (word.load(std::memory_order_acquire) == old) {
            const Deadline at = now();
            if (at >= by) return false;
            const std::int64_t left = (by - at).count(); // `by` is ahead of a clock above zero
            detail::futex_wait(word, old, left < detail::ns_per_s ? left : detail::ns_per_s);
        }
        return true;
    }

    void notify_all(const std::atomic<std::uint32_t>& word) noexcept override {
        detail::futex_wake_all(word);
    }

    void yield() noexcept override { detail::yield_processor(); }

    [[nodiscard]] std::error_code fill_random(std::span<std::byte> bytes) noexcept override {
        return detail::fill_random(bytes.data(), bytes.size());
    }

    [[nodiscard]] ProcessId process() const noexcept override { return detail::process_identity(); }

    [[nodiscard]] std::error_code start_thread(ThreadHandle& handle, void* (*entry)(void*),
                                               void* argument) noexcept override {
        return detail::start_thread(handle.value, entry, argument);
    }
    void join(ThreadHandle handle) noexcept override { detail::join_thread(handle.value); }
    void detach(ThreadHandle handle) noexcept override { detail::detach_thread(handle.value); }
};

LEASELOCK_INLINE Runtime& system_runtime() noexcept {
    static constinit SystemRuntime runtime;
    return runtime;
}
#endif

namespace detail {

/// For connections that say nothing of a runtime: the system's.
template <class C>
Runtime& find_runtime(C& connection) noexcept {
    if constexpr (requires { runtime_of(connection); }) {
        return runtime_of(connection);
    } else {
        return system_runtime();
    }
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
