// SPDX-License-Identifier: MIT
#include "child_process.hpp"

#include "system_failure.hpp"

#include <csignal>

#include <unistd.h>

#include <exception>
#include <string>

namespace leaselock::test {
namespace {

int run(const std::function<int()>& body) noexcept {
    std::string text = "child process: ";
    try {
        return body();
    } catch (const std::exception& error) {
        text += error.what();
    } catch (...) {
        text += "unknown exception";
    }
    text += '\n';
    static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
    return ChildProcess::exception_code;
}

} // namespace

pid_t ChildProcess::start(const std::function<int()>& body) {
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) {
        system_failure("fork");
    }
    if (pid == 0) {
        die_with_parent(parent);
        // Catch2's handlers would report the parent's test case as failed, on the shared stdout.
        for (const int signal : {SIGINT, SIGTERM, SIGABRT, SIGSEGV, SIGFPE, SIGILL}) {
            std::signal(signal, SIG_DFL);
        }
        _exit(run(body));
    }
    return pid;
}

} // namespace leaselock::test
