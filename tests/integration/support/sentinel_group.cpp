// SPDX-License-Identifier: MIT
#include "sentinel_group.hpp"

#include "eventually.hpp"
#include "file_descriptor.hpp"
#include "system_failure.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace leaselock::test {
namespace {

namespace fs = std::filesystem;

fs::path make_folder() {
    std::string pattern = "/tmp/leaselock-sentinel-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) {
        system_failure("cannot make " + pattern);
    }
    return pattern;
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

/// What it says of its role; nothing when it cuts us off, as a server does when its role changes.
std::string role_of(const RedisServer& server) {
    try {
        return server.client().command({"ROLE"});
    } catch (const std::runtime_error&) {
        return {};
    }
}

} // namespace

SentinelServer::SentinelServer(std::uint16_t master_port, const std::string& data_password,
                               std::string password)
    : password_{std::move(password)}, folder_{make_folder()}, owner_{getpid()} {
    const std::string name = SentinelGroup::name;
    const fs::path config = folder_ / "sentinel.conf"; // the sentinel rewrites it
    std::ofstream file{config};
    file << "bind 127.0.0.1\nport " << port() << "\ndir " << folder_.string()
         << "\nprotected-mode no\nsentinel monitor " << name << " 127.0.0.1 " << master_port
         << " 2\nsentinel down-after-milliseconds " << name << " 1000\nsentinel failover-timeout "
         << name << " 5000\nsentinel parallel-syncs " << name << " 2\n";
    if (!data_password.empty()) {
        file << "sentinel auth-pass " << name << ' ' << data_password << '\n';
    }
    if (!password_.empty()) {
        file << "requirepass " << password_ << '\n';
    }
    file.close();
    const auto log_path = folder_ / "sentinel.log";
    const FileDescriptor output{
        open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)};
    if (!output) {
        system_failure("cannot write " + log_path.string());
    }
    process_.emplace(spawn({RedisServer::program(), config, "--sentinel"}, output.get()));
    RawClient probe = client();
    const bool answered = eventually(
        [&] {
            if (!process_->running()) {
                throw std::runtime_error("the sentinel ended at its start; its log:\n" + log());
            }
            try {
                return probe.command({"PING"}) == "PONG";
            } catch (const std::runtime_error&) {
                return false;
            }
        },
        std::chrono::seconds{30});
    if (!answered) {
        throw std::runtime_error("the sentinel does not answer; its log:\n" + log());
    }
}

SentinelServer::~SentinelServer() {
    if (getpid() != owner_) {
        return; // a forked child that unwinds
    }
    process_.reset();
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
}

std::string SentinelServer::url() const {
    return "redis://" + (password_.empty() ? "" : ":" + password_ + "@") +
           "127.0.0.1:" + std::to_string(port());
}

