// SPDX-License-Identifier: MIT
#pragma once

#include "await.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace example {

/// Another process: this very program, started anew with other arguments. Parent and child talk in
/// lines; the child over its standard input and output, with `tell_parent` and `hear_parent`.
///
/// It never outlives this object, nor the thread that made it (so make it on the main thread), however
/// that ends. For one thread.
class Child {
public:
    explicit Child(std::vector<std::string> arguments) {
        std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
        std::vector<char*> argv{program.data()};
        for (std::string& argument : arguments) argv.push_back(argument.data());
        argv.push_back(nullptr);

        int ends[2];
        check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
        socket_ = ends[0];
        const pid_t parent = getpid();
        pid_ = fork();
        if (pid_ == 0) { // nothing from here to exec that a fork beside threads would not allow
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) _exit(127);
            dup2(ends[1], STDIN_FILENO);
            dup2(ends[1], STDOUT_FILENO);
            execv("/proc/self/exe", argv.data());
            _exit(127);
        }
        const int why = errno;
        close(ends[1]);
        if (pid_ > 0) return;
        close(socket_);
        throw std::system_error(why, std::generic_category(), "fork");
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        kill();
        if (!status_) waitpid(pid_, nullptr, 0);
        close(socket_);
    }

    [[nodiscard]] pid_t pid() const { return pid_; }

    // --- lines

    /// To a child that has ended it goes nowhere.
    void tell(const std::string& line) {
        const std::string text = line + "\n";
        (void)send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
    }

    /// The next line it says; none when it has ended. @throws std::runtime_error when it says nothing
    std::optional<std::string> hear() {
        const auto limit = std::chrono::steady_clock::now() + patience;
        while (true) {
            if (auto line = take_line()) return line;
            if (end_of_lines_) return std::nullopt;
            receive(std::chrono::milliseconds{100});
            if (std::chrono::steady_clock::now() > limit) {
                throw std::runtime_error("a child process says nothing");
            }
        }
    }

    /// Waits for so long at most until there is something to hear.
    void receive(std::chrono::milliseconds span) {
        pollfd one{socket_, POLLIN, 0};
        if (poll(&one, 1, static_cast<int>(span.count())) > 0) receive();
    }
    /// Takes in what has come.
    void receive() {
        char bytes[4096];
        const ssize_t size = recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT);
        if (size > 0) {
            heard_.append(bytes, static_cast<std::size_t>(size));
        } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
            end_of_lines_ = true;
        }
    }
    /// The next line of what has come; none as long as it is not complete.
    std::optional<std::string> take_line() {
        const std::size_t end = heard_.find('\n');
        if (end == std::string::npos) return std::nullopt;
        std::string line = heard_.substr(0, end);
        heard_.erase(0, end + 1);
        return line;
    }
    [[nodiscard]] bool end_of_lines() const { return end_of_lines_; }
    [[nodiscard]] int socket() const { return socket_; } ///< for poll

    // --- signals

    void stop() {
        signal(SIGSTOP);
        await_stopped();
    }
    /// Returns when it stands still.
    void await_stopped() {
        await("a process that stands still", [&] { return stands_still(); });
    }
    /// @throws std::runtime_error when it has ended
    [[nodiscard]] bool stands_still() {
        if (ended()) throw std::runtime_error("a child process has ended before its time");
        return stopped_;
    }
    void go_on() {
        signal(SIGCONT);
        stopped_ = false;
    }
    void kill() { signal(SIGKILL); }

    [[nodiscard]] bool ended() {
        look();
        return status_.has_value();
    }
    /// How it ended, as `waitpid` has it.
    int wait() {
        await("the end of a process", [&] { return ended(); });
        return *status_;
    }

private:
    static void check(bool fine, const char* what) {
        if (!fine) throw std::system_error(errno, std::generic_category(), what);
    }

    /// A process that was waited for has no pid any more that would be ours to signal.
    void signal(int number) {
        if (!status_) ::kill(pid_, number);
    }
    void look() {
        int status = 0;
        if (status_ || waitpid(pid_, &status, WNOHANG | WUNTRACED) != pid_) return;
        if (WIFSTOPPED(status)) {
            stopped_ = true;
        } else {
            status_ = status;
        }
    }

    pid_t pid_ = -1;
    int socket_ = -1;
    bool stopped_ = false;
    bool end_of_lines_ = false;
    std::optional<int> status_;
    std::string heard_;
};

inline bool ended_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

// --- in the child

/// For any thread.
inline void tell_parent(const std::string& line) {
    std::fputs((line + "\n").c_str(), stdout); // one call: lines of two threads do not mix
    std::fflush(stdout);
}
/// @throws std::runtime_error when there is no parent any more
inline std::string hear_parent() {
    std::string line;
    if (!std::getline(std::cin, line)) throw std::runtime_error("the parent process has gone");
    return line;
}

} // namespace example
