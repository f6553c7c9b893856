// SPDX-License-Identifier: MIT
// A holder whose wall clock jumps. Takes the server's URL, and $LEASELOCK_CLOCK of the shim that it
// is linked with; prints what went wrong, and exits with how much that was.
#include <leaselock/leaselock.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

using namespace leaselock;
using namespace std::chrono_literals;

namespace {

int failures = 0;

void expect(bool good, const char* what) {
    if (!good) {
        std::printf("not so: %s\n", what);
        ++failures;
    }
}

void set_wall_clock(std::chrono::nanoseconds offset) {
    const std::int64_t count = offset.count();
    const int file = open(std::getenv("LEASELOCK_CLOCK"), O_WRONLY | O_CLOEXEC);
    if (pwrite(file, &count, sizeof count, 0) != sizeof count) {
        std::perror("the clock's file");
        std::abort();
    }
    close(file);
}

bool eventually(const std::function<bool()>& holds) {
    const auto start = std::chrono::steady_clock::now();
    while (!holds()) {
        if (std::chrono::steady_clock::now() - start > 20s) {
            return false;
        }
        std::this_thread::sleep_for(2ms);
    }
    return true;
}

/// How long a wait takes whose clock jumps in the middle.
std::chrono::nanoseconds time_wait(const std::function<bool()>& wait,
                                   std::chrono::nanoseconds jump) {
    const auto start = std::chrono::steady_clock::now();
    std::thread jumper{[&] {
        std::this_thread::sleep_for(100ms);
        set_wall_clock(jump);
    }};
    try {
        expect(!wait(), "a busy lock is not acquired");
    } catch (const Error& error) { // the last attempt had no answer in time: a slow machine
        expect(error.outcome().cause == errc::timed_out, "a wait fails for want of time only");
    }
    const auto took = std::chrono::steady_clock::now() - start;
    jumper.join();
    return took;
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 2 || std::getenv("LEASELOCK_CLOCK") == nullptr) {
        return 100;
    }
    const std::string url = std::string{argv[1]} + "?connect_timeout=20s";
    HiredisConnection redis{url};
    HiredisConnection wire{url};
    HiredisConnection elsewhere{url};
    Renewer renewer{wire};
    const Options options{.ttl = 3s, .timeout = 20s};
    LeaseLock lock{redis, "lock:kept", options};
    renewer.keep(lock);
    const std::stop_token told = lock.stop_token();
    for (const std::chrono::nanoseconds offset : {1h, -1h, 24h}) {
        const auto wall_before = std::chrono::system_clock::now();
        const Deadline before = lock.deadline();
        set_wall_clock(offset);
        const auto wall = std::chrono::system_clock::now() - wall_before;
        expect(wall > 30min || wall < -30min, "the wall clock jumps");
        expect(lock.owns_lock(), "the lease is held behind a jump");
        expect(lock.deadline() - before < 10s, "the deadline does not jump along");
        expect(eventually([&] { return lock.deadline() > before; }), "it is renewed behind a jump");
        expect(!told.stop_requested(), "nobody hears of a loss");
    }
    set_wall_clock(0s);

    LeaseLock other{elsewhere, "lock:kept", options, std::defer_lock};
    auto took = time_wait([&] { return other.try_lock_for(300ms); }, 1h);
    expect(took >= 300ms && took < 10s, "a wait is as long as asked for, over a jump forward");
    took = time_wait([&] { return other.try_lock_for(300ms); }, -1h);
    expect(took >= 300ms && took < 10s, "a wait is as long as asked for, over a jump back");
    took = time_wait([&] { return other.try_lock_until(std::chrono::system_clock::now() + 300ms); },
                     24h);
    expect(took >= 290ms && took < 10s, "a wait until a wall time ends by the time that was meant");

    LeaseLock brief{redis, "lock:brief", {.ttl = 300ms, .timeout = 20s}, std::defer_lock};
    while (!brief.try_acquire()) {
    }
    const Deadline end = brief.deadline();
    set_wall_clock(-1h);
    expect(eventually([&] { return !brief.owns_lock(); }), "a lease ends, over a jump back");
    expect(LeaseClock::now() >= end, "and not before its deadline");
    expect(lock.owns_lock(), "the kept lease is held to the end");
    return failures;
}
