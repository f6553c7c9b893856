// SPDX-License-Identifier: MIT
#pragma once

#include <sys/resource.h>

#include <chrono>

namespace leaselock::test {

/// The processor time that this process has used so far, its own and the kernel's for it.
[[nodiscard]] inline std::chrono::microseconds processor_time() noexcept {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto sum = [](const timeval& t) {
        return std::chrono::seconds{t.tv_sec} + std::chrono::microseconds{t.tv_usec};
    };
    return sum(used.ru_utime) + sum(used.ru_stime);
}

/// Lets this process, and the servers it starts from now on, open as many files as the machine
/// allows. @return how many that is
inline rlim_t raise_descriptor_limit() noexcept {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
}

} // namespace leaselock::test
