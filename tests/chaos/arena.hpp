#pragma once
// SPDX-License-Identifier: MIT

#include "chaos/job.hpp"
#include "chaos/plan.hpp"
#include "chaos/scribe.hpp"
#include "chaos/store.hpp"

#include "integration/support/fault_proxy.hpp"
#include "integration/support/file_descriptor.hpp"
#include "integration/support/process.hpp"
#include "integration/support/redis_server.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace leaselock::chaos {

struct ArenaSettings {
    std::filesystem::path folder; ///< all files of the run; a new one
    std::uint64_t seed = 1;
    std::size_t workers = 4;
    std::size_t keys = 3; ///< on each server
    bool forgets = false; ///< the second server keeps nothing, and has a replica
};

/// A server, with whatever stands beside it.
struct ArenaServer {
    std::string name;
    std::unique_ptr<test::RedisServer> live;
    std::unique_ptr<test::RedisServer> replica; ///< of a forgetful one
    std::filesystem::path clock; ///< of one whose clock can be set: see the clock shim
    Time clock_offset = 0;
};

/// A worker's place: the process in it may be another one from time to time.
struct ArenaWorker {
    std::optional<test::Process> process{};
    std::string actor; ///< the name of the process: w1.3
    std::uint64_t lives = 0;
};

/// The servers, the workers, and the proxies between them: a link for each worker to each server.
/// On the main thread.
class Arena {
public:
    explicit Arena(const ArenaSettings& settings);

    /// Starts a process in a worker's place. @param ppm that its clock is fast
    void start_worker(std::size_t place, std::int64_t ppm = 0);
    void kill_worker(std::size_t place);
    /// Takes each key once, by a new process. @return whether it came to an end
    [[nodiscard]] bool probe(Time each);

    [[nodiscard]] ArenaServer& server(std::size_t i) { return servers_.at(i); }
    [[nodiscard]] ArenaWorker& worker(std::size_t i) { return workers_.at(i); }
    [[nodiscard]] test::FaultProxy& link(std::size_t worker, std::size_t server) {
        return *links_.at(worker * servers + server);
    }
    [[nodiscard]] std::size_t workers() const noexcept { return workers_.size(); }
    /// Starts a server that has been ended.
    static void restart(ArenaServer& server);
    /// Its replica follows it.
    static void follow(ArenaServer& server);
    static void step_clock(ArenaServer& server, Time by);
    /// All links lead to the server that is alive.
    void lead_to(std::size_t server);
    /// Nothing lies between workers and servers any more.
    void pass_all();
    /// What the proxies remember of the traffic is forgotten.
    void forget_traffic();
    /// Workers that have ended without having been told to.
    [[nodiscard]] std::vector<std::string> dead();

    [[nodiscard]] const Scribe& scribe() const noexcept { return scribe_; }
    [[nodiscard]] const std::filesystem::path& folder() const noexcept { return settings_.folder; }
    [[nodiscard]] std::string witness_path() const { return settings_.folder / "witness"; }

private:
    [[nodiscard]] Job job(const std::string& actor);
    void spawn_worker(ArenaWorker& worker, const Job& job) const;

    ArenaSettings settings_;
    Scribe scribe_;
    Store store_;
    test::FileDescriptor log_;
    std::vector<ArenaServer> servers_;
    std::vector<std::unique_ptr<test::FaultProxy>> links_;
    std::vector<ArenaWorker> workers_;
    std::uint64_t serial_ = 0;
};

} // namespace leaselock::chaos
