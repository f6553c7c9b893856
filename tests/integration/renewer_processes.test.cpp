// SPDX-License-Identifier: MIT
// What happens to a process with a renewer: it loses its server, forks, ends, runs out of threads,
// descriptors or random bytes, is stopped right behind its check.
#include "kept_story.hpp"

#include "support/file_descriptor.hpp"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <stop_token>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

const std::string key = "lock:worker";

/// What a child says when the machine cannot show the fault.
constexpr int not_here = 77;

/// @return whether the story can be told
bool told_by(ChildProcess& child) {
    const ProcessEnd end = child.wait(60s);
    if (end == ProcessEnd{not_here, 0}) {
        WARN("this machine cannot show it");
        return false;
    }
    CHECK(end == ProcessEnd{0, 0});
    return true;
}

} // namespace

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// Lets a child of a process with threads start some of its own, as B79 does; clang's can.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif
#endif

TEST_CASE("B28: a holder lives through a server that fails during renewal, and is told once") {
    if (!children_start_threads) {
        return;
    }
    RedisServer server;
    Pipe to_child;
    Pipe from_child;
    ChildProcess child{[&] {
        HiredisConnection redis{server.url()};
        HiredisConnection wire{server.url()};
        Hearsay hearsay;
        Keeper renewer{wire};
        Lock lock{
            redis, key, {.ttl = 800ms, .timeout = 500ms, .observer = &hearsay}, std::defer_lock};
        while (!lock.try_acquire()) {
        }
        const std::stop_token told = lock.stop_token();
        std::atomic<int> called{0};
        std::atomic<int> thrown{0};
        const std::stop_callback callback{told, [&] { ++called; }};
        // One that lets an exception escape ends the process, whoever requests the stop: the
        // standard has it so ([stopsource.mem]), and no library can help it. So it catches inside.
        const std::stop_callback throwing{told, [&] {
                                              try {
                                                  throw std::runtime_error{"in a callback"};
                                              } catch (const std::runtime_error&) {
                                                  ++thrown;
                                              }
                                          }};
        renewer.keep(lock);
        from_child.write_line("kept");
        if (!eventually([&] { return told.stop_requested(); }, 60s)) {
            return 1;
        }
        from_child.write_line(to_string(lock.loss()));
        static_cast<void>(to_child.read_line(60s));
        from_child.write_line(std::to_string(called) + " " + std::to_string(thrown) + " " +
                              std::to_string(hearsay.count(Verb::lose)));
        return lock.owns_lock() ? 1 : 0;
    }};
    REQUIRE(from_child.read_line(20s) == "kept");
    const bool gone = GENERATE(false, true);
    const Stopwatch watch;
    if (gone) {
        server.kill_hard();
    } else {
        server.stop_process();
    }
    CHECK(from_child.read_line(60s) == "expired");
    while (watch.elapsed() < 2400ms) { // three ttl
        std::this_thread::sleep_for(10ms);
    }
    CHECK(child.running());
    to_child.write_line("say it");
    CHECK(from_child.read_line(20s) == "1 1 1");
    CHECK(child.wait(20s) == ProcessEnd{0, 0});
}

TEST_CASE("B79: a lock that is taken in a forked worker is renewed there") {
    if (!children_start_threads) {
        return;
    }
    RedisServer server;
    auto outside = server.client();
    Pipe to_child;
    Pipe from_child;
    Kept parent{server, "lock:parent", 2s};
    ChildProcess child{[&] {
        if (parent.lock.owns_lock()) {
            return 1;
        }
        HiredisConnection redis{patient_url(server)};
        HiredisConnection wire{patient_url(server)};
        Keeper renewer{wire};
        LeaseLock lock{redis, key, {.ttl = 2s, .timeout = 20s}};
        renewer.keep(lock);
        from_child.write_line("kept");
        static_cast<void>(to_child.read_line(60s));
        return lock.owns_lock() && !lock.stop_token().stop_requested() ? 0 : 2;
    }};
    REQUIRE(from_child.read_line(20s) == "kept");
    const Stopwatch watch;
    bool busy = true;
    while (busy && watch.elapsed() < 2500ms) {
        busy = outside.command({"SET", key, "another's", "NX", "PX", "2000"}) == "(nil)";
        std::this_thread::sleep_for(10ms);
    }
    CHECK(busy);
    to_child.write_line("end");
    CHECK(child.wait(20s) == ProcessEnd{0, 0});
    CHECK_FALSE(outside.exists(key));
    parent.check_alive();
}

