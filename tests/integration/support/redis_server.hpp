// SPDX-License-Identifier: MIT
#pragma once

#include "process.hpp"
#include "raw_client.hpp"
#include "reserved_port.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace leaselock::test {

/// A private Redis or Valkey server: free port of 127.0.0.1, unix socket, folder of its own,
/// nothing saved, DEBUG allowed. The program is $REDIS_SERVER, else redis-server or valkey-server
/// from PATH. Make it on the main thread: it dies with the thread that started it, so that no test
/// leaves a server behind. Not for several threads.
class RedisServer {
public:
    /// `arguments` are added to the command line, such as {"--appendonly", "yes"}; a password is
    /// set as `requirepass`. Returns when the server answers.
    explicit RedisServer(std::vector<std::string> arguments = {}, std::string password = {});
    RedisServer(const RedisServer&) = delete;
    RedisServer& operator=(const RedisServer&) = delete;
    ~RedisServer();

    [[nodiscard]] std::uint16_t port() const noexcept { return port_->number(); }
    [[nodiscard]] std::string url() const; ///< redis://[:password@]127.0.0.1:port
    [[nodiscard]] std::string unix_path() const { return folder_ / "redis.sock"; }
    [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
    [[nodiscard]] pid_t pid();
    [[nodiscard]] bool running() { return process_ && process_->running(); }
    [[nodiscard]] RawClient client() const { return RawClient{port(), password_}; }

    /// All that the server has written to its log, over restarts.
    [[nodiscard]] std::string log() const;

    void stop_process();     ///< SIGSTOP, and waits until it has stopped
    void continue_process(); ///< SIGCONT
    void kill_hard();        ///< SIGKILL, as by `kill -9`
    void terminate();        ///< SIGTERM, an orderly end

    /// Ends the server in an orderly way if it runs, and starts it anew on the same port and
    /// folder.
    void restart();

    /// The first line of `--version`, and its major number.
    [[nodiscard]] static const std::string& version();
    [[nodiscard]] static int major_version();

private:
    void start();
    [[nodiscard]] Process& process();
    void await_answer();

    std::vector<std::string> arguments_;
    std::string password_;
    std::filesystem::path folder_;
    pid_t owner_;
    std::optional<ReservedPort> port_;
    std::optional<Process> process_;
};

} // namespace leaselock::test
