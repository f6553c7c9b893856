// SPDX-License-Identifier: MIT
// Clocks that jump: the server's, which is a wall clock, and the holder's wall clock.
// C5 and C6 stand on the hand-moved clock, in tests/unit/lock/.
#include "kept_story.hpp"

#include "support/eventually.hpp"
#include "support/file_descriptor.hpp"
#include "support/system_failure.hpp"

#include <cstdlib>
#include <optional>

#include <fcntl.h>
#include <unistd.h>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

const std::string key = "lock:report";

/// A wall clock that the shim reads, in programs that are started with it in their environment.
class WallClock {
public:
    WallClock() : path_{"/tmp/leaselock-clock-XXXXXX"}, file_{mkostemp(path_.data(), O_CLOEXEC)} {
        if (!file_) {
            system_failure("cannot make " + path_);
        }
        set(0s);
        setenv("LEASELOCK_CLOCK", path_.c_str(), 1);
    }
    WallClock(const WallClock&) = delete;
    WallClock& operator=(const WallClock&) = delete;
    ~WallClock() {
        unsetenv("LEASELOCK_CLOCK");
        unlink(path_.c_str());
    }

    void set(std::chrono::nanoseconds offset) {
        const std::int64_t count = offset.count();
        if (pwrite(file_.get(), &count, sizeof count, 0) != sizeof count) {
            system_failure("cannot write " + path_);
        }
    }

private:
    std::string path_;
    FileDescriptor file_;
};

/// A server whose clock can be set.
struct ClockedServer {
    ClockedServer() {
        setenv("LD_PRELOAD", LEASELOCK_CLOCK_SHIM, 1);
        server.emplace();
        unsetenv("LD_PRELOAD");
        outside.emplace(server->client());
    }
    void jump(std::chrono::seconds by) {
        const long long before = std::stoll(outside->eval("return redis.call('time')[1]"));
        offset += by;
        clock.set(offset);
        // A server may go on for a moment by what it has read before (valkey 9.1 does).
        REQUIRE(eventually([&] {
            const long long now = std::stoll(outside->eval("return redis.call('time')[1]"));
            return std::abs(now - before - by.count()) < 20;
        }));
    }

    WallClock clock;
    std::chrono::seconds offset{0};
    std::optional<RedisServer> server;
    std::optional<RawClient> outside;
};

} // namespace

TEST_CASE("C1: a server clock that jumps forward costs the lease at the next renewal, and the "
          "fence holds") {
    ClockedServer clocked;
    HiredisConnection redis{patient_url(*clocked.server)};
    HiredisConnection wire{patient_url(*clocked.server)};
    Keeper renewer{wire};
    const Options options{.ttl = 6s, .fencing = true, .timeout = 20s};
    LeaseLock late{redis, key, options};
    REQUIRE(late);
    const std::uint64_t old_fence = late.fencing_token();
    const std::stop_token told = late.stop_token();
    renewer.keep(late);
    REQUIRE(renewed_again(late, options.ttl));

    clocked.jump(60s);
    LeaseLock next{redis, key, options}; // an exception to exclusion that the README lists
    REQUIRE(next);
    CHECK(next.fencing_token() > old_fence); // what it is for
    check_signalled(late, Loss::taken, told);
    CHECK(said(next.renew()) == said(Answer::yes));

    clocked.jump(60s);
    CHECK(said(next.renew()) == said(Answer::no, errc::gone));
}

TEST_CASE("C2: a server clock that jumps back is safe: leases last longer, and fences grow on") {
    ClockedServer clocked;
    Kept kept{*clocked.server, key, 3s};
    const Options fenced{.ttl = 20s, .fencing = true, .timeout = 20s};
    std::uint64_t old_fence = 0;
    {
        LeaseLock lock{kept.redis, "lock:fenced", fenced};
        REQUIRE(lock);
        old_fence = lock.fencing_token();
    }
    clocked.jump(-60s);
    kept.check_alive();
    CHECK(clocked.outside->pttl(key) <= 3000); // the renewal's, by the clock as it is now
    CHECK(kept.lock.remaining() <= 3s);
    {
        LeaseLock lock{kept.redis, "lock:fenced", fenced};
        REQUIRE(lock);
        CHECK(lock.fencing_token() > old_fence);
    }
}

TEST_CASE("C2: behind a server clock that jumped back nobody sleeps for as long as PTTL says") {
    ClockedServer clocked;
    RawClient& outside = *clocked.outside;
    HiredisConnection redis{patient_url(*clocked.server)};
    Hearsay hearsay;
    Lock lock{
        redis, key, {.timeout = 20s, .observer = &hearsay, .wait_cap = 200ms}, std::defer_lock};
    outside.expect_ok({"SET", key, "another's", "PX", "30000"});
    clocked.jump(-600s);
    CHECK(outside.pttl(key) > 600'000);
    Outcome outcome;
    const Stopwatch watch;
    {
        const Beside waiter{[&] { outcome = lock.try_acquire_for(600s); }};
        CHECK(eventually([&] { return hearsay.count(Verb::acquire) >= 2; }));
        CHECK(outside.integer({"DEL", key}) == 1);
    }
    CHECK(said(outcome) == said(Answer::yes));
    CHECK(watch.elapsed() < 20s);
}

TEST_CASE("C4: a wall clock that jumps under the holder has no effect") {
    RedisServer server;
    const WallClock clock;
    const auto output = server.folder() / "holder.log";
    {
        const FileDescriptor file{open(output.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
        Process holder{spawn({LEASELOCK_WALL_CLOCK, server.url()}, file.get())};
        const auto end = holder.wait(60s);
        INFO(text_of(output));
        REQUIRE(end);
        CHECK(*end == ProcessEnd{0, 0});
    }
}
