// SPDX-License-Identifier: MIT
#include "redis_server.hpp"

#include "eventually.hpp"
#include "file_descriptor.hpp"
#include "pipe.hpp"
#include "system_failure.hpp"

#include <csignal>

#include <fcntl.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace leaselock::test {
namespace {

namespace fs = std::filesystem;

/// The server ended before it answered.
struct StartFailure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

std::string find_program() {
    if (const char* given = std::getenv("REDIS_SERVER"); given != nullptr && *given != '\0') {
        if (access(given, X_OK) != 0) {
            throw std::runtime_error(std::string{"REDIS_SERVER is no program: "} + given);
        }
        return given;
    }
    const char* path = std::getenv("PATH");
    for (const char* name : {"redis-server", "valkey-server"}) {
        std::istringstream folders{path != nullptr ? path : "/usr/bin"};
        for (std::string folder; std::getline(folders, folder, ':');) {
            auto program = fs::path{folder} / name;
            if (access(program.c_str(), X_OK) == 0) {
                return program;
            }
        }
    }
    throw std::runtime_error("no redis-server or valkey-server in PATH, and REDIS_SERVER not set");
}

std::string ask_version() {
    const auto path = fs::temp_directory_path() / "leaselock-version-XXXXXX";
    std::string name = path;
    const FileDescriptor file{mkostemp(name.data(), O_CLOEXEC)};
    if (!file) {
        system_failure("cannot make " + name);
    }
    Process asked{spawn({RedisServer::program(), "--version"}, file.get())};
    static_cast<void>(asked.wait(std::chrono::seconds{10}));
    std::ifstream answer{name};
    std::string line;
    std::getline(answer, line);
    fs::remove(name);
    return line;
}

/// Without GETEX, where the environment wants that and it has not been taken away already.
std::vector<std::string> in_the_dialect_asked_for(std::vector<std::string> arguments) {
    const char* given = std::getenv("LEASELOCK_TEST_WITHOUT_GETEX");
    const bool wanted = given != nullptr && std::string_view{given} == "1";
    if (wanted && std::find(arguments.begin(), arguments.end(), "GETEX") == arguments.end()) {
        arguments.insert(arguments.end(), without_getex.begin(), without_getex.end());
    }
    return arguments;
}

fs::path make_folder() {
    auto pattern = (fs::temp_directory_path() / "leaselock-XXXXXX").string();
    if (pattern.size() + sizeof "/redis.sock" > sizeof(sockaddr_un::sun_path)) {
        pattern = "/tmp/leaselock-XXXXXX";
    }
    if (mkdtemp(pattern.data()) == nullptr) {
        system_failure("cannot make " + pattern);
    }
    return pattern;
}

} // namespace

RedisServer::RedisServer(std::vector<std::string> arguments, std::string password,
                         std::optional<ServerTls> tls)
    : arguments_{in_the_dialect_asked_for(std::move(arguments))}, password_{std::move(password)},
      tls_{std::move(tls)}, folder_{make_folder()} {
    start_somewhere();
}

RedisServer::RedisServer(WithGetex, std::vector<std::string> arguments)
    : arguments_{std::move(arguments)}, tls_{tls_for_all()}, folder_{make_folder()} {
    start_somewhere();
}

void RedisServer::start_somewhere() {
    constexpr int tries = 20;
    for (int attempt = 1;; ++attempt) {
        port_.emplace();
        try {
            start();
            return;
        } catch (const StartFailure&) {
            // The port itself is reserved, but a cluster node also needs the one 10000 above it.
            const auto text = log();
            const bool port_trouble = text.find("ddress already in use") != std::string::npos ||
                                      text.find("port number too high") != std::string::npos;
            if (!port_trouble || attempt == tries) {
                fs::remove_all(folder_);
                throw;
            }
            fs::remove_all(folder_);
            fs::create_directory(folder_);
        } catch (...) {
            process_.reset();
            fs::remove_all(folder_);
            throw;
        }
    }
}

