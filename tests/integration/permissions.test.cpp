// SPDX-License-Identifier: MIT
// What a user of the server must be permitted: exactly what the README says, no more and no less.
#include "story.hpp"
#include "support/redis_cluster.hpp"

#include <leaselock/redis/classify.hpp>

#include <algorithm>
#include <deque>
#include <fstream>
#include <sstream>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

using Rules = std::vector<std::string>;

const std::string key = "lock:order:1001";

Rules split(const std::string& line) {
    std::istringstream words{line};
    Rules rules;
    for (std::string word; words >> word;) {
        rules.push_back(word);
    }
    return rules;
}

Rules operator+(Rules a, const Rules& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

Rules without(Rules rules, const std::string& rule) {
    const auto end = std::remove(rules.begin(), rules.end(), rule);
    if (end == rules.end()) {
        throw std::runtime_error("there is no " + rule + " to be taken away");
    }
    rules.erase(end, rules.end());
    return rules;
}

/// The lines of the README's block, each under the first words of its comment.
std::map<std::string, Rules> readme_rules() {
    const std::string path = LEASELOCK_SOURCE_DIR "/README.md";
    std::ifstream file{path};
    std::map<std::string, Rules> found;
    std::string name;
    bool inside = false;
    for (std::string line; std::getline(file, line);) {
        if (line == "```acl") {
            inside = true;
        } else if (line.starts_with("```")) {
            inside = false;
        } else if (inside && line.starts_with("# ")) {
            name = line.substr(2, line.find(',') - 2);
        } else if (inside && !line.empty()) {
            found[name] = split(line);
        }
    }
    return found;
}

const Rules& rules_for(const char* name) {
    static const auto all = readme_rules();
    const auto found = all.find(name);
    if (found == all.end()) {
        throw std::runtime_error("no permissions for '" + std::string{name} + "' in the README");
    }
    return found->second;
}

/// For a lock, on servers such as those that the stories start.
const Rules& lock_rules() {
    static const bool has_getex = RedisServer{}.has_getex();
    return rules_for(has_getex ? "lock" : "lock on servers before 6.2");
}

std::string reading() { return &lock_rules() == &rules_for("lock") ? "+getex" : "+get"; }

/// A server with one user who may do nothing but what the rules say.
class GuardedServer {
public:
    explicit GuardedServer(const Rules& rules, std::vector<std::string> arguments = {})
        : server_{std::move(arguments)}, outside{server_.client()} {
        outside.expect_ok(Rules{"ACL", "SETUSER", "worker", "reset", "on", ">pass"} + rules);
    }

    [[nodiscard]] std::string url(const std::string& path = {}) const {
        return "redis://worker:pass@127.0.0.1:" + std::to_string(server_.port()) + path +
               "?connect_timeout=20s";
    }

private:
    RedisServer server_;

public:
    RawClient outside;
};

const Options fenced{.ttl = 60s, .fencing = true, .owner = "me", .timeout = 20s};

/// Denied, surely not done, and the words name what is missing.
void check_denied(const Outcome& outcome, const std::string& named) {
    INFO(words_of(outcome));
    CHECK(said(outcome.answer) == said(Answer::refused));
    CHECK(outcome.cause == condition::denied);
    CHECK(has(words_of(outcome), named));
}

} // namespace

TEST_CASE("S17: the README's permissions for a lock are enough for all that is done with one") {
    GuardedServer server{lock_rules()};
    HiredisConnection redis{server.url()};
    for (const bool cached : {false, true}) {
        INFO(cached);
        Lock lock{redis, key, {.ttl = 60s, .owner = "me", .timeout = 20s}, std::defer_lock};
        REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
        CHECK(said(lock.renew()) == said(Answer::yes));
        CHECK(said(lock.unlock()) == said(Answer::yes));
        server.outside.expect_ok({"SET", key, "somebody"});
        CHECK(said(lock.try_acquire()) == said(Answer::no, errc::busy));
        server.outside.integer({"DEL", key});
    }
    Lock elsewhere{redis, "elsewhere:a", patient, std::defer_lock};
    const Outcome outcome = elsewhere.try_acquire();
    CHECK(said(outcome) == said(Answer::refused, errc::no_permission));
    CHECK_FALSE(server.outside.exists("elsewhere:a"));
}

