// SPDX-License-Identifier: MIT
#pragma once

#include "process.hpp"
#include "raw_client.hpp"
#include "reserved_port.hpp"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace leaselock::test {

/// How a server speaks TLS; the files are PEM.
struct ServerTls {
    std::string certificate_file;
    std::string key_file;
    std::string
        client_authority_file{}; ///< clients need a certificate that it has signed; or empty
};

/// Makes a server one as before 6.2, where only the stories that are about that need it.
inline const std::vector<std::string> without_getex{"--rename-command", "GETEX", ""};

/// LEASELOCK_TEST_WITHOUT_GETEX=1 has every server start without GETEX, so that all stories are told of
/// servers before 6.2. A story that only a newer one can tell asks for it by this tag.
struct WithGetex {
    explicit WithGetex() = default;
};
inline constexpr WithGetex with_getex{};

/// A private Redis or Valkey server: free port of 127.0.0.1, unix socket, folder of its own,
/// nothing saved, DEBUG allowed. The program is $REDIS_SERVER, else redis-server or valkey-server
/// from PATH; it lacks GETEX where the environment asks for that, see WithGetex. Make it on the main thread: it dies with the thread that started it, so that no test
/// leaves a server behind. Not for several threads.
class RedisServer {
public:
    /// `arguments` are added to the command line, such as {"--appendonly", "yes"}; a password is
    /// set as `requirepass`. With TLS, its port speaks nothing else. Returns when the server answers.
    explicit RedisServer(std::vector<std::string> arguments = {}, std::string password = {},
                         std::optional<ServerTls> tls = tls_for_all());
    explicit RedisServer(WithGetex, std::vector<std::string> arguments = {});
    RedisServer(const RedisServer&) = delete;
    RedisServer& operator=(const RedisServer&) = delete;
    ~RedisServer();

    [[nodiscard]] std::uint16_t port() const noexcept { return port_->number(); }
    [[nodiscard]] std::string url() const; ///< redis[s]://[:password@]127.0.0.1:port
    [[nodiscard]] std::string unix_path() const { return folder_ / "redis.sock"; }
    [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
    [[nodiscard]] pid_t pid();
    [[nodiscard]] bool running() { return process_ && process_->running(); }
    [[nodiscard]] RawClient client() const {
        return tls_ ? RawClient{unix_path(), password_} : RawClient{port(), password_};
    }

    /// Whether it knows GETEX, from itself.
    [[nodiscard]] bool has_getex() const;
    /// All that the server has written to its log, over restarts.
    [[nodiscard]] std::string log() const;

    void stop_process();     ///< SIGSTOP, and waits until it has stopped
    void continue_process(); ///< SIGCONT
    void kill_hard();        ///< SIGKILL, as by `kill -9`
    void terminate();        ///< SIGTERM, an orderly end

    /// Ends the server in an orderly way if it runs, and starts it anew on the same port and
    /// folder.
    void restart();

    /// The path of the program that is run.
    [[nodiscard]] static const std::string& program();
    /// The first line of `--version`, and its major number.
    [[nodiscard]] static const std::string& version();
    [[nodiscard]] static int major_version();

    /// What every server speaks that is not told otherwise. So that one contract can be run over TLS.
    [[nodiscard]] static std::optional<ServerTls>& tls_for_all();

private:
    void start_somewhere();
    void start();
    [[nodiscard]] Process& process();
    void await_answer();

    std::vector<std::string> arguments_;
    std::string password_;
    std::optional<ServerTls> tls_;
    std::filesystem::path folder_;
    pid_t owner_ = getpid();
    std::optional<ReservedPort> port_;
    std::optional<Process> process_;
};

} // namespace leaselock::test
