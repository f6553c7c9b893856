// SPDX-License-Identifier: MIT

#include "chaos/arena.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace leaselock::chaos {
namespace {

namespace fs = std::filesystem;
using test::RedisServer;

/// What is started while it lives has the clock shim.
class Preload {
public:
    explicit Preload(const fs::path& clock) {
        if (clock.empty()) return;
        ::setenv("LD_PRELOAD", LEASELOCK_CLOCK_SHIM, 1);
        ::setenv("LEASELOCK_CLOCK", clock.c_str(), 1);
    }
    Preload(const Preload&) = delete;
    Preload& operator=(const Preload&) = delete;
    ~Preload() {
        ::unsetenv("LD_PRELOAD");
        ::unsetenv("LEASELOCK_CLOCK");
    }
};

void write_clock(const fs::path& path, Time offset) {
    // in place, by one write: the server has the file mapped
    const test::FileDescriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)};
    if (::pwrite(file.get(), &offset, sizeof offset, 0) != sizeof offset) {
        throw std::runtime_error("cannot write " + path.string());
    }
}

const std::vector<std::string> keeps_all{"--appendonly", "yes", "--appendfsync", "always"};
const std::vector<std::string> keeps_nothing{"--repl-diskless-sync-delay", "0"};

} // namespace

Arena::Arena(const ArenaSettings& settings)
    : settings_(settings), scribe_(settings.folder / "world.history", "world", true_time()),
      store_(settings.folder / "store.sock", scribe_),
      log_(::open((settings.folder / "workers.log").c_str(),
                  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)),
      workers_(settings.workers) {
    for (std::size_t i = 0; i < servers; ++i) {
        ArenaServer server;
        server.name = "s" + std::to_string(i);
        if (settings.forgets && i == forgetful) {
            server.live = std::make_unique<RedisServer>(keeps_nothing);
            server.replica = std::make_unique<RedisServer>(keeps_nothing);
            follow(server);
        } else {
            server.clock = settings.folder / (server.name + ".clock");
            write_clock(server.clock, 0);
            const Preload shim{server.clock};
            server.live = std::make_unique<RedisServer>(keeps_all);
        }
        servers_.push_back(std::move(server));
    }
    for (std::size_t worker = 0; worker < settings.workers; ++worker) {
        for (const ArenaServer& server : servers_) {
            links_.push_back(std::make_unique<test::FaultProxy>(server.live->port()));
        }
    }
    for (std::size_t place = 0; place < settings.workers; ++place) start_worker(place);
}

Job Arena::job(const std::string& actor) {
    Job job;
    job.actor = actor;
    job.serial = ++serial_;
    job.seed = settings_.seed;
    job.epoch = scribe_.epoch();
    job.keys = settings_.keys;
    job.history = settings_.folder / (actor + ".history");
    job.witness = witness_path();
    job.store = settings_.folder / "store.sock";
    return job;
}

void Arena::spawn_worker(ArenaWorker& worker, const Job& job) const {
    worker.actor = job.actor;
    std::vector<std::string> words{fs::read_symlink("/proc/self/exe"), "--work"};
    if (job.ppm != 0) {
        words.insert(
            words.begin(),
            {"/usr/bin/env", std::string{"LD_PRELOAD="} + LEASELOCK_SKEW_SHIM,
             "LEASELOCK_SKEW=" + std::to_string(job.epoch) + " " + std::to_string(job.ppm)});
    }
    for (std::string& word : job.to_words()) words.push_back(std::move(word));
    worker.process.emplace(test::spawn(words, log_.get()));
}

void Arena::start_worker(std::size_t place, std::int64_t ppm) {
    ArenaWorker& worker = workers_.at(place);
    Job started = job("w" + std::to_string(place) + "." + std::to_string(++worker.lives));
    started.ppm = ppm;
    started.shares = place % 2 == 1;
    for (std::size_t i = 0; i < servers; ++i) started.urls.push_back(link(place, i).url());
    spawn_worker(worker, started);
}

void Arena::kill_worker(std::size_t place) {
    ArenaWorker& worker = workers_.at(place);
    worker.process->kill();
    worker.process.reset();
    scribe_.line(scribe_.now(), worker.actor, "kill", [](History::Line& /*line*/) {});
}

bool Arena::probe(Time each) {
    ArenaWorker prober;
    Job started = job("probe");
    started.probe = each;
    for (const ArenaServer& server : servers_) started.urls.push_back(server.live->url());
    spawn_worker(prober, started);
    const Time all = each * static_cast<Time>(servers * settings_.keys);
    const auto limit = std::chrono::nanoseconds{all} + std::chrono::seconds{30};
    const auto end =
        prober.process->wait(std::chrono::duration_cast<std::chrono::milliseconds>(limit));
    return end == test::ProcessEnd{0, 0};
}

void Arena::restart(ArenaServer& server) {
    const Preload shim{server.clock};
    server.live->restart();
}

void Arena::follow(ArenaServer& server) {
    server.replica->client().expect_ok(
        {"REPLICAOF", "127.0.0.1", std::to_string(server.live->port())});
}

void Arena::step_clock(ArenaServer& server, Time by) {
    server.clock_offset += by;
    write_clock(server.clock, server.clock_offset);
}

void Arena::lead_to(std::size_t server) {
    for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
        link(worker, server).forward_to(servers_.at(server).live->port());
    }
}

void Arena::pass_all() {
    for (const auto& link : links_) {
        link->pass();
        (void)link->deliver_held();
    }
}

void Arena::forget_traffic() {
    for (const auto& link : links_) link->reset_traffic();
}

std::vector<std::string> Arena::dead() {
    std::vector<std::string> names;
    for (ArenaWorker& worker : workers_) {
        if (worker.process && !worker.process->running()) names.push_back(worker.actor);
    }
    return names;
}

} // namespace leaselock::chaos