RedisServer::~RedisServer() {
    if (getpid() != owner_) {
        return; // a forked child that unwinds
    }
    process_.reset(); // SIGKILL: there is nothing to save
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
}

void RedisServer::start() {
    std::vector<std::string> argv{program(),
                                  "--bind",
                                  "127.0.0.1",
                                  "--port",
                                  tls_ ? "0" : std::to_string(port()),
                                  "--unixsocket",
                                  unix_path(),
                                  "--dir",
                                  folder_,
                                  "--save",
                                  ""};
    if (version().find("Valkey") != std::string::npos || major_version() >= 7) {
        argv.insert(argv.end(), {"--enable-debug-command", "local"});
    }
    if (!password_.empty()) {
        argv.insert(argv.end(), {"--requirepass", password_});
    }
    if (tls_) {
        const std::string& authority = tls_->client_authority_file;
        argv.insert(argv.end(),
                    {"--tls-port", std::to_string(port()), "--tls-cert-file",
                     tls_->certificate_file, "--tls-key-file", tls_->key_file, "--tls-auth-clients",
                     authority.empty() ? "no" : "yes", "--tls-ca-cert-file",
                     authority.empty() ? tls_->certificate_file : authority});
    }
    argv.insert(argv.end(), arguments_.begin(), arguments_.end());
    const auto log_path = folder_ / "server.log";
    const FileDescriptor output{
        open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)};
    if (!output) {
        system_failure("cannot write " + log_path.string());
    }
    process_.emplace(spawn(argv, output.get()));
    await_answer();
}

/// Asks through the unix socket: it is ours alone, and the server opens it after the port.
void RedisServer::await_answer() {
    RawClient probe{unix_path(), password_};
    std::string last;
    const bool answered = eventually(
        [&] {
            if (!process_->running()) {
                throw StartFailure(program() + " ended at its start; its log:\n" + log());
            }
            try {
                last = probe.command({"PING"});
            } catch (const std::runtime_error& error) {
                last = error.what();
            }
            return last == "PONG";
        },
        std::chrono::seconds{30});
    if (!answered) {
        throw std::runtime_error(program() + " does not answer: " + last + "; its log:\n" + log());
    }
}

std::string RedisServer::url() const {
    return std::string{tls_ ? "rediss://" : "redis://"} +
           (password_.empty() ? "" : ":" + password_ + "@") + "127.0.0.1:" + std::to_string(port());
}

Process& RedisServer::process() {
    if (!process_) {
        throw std::runtime_error("the server does not run");
    }
    return *process_;
}

pid_t RedisServer::pid() { return process().pid(); }

bool RedisServer::has_getex() const {
    const std::string reply = client().command({"GETEX"});
    if (!reply.starts_with("(error) ERR ")) {
        throw std::runtime_error("GETEX without a key: " + reply);
    }
    return !reply.starts_with("(error) ERR unknown command");
}

std::string RedisServer::log() const {
    std::ifstream file{folder_ / "server.log"};
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

void RedisServer::stop_process() { process().stop(); }

void RedisServer::continue_process() { process().resume(); }

void RedisServer::kill_hard() { process_.reset(); }

void RedisServer::terminate() {
    if (process_ && process_->running()) {
        process_->resume();
        process_->send_signal(SIGTERM);
        if (!process_->wait(std::chrono::seconds{10})) {
            throw std::runtime_error("the server ignores SIGTERM; its log:\n" + log());
        }
    }
    process_.reset();
}

void RedisServer::restart() {
    terminate();
    start();
}

const std::string& RedisServer::program() {
    static const std::string found = find_program();
    return found;
}

std::optional<ServerTls>& RedisServer::tls_for_all() {
    static std::optional<ServerTls> tls;
    return tls;
}

const std::string& RedisServer::version() {
    static const std::string line = ask_version();
    return line;
}

int RedisServer::major_version() {
    const auto at = version().find("v=");
    return at == std::string::npos ? 0 : std::atoi(version().c_str() + at + 2);
}

} // namespace leaselock::test
