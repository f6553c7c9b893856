// SPDX-License-Identifier: MIT
// A lease that goes from one holder to another without being given back.
#include "kept_story.hpp"

#include <memory>
#include <optional>
#include <set>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

const std::string key = "lock:deploy";

} // namespace

TEST_CASE("A lease that is delivered to many processes has one new holder") {
    RedisServer server;
    Pipe to_children;
    Pipe from_children;
    constexpr int adopters = 6;
    std::vector<std::unique_ptr<ChildProcess>> children;
    for (int i = 0; i < adopters; ++i) {
        children.push_back(std::make_unique<ChildProcess>([&] {
            HiredisConnection redis{patient_url(server)};
            // one line for each: who reads ahead would take another's
            const auto lease = Lease::from_text(to_children.read_line(20s));
            if (!lease) {
                return 1;
            }
            Lock lock{redis, lease->key(), patient, std::defer_lock};
            const Outcome outcome = lock.try_adopt(*lease);
            from_children.write_line(said(outcome));
            if (lock) {
                static_cast<void>(lock.detach()); // stays behind
            }
            return 0;
        }));
    }
    auto outside = server.client();
    HiredisConnection redis{patient_url(server)};
    Lock lock{redis, key, {.ttl = 60s, .owner = "first", .timeout = 20s}, std::defer_lock};
    REQUIRE(lock.try_acquire());
    const auto value = outside.get(key);
    const Lease lease = lock.detach();
    REQUIRE(lease);
    CHECK_FALSE(lock.owns_lock());
    CHECK(outside.get(key) == value); // not given back
    std::multiset<std::string> answers;
    for (int i = 0; i < adopters; ++i) {
        to_children.write_line(lease.to_text());
        answers.insert(from_children.read_line(20s));
    }
    for (auto& child : children) {
        CHECK(child->wait(20s) == ProcessEnd{0, 0});
    }
    CHECK(answers.count(said(Answer::yes)) == 1);
    CHECK(answers.count(said(Answer::no, errc::taken)) == adopters - 1);
    CHECK(outside.get(key) != value); // a token that the old holder does not know
    CHECK(said(lock.unlock()) == said(Answer::unsent, errc::not_held));
    CHECK(outside.exists(key));
}

TEST_CASE("Of many that adopt one lease at the same time one wins") {
    RedisServer server;
    HiredisConnection redis{patient_url(server)};
    for (int round = 0; round < 20; ++round) {
        Lock lock{redis, key, patient, std::defer_lock};
        REQUIRE(lock.try_acquire());
        const Lease lease = lock.detach();
        std::atomic<int> yes{0};
        std::atomic<int> taken{0};
        {
            std::vector<std::unique_ptr<Beside>> rivals;
            for (int i = 0; i < 4; ++i) {
                rivals.push_back(std::make_unique<Beside>([&] {
                    HiredisConnection own{patient_url(server)};
                    Lock mine{own, key, patient, std::defer_lock};
                    const Outcome outcome = mine.try_adopt(lease);
                    yes += outcome ? 1 : 0;
                    taken += said(outcome) == said(Answer::no, errc::taken) ? 1 : 0;
                    if (mine) {
                        static_cast<void>(mine.detach());
                    }
                }));
            }
        }
        REQUIRE(yes == 1);
        REQUIRE(taken == 3);
        REQUIRE(server.client().integer({"DEL", key}) == 1);
    }
}

TEST_CASE("A kept lease that is handed over is renewed by its new holder, and by nobody else") {
    RedisServer server;
    auto outside = server.client();
    std::optional<Kept> first{std::in_place, server, key, 3s};
    const auto old_value = outside.get(key);
    const Lease lease = first->lock.detach();
    const auto renewed = first->hearsay.renewed();

    HiredisConnection redis{patient_url(server)};
    HiredisConnection wire{patient_url(server)};
    Keeper renewer{wire};
    LeaseLock next{redis,
                   Lease::from_text(lease.to_text()).value(),
                   std::adopt_lock,
                   {.ttl = 3s, .fencing = true, .timeout = 20s}};
    REQUIRE(next);
    CHECK(next.fencing_token() > 0);
    const std::stop_token told = next.stop_token();
    renewer.keep(next);
    CHECK(renewed_again(next, 3s));
    CHECK(first->hearsay.renewed() == renewed);
    CHECK(first->hearsay.count(Verb::lose) == 0);
    first.reset(); // its destructor gives nothing back
    CHECK(renewed_again(next, 3s));
    CHECK(outside.get(key) != old_value);
    CHECK_FALSE(told.stop_requested());

    // delivered once more: it is stale
    LeaseLock late{redis, lease, std::adopt_lock, patient};
    CHECK_FALSE(late);
    CHECK(next.owns_lock());
    CHECK(said(next.unlock()) == said(Answer::yes));
    CHECK_FALSE(outside.exists(key));
    LeaseLock too_late{redis, lease, std::adopt_lock, patient};
    CHECK_FALSE(too_late);
    CHECK_FALSE(outside.exists(key)); // adopting sets no key that is gone
}

TEST_CASE("A lease that nobody adopts runs out") {
    RedisServer server;
    auto outside = server.client();
    Kept kept{server, key, 500ms};
    const Lease lease = kept.lock.detach();
    if (lease) { // or so slow a machine that it had run out
        CHECK(eventually([&] { return !outside.exists(key); }));
        CHECK(to_string(kept.lock.loss()) == "none");
        CHECK_FALSE(LeaseLock(kept.redis, lease, std::adopt_lock, patient));
    }
}

TEST_CASE("An adoption whose reply is lost is repeated, and is one adoption") {
    RedisServer server;
    auto outside = server.client();
    FaultProxy proxy{server.port()};
    HiredisConnection redis{patient_url(server)};
    HiredisConnection lossy{patient_url(proxy)};
    Lock lock{redis, key, patient, std::defer_lock};
    REQUIRE(lock.try_acquire());
    const Lease lease = lock.detach();
    Lock next{lossy, key, patient, std::defer_lock};
    proxy.on_command("EVAL", Fault::cut_reply); // behind a NOSCRIPT, as text
    CHECK(said(next.try_adopt(lease)) == said(Answer::yes));
    CHECK(next.owns_lock());
    CHECK(said(next.renew()) == said(Answer::yes));
    CHECK(said(next.unlock()) == said(Answer::yes));
    CHECK_FALSE(outside.exists(key));
}
