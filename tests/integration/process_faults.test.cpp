// SPDX-License-Identifier: MIT
// What happens to the process that holds a lock: it stops, forks, execs, is interrupted.
#include "story.hpp"

#include "support/signal_storm.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

const std::string key = "lock:worker";

std::set<std::string> open_sockets(pid_t pid) {
    std::set<std::string> names;
    for (const auto& entry :
         std::filesystem::directory_iterator{"/proc/" + std::to_string(pid) + "/fd"}) {
        std::error_code closed_meanwhile;
        const std::string name = std::filesystem::read_symlink(entry.path(), closed_meanwhile);
        if (name.starts_with("socket:")) {
            names.insert(name);
        }
    }
    return names;
}

std::string program_of(pid_t pid) {
    std::error_code gone;
    return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", gone);
}

} // namespace

TEST_CASE("B54, P12: broken connections raise no SIGPIPE, and the process keeps its own handling") {
    RedisServer server;
    Pipe to_child;
    Pipe from_child;
    const bool ignored = GENERATE(false, true);
    ChildProcess child{[&] {
        struct sigaction mine {};
        mine.sa_handler = ignored ? SIG_IGN : SIG_DFL;
        sigaction(SIGPIPE, &mine, nullptr);
        sigset_t mask_before;
        sigprocmask(SIG_SETMASK, nullptr, &mask_before);

        HiredisConnection redis{patient_url(server)};
        HiredisConnection quick{patient_url(server)};
        const auto broken = [&] {
            from_child.write_line("break it");
            static_cast<void>(to_child.read_line(20s));
        };
        {
            LeaseLock lock{redis, key, patient};
            LeaseLock other{quick, "lock:other", patient};
            broken();
            from_child.write_line(said(lock.renew()));
            broken();
            from_child.write_line(said(lock.unlock()));
            broken(); // and the other's destructor
        }
        from_child.write_line("alive");
        struct sigaction now {};
        sigaction(SIGPIPE, nullptr, &now);
        sigset_t mask_now;
        sigprocmask(SIG_SETMASK, nullptr, &mask_now);
        return now.sa_handler == mine.sa_handler &&
                       sigismember(&mask_now, SIGPIPE) == sigismember(&mask_before, SIGPIPE)
                   ? 0
                   : 1;
    }};
    auto outside = server.client();
    for (int i = 0; i < 3; ++i) {
        REQUIRE(from_child.read_line(20s) == "break it");
        CHECK(outside.client_kill_normal() > 0);
        to_child.write_line("broken");
        REQUIRE(from_child.read_line(20s) == (i < 2 ? "yes" : "alive"));
    }
    CHECK(child.wait() == ProcessEnd{0, 0});
    CHECK_FALSE(outside.exists(key));
    CHECK_FALSE(outside.exists("lock:other"));
}

TEST_CASE("B54, P12: a server that dies in the middle of a write raises no SIGPIPE either") {
    RedisServer server;
    Pipe to_child;
    Pipe from_child;
    ChildProcess child{[&] {
        std::signal(SIGPIPE, SIG_DFL);
        HiredisConnection redis{"unix://" + server.unix_path()};
        Lock lock{redis, key, patient, std::defer_lock};
        static_cast<void>(inspect(redis, key, 20s));
        const int socket = socket_to(server.unix_path());
        shrink_send_buffer(socket);
        from_child.write_line("ready");
        static_cast<void>(to_child.read_line(20s)); // the server has stopped
        while (send_empty_line(socket)) {
        }
        from_child.write_line("writing");
        const Outcome outcome = lock.try_acquire(); // waits for room, not one byte is taken
        from_child.write_line(said(outcome.answer));
        from_child.write_line(outcome.cause == condition::unreachable ? "unreachable"
                                                                      : outcome.cause.message());
        return lock ? 1 : 0;
    }};
    REQUIRE(from_child.read_line(20s) == "ready");
    server.stop_process();
    to_child.write_line("stopped");
    REQUIRE(from_child.read_line(20s) == "writing");
    // its next write has to fail: it waits for room by now, or will find the peer gone
    std::this_thread::sleep_for(50ms);
    server.kill_hard();
    CHECK(from_child.read_line(20s) == said(Answer::unsent));
    CHECK(from_child.read_line(20s) == "unreachable");
    CHECK(child.wait() == ProcessEnd{0, 0});
}

