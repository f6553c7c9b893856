// SPDX-License-Identifier: MIT
#pragma once

#include "process.hpp"
#include "raw_client.hpp"
#include "redis_server.hpp"
#include "reserved_port.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace leaselock::test {

/// One sentinel, on a free port, in a folder of its own. As `RedisServer`: make it on the main thread.
class SentinelServer {
public:
    /// Watches the master `mymaster` on that port.
    SentinelServer(std::uint16_t master_port, const std::string& data_password,
                   std::string password);
    SentinelServer(const SentinelServer&) = delete;
    SentinelServer& operator=(const SentinelServer&) = delete;
    ~SentinelServer();

    [[nodiscard]] std::uint16_t port() const noexcept { return port_.number(); }
    [[nodiscard]] std::string url() const; ///< with the password, if there is one
    [[nodiscard]] RawClient client() const { return RawClient{port(), password_}; }
    [[nodiscard]] std::string log() const;

    void stop_process() { process_->stop(); }       ///< SIGSTOP
    void continue_process() { process_->resume(); } ///< SIGCONT
    void kill_hard() { process_.reset(); }          ///< SIGKILL

    /// The port that it names as the master's.
    [[nodiscard]] std::uint16_t master_port() const;
    /// Whether it knows of so many replicas and other sentinels, and all are well.
    [[nodiscard]] bool sees(int replicas, int other_sentinels) const;

private:
    std::string password_;
    std::filesystem::path folder_;
    pid_t owner_;
    ReservedPort port_;
    std::optional<Process> process_;
};

/// A master, two replicas of it, and three sentinels that watch it under the name `mymaster`, with a
/// quorum of two; a master that does not answer for a second is replaced.
class SentinelGroup {
public:
    static constexpr const char* name = "mymaster";

    /// Returns when the replicas are online and the sentinels know them and each other.
    explicit SentinelGroup(const std::string& data_password = {},
                           const std::string& sentinel_password = {});

    [[nodiscard]] std::vector<std::string> urls() const; ///< of the sentinels
    [[nodiscard]] SentinelServer& sentinel(std::size_t i) { return *sentinels_.at(i); }
    /// The first is the master to begin with.
    [[nodiscard]] RedisServer& server(std::size_t i) { return *servers_.at(i); }

    /// The one that the sentinels name, whoever of them answers first.
    [[nodiscard]] RedisServer& named();
    /// Waits until all sentinels that run name the same master, another than `old`, and it says that
    /// it is one. Throws when there is none within the limit.
    RedisServer& await_successor_of(const RedisServer& old,
                                    std::chrono::milliseconds limit = std::chrono::seconds{90});
    /// Has the sentinels promote a replica while the master is well, and waits until it is done.
    RedisServer& fail_over();
    /// Waits until every other server is a replica of this one, and in step with it.
    void await_replication(RedisServer& master);

private:
    std::vector<std::unique_ptr<RedisServer>> servers_;
    std::vector<std::unique_ptr<SentinelServer>> sentinels_;
};

} // namespace leaselock::test
