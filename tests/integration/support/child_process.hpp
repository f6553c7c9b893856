// SPDX-License-Identifier: MIT
#pragma once

#include "pipe.hpp"
#include "process.hpp"

#include <chrono>
#include <concepts>
#include <functional>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace leaselock::test {

/// Runs a callable in a forked child. It returns the exit code, or nothing for 0; an exception
/// becomes exit code 99 and a line on stderr. The child ends through _exit: no atexit, no
/// destructors of the parent's objects. It is killed when this object, or the thread that made it,
/// ends. Assertions belong to the parent: say it with exit codes and a Pipe.
/// Fork before the test starts threads (fault proxies have one): only the calling thread exists in
/// the child, and a lock that another one held stays locked there.
class ChildProcess {
public:
    static constexpr int exception_code = 99;

    template <std::invocable F>
    requires std::convertible_to < std::invoke_result_t<F&>,
    int > || std::is_void_v<std::invoke_result_t<F&>> explicit ChildProcess(F body)
        : process_{start([&body]() -> int {
              if constexpr (std::is_void_v<std::invoke_result_t<F&>>) {
                  body();
                  return 0;
              } else {
                  return body();
              }
          })} {}

    [[nodiscard]] pid_t pid() const noexcept { return process_.pid(); }
    [[nodiscard]] bool running() { return process_.running(); }

    /// How it ended; throws if it has not within the limit.
    ProcessEnd wait(std::chrono::milliseconds limit = std::chrono::seconds{10}) {
        if (const auto end = process_.wait(limit)) {
            return *end;
        }
        throw std::runtime_error("the child process still runs after " +
                                 std::to_string(limit.count()) + " ms");
    }

    void send_signal(int signal) { process_.send_signal(signal); }
    void stop() { process_.stop(); }     ///< SIGSTOP, and waits until it has stopped
    void resume() { process_.resume(); } ///< SIGCONT
    void kill() { process_.kill(); }     ///< SIGKILL, and reaps it

private:
    [[nodiscard]] static pid_t start(const std::function<int()>& body);

    Process process_;
};

} // namespace leaselock::test
