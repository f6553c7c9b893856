// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace example {

/// A redis-server (or valkey-server) of our own: on a free port of 127.0.0.1, saving nothing, stopped
/// by its pid when this object ends. The program is $REDIS_SERVER, else the first in the PATH.
///
/// Nothing stays behind, however we end: the server dies with the thread that made it (so make it on
/// the main thread), and its temporary folder is removed as soon as it runs.
class PrivateServer {
public:
    /// Returns when the server accepts connections. @throws std::exception with the server's own words
    PrivateServer() : program_(find_program()) {
        try {
            reserve_port();
            start();
            await_start();
        } catch (...) {
            stop();
            throw;
        }
    }
    PrivateServer(const PrivateServer&) = delete;
    PrivateServer& operator=(const PrivateServer&) = delete;
    ~PrivateServer() { stop(); }

    [[nodiscard]] std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }
    [[nodiscard]] const std::string& program() const { return program_; }
    [[nodiscard]] pid_t pid() const { return pid_; }

private:
    static std::string find_program() {
        if (const char* given = std::getenv("REDIS_SERVER"); given != nullptr && *given != '\0') {
            if (access(given, X_OK) == 0) return given;
            throw std::runtime_error("REDIS_SERVER=" + std::string{given} + " cannot be run");
        }
        const char* const path = std::getenv("PATH");
        for (const char* name : {"redis-server", "valkey-server"}) {
            std::istringstream folders{path != nullptr ? path : "/usr/bin"};
            for (std::string folder; std::getline(folders, folder, ':');) {
                std::string program = folder + "/" + name;
                if (access(program.c_str(), X_OK) == 0) return program;
            }
        }
        throw std::runtime_error(
            "no redis-server and no valkey-server in the PATH: install one, set "
            "REDIS_SERVER=/path/to/it, or use a running one with --url");
    }

    static void check(bool fine, const char* what) {
        if (!fine) throw std::system_error(errno, std::generic_category(), what);
    }

    static sockaddr* as_address(sockaddr_in& address) {
        return reinterpret_cast<sockaddr*>(&address);
    }

    [[nodiscard]] sockaddr_in address() const {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(port_);
        return address;
    }

    /// Our socket stays bound to the port but never listens: with SO_REUSEADDR on both sides the
    /// server may bind it too, and nobody else is handed it meanwhile.
    void reserve_port() {
        sockaddr_in bound = address();
        socklen_t size = sizeof bound;
        const int on = 1;
        reserved_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        check(reserved_ >= 0, "socket");
        check(bind(reserved_, as_address(bound), size) == 0, "no free port");
        check(setsockopt(reserved_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0, "SO_REUSEADDR");
        check(getsockname(reserved_, as_address(bound), &size) == 0, "getsockname");
        port_ = ntohs(bound.sin_port);
    }

    void start() {
        std::string pattern =
            (std::filesystem::temp_directory_path() / "leaselock-example-XXXXXX").string();
        check(mkdtemp(pattern.data()) != nullptr, pattern.c_str());
        folder_ = pattern;
        log_ = open((folder_ / "server.log").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        check(log_ >= 0, "server.log");

        const std::string port = std::to_string(port_);
        const pid_t parent = getpid();
        pid_ = fork();
        check(pid_ >= 0, "fork");
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent || chdir(folder_.c_str()) != 0) _exit(127);
            dup2(log_, STDOUT_FILENO);
            dup2(log_, STDERR_FILENO);
            execl(program_.c_str(), program_.c_str(), "--bind", "127.0.0.1", "--port", port.c_str(),
                  "--save", "", "--appendonly", "no", static_cast<char*>(nullptr));
            _exit(127);
        }
    }

    void await_start() {
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{20};
        while (!accepts()) {
            if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
                pid_ = -1;
                throw std::runtime_error(program_ + " ended at its start:\n" + log());
            }
            if (std::chrono::steady_clock::now() > limit) {
                throw std::runtime_error(program_ + " does not answer:\n" + log());
            }
            std::this_thread::sleep_for(std::chrono::milliseconds{10});
        }
        remove_folder();
    }

    [[nodiscard]] bool accepts() const {
        const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        check(probe >= 0, "socket");
        sockaddr_in to = address();
        const bool accepted = connect(probe, as_address(to), sizeof to) == 0;
        close(probe);
        return accepted;
    }

    [[nodiscard]] std::string log() const {
        std::string text(4096, '\0');
        const ssize_t size = pread(log_, text.data(), text.size(), 0);
        text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
        return text;
    }

    void remove_folder() noexcept {
        std::error_code ignored;
        if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
        folder_.clear();
    }

    void stop() noexcept {
        if (pid_ > 0) {
            kill(pid_, SIGKILL); // there is nothing to save
            waitpid(pid_, nullptr, 0);
        }
        if (reserved_ >= 0) close(reserved_);
        if (log_ >= 0) close(log_);
        remove_folder();
    }

    std::string program_;
    std::filesystem::path folder_;
    std::uint16_t port_ = 0;
    pid_t pid_ = -1;
    int reserved_ = -1;
    int log_ = -1;
};

} // namespace example