TEST_CASE(
    "P3: a holder that was stopped right behind its check writes late, and the fence refuses it") {
    RedisServer server;
    auto outside = server.client();
    // The store registers the token before it writes, and refuses smaller ones.
    const auto write = [](RawClient& store, std::uint64_t fence, const std::string& page) {
        return store.eval(
            "local last = redis.call('hget', KEYS[1], 'fence')\n"
            "if last and tonumber(ARGV[1]) < tonumber(last) then return 'refused' end\n"
            "redis.call('hset', KEYS[1], 'fence', ARGV[1], 'page', ARGV[2])\n"
            "return 'written'",
            {"store"}, {std::to_string(fence), page});
    };
    const Options fenced{.ttl = 2s, .fencing = true, .timeout = 20s};
    Pipe from_child;
    ChildProcess holder{[&] {
        HiredisConnection redis{patient_url(server)};
        auto store = server.client();
        Lock lock{redis, key, fenced, std::defer_lock};
        while (!lock.try_acquire()) {
        }
        from_child.write_line(write(store, lock.fencing_token(), "first"));
        const std::uint64_t fence = lock.fencing_token();
        if (lock.owns_lock()) {
            raise(SIGSTOP); // right here, where no check helps
            from_child.write_line(write(store, fence, "late"));
        } else {
            from_child.write_line("too slow");
        }
        from_child.write_line(lock.owns_lock() ? "owned" : "not owned");
        return 0;
    }};
    REQUIRE(from_child.read_line(20s) == "written");
    holder.stop(); // as it has, or is about to
    HiredisConnection redis{patient_url(server)};
    Lock next{redis, key, {.ttl = 60s, .fencing = true, .timeout = 20s}, std::defer_lock};
    REQUIRE(next.try_lock_for(60s));
    CHECK(write(outside, next.fencing_token(), "next") == "written");
    holder.resume();
    // stopped by us ahead of its own SIGSTOP, it may stop once more
    const Stopwatch watch;
    std::string line;
    while (line.empty() && watch.elapsed() < 20s) {
        try {
            line = from_child.read_line(100ms);
        } catch (const std::runtime_error&) {
            holder.send_signal(SIGCONT);
        }
    }
    if (line != "too slow") {
        CHECK(line == "refused");
    }
    CHECK(from_child.read_line(20s) == "not owned");
    CHECK(holder.wait(20s) == ProcessEnd{0, 0});
    CHECK(outside.command({"HGET", "store", "page"}) == "next");
    CHECK(write(outside, next.fencing_token(), "again") == "written");
}

TEST_CASE(
    "P5: a process that forks in the middle of renewals has children that wait for no mutex") {
    RedisServer server;
    HiredisConnection redis{patient_url(server)};
    HiredisConnection wire{patient_url(server)};
    auto renewer = std::make_unique<Keeper>(wire);
    std::vector<Lock> locks;
    for (int i = 0; i < 20; ++i) {
        locks.emplace_back(redis, key + std::to_string(i), Options{.ttl = 3s, .timeout = 20s},
                           std::defer_lock);
        REQUIRE(locks.back().try_acquire());
        renewer->keep(locks.back());
    }
    std::atomic<bool> over{false};
    std::size_t forks = 0;
    std::size_t good = 0;
    {
        const Beside busy{[&] { // the renewer's mutex is seldom free
            HiredisConnection own{patient_url(server)};
            while (!over) {
                Lock brief{own, "lock:brief", {.ttl = 30ms, .timeout = 20s}, std::defer_lock};
                if (brief.try_acquire()) {
                    static_cast<void>(renewer->try_keep(brief));
                }
            }
        }};
        const Stopwatch watch;
        while (forks == good && watch.elapsed() < 2s) {
            ++forks;
            ChildProcess child{[&] {
                for (Lock& lock : locks) {
                    if (lock.owns_lock() || !lock.stop_token().stop_requested() ||
                        renewer->try_keep(lock).cause != errc::other_process ||
                        lock.renew().cause != errc::other_process ||
                        lock.unlock().cause != errc::other_process || lock.detach()) {
                        return 1;
                    }
                }
                locks.clear();
                renewer.reset();
                return 0;
            }};
            good += child.wait(20s) == ProcessEnd{0, 0} ? 1U : 0U;
        }
        over = true;
    }
    INFO(forks << " forks");
    CHECK(good == forks);
    for (Lock& lock : locks) { // nobody gave them back
        CHECK(lock.owns_lock());
        CHECK(said(lock.unlock()) == said(Answer::yes));
    }
}

