// SPDX-License-Identifier: MIT
#include "process.hpp"

#include "eventually.hpp"
#include "system_failure.hpp"

#include <csignal>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace leaselock::test {
namespace {

/// The state letter of proc(5); it follows the last parenthesis of the program's name.
char process_state(pid_t pid) {
    std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
    std::stringstream text;
    text << file.rdbuf();
    const auto stat = text.str();
    const auto name_end = stat.rfind(')');
    return name_end != std::string::npos && name_end + 2 < stat.size() ? stat[name_end + 2] : '?';
}

void close_all_but_standard() noexcept {
    if (close_range(3, ~0U, 0) != 0) { // before Linux 5.9
        for (int descriptor = 3; descriptor < 4096; ++descriptor) {
            close(descriptor);
        }
    }
}

} // namespace

Process::Process(pid_t pid) noexcept : pid_{pid}, owner_{getpid()} {}

Process::~Process() {
    if (getpid() == owner_ && !end_) {
        ::kill(pid_, SIGKILL); // ends a stopped process too
        while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
}

bool Process::running() { return !wait(std::chrono::milliseconds{0}); }

void Process::send_signal(int signal) {
    if (!running()) {
        throw std::runtime_error("process " + std::to_string(pid_) + " has ended already");
    }
    if (::kill(pid_, signal) != 0) {
        system_failure("kill");
    }
}

void Process::stop() {
    send_signal(SIGSTOP);
    if (!eventually([&] { return process_state(pid_) == 'T'; })) {
        throw std::runtime_error("process " + std::to_string(pid_) + " does not stop");
    }
}

void Process::resume() {
    send_signal(SIGCONT);
    if (!eventually([&] { return process_state(pid_) != 'T'; })) {
        throw std::runtime_error("process " + std::to_string(pid_) + " does not go on");
    }
}

void Process::kill() {
    if (running()) {
        ::kill(pid_, SIGKILL);
    }
    if (!wait(std::chrono::seconds{10})) {
        throw std::runtime_error("process " + std::to_string(pid_) + " does not die");
    }
}

std::optional<ProcessEnd> Process::wait(std::chrono::milliseconds limit) {
    const auto ended = [&] {
        int status = 0;
        if (!end_ && waitpid(pid_, &status, WNOHANG) == pid_) {
            end_ = WIFEXITED(status) ? ProcessEnd{WEXITSTATUS(status), 0}
                                     : ProcessEnd{-1, WTERMSIG(status)};
        }
        return end_.has_value();
    };
    static_cast<void>(eventually(ended, limit));
    return end_;
}

pid_t spawn(const std::vector<std::string>& argv, int output) {
    std::vector<char*> words; // made before the fork: the child must not allocate
    for (const auto& word : argv) {
        words.push_back(const_cast<char*>(word.c_str()));
    }
    words.push_back(nullptr);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) {
        system_failure("fork");
    }
    if (pid > 0) {
        return pid;
    }
    die_with_parent(parent);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    std::signal(SIGPIPE, SIG_DFL);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    close_all_but_standard();
    execv(words[0], words.data());
    _exit(127);
}

void die_with_parent(pid_t parent) noexcept {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) { // it ended before prctl
        _exit(127);
    }
}

} // namespace leaselock::test
