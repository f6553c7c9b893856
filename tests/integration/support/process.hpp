// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace leaselock::test {

/// How a process ended: by an exit code, or by a signal.
struct ProcessEnd {
    int code = -1;  ///< -1 when a signal ended it
    int signal = 0; ///< 0 when it exited
    bool operator==(const ProcessEnd&) const = default;
};

/// Owns a child process: killed, if it still runs, and reaped at the end. Not for several threads.
class Process {
public:
    explicit Process(pid_t pid) noexcept;
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;
    ~Process();

    [[nodiscard]] pid_t pid() const noexcept { return pid_; }
    [[nodiscard]] bool running();

    void send_signal(int signal);
    void stop();   ///< SIGSTOP, and waits until it has stopped
    void resume(); ///< SIGCONT, and waits until it runs again
    void kill();   ///< SIGKILL, and reaps it

    /// How it ended, or nothing at the limit.
    [[nodiscard]] std::optional<ProcessEnd> wait(std::chrono::milliseconds limit);

private:
    pid_t pid_;
    pid_t owner_; // a forked child must not end its parent's processes
    std::optional<ProcessEnd> end_;
};

/// Starts a program with stdout and stderr on `output` and no other descriptor of ours. It dies
/// with the *thread* that called this (PR_SET_PDEATHSIG): call it from the main thread.
[[nodiscard]] pid_t spawn(const std::vector<std::string>& argv, int output);

/// Lets the kernel kill the calling process when the thread that forked it ends.
void die_with_parent(pid_t parent) noexcept;

} // namespace leaselock::test
