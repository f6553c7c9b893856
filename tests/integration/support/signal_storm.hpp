// SPDX-License-Identifier: MIT
#pragma once

#include "system_failure.hpp"

#include <csignal>

#include <sys/time.h>

#include <chrono>

namespace leaselock::test {

/// While it lives, SIGALRM interrupts the process at every interval, and system calls are not
/// restarted (fault P11). One at a time; handler and timer are put back at the end.
class SignalStorm {
public:
    explicit SignalStorm(std::chrono::microseconds every = std::chrono::milliseconds{50}) {
        struct sigaction action {};
        action.sa_handler = [](int) {}; // and no SA_RESTART
        sigemptyset(&action.sa_mask);
        if (sigaction(SIGALRM, &action, &handler_before_) != 0) {
            system_failure("sigaction");
        }
        itimerval timer{};
        timer.it_interval.tv_sec = static_cast<time_t>(every.count() / 1'000'000);
        timer.it_interval.tv_usec = static_cast<suseconds_t>(every.count() % 1'000'000);
        timer.it_value = timer.it_interval;
        if (setitimer(ITIMER_REAL, &timer, &timer_before_) != 0) {
            sigaction(SIGALRM, &handler_before_, nullptr);
            system_failure("setitimer");
        }
    }
    SignalStorm(const SignalStorm&) = delete;
    SignalStorm& operator=(const SignalStorm&) = delete;
    ~SignalStorm() {
        // The timer first: a tick under the old handler, usually the default, ends the process.
        setitimer(ITIMER_REAL, &timer_before_, nullptr);
        sigaction(SIGALRM, &handler_before_, nullptr);
    }

private:
    struct sigaction handler_before_ {};
    itimerval timer_before_{};
};

} // namespace leaselock::test
