// SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/raw_client.hpp"
#include "support/redis_server.hpp"

#include <leaselock/core/error.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/script.hpp>

#include <string>
#include <string_view>
#include <vector>

// What each script answers on a server, and what it leaves behind.
namespace {

using leaselock::Script;
using leaselock::ScriptText;
using leaselock::test::RawClient;
using leaselock::test::RedisServer;
using leaselock::test::with_getex;
using leaselock::test::without_getex;
namespace scripts = leaselock::scripts;

struct Named {
    std::string name;
    const Script& script;
};
const Named all[] = {{"compare-and-delete", scripts::compare_and_delete},
                     {"compare-and-delete anywhere", scripts::compare_and_delete_anywhere},
                     {"compare-and-expire", scripts::compare_and_expire},
                     {"compare-and-adopt", scripts::compare_and_adopt},
                     {"compare-and-fence", scripts::compare_and_fence}};

using Dialect = const ScriptText Script::*;
const std::vector<Dialect> dialects{&Script::getex, &Script::get};

/// Those that the server understands.
std::vector<Dialect> dialects_of(const RedisServer& server) {
    return server.has_getex() ? dialects : std::vector<Dialect>{&Script::get};
}

std::string run(RawClient& client, const ScriptText& text, const std::vector<std::string>& keys,
                const std::vector<std::string>& values) {
    return client.eval(std::string{text.text}, keys, values);
}

leaselock::errc cause_of(const std::string& reply) {
    REQUIRE(reply.starts_with("(error) "));
    return leaselock::cause_of(std::string_view{reply}.substr(8));
}

void check_compare_and_delete(RawClient& client, const ScriptText& text) {
    CHECK(run(client, text, {"k"}, {"a"}) == "(integer) -1");
    client.expect_ok({"SET", "k", "b", "PX", "60000"});
    CHECK(run(client, text, {"k"}, {"a"}) == "(integer) 0");
    CHECK(client.get("k") == "b");
    CHECK(client.pttl("k") > 50'000);
    CHECK(run(client, text, {"k"}, {"b"}) == "(integer) 1");
    CHECK_FALSE(client.exists("k"));
}

} // namespace

TEST_CASE("SCRIPT LOAD gives the SHA-1 that the library calls each script by") {
    const RedisServer server;
    RawClient client = server.client();
    for (const Named& named : all) {
        for (const auto dialect : dialects) {
            INFO(named.name);
            const ScriptText& text = named.script.*dialect;
            CHECK(client.command({"SCRIPT", "LOAD", std::string{text.text}}) == text.sha1);
            CHECK(client.command({"SCRIPT", "EXISTS", std::string{text.sha1}}) == "[(integer) 1]");
        }
    }
}

TEST_CASE("compare-and-delete deletes its own value alone") {
    const RedisServer server;
    RawClient client = server.client();
    for (const auto dialect : dialects_of(server)) {
        check_compare_and_delete(client, scripts::compare_and_delete.*dialect);
    }
}

TEST_CASE("compare-and-delete anywhere is one text for servers with GETEX and without") {
    const RedisServer servers[] = {RedisServer{with_getex}, RedisServer{without_getex}};
    for (const RedisServer& server : servers) {
        INFO(server.has_getex());
        RawClient client = server.client();
        const ScriptText& text = scripts::compare_and_delete_anywhere.getex;
        check_compare_and_delete(client, text);

        client.integer({"HSET", "h", "field", "value"});
        CHECK(cause_of(run(client, text, {"h"}, {"b"})) == leaselock::errc::wrong_type);
        client.expect_ok({"SET", "k", "b"});
        client.expect_ok({"REPLICAOF", "127.0.0.1", "1"});
        CHECK(cause_of(run(client, text, {"k"}, {"b"})) == leaselock::errc::read_only);
        CHECK(client.get("k") == "b");
        // S12: a false 0 only where nothing better is to be had
        const std::string reply = run(client, text, {"k"}, {"a"});
        if (server.has_getex()) {
            CHECK(cause_of(reply) == leaselock::errc::read_only);
        } else {
            CHECK(reply == "(integer) 0");
        }
    }
}

TEST_CASE("compare-and-expire extends its own value alone, and creates nothing") {
    const RedisServer server;
    RawClient client = server.client();
    for (const auto dialect : dialects_of(server)) {
        const ScriptText& text = scripts::compare_and_expire.*dialect;
        CHECK(run(client, text, {"k"}, {"a", "60000"}) == "(integer) -1");
        CHECK_FALSE(client.exists("k"));
        client.expect_ok({"SET", "k", "b", "PX", "5000"});
        CHECK(run(client, text, {"k"}, {"a", "60000"}) == "(integer) 0");
        CHECK(client.pttl("k") <= 5000);
        CHECK(run(client, text, {"k"}, {"b", "60000"}) == "(integer) 1");
        CHECK(client.pttl("k") > 50'000);
        CHECK(client.get("k") == "b");
        client.expect_ok({"SET", "k", "b"});
        CHECK(run(client, text, {"k"}, {"b", "60000"}) == "(integer) 1"); // S20: the ttl is back
        CHECK(client.pttl("k") > 50'000);
        client.command({"DEL", "k"});
    }
}

TEST_CASE("compare-and-adopt swaps its own value alone, and may be repeated") {
    const RedisServer server;
    RawClient client = server.client();
    for (const auto dialect : dialects_of(server)) {
        const ScriptText& text = scripts::compare_and_adopt.*dialect;
        CHECK(run(client, text, {"k"}, {"old", "new", "60000"}) == "(integer) -1");
        CHECK_FALSE(client.exists("k"));
        client.expect_ok({"SET", "k", "other", "PX", "5000"});
        CHECK(run(client, text, {"k"}, {"old", "new", "60000"}) == "(integer) 0");
        CHECK(client.get("k") == "other");
        client.expect_ok({"SET", "k", "old", "PX", "5000"});
        CHECK(run(client, text, {"k"}, {"old", "new", "60000"}) == "(integer) 1");
        CHECK(run(client, text, {"k"}, {"old", "new", "60000"}) == "(integer) 1");
        CHECK(client.get("k") == "new");
        CHECK(client.pttl("k") > 50'000);
        CHECK(run(client, text, {"k"}, {"old", "second", "60000"}) == "(integer) 0"); // one winner
        client.command({"DEL", "k"});
    }
}

TEST_CASE("compare-and-fence grows for the owner alone") {
    const RedisServer server;
    RawClient client = server.client();
    long long last = 0; // over both dialects: a server may be upgraded under a counter
    for (const auto dialect : dialects_of(server)) {
        const ScriptText& text = scripts::compare_and_fence.*dialect;
        client.command({"DEL", "k"});
        CHECK(run(client, text, {"k", "f"}, {"a", "60000"}) == "-1");
        client.expect_ok({"SET", "k", "b"});
        CHECK(run(client, text, {"k", "f"}, {"a", "60000"}) == "0");
        CHECK(client.exists("f") == (last != 0)); // neither has touched it
        for (int i = 0; i < 50; ++i) {
            const std::string reply = run(client, text, {"k", "f"}, {"b", "60000"});
            const long long fence = std::stoll(reply);
            CHECK(fence > last);
            CHECK(client.get("f") == reply);
            last = fence;
        }
        CHECK(client.pttl("f") > 58'000);
        CHECK(client.pttl("f") <= 60'002);
    }
}

TEST_CASE("compare-and-fence goes on from a counter that is ahead of the clock") {
    const RedisServer server;
    RawClient client = server.client();
    client.expect_ok({"SET", "k", "v"});
    for (const auto dialect : dialects_of(server)) {
        const ScriptText& text = scripts::compare_and_fence.*dialect;
        client.expect_ok({"SET", "f", "5000000000000000"});
        CHECK(run(client, text, {"k", "f"}, {"v", "1000"}) == "5000000000000001");
        CHECK(run(client, text, {"k", "f"}, {"v", "1000"}) == "5000000000000002");
        // its expiry derives from the value: not before the clock has got there
        CHECK(client.pttl("f") > 1'000'000'000);
    }
}

TEST_CASE("compare-and-fence leaves a corrupt or exhausted counter alone") {
    const RedisServer server;
    RawClient client = server.client();
    client.expect_ok({"SET", "k", "v"});
    for (const auto dialect : dialects_of(server)) {
        const ScriptText& text = scripts::compare_and_fence.*dialect;
        for (const std::string corrupt : {"", "x", "-5", "1.5", "1e3", "12345678901234567"}) {
            client.expect_ok({"SET", "f", corrupt});
            CHECK(run(client, text, {"k", "f"}, {"v", "1000"}) == "(error) FENCE corrupt");
            CHECK(client.get("f") == corrupt);
        }
        client.expect_ok({"SET", "f", "9007199254740990"}); // 2^53 - 2
        CHECK(run(client, text, {"k", "f"}, {"v", "1000"}) == "9007199254740991");
        CHECK(run(client, text, {"k", "f"}, {"v", "1000"}) == "(error) FENCE overflow");
        CHECK(client.get("f") == "9007199254740991");
    }
}

TEST_CASE("a fence counter that has expired is followed by a larger one") {
    const RedisServer server;
    RawClient client = server.client();
    client.expect_ok({"SET", "k", "v"});
    for (const auto dialect : dialects_of(server)) {
        const ScriptText& text = scripts::compare_and_fence.*dialect;
        long long last = 0;
        for (int i = 0; i < 5; ++i) {
            const long long fence = std::stoll(run(client, text, {"k", "f"}, {"v", "1"}));
            CHECK(fence > last);
            last = fence;
            CHECK(leaselock::test::eventually([&] { return !client.exists("f"); }));
        }
    }
}