TEST_CASE("S17: a quorum needs +info, and says so where it lacks") {
    const auto try_with = [](const Rules& rules) {
        std::deque<GuardedServer> servers;
        std::deque<HiredisConnection> ways;
        for (int i = 0; i < 3; ++i) {
            ways.emplace_back(servers.emplace_back(rules).url());
        }
        Quorum nodes{ways[0], ways[1], ways[2]};
        LeaseLock lock{nodes, key, {.ttl = 60s, .timeout = 20s}, std::defer_lock};
        const Outcome outcome = lock.try_acquire();
        if (outcome) {
            CHECK(said(lock.renew()) == said(Answer::yes));
            CHECK(said(lock.unlock()) == said(Answer::yes));
        }
        for (GuardedServer& server : servers) {
            CHECK(eventually([&] { return !server.outside.exists(key); }));
        }
        return outcome;
    };
    CHECK(rules_for("quorum") == Rules{"+info"});
    CHECK(said(try_with(lock_rules() + rules_for("quorum"))) == said(Answer::yes));
    const Outcome denied = try_with(lock_rules());
    CHECK(said(denied) == said(Answer::refused, errc::script_not_permitted));
    CHECK(denied.cause == condition::denied);
    CHECK(has(words_of(denied), "0 of 3 nodes; 1: needs +info: ERR "));
}

TEST_CASE("S17: each permission for a lock that is missing shows in the verb that needs it") {
    const Rules rules = lock_rules();
    std::vector<std::string> permissions;
    std::copy_if(rules.begin(), rules.end(), std::back_inserter(permissions),
                 [](const std::string& rule) { return rule.starts_with('+'); });
    std::sort(permissions.begin(), permissions.end());
    CHECK(permissions ==
          std::vector<std::string>{"+del", "+eval", "+evalsha", reading(), "+pexpire", "+set"});

    for (const std::string& missing : permissions) {
        INFO(missing);
        GuardedServer server{without(rules, missing)};
        HiredisConnection redis{server.url()};
        Lock lock{redis, key, patient, std::defer_lock};
        const Outcome acquired = lock.try_acquire();
        if (missing == "+set") {
            check_denied(acquired, "'set'");
            CHECK_FALSE(server.outside.exists(key));
            continue;
        }
        REQUIRE(said(acquired) == said(Answer::yes));

        const std::string named = missing == "+get" ? "+get for +getex" : missing;
        const bool renews = missing == "+del" || missing == "+evalsha";
        const Outcome renewed = lock.renew();
        if (renews) {
            CHECK(said(renewed) == said(Answer::yes));
        } else {
            check_denied(renewed, named);
        }
        CHECK(lock.owns_lock());

        const bool releases = missing == "+pexpire" || missing == "+evalsha";
        const Outcome released = lock.unlock();
        if (releases) {
            CHECK(said(released) == said(Answer::yes));
            CHECK_FALSE(server.outside.exists(key));
        } else {
            check_denied(released, named);
            CHECK(server.outside.exists(key));
            CHECK_FALSE(may_pass_by_waiting(released.cause));
        }
    }
}

TEST_CASE("S17: the README's permissions for fencing are enough, and each of them is needed") {
    const Rules rules = lock_rules() + rules_for("fencing");
    {
        GuardedServer server{rules};
        HiredisConnection redis{server.url()};
        for (int i = 0; i < 2; ++i) {
            Lock lock{redis, key, fenced, std::defer_lock};
            REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
            CHECK(lock.fencing_token() > 0);
            CHECK(said(lock.renew()) == said(Answer::yes));
            CHECK(said(lock.unlock()) == said(Answer::yes));
        }
    }
    for (const std::string& missing : rules_for("fencing")) {
        if (missing == reading()) continue; // the lock itself needs it
        INFO(missing);
        GuardedServer server{without(rules, missing)};
        HiredisConnection redis{server.url()};
        Lock lock{redis, key, fenced, std::defer_lock};
        check_denied(lock.try_acquire(), missing);
        CHECK_FALSE(lock.owns_lock());
        CHECK_FALSE(server.outside.exists(key)); // given back
    }
    { // the counter's own key
        GuardedServer server{without(rules, "~{lock:*")};
        HiredisConnection redis{server.url()};
        Lock lock{redis, key, fenced, std::defer_lock};
        const Outcome outcome = lock.try_acquire();
        CHECK(said(outcome.answer) == said(Answer::refused));
        CHECK(outcome.cause == condition::denied);
        CHECK_FALSE(server.outside.exists(key));
    }
}

TEST_CASE("S17: the README's permissions for inspection are enough, and each of them is needed") {
    const Rules rules = rules_for("inspect");
    {
        GuardedServer server{rules};
        HiredisConnection redis{server.url()};
        server.outside.expect_ok({"SET", key, std::string(32, 'a') + ":me", "PX", "60000"});
        const Inspection seen = inspect(redis, key, 20s);
        CHECK(said(seen.outcome) == said(Answer::yes));
        CHECK(seen.state == Inspection::State::held);
        CHECK(seen.owner.view() == "me");
    }
    { // added to those for a lock
        Rules both = lock_rules();
        std::copy_if(rules.begin(), rules.end(), std::back_inserter(both),
                     [](const std::string& rule) { return rule.starts_with('+'); });
        GuardedServer server{both};
        HiredisConnection redis{server.url()};
        LeaseLock lock{redis, key, {.ttl = 60s, .owner = "me", .timeout = 20s}};
        REQUIRE(lock);
        CHECK(inspect(redis, key, 20s).owner.view() == "me");
    }
    for (const std::string missing : {"+pttl", "+getrange"}) {
        INFO(missing);
        GuardedServer server{without(rules, missing)};
        HiredisConnection redis{server.url()};
        server.outside.expect_ok({"SET", key, std::string(32, 'a') + ":me", "PX", "60000"});
        const Inspection seen = inspect(redis, key, 20s);
        check_denied(seen.outcome, missing.substr(1));
    }
}