std::string SentinelServer::log() const {
    std::ifstream file{folder_ / "sentinel.log"};
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::uint16_t SentinelServer::master_port() const {
    const std::string reply =
        client().command({"SENTINEL", "GET-MASTER-ADDR-BY-NAME", SentinelGroup::name});
    const auto comma = reply.find(", "); // [127.0.0.1, 6379]
    if (comma == std::string::npos) {
        throw std::runtime_error("the sentinel names no master: " + reply);
    }
    return static_cast<std::uint16_t>(std::atoi(reply.c_str() + comma + 2));
}

bool SentinelServer::sees(int replicas, int other_sentinels) const {
    RawClient outside = client();
    const std::string name = SentinelGroup::name;
    const std::string master = outside.command({"SENTINEL", "MASTER", name});
    const std::string others = outside.command({"SENTINEL", "REPLICAS", name}) +
                               outside.command({"SENTINEL", "SENTINELS", name});
    return has(master, "flags, master,") &&
           has(master, "num-slaves, " + std::to_string(replicas) + ",") &&
           has(master, "num-other-sentinels, " + std::to_string(other_sentinels) + ",") &&
           !has(others, "s_down") && !has(others, "disconnected") &&
           !has(others, "master-link-status, err");
}

SentinelGroup::SentinelGroup(const std::string& data_password,
                             const std::string& sentinel_password) {
    std::vector<std::string> arguments{"--repl-diskless-sync-delay", "0"};
    if (!data_password.empty()) {
        arguments.insert(arguments.end(), {"--masterauth", data_password});
    }
    servers_.push_back(std::make_unique<RedisServer>(arguments, data_password));
    const std::uint16_t master = servers_.front()->port();
    arguments.insert(arguments.end(), {"--replicaof", "127.0.0.1 " + std::to_string(master)});
    for (int i = 0; i < 2; ++i) {
        servers_.push_back(std::make_unique<RedisServer>(arguments, data_password));
    }
    await_replication(*servers_.front());
    for (int i = 0; i < 3; ++i) {
        sentinels_.push_back(
            std::make_unique<SentinelServer>(master, data_password, sentinel_password));
    }
    const bool together = eventually(
        [&] {
            for (const auto& sentinel : sentinels_) {
                if (!sentinel->sees(2, 2)) return false;
            }
            return true;
        },
        std::chrono::seconds{60});
    if (!together) {
        throw std::runtime_error("the sentinels do not find each other; a log:\n" +
                                 sentinels_.front()->log());
    }
}

std::vector<std::string> SentinelGroup::urls() const {
    std::vector<std::string> urls;
    for (const auto& sentinel : sentinels_) {
        urls.push_back(sentinel->url());
    }
    return urls;
}

RedisServer& SentinelGroup::named() {
    std::uint16_t port = 0;
    for (const auto& sentinel : sentinels_) {
        try {
            port = sentinel->master_port();
            break;
        } catch (const std::runtime_error&) { // it does not run
        }
    }
    for (const auto& server : servers_) {
        if (server->port() == port) return *server;
    }
    throw std::runtime_error("no sentinel names a master of ours");
}

RedisServer& SentinelGroup::await_successor_of(const RedisServer& old,
                                               std::chrono::milliseconds limit) {
    RedisServer* found = nullptr;
    const auto agreed = [&] {
        found = nullptr;
        for (const auto& sentinel : sentinels_) {
            std::uint16_t port = 0;
            try {
                port = sentinel->master_port();
            } catch (const std::runtime_error&) {
                continue; // it does not run
            }
            for (const auto& server : servers_) {
                if (server->port() != port) continue;
                if (server->port() == old.port() || (found != nullptr && found != server.get())) {
                    return false;
                }
                found = server.get();
            }
        }
        return found != nullptr && has(role_of(*found), "[master");
    };
    if (!eventually(agreed, limit)) {
        throw std::runtime_error("no successor; the log of a sentinel:\n" +
                                 sentinels_.front()->log());
    }
    return *found;
}

RedisServer& SentinelGroup::fail_over() {
    RedisServer& old = named();
    std::string last;
    const bool begun = eventually(
        [&] {
            last = sentinels_.front()->client().command({"SENTINEL", "FAILOVER", name});
            return last == "OK";
        },
        std::chrono::seconds{60}); // NOGOODSLAVE until it has heard of them all
    if (!begun) {
        throw std::runtime_error("no failover: " + last);
    }
    RedisServer& successor = await_successor_of(old);
    await_replication(successor);
    return successor;
}

void SentinelGroup::await_replication(RedisServer& master) {
    const bool in_step = eventually(
        [&] {
            for (const auto& server : servers_) {
                if (server.get() == &master) continue;
                const std::string role = role_of(*server);
                if (!has(role, std::to_string(master.port())) || !has(role, "connected")) {
                    return false;
                }
            }
            return true;
        },
        std::chrono::seconds{60});
    if (!in_step) {
        throw std::runtime_error("the replicas do not follow; the log of the master:\n" +
                                 master.log());
    }
}

} // namespace leaselock::test
