// SPDX-License-Identifier: MIT

/// A lock over five independent servers. While its holder works, two of them are killed and one is
/// stopped. With three of five the lease is renewed; with two it is not, and lives on exactly to its
/// deadline.

#include "support/await.hpp"
#include "support/checks.hpp"
#include "support/private_server.hpp"
#include "support/program.hpp"
#include "support/timeline.hpp"

#include <leaselock/leaselock.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using leaselock::HiredisConnection;
using leaselock::LeaseLock;
using leaselock::Outcome;
using leaselock::Quorum;

namespace {

const std::string key = "lock:deploy";

/// Hears of every renewal, and prints those that say something new.
class Listener final : public leaselock::Observer {
public:
    explicit Listener(example::Timeline& timeline) : timeline_(timeline) {}

    void on_event(const leaselock::Event& event) noexcept override {
        if (event.verb != leaselock::Verb::renew) return;
        const Outcome& outcome = event.outcome;
        const std::string line = std::string{to_string(outcome.answer)} + ", " +
                                 std::to_string(outcome.confirmed) + " of " +
                                 std::to_string(outcome.nodes) + " confirm";
        const std::scoped_lock lock{mutex_};
        if (line == last_) return;
        last_ = line;
        timeline_.say('A', event.fingerprint, "renewal: " + line);
        if (!outcome.text.empty()) {
            timeline_.say(' ', "", "  " + std::string{outcome.text.view()});
        }
    }
    /// What the last renewal was.
    std::string last() const {
        const std::scoped_lock lock{mutex_};
        return last_;
    }

private:
    example::Timeline& timeline_;
    mutable std::mutex mutex_;
    std::string last_;
};

/// The holder's work: a page at a time, until its stop token is set.
class Work {
public:
    explicit Work(std::stop_token until)
        : thread_{[this, until = std::move(until)] {
              while (!until.stop_requested()) {
                  ++pages_;
                  std::this_thread::sleep_for(5ms);
              }
              ended_ = true;
          }} {}
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;
    ~Work() { thread_.join(); }

    [[nodiscard]] bool ended() const { return ended_; }
    /// Whether it gets any further.
    [[nodiscard]] bool goes_on() const {
        const int before = pages_;
        example::await("another page, or the end", [&] { return ended_ || pages_ > before; });
        return !ended_;
    }

private:
    std::atomic<int> pages_{0};
    std::atomic<bool> ended_{false};
    std::thread thread_;
};

/// A way to each of the servers.
std::deque<HiredisConnection> connect(const std::deque<example::PrivateServer>& servers) {
    std::deque<HiredisConnection> ways;
    for (const example::PrivateServer& server : servers) ways.emplace_back(server.url());
    return ways;
}

bool play() {
    std::printf("A works under a lock on five independent servers, two of which are killed and one "
                "stopped.\n");
    std::deque<example::PrivateServer> servers(5);
    std::printf("Servers: %s, private, pids", servers[0].program().c_str());
    for (const example::PrivateServer& server : servers) {
        std::printf(" %d", static_cast<int>(server.pid()));
    }
    std::printf(".\n\n     when   who   token      what\n");

    example::Timeline timeline;
    example::Checks checks;
    Listener listener{timeline};
    std::deque<HiredisConnection> a = connect(servers);
    std::deque<HiredisConnection> r = connect(servers);
    Quorum nodes{a[0], a[1], a[2], a[3], a[4]};
    Quorum wire{r[0], r[1], r[2], r[3], r[4]}; // a renewer has connections of its own
    leaselock::Renewer renewer{wire};
    const auto heard = [&](const std::string& line) {
        example::await(line, [&] { return listener.last() == line; });
    };

    LeaseLock lock{nodes, key, {.ttl = 4s, .timeout = 500ms, .observer = &listener}};
    checks.expect(static_cast<bool>(lock), "A has the lock");
    renewer.keep(lock);
    const Work work{lock.stop_token()};
    heard("yes, 5 of 5 confirm");

    timeline.say(' ', "", "the servers 1 and 2 are killed");
    for (const std::size_t i : {0U, 1U}) kill(servers[i].pid(), SIGKILL);
    heard("yes, 3 of 5 confirm");
    checks.expect(work.goes_on() && lock.owns_lock(), "three of five: A works on");

    timeline.say(' ', "", "server 3 is stopped (SIGSTOP)");
    kill(servers[2].pid(), SIGSTOP);
    heard("unknown, 2 of 5 confirm");
    checks.expect(work.goes_on() && lock.owns_lock(),
                  "two of five: not renewed, but no loss either: A works on, to the old deadline");

    timeline.say(' ', "", "and goes on (SIGCONT), before that deadline");
    kill(servers[2].pid(), SIGCONT);
    heard("yes, 3 of 5 confirm");
    checks.expect(work.goes_on() && lock.owns_lock(), "it is renewed again");

    timeline.say(' ', "", "server 3 is stopped for good");
    kill(servers[2].pid(), SIGSTOP);
    example::await("the end of the work", [&] { return work.ended(); });
    timeline.say('A', "", "is told to stop: " + std::string{to_string(lock.loss())});
    checks.expect(!lock.owns_lock() && lock.loss() == leaselock::Loss::expired,
                  "no majority until the deadline: A has stopped");

    std::deque<HiredisConnection> b = connect(servers);
    Quorum others{b[0], b[1], b[2], b[3], b[4]};
    LeaseLock next{others, key, {.ttl = 4s, .timeout = 500ms}, std::defer_lock};
    const Outcome none = next.try_acquire();
    timeline.say('B', "", "tries: " + example::in_words(none));
    timeline.say(' ', "", "  " + std::string{none.text.view()});
    checks.expect(!none && none.answer != leaselock::Answer::no,
                  "without a majority nobody gets the lock, and nobody is told that it is busy");

    timeline.say(' ', "", "server 3 goes on");
    kill(servers[2].pid(), SIGCONT);
    checks.expect(static_cast<bool>(next.try_acquire_for(example::patience)),
                  "with three of five B gets it");
    return checks.all_fine();
}

constexpr std::string_view usage =
    "usage: quorum\n"
    "\n"
    "A lock over five private servers, two of which are killed and one is stopped; about fifteen\n"
    "seconds. REDIS_SERVER=/path/to/server names their binary; else redis-server or valkey-server\n"
    "from the PATH.\n"
    "Exit code: 0 all as it should be, 1 not so, 2 wrong usage, 3 it could not be played.\n";

} // namespace

int main(int argc, char** argv) {
    return example::run({.name = "quorum",
                         .usage = usage,
                         .role = {},
                         .as_child = [](std::span<char*>) {},
                         .play = play},
                        argc, argv);
}
