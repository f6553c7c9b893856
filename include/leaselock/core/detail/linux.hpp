#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <span>
#include <string_view>
#include <system_error>

#include <csignal>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

/// What only Linux has, in one place: another system is one more header like this.
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

inline constexpr std::int64_t ns_per_s = 1'000'000'000;

inline std::error_code last_system_error() noexcept { return {errno, std::system_category()}; }

// what the two forms of strerror_r give back
inline const char* chosen_text(const char* gnu, const char* /*buffer*/) noexcept { return gnu; }
inline const char* chosen_text(int posix, const char* buffer) noexcept {
    return posix == 0 ? buffer : "unknown error";
}
/// The system's words for an error number, without an allocation. The buffer may or may not be used.
inline std::string_view system_error_text(int number, std::span<char> buffer) noexcept {
    return chosen_text(::strerror_r(number, buffer.data(), buffer.size()), buffer.data());
}

inline std::int64_t boot_time_ns() noexcept {
    timespec t{};
    (void)::clock_gettime(CLOCK_BOOTTIME, &t);
    return t.tv_sec * ns_per_s + t.tv_nsec;
}

/// Sleeps on CLOCK_BOOTTIME, so that time spent suspended counts; signals do not shorten it.
inline void sleep_until_boot_time(std::int64_t ns) noexcept {
    if (ns <= 0) return;
    timespec until{};
    until.tv_sec = ns / ns_per_s;
    until.tv_nsec = ns % ns_per_s;
    while (::clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
}

/// Sleeps while `word` is `old`, for `ns` at most; may wake up early. The kernel has no futex on
/// CLOCK_BOOTTIME: a caller that must notice a suspend waits in slices.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t old,
                       std::int64_t ns) noexcept {
    timespec span{};
    span.tv_sec = ns / ns_per_s;
    span.tv_nsec = ns % ns_per_s;
    (void)::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, old, &span, nullptr, 0);
}

inline void futex_wake_all(const std::atomic<std::uint32_t>& word) noexcept {
    (void)::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

/// Lets other threads run that could, and goes on at once where there are none.
inline void yield_processor() noexcept { (void)::sched_yield(); }

/// Random bytes from the kernel; never blocks, has no fallback.
inline std::error_code fill_random(std::byte* bytes, std::size_t size) noexcept {
    while (size != 0) {
        const ssize_t got = ::getrandom(bytes, size, GRND_NONBLOCK);
        if (got < 0) {
            if (errno == EINTR) continue;
            return last_system_error();
        }
        bytes += got;
        size -= static_cast<std::size_t>(got);
    }
    return {};
}

/// A page that the kernel empties in every child, whichever way it was forked.
/// Lock-free, for a child must not inherit a lock that a lost thread holds.
inline std::atomic<std::uint64_t>* wiped_page() noexcept {
    static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
    static std::atomic<void*> page{nullptr};
    void* known = page.load(std::memory_order_acquire);
    if (known == nullptr) {
        constexpr std::size_t size = 1; // rounded up to a page by the kernel
        known = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (known == MAP_FAILED) return nullptr;
        void* none = nullptr;
        if (::madvise(known, size, MADV_WIPEONFORK) != 0 ||
            !page.compare_exchange_strong(none, known, std::memory_order_acq_rel)) {
            (void)::munmap(known, size);
            known = none; // the winner's page, or none where the kernel cannot wipe
        }
    }
    return static_cast<std::atomic<std::uint64_t>*>(known);
}

/// A number that no other process has; where the kernel cannot wipe pages (before 4.14), the pid.
inline std::uint64_t process_identity() noexcept {
    std::atomic<std::uint64_t>* const cell = wiped_page();
    if (cell == nullptr) return static_cast<std::uint64_t>(::getpid());
    std::uint64_t identity = cell->load(std::memory_order_relaxed);
    if (identity != 0) return identity;
    std::uint64_t fresh = 0;
    if (fill_random(reinterpret_cast<std::byte*>(&fresh), sizeof fresh) || fresh == 0) {
        fresh = (static_cast<std::uint64_t>(boot_time_ns()) << 22U) |
                static_cast<std::uint64_t>(::getpid());
    }
    return cell->compare_exchange_strong(identity, fresh, std::memory_order_relaxed) ? fresh
                                                                                     : identity;
}

/// Starts a thread that takes no signals: the application's handlers run on its own threads.
inline std::error_code start_thread(std::uintptr_t& handle, void* (*entry)(void*),
                                    void* argument) noexcept {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    (void)::pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread{};
    const int error = ::pthread_create(&thread, nullptr, entry, argument);
    (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (error != 0) return {error, std::system_category()};
    handle = thread;
    return {};
}

inline void join_thread(std::uintptr_t handle) noexcept { (void)::pthread_join(handle, nullptr); }
inline void detach_thread(std::uintptr_t handle) noexcept { (void)::pthread_detach(handle); }

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