TEST_CASE("P9: a process or a thread that ends, in whatever way, leaves no renewal and no use "
          "after free") {
    RedisServer server;
    auto outside = server.client();
    const auto output = server.folder() / "exit.log";
    const auto run = [&](const std::vector<std::string>& argv) {
        std::filesystem::remove(output);
        const FileDescriptor file{open(output.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
        return Process{spawn(argv, file.get())}.wait(60s).value_or(ProcessEnd{});
    };
    REQUIRE(run({LEASELOCK_EXIT_WAYS}) == ProcessEnd{0, 0});
    std::istringstream ways{text_of(output)};
    std::size_t count = 0;
    for (std::string way; std::getline(ways, way); ++count) {
        INFO(way);
        CHECK(run({LEASELOCK_EXIT_WAYS, server.url(), way}) == ProcessEnd{0, 0});
        CHECK(text_of(output).empty()); // no sanitizer has a word to say
        const bool runs_destructors =
            way != "quick_exit" && way != "_Exit" && way != "exit, of locals";
        CHECK(outside.exists("lock:exit") == !runs_destructors);
        outside.expect_ok({"FLUSHALL"});
        CHECK(outside.client_ids().empty());
    }
    CHECK(count > 10);
}

TEST_CASE("P10: where no thread can be had keep says so, and the lease runs out at its deadline") {
    RedisServer server;
    Pipe from_child;
    ChildProcess child{[&] {
        HiredisConnection redis{patient_url(server)};
        HiredisConnection wire{patient_url(server)};
        Keeper renewer{wire};
        Lock lock{redis, key, {.ttl = 2s, .timeout = 20s}, std::defer_lock};
        const rlimit none{0, 0};
        if (setrlimit(RLIMIT_NPROC, &none) != 0) {
            return not_here;
        }
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) {
            return not_here; // root knows no such limit
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL); // forgotten at setuid
        if (!lock.try_acquire()) {
            return 1;
        }
        const Deadline end = lock.deadline();
        const Outcome outcome = renewer.try_keep(lock);
        if (outcome) {
            return not_here;
        }
        from_child.write_line(said(outcome));
        from_child.write_line(lock.owns_lock() ? "owned" : "not owned");
        try {
            renewer.keep(lock);
            from_child.write_line("no throw");
        } catch (const Error& error) {
            from_child.write_line(said(error.outcome()));
        }
        const bool over = eventually([&] { return !lock.owns_lock(); }, 20s);
        from_child.write_line(to_string(lock.loss()));
        return over && LeaseClock::now() >= end ? 0 : 1;
    }};
    if (told_by(child)) {
        const std::string refused =
            said(Answer::unsent, std::error_code{EAGAIN, std::system_category()});
        CHECK(from_child.read_line() == refused);
        CHECK(from_child.read_line() == "owned");
        CHECK(from_child.read_line() == refused);
        CHECK(from_child.read_line() == "expired");
    }
}

TEST_CASE("P13: without a descriptor left a held connection goes on renewing, and a new one says "
          "why not") {
    if (!children_start_threads) {
        return;
    }
    RedisServer server;
    auto outside = server.client();
    Pipe to_child;
    Pipe from_child;
    ChildProcess child{[&] {
        HiredisConnection redis{patient_url(server)};
        HiredisConnection wire{patient_url(server)};
        HiredisConnection fresh{patient_url(server)};
        Keeper renewer{wire};
        LeaseLock lock{redis, key, {.ttl = 2s, .timeout = 20s}};
        Lock other{fresh, "lock:other", patient, std::defer_lock};
        renewer.keep(lock);
        if (!renewed_again(lock, 2s)) { // its connection is open
            return 1;
        }
        const int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
        close(lowest);
        rlimit before{};
        getrlimit(RLIMIT_NOFILE, &before);
        const rlimit none{static_cast<rlim_t>(lowest), before.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &none) != 0) {
            return not_here;
        }
        from_child.write_line(said(other.try_acquire()));
        const bool renewed = renewed_again(lock, 2s) && renewed_again(lock, 2s);
        from_child.write_line(renewed && lock.owns_lock() ? "renewed" : "not renewed");
        setrlimit(RLIMIT_NOFILE, &before); // UBSan looks at a new type's objects through a pipe
        from_child.write_line(said(lock.unlock()));
        return 0;
    }};
    if (told_by(child)) {
        CHECK(from_child.read_line() ==
              said(Answer::unsent, std::error_code{EMFILE, std::system_category()}));
        CHECK(from_child.read_line() == "renewed");
        CHECK(from_child.read_line() == said(Answer::yes));
        CHECK_FALSE(outside.exists("lock:other"));
    }
}

TEST_CASE("P16: without random bytes no lock is taken, and one that is held goes on") {
    RedisServer server;
    auto outside = server.client();
    outside.reset_stats();
    Pipe from_child;
    ChildProcess child{[&] {
        HiredisConnection redis{patient_url(server)};
        Lock held{redis, "lock:held", patient, std::defer_lock};
        Lock lock{redis, key, patient, std::defer_lock};
        if (!held.try_acquire()) {
            return 1;
        }
        std::array<sock_filter, 4> filter{{
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        }};
        const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
        char byte = 0;
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0 ||
            getrandom(&byte, 1, 0) >= 0) {
            return not_here;
        }
        from_child.write_line(said(lock.try_acquire()));
        from_child.write_line(said(lock.try_acquire_for(100ms)));
        from_child.write_line(said(held.renew()));
        from_child.write_line(said(held.unlock()));
        return 0;
    }};
    if (told_by(child)) {
        const std::string refused =
            said(Answer::unsent, std::error_code{EPERM, std::system_category()});
        CHECK(from_child.read_line() == refused);
        CHECK(from_child.read_line() == refused); // waiting does not cure it
        CHECK(from_child.read_line() == said(Answer::yes));
        CHECK(from_child.read_line() == said(Answer::yes));
        CHECK(outside.command_stats()["set"] == 1); // the held one's
    }
}
