// SPDX-License-Identifier: MIT

#include "fixture.hpp"

#include <leaselock/lock/lease.hpp>

#include <string>

namespace leaselock::test {
namespace {

struct LeaseTest : LockTest {
    Lease detached(const Options& options = {.ttl = 10s, .owner = "a"}) {
        LeaseLock lock{redis, "k", options};
        return lock.detach();
    }
};

TEST_F(LeaseTest, DetachLeavesTheKeyAndEmptiesTheGuard) {
    LeaseLock lock{redis, "k", {.ttl = 10s, .owner = "a"}};
    const std::stop_token token = lock.stop_token();
    const std::string value = *server.get("k");
    const Lease lease = lock.detach();
    EXPECT_EQ(lease, (Lease{"k", value, 10s}));
    EXPECT_EQ(lease.owner(), "a");
    EXPECT_FALSE(lock);
    EXPECT_EQ(lock.loss(), Loss::none);
    EXPECT_FALSE(token.stop_requested()) << "handed over is not lost";
    EXPECT_FALSE(lock.detach()) << "there is nothing left to hand over";
    EXPECT_TRUE(is(lock.unlock(), Answer::unsent, errc::not_held));
    EXPECT_TRUE(server.get("k"));
}

TEST_F(LeaseTest, OneAdopterWinsHoweverOftenItIsDelivered) {
    const Lease lease = detached();
    clock.advance(4s);
    const Deadline before = clock.now();
    LeaseLock first{other, lease, std::adopt_lock};
    ASSERT_TRUE(first);
    EXPECT_EQ(first.deadline(), before + 10s - 102ms) << "counted from the adopter's own send";
    EXPECT_EQ(server.pttl("k"), 10'000);
    EXPECT_NE(server.get("k")->substr(0, 32), lease.value().substr(0, 32));

    LeaseLock second{redis, lease, std::adopt_lock};
    EXPECT_FALSE(second);
    LeaseLock third{redis, "k", 10s, std::defer_lock};
    EXPECT_TRUE(is(third.try_adopt(lease), Answer::no, errc::taken));
    EXPECT_TRUE(first);
    EXPECT_TRUE(first.renew());
}

TEST_F(LeaseTest, AStaleLeaseIsEmpty) {
    const Lease lease = detached();
    clock.advance(11s);
    LeaseLock late{redis, lease, std::adopt_lock};
    EXPECT_FALSE(late);
    EXPECT_FALSE(server.get("k")) << "adopting never creates a key";
    LeaseLock guard{redis, "k", 10s, std::defer_lock};
    EXPECT_TRUE(is(guard.try_adopt(lease), Answer::no, errc::gone));
}

TEST_F(LeaseTest, TheAdopterBringsItsOwnOptions) {
    LeaseLock mine{redis,
                   detached(),
                   std::adopt_lock,
                   {.ttl = 3s, .fencing = true, .owner = "b", .observer = &recorder}};
    ASSERT_TRUE(mine);
    EXPECT_EQ(server.pttl("k"), 3000);
    EXPECT_EQ(server.get("k")->substr(33), "b");
    EXPECT_GT(mine.fencing_token(), 0U);
    EXPECT_EQ(recorder.of(Verb::adopt).size(), 1U);
    LeaseLock unfenced{redis, mine.detach(), std::adopt_lock};
    EXPECT_TRUE(unfenced);
    EXPECT_EQ(unfenced.fencing_token(), 0U);
}

TEST_F(LeaseTest, AdoptingIsSafeToRepeatAfterALostReply) {
    const Lease lease = detached();
    LeaseLock guard{redis, "k", 10s, std::defer_lock};
    redis.next({.kind = Fault::cut_reply});
    EXPECT_TRUE(is(guard.try_adopt(lease), Answer::yes));
    EXPECT_TRUE(guard);
}

TEST_F(LeaseTest, AnAdoptionThatCannotBeRepeatedIsUnknownAndCleanedUp) {
    LeaseLock warm{redis, "k", 10s, std::defer_lock};
    ASSERT_TRUE(warm.try_adopt(detached())); // the script is known
    const Lease lease = warm.detach();
    LeaseLock guard{redis, "k", 10s, std::defer_lock};
    redis.next({.kind = Fault::cut_reply});
    redis.next({.kind = Fault::refused});
    EXPECT_EQ(guard.try_adopt(lease).answer, Answer::unknown);
    EXPECT_FALSE(guard);
    EXPECT_FALSE(server.get("k")) << "deleted by its new token";
}

TEST_F(LeaseTest, AnUnansweredAdoptionIsNotBelieved) {
    LeaseLock guard{redis, "k", 10s, std::defer_lock};
    ASSERT_TRUE(guard.try_adopt(detached())); // the script is known
    const Lease lease = guard.detach();
    redis.next({.kind = Fault::lost_reply});
    EXPECT_TRUE(is(guard.try_adopt(lease), Answer::unknown, errc::timed_out));
    EXPECT_FALSE(guard);
    EXPECT_FALSE(server.get("k")) << "deleted by its new token";
}

TEST_F(LeaseTest, FencingSurvivesAFlushBetweenDetachAndAdopt) {
    const Lease lease = detached({.ttl = 10s, .fencing = true});
    for (const bool lacks : {false, true}) {
        server.flush_scripts();
        server.set_lacks_getex(lacks);
        LeaseLock again{redis, "again", {.ttl = 10s, .fencing = true}};
        const std::uint64_t before = again.fencing_token();
        server.flush_scripts();
        LeaseLock mine{other, again.detach(), std::adopt_lock, {.fencing = true}};
        ASSERT_TRUE(mine);
        EXPECT_GT(mine.fencing_token(), before);
    }
}

TEST_F(LeaseTest, MisuseIsUnsent) {
    LeaseLock guard{redis, "j", 10s, std::defer_lock};
    const std::size_t calls = redis.calls();
    EXPECT_TRUE(is(guard.try_adopt(Lease{}), Answer::unsent, errc::invalid_argument));
    EXPECT_TRUE(is(guard.try_adopt(Lease{"k", std::string(32, 'a'), 10s}), Answer::unsent,
                   errc::invalid_argument));
    EXPECT_EQ(redis.calls(), calls);
    EXPECT_THROW((void)Lock(redis, Lease{}, std::adopt_lock).owns_lock(), Error);
    ASSERT_TRUE(guard.try_acquire());
    EXPECT_TRUE(is(guard.try_adopt(Lease{"j", std::string(32, 'a'), 10s}), Answer::unsent,
                   errc::already_held));
}

TEST_F(LeaseTest, TheTextCrossesProcesses) {
    const std::string key{"k\0\r\n .%", 7};
    LeaseLock lock{redis, key, {.ttl = 12'345ms, .owner = std::string_view{"o\0.", 3}}};
    const Lease lease = lock.detach();
    const std::string text = lease.to_text();
    for (const char c : text) ASSERT_TRUE(c > ' ' && c < 127);
    EXPECT_EQ(Lease::from_text(text), lease);
    LeaseLock mine{other, Lease::from_text(text).value(), std::adopt_lock};
    EXPECT_TRUE(mine);
    EXPECT_EQ(Lease{}.to_text(), "");
    EXPECT_FALSE(Lease::from_text(""));
}

TEST_F(LeaseTest, ACutOrChangedTextIsNoLease) {
    const std::string text = detached().to_text();
    for (std::size_t size = 0; size < text.size(); ++size) {
        ASSERT_FALSE(Lease::from_text(text.substr(0, size))) << size;
    }
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::string changed = text;
        changed[i] = changed[i] == '0' ? '1' : '0';
        ASSERT_FALSE(Lease::from_text(changed)) << changed;
    }
    EXPECT_FALSE(Lease::from_text(text + "0"));
    EXPECT_FALSE(Lease::from_text(text + "." + text));
    EXPECT_FALSE(Lease::from_text("\n" + text));
}

} // namespace
} // namespace leaselock::test