TEST_CASE("B75: forked children never draw equal tokens, whatever the engines are seeded with") {
    constexpr std::size_t children = 8;
    constexpr std::size_t each = 100'000;
    using Bits = std::array<char, Token::size>;
    constexpr std::size_t total = (children + 1) * each;
    void* const memory = mmap(nullptr, total * sizeof(Bits), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    auto* const tokens = static_cast<Bits*>(memory);
    const auto draw = [&](std::size_t who) {
        std::srand(42); // NOLINT(cert-msc51-cpp): the point
        for (std::size_t i = 0; i < each; ++i) {
            Token token;
            if (token.draw(system_runtime())) {
                return 1;
            }
            std::copy(token.view().begin(), token.view().end(), tokens[who * each + i].begin());
        }
        return 0;
    };
    REQUIRE(draw(children) == 0); // the parent's own come first
    {
        std::vector<std::unique_ptr<ChildProcess>> running;
        for (std::size_t who = 0; who < children; ++who) {
            running.push_back(std::make_unique<ChildProcess>([&, who] { return draw(who); }));
        }
        for (auto& child : running) {
            CHECK(child->wait(60s) == ProcessEnd{0, 0});
        }
    }
    std::sort(tokens, tokens + total);
    CHECK(std::adjacent_find(tokens, tokens + total) == tokens + total);
    std::array<std::set<char>, Token::size> digits; // every one of 128 bits takes part
    for (std::size_t i = 0; i < 2000; ++i) {
        for (std::size_t at = 0; at < Token::size; ++at) {
            digits[at].insert(tokens[i * (total / 2000)][at]);
        }
    }
    const bool all_used = std::all_of(digits.begin() + 1, digits.end(),
                                      [](const auto& seen) { return seen.size() == 16; });
    CHECK(all_used);
    munmap(memory, total * sizeof(Bits));
}

TEST_CASE(
    "B75: guards of parent and child have different tokens, and their engines stay untouched") {
    RedisServer server;
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    std::srand(7);                    // NOLINT(cert-msc51-cpp)
    const int expected = std::rand(); // NOLINT(cert-msc50-cpp)
    std::srand(7);                    // NOLINT(cert-msc51-cpp)
    LeaseLock lock{redis, "lock:parent", patient};
    REQUIRE(lock);
    CHECK(std::rand() == expected); // NOLINT(cert-msc50-cpp): no call of ours took one
    ChildProcess child{[&] {
        HiredisConnection own{patient_url(server)};
        LeaseLock mine{own, "lock:child", patient};
        return outside.get("lock:child") != outside.get("lock:parent") && mine ? 0 : 1;
    }};
    CHECK(child.wait(20s) == ProcessEnd{0, 0});
}

TEST_CASE("P2: a process that was stopped for longer than its ttl wakes up without its lock") {
    RedisServer server;
    Pipe to_child;
    Pipe from_child;
    ChildProcess holder{[&] {
        HiredisConnection redis{patient_url(server)};
        Lock lock{redis, key, {.ttl = 500ms, .timeout = 20s}, std::defer_lock};
        while (!lock.try_acquire()) {
        }
        const std::stop_token told = lock.stop_token();
        from_child.write_line("held");
        static_cast<void>(to_child.read_line(60s));
        const bool owned = lock.owns_lock(); // the first question after waking up
        from_child.write_line(owned ? "owned" : std::string{to_string(lock.loss())});
        from_child.write_line(told.stop_requested() ? "told" : "not told");
        from_child.write_line(said(lock.renew()));
        from_child.write_line(said(lock.unlock()));
    }};
    REQUIRE(from_child.read_line(20s) == "held");
    holder.stop();
    auto outside = server.client();
    REQUIRE(eventually([&] { return outside.command({"SET", key, "next", "NX"}) == "OK"; }));
    to_child.write_line("go on");
    holder.resume();
    CHECK(from_child.read_line() == "expired");
    CHECK(from_child.read_line() == "told");
    CHECK(from_child.read_line() == said(Answer::unsent, errc::expired));
    CHECK(from_child.read_line() == said(Answer::no, errc::taken));
    CHECK(holder.wait() == ProcessEnd{0, 0});
    CHECK(outside.get(key) == "next");
}

TEST_CASE("P4: in a forked child the guard is inert, and the parent keeps lock and connection") {
    RedisServer server;
    HiredisConnection redis{patient_url(server)};
    Lock lock{redis, key, patient};
    Lock idle{redis, "lock:idle", patient, std::defer_lock};
    REQUIRE(lock);
    auto outside = server.client();
    const auto connections = outside.client_ids();
    const auto value = outside.get(key);
    outside.reset_stats();
    outside.disconnect();

    Pipe pipe;
    ChildProcess child{[&] {
        pipe.write_line(lock.owns_lock() || lock ? "owned" : "not owned");
        pipe.write_line(lock.stop_token().stop_requested() ? "stopped" : "not stopped");
        pipe.write_line(said(lock.renew()));
        pipe.write_line(said(lock.unlock()));
        pipe.write_line(said(idle.try_acquire()));
        { const Lock end{std::move(lock)}; }
        const auto commands = commands_of(outside); // a connection of the child's own
        pipe.write_line(std::to_string(commands.size()));

        Lock fresh{redis, "lock:child", patient, std::defer_lock}; // over the parent's object
        pipe.write_line(said(fresh.try_acquire()));
        pipe.write_line(said(fresh.renew()));
        pipe.write_line(said(fresh.unlock()));
    }};
    CHECK(pipe.read_line(20s) == "not owned");
    CHECK(pipe.read_line() == "stopped");
    CHECK(pipe.read_line() == said(Answer::unsent, errc::other_process));
    CHECK(pipe.read_line() == said(Answer::unsent, errc::other_process));
    CHECK(pipe.read_line() == said(Answer::unsent, errc::other_process));
    CHECK(pipe.read_line(20s) == "0");
    CHECK(pipe.read_line(20s) == "yes");
    CHECK(pipe.read_line(20s) == "yes");
    CHECK(pipe.read_line(20s) == "yes");
    CHECK(child.wait() == ProcessEnd{0, 0});

    CHECK(lock.owns_lock());
    CHECK(outside.get(key) == value);
    CHECK(said(lock.renew()) == said(Answer::yes));
    CHECK(outside.client_ids() == connections);
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE("P4: children that exit at once, again and again, take nothing with them") {
    RedisServer server;
    HiredisConnection redis{patient_url(server)};
    LeaseLock lock{redis, key, patient};
    REQUIRE(lock);
    for (int i = 0; i < 20; ++i) {
        ChildProcess child{[&] {
            LeaseLock const end{std::move(lock)};
            return end ? 1 : 0;
        }};
        REQUIRE(said(lock.renew()) == said(Answer::yes));
        REQUIRE(child.wait(20s) == ProcessEnd{0, 0});
    }
    CHECK(said(lock.unlock()) == said(Answer::yes));
}

TEST_CASE("P6: a program that the holder starts inherits no connection") {
    RedisServer server;
    const auto before = open_sockets(getpid());
    HiredisConnection tcp{patient_url(server)};
    HiredisConnection local{"unix://" + server.unix_path()};
    LeaseLock first{tcp, key, patient};
    LeaseLock second{local, "lock:other", patient};
    REQUIRE(first);
    REQUIRE(second);
    std::vector<std::string> ours;
    for (const std::string& name : open_sockets(getpid())) {
        if (before.count(name) == 0) {
            ours.push_back(name);
        }
    }
    REQUIRE(ours.size() == 2);

    ChildProcess child{[] { execl("/bin/sleep", "sleep", "60", nullptr); }};
    const std::string self = program_of(getpid());
    REQUIRE(eventually([&] {
        const std::string program = program_of(child.pid());
        return !program.empty() && program != self;
    }));
    const auto inherited = open_sockets(child.pid());
    CHECK(inherited.count(ours[0]) + inherited.count(ours[1]) == 0);
    CHECK(first.renew());
    child.kill();
}

TEST_CASE("P11: under a storm of signals calls neither fail nor outlast their time") {
    RedisServer server;
    HiredisConnection redis{patient_url(server)};
    const SignalStorm storm{2ms};

    SECTION("all is well") {
        Lock lock{redis, key, patient, std::defer_lock};
        int failed = 0;
        const Stopwatch watch;
        for (int i = 0; i < 500 && watch.elapsed() < 3s; ++i) {
            failed += lock.try_acquire() ? 0 : 1;
            failed += lock.renew() ? 0 : 1;
            failed += lock.unlock() ? 0 : 1;
        }
        CHECK(failed == 0);
    }
    SECTION("the server stands still") {
        LeaseLock lock{redis, key, {.ttl = 60s, .timeout = 400ms}};
        REQUIRE(lock);
        server.stop_process();
        const Stopwatch watch;
        const Outcome renewed = lock.renew();
        const auto one = watch.elapsed();
        Lock other{redis, "lock:other", {.ttl = 60s, .timeout = 400ms}, std::defer_lock};
        const Outcome acquired = other.try_acquire();
        const auto all = watch.elapsed();
        server.continue_process();
        CHECK(said(renewed) == said(Answer::unknown, errc::timed_out));
        CHECK(said(acquired) == said(Answer::unknown, errc::timed_out));
        CHECK(one >= 400ms);
        CHECK(all >= 800ms);
        CHECK(all < 8s);
        CHECK(lock.owns_lock());
    }
}
