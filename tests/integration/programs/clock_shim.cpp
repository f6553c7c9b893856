// SPDX-License-Identifier: MIT
// Moves the wall clock of the process that it is loaded into, or linked to, and no other clock. The
// first eight bytes of the file that $LEASELOCK_CLOCK names say by how many nanoseconds; they may
// change at any time.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

constexpr std::int64_t ns_per_s = 1'000'000'000;

using Offset = std::atomic<std::int64_t>;

Offset* map_offset() noexcept {
    const char* const path = std::getenv("LEASELOCK_CLOCK");
    const int file = path != nullptr ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) {
        return nullptr;
    }
    void* const memory = mmap(nullptr, sizeof(Offset), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return memory == MAP_FAILED ? nullptr : static_cast<Offset*>(memory);
}

std::int64_t wall_time_ns(clockid_t id) noexcept {
    static const Offset* const offset = map_offset();
    timespec t{};
    syscall(SYS_clock_gettime, id, &t);
    return t.tv_sec * ns_per_s + t.tv_nsec + (offset != nullptr ? offset->load() : 0);
}

} // namespace

extern "C" {

int clock_gettime(clockid_t id, timespec* t) noexcept {
    if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE) {
        return static_cast<int>(syscall(SYS_clock_gettime, id, t));
    }
    const std::int64_t now = wall_time_ns(id);
    t->tv_sec = now / ns_per_s;
    t->tv_nsec = now % ns_per_s;
    return 0;
}

int gettimeofday(timeval* t, void* /*zone*/) noexcept {
    const std::int64_t now = wall_time_ns(CLOCK_REALTIME);
    t->tv_sec = now / ns_per_s;
    t->tv_usec = now % ns_per_s / 1000;
    return 0;
}

time_t time(time_t* t) noexcept {
    const time_t now = wall_time_ns(CLOCK_REALTIME) / ns_per_s;
    if (t != nullptr) {
        *t = now;
    }
    return now;
}

} // extern "C"
