// SPDX-License-Identifier: MIT
// Makes the clocks that count from boot fast or slow, in the process that it is loaded into:
// $LEASELOCK_SKEW is "<epoch> <ppm>"; a time t of the machine reads t + (t - epoch) * ppm / 10^6. What
// sleeps until a time of such a clock sleeps until that time of the machine. Wall clocks stay.
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>

#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr std::int64_t ns_per_s = 1'000'000'000;
constexpr std::int64_t million = 1'000'000;

struct Skew {
    std::int64_t epoch = 0;
    std::int64_t ppm = 0;

    Skew() noexcept {
        const char* const text = std::getenv("LEASELOCK_SKEW");
        if (text == nullptr) return;
        char* end = nullptr;
        epoch = std::strtoll(text, &end, 10);
        ppm = std::strtoll(end, nullptr, 10);
    }
    [[nodiscard]] std::int64_t reading(std::int64_t time) const noexcept {
        return time + (time - epoch) * ppm / million;
    }
    /// The first time at which the clock reads that.
    [[nodiscard]] std::int64_t when(std::int64_t wanted) const noexcept {
        const std::int64_t rate = million + ppm;
        const std::int64_t span = wanted - epoch;
        std::int64_t time = epoch + span / rate * million + span % rate * million / rate - 2;
        while (reading(time) < wanted) ++time;
        return time;
    }
};

const Skew& skew() noexcept {
    static const Skew known;
    return known;
}

bool counts_from_boot(clockid_t id) noexcept {
    return id == CLOCK_BOOTTIME || id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE;
}

} // namespace

extern "C" {

int clock_gettime(clockid_t id, timespec* t) noexcept {
    const auto result = static_cast<int>(syscall(SYS_clock_gettime, id, t));
    if (result != 0 || !counts_from_boot(id)) return result;
    const std::int64_t now = skew().reading(t->tv_sec * ns_per_s + t->tv_nsec);
    t->tv_sec = now / ns_per_s;
    t->tv_nsec = now % ns_per_s;
    return 0;
}

int clock_nanosleep(clockid_t id, int flags, const timespec* until, timespec* left) {
    timespec shifted = *until;
    if ((flags & TIMER_ABSTIME) != 0 && counts_from_boot(id)) {
        const std::int64_t time = skew().when(until->tv_sec * ns_per_s + until->tv_nsec);
        shifted.tv_sec = time / ns_per_s;
        shifted.tv_nsec = time % ns_per_s;
    }
    const long result = syscall(SYS_clock_nanosleep, id, flags, &shifted, left);
    return result == 0 ? 0 : errno;
}

} // extern "C"