TEST_CASE("S17: another database than 0 takes the README's permission for connecting") {
    {
        GuardedServer server{lock_rules() + rules_for("database other than 0")};
        HiredisConnection redis{server.url("/3")};
        Lock lock{redis, key, patient, std::defer_lock};
        REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
        server.outside.expect_ok({"SELECT", "3"});
        CHECK(server.outside.exists(key));
        CHECK(said(lock.unlock()) == said(Answer::yes));
    }
    GuardedServer server{lock_rules()};
    HiredisConnection redis{server.url("/3")};
    Lock lock{redis, key, patient, std::defer_lock};
    check_denied(lock.try_acquire(), "'select'");
    CHECK_FALSE(server.outside.exists(key));
}

TEST_CASE("S17: to verify a master takes the README's permission for Sentinel") {
    const auto through = [](const GuardedServer& server) {
        return Endpoint::from_url(server.url());
    };
    {
        GuardedServer server{lock_rules() + rules_for("Sentinel")};
        SentinelConnection redis{nullptr, through(server)};
        LeaseLock lock{redis, key, patient, std::defer_lock};
        REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
        CHECK(said(lock.unlock()) == said(Answer::yes));
    }
    GuardedServer server{lock_rules()};
    SentinelConnection redis{nullptr, through(server)};
    LeaseLock lock{redis, key, patient, std::defer_lock};
    check_denied(lock.try_acquire(), "'info'");
    CHECK_FALSE(server.outside.exists(key));
}

TEST_CASE("S17: the README's permissions for old servers are enough where there is no GETEX") {
    GuardedServer server{rules_for("lock on servers before 6.2"), without_getex};
    HiredisConnection redis{server.url()};
    Lock lock{redis, key, patient, std::defer_lock};
    for (int i = 0; i < 2; ++i) {
        REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
        CHECK(said(lock.renew()) == said(Answer::yes));
        CHECK(said(lock.unlock()) == said(Answer::yes));
    }
}

TEST_CASE("S17: where EVALSHA is forbidden the scripts are sent as text, and that is remembered") {
    RedisServer server;
    auto outside = server.client();
    outside.expect_ok(Rules{"ACL", "SETUSER", "worker", "reset", "on", ">pass"} +
                      without(lock_rules() + rules_for("fencing"), "+evalsha"));
    FaultProxy proxy{server.port()};
    HiredisConnection redis{"redis://worker:pass@127.0.0.1:" + std::to_string(proxy.port())};
    Lock lock{redis, key, fenced, std::defer_lock};
    REQUIRE(said(lock.try_acquire()) == said(Answer::yes));
    CHECK(lock.fencing_token() > 0);
    std::vector<std::string> names{"AUTH", "SET", "EVALSHA", "EVAL"};
    if (reading() == "+get") names.emplace_back("EVAL"); // it is found out what else is lacking
    CHECK(proxy.traffic().names() == names);

    proxy.reset_traffic();
    CHECK(said(lock.renew()) == said(Answer::yes));
    CHECK(said(lock.unlock()) == said(Answer::yes));
    CHECK(proxy.traffic().names() == std::vector<std::string>{"EVAL", "EVAL"});
    CHECK_FALSE(outside.exists(key));
}

TEST_CASE(
    "S17 ClusterConnection: the README's permissions are enough, and each of them is needed") {
    RedisCluster servers;
    const std::string on_its_way = servers.key_on(0, "lock:acl");
    servers.begin_migration(hash_slot(on_its_way), 0, 1); // so that the key is asked for
    const auto try_with = [&](const Rules& rules) {
        for (std::size_t i = 0; i < servers.masters(); ++i) {
            servers.client(i).expect_ok(Rules{"ACL", "SETUSER", "worker", "reset", "on", ">pass"} +
                                        rules);
        }
        ClusterConnection cluster{
            "redis://worker:pass@127.0.0.1:" + std::to_string(servers.master(0).port()) +
            "?connect_timeout=20s"};
        LeaseLock lock{cluster, on_its_way, patient, std::defer_lock};
        Outcome outcome = lock.try_acquire();
        if (outcome) outcome = lock.renew();
        if (outcome) outcome = lock.unlock();
        return outcome;
    };
    const Rules rules = lock_rules() + rules_for("cluster");
    CHECK(said(try_with(rules)) == said(Answer::yes));
    check_denied(try_with(without(rules, "+asking")), "'asking'");
    check_denied(try_with(without(rules, "+cluster|slots")), "'cluster");
}
