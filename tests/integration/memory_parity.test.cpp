// SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "support/raw_client.hpp"
#include "support/redis_server.hpp"
#include "support/reserved_port.hpp"

#include <leaselock/core/runtime.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/script.hpp>
#include <leaselock/testing/memory_redis.hpp>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The in-memory Redis is held to the real one: the same commands, the answers compared one by one.
// The reference is Redis 7.0; a server of another version may word its errors in its own way, but has
// to mean the same.
namespace {

using leaselock::Script;
using leaselock::ScriptText;
using leaselock::test::RawClient;
using leaselock::test::RedisServer;
using leaselock::test::with_getex;
using leaselock::test::WithGetex;
using leaselock::test::without_getex;
using leaselock::testing::MemoryRedis;
using Words = std::vector<std::string>;
namespace scripts = leaselock::scripts;
using namespace std::string_literals;

bool is_reference() { return RedisServer::version().find("v=7.0.") != std::string::npos; }

std::string shown(const Words& words) {
    std::string line;
    for (const std::string& word : words) line += word.substr(0, 60) + " ";
    return line;
}

class Pair {
public:
    explicit Pair(Words arguments = {}) : server_{with_one_database(std::move(arguments))} {
        align();
    }
    explicit Pair(WithGetex) : server_{with_getex, with_one_database({})} { align(); }

    MemoryRedis memory{leaselock::system_runtime()};
    RawClient& real() { return client_; }

    /// Both answer the same.
    std::string same(const Words& words) {
        const std::string theirs = client_.command(words);
        const std::string ours = in_memory(words);
        INFO(shown(words));
        const bool error = theirs.starts_with("(error) ");
        if (!error || is_reference()) {
            CHECK(ours == theirs);
        } else {
            CHECK(ours.starts_with("(error) "));
            CHECK(leaselock::cause_of(std::string_view{ours}.substr(8)) ==
                  leaselock::cause_of(std::string_view{theirs}.substr(8)));
        }
        return ours;
    }
    void same(std::initializer_list<Words> steps) {
        for (const Words& words : steps) same(words);
    }

    /// Both answer a ttl, and the two were asked at nearly the same time.
    void same_ttl(const std::string& key) {
        const long long theirs = client_.pttl(key);
        const long long ours = memory.pttl(key);
        INFO(key);
        CHECK((theirs < 0) == (ours < 0));
        CHECK(std::llabs(theirs - ours) <= (theirs < 0 ? 0 : 2000));
    }

    std::string script(const ScriptText& text, const Words& keys, const Words& values,
                       bool by_sha = false) {
        return same(words_of(text, keys, values, by_sha));
    }

    std::string in_memory(const Words& words) {
        const std::vector<std::string_view> argv{words.begin(), words.end()};
        return to_string(memory.execute(argv));
    }

    static Words words_of(const ScriptText& text, const Words& keys, const Words& values,
                          bool by_sha = false) {
        Words words{by_sha ? "EVALSHA" : "EVAL", std::string{by_sha ? text.sha1 : text.text},
                    std::to_string(keys.size())};
        words.insert(words.end(), keys.begin(), keys.end());
        words.insert(words.end(), values.begin(), values.end());
        return words;
    }

private:
    static Words with_one_database(Words arguments) {
        arguments.insert(arguments.end(), {"--databases", "1"});
        return arguments;
    }
    /// Both have the time of day, and the same commands.
    void align() {
        const auto wall = std::chrono::system_clock::now().time_since_epoch();
        memory.set_clock_offset(wall - memory.clock());
        memory.set_lacks_getex(!server_.has_getex());
    }

    RedisServer server_;
    RawClient client_{server_.client()};
};

struct Dialects {
    const char* name;
    const ScriptText Script::*text;
};
const std::vector<Dialects> dialects{{"getex", &Script::getex}, {"get", &Script::get}};

/// Those that the servers understand.
std::vector<Dialects> known_dialects() {
    const RedisServer server;
    return {dialects.begin() + (server.has_getex() ? 0 : 1), dialects.end()};
}

const std::string binary = "\0\r\n%s \xff{}"s;

} // namespace

TEST_CASE("memory parity: SET and its options") {
    Pair pair{with_getex}; // with it came PXAT and GET
    pair.same({
        {"SET", "k", "v"},
        {"GET", "k"},
        {"set", "k", "w", "nx"},
        {"GET", "k"},
        {"TTL_", "k"},
        {"SET", "k", "x", "XX"},
        {"GET", "k"},
        {"SET", "new", "x", "XX"},
        {"EXISTS", "new"},
        {"SET", "n", "v", "NX", "PX", "100000"},
        {"SET", "n", "w", "NX", "PX", "100000"},
        {"SET", "n", "w", "Px", "100000", "nX"},
        {"GET", "n"},
        {"SET", "g", "1", "GET"},
        {"SET", "g", "2", "GET"},
        {"SET", "g", "3", "NX", "GET"},
        {"SET", "h", "3", "NX", "GET"},
        {"SET", "i", "3", "XX", "GET"},
        {"GET", "h"},
        {"GET", "i"},
        {"SET", "e", "v", "EX", "100"},
        {"SET", "e", "w", "KEEPTTL"},
        {"GET", "e"},
        {"SET", "p", "v", "PXAT", "1"},
        {"EXISTS", "p"},
        {"GET", "p"},
        {"DEL", "p"},
        {"SET", "p", "v", "EXAT", "1"},
        {"SET", "p", "v", "NX", "PXAT", "99999999999999"},
        {"SET", "q", "v", "EXAT", "9999999999"},
        {"SET", "k", ""},
        {"GET", "k"},
        {"SET", "", "empty key"},
        {"GET", ""},
        {"SET", binary, binary},
        {"GET", binary},
        {"SET", "big", std::string(100'000, 'x')},
        {"GET", "big"},
    });
    pair.real().integer({"HSET", "hash", "field", "value"});
    pair.memory.plant_hash("hash");
    pair.same({{"SET", "hash", "v", "GET"}, {"SET", "hash", "v", "NX", "GET"}});
    for (const char* key : {"k", "n", "e", "none", "q"}) pair.same_ttl(key);
    pair.same({{"SET", "n", "plain"}, {"PTTL", "n"}});
}

TEST_CASE("memory parity: what SET refuses") {
    Pair pair{with_getex}; // with it came PXAT and GET
    pair.same({
        {"SET"},
        {"SET", "k"},
        {"SET", "k", "v", "FOO"},
        {"SET", "k", "v", ""},
        {"SET", "k", "v", "NX", "XX"},
        {"SET", "k", "v", "XX", "NX"},
        {"SET", "k", "v", "NX", "NX"},
        {"SET", "k", "v", "PX"},
        {"SET", "k", "v", "NX", "PX"},
        {"SET", "k", "v", "PX", "1", "PX"},
        {"SET", "k", "v", "PX", "1", "EX", "1"},
        {"SET", "k", "v", "PX", "1", "PXAT", "1"},
        {"SET", "k", "v", "PX", "1", "KEEPTTL"},
        {"SET", "k", "v", "KEEPTTL", "PX", "1"},
        {"SET", "k", "v", "PERSIST"},
        {"SET", "k", "v", "PX", "NX", "1"},
    });
    for (const char* unit : {"PX", "EX", "PXAT", "EXAT"}) {
        for (const char* value :
             {"0", "-1", "-0", "x", "", " 1", "1 ", "+1", "007", "1.5", "1e3", "0x10",
              "9223372036854775807", "9223372036854775808", "-9223372036854775808",
              "9223372036854775", "9223372036854776", "99999999999999999999999"}) {
            pair.same({"SET", "k", "v", unit, value});
        }
    }
    pair.same({"SET", "k", "v", "PX", "1"s + '\0'});
}

TEST_CASE("memory parity: GETEX, GETRANGE, GET") {
    Pair pair;
    pair.same({
        {"GETEX", "k"},
        {"SET", "k", "value"},
        {"GETEX", "k"},
        {"getex", "k", "px", "100000"},
        {"GETEX", "k", "PERSIST"},
        {"PTTL", "k"},
        {"GETEX", "k", "EX", "100"},
        {"GETEX", "k", "persist"},
        {"GETEX"},
        {"GETEX", "k", "FOO"},
        {"GETEX", "k", "NX"},
        {"GETEX", "k", "PX"},
        {"GETEX", "k", "PX", "0"},
        {"GETEX", "k", "PX", "x"},
        {"GETEX", "k", "PERSIST", "PX", "1"},
        {"GETEX", "k", "PX", "1", "PERSIST"},
        {"GETEX", "k", "KEEPTTL"},
        // What is wrong with the time of a key that is not there, valkey says since 9.1, others not.
        {"GETEX", "none", "FOO"},
        {"GETEX", "k", "PX", "1", "EX", "1"},
        {"GETEX", "k", "PXAT", "99999999999999"},
        {"PERSIST", "k"},
        {"GET"},
        {"GET", "a", "b"},
        {"GETRANGE", "k"},
        {"GETRANGE", "k", "0"},
        {"GETRANGE", "k", "x", "1"},
        {"GETRANGE", "none", "0", "y"},
        {"GETRANGE", "none", "0", "-1"},
        {"SET", "empty", ""},
        {"GETRANGE", "empty", "0", "-1"},
        {"SET", "b", binary},
        {"GETRANGE", "b", "0", "3"},
        {"GETEX", "k", "PXAT", "1"},
        {"GET", "k"},
        {"SET", "k", "value"},
    });
    for (const char* from : {"0", "1", "4", "5", "9", "-1", "-5", "-6", "-99"}) {
        for (const char* to : {"0", "1", "4", "5", "9", "-1", "-5", "-6", "-99"}) {
            pair.same({"GETRANGE", "k", from, to});
        }
    }
}

TEST_CASE("memory parity: DEL, EXISTS, PTTL, PEXPIRE, PERSIST, RENAME") {
    Pair pair;
    pair.same({
        {"PTTL", "k"},
        {"PTTL"},
        {"PTTL", "a", "b"},
        {"SET", "k", "v"},
        {"PTTL", "k"},
        {"DEL"},
        {"EXISTS"},
        {"EXISTS", "k", "k", "none"},
        {"SET", "l", "v"},
        {"DEL", "k", "k", "l", "none"},
        {"PEXPIRE", "k", "1000"},
        {"SET", "k", "v"},
        {"PEXPIRE"},
        {"PEXPIRE", "k"},
        {"PEXPIRE", "k", "x"},
        {"PEXPIRE", "k", "1.5"},
        {"PEXPIRE", "k", "1", "FOO"},
        {"PEXPIRE", "k", "9223372036854775807"},
        {"PEXPIRE", "none", "9223372036854775807"},
        {"PTTL", "k"},
        {"PEXPIRE", "k", "100000"},
        {"PERSIST", "k"},
        {"PERSIST", "k"},
        {"PERSIST", "none"},
        {"PERSIST"},
        {"PEXPIRE", "k", "0"},
        {"GET", "k"},
        {"SET", "k", "v"},
        {"PEXPIRE", "k", "-5"},
        {"GET", "k"},
        {"SET", "k", "v"},
        {"PEXPIRE", "k", "-9223372036854775808"},
        {"EXISTS", "k"},
        {"RENAME", "k", "m"},
        {"RENAME", "k"},
        {"SET", "k", "v", "PX", "100000"},
        {"SET", "m", "w"},
        {"RENAME", "k", "m"},
        {"GET", "m"},
        {"EXISTS", "k"},
        {"RENAME", "m", "m"},
        {"GET", "m"},
        {"SET", binary, "v"},
        {"DEL", binary},
    });
    pair.same_ttl("m");
}

TEST_CASE("memory parity: keys expire") {
    Pair pair;
    pair.same({{"SET", "k", "v", "PX", "40"},
               {"SET", "l", "v", "PX", "100000"},
               {"PEXPIRE", "l", "40"},
               {"SET", "m", "v"},
               {"GETEX", "m", "PX", "40"}});
    leaselock::Runtime& runtime = leaselock::system_runtime();
    runtime.sleep_until(runtime.now() + std::chrono::milliseconds{100});
    pair.same({{"GET", "k"},
               {"EXISTS", "k", "l", "m"},
               {"DEL", "k"},
               {"PTTL", "l"},
               {"PERSIST", "l"},
               {"PEXPIRE", "l", "10"},
               {"SET", "k", "w", "XX"},
               {"SET", "k", "w", "NX", "PX", "100000"},
               {"GET", "k"},
               {"RENAME", "m", "n"}});
}

TEST_CASE("memory parity: PING, SELECT, TIME, FLUSHALL, and what is unknown") {
    Pair pair;
    pair.same({
        {"PING"},
        {"ping"},
        {"PING", binary},
        {"PING", "a", "b"},
        {"SELECT"},
        {"SELECT", "0"},
        {"SELECT", "1"},
        {"SELECT", "-1"},
        {"SELECT", "x"},
        {"SELECT", "99999999999"},
        {"TIME", "x"},
        {"SET", "k", "v"},
        {"FLUSHALL", "FOO"},
        {"FLUSHALL", "SYNC", "x"},
        {"EXISTS", "k"},
        {"FLUSHALL"},
        {"EXISTS", "k"},
        {"FLUSHALL", "sync"},
        {"FLUSHALL", "ASYNC"},
        {"NONSENSE"},
        {"nonsense", "a"},
        {"Nonsense", "a b", "c'd", ""},
        {"A\r\nB", "c\r\nd"},
        {"A\0B"s, "c\0d"s, "e"},
        {std::string(200, 'n'), "a"},
        {"N", std::string(200, 'a'), "b"},
        {"N", std::string(60, 'a'), std::string(60, 'b'), std::string(60, 'c'), "d"},
        {"", "a"},
        {"GET\0"s, "k"},
    });
    const auto seconds = [](const std::string& time) { return std::stoll(time.substr(1)); };
    const std::string ours = pair.in_memory({"TIME"});
    const std::string theirs = pair.real().command({"TIME"});
    CHECK(ours.size() - ours.find(", ") > 2);
    CHECK(std::llabs(seconds(ours) - seconds(theirs)) <= 2);
}

TEST_CASE("memory parity: keys of another type") {
    Pair pair;
    for (const char* key : {"h", "d", "r", "s"}) {
        pair.real().integer({"HSET", key, "field", "value"});
        pair.memory.plant_hash(key);
    }
    pair.same({
        {"GET", "h"},
        {"GETEX", "h"},
        {"GETEX", "h", "PX", "10"},
        {"GETRANGE", "h", "0", "1"},
        {"GETRANGE", "h", "x", "1"},
        {"SET", "h", "v", "NX"},
        {"EXISTS", "h"},
        {"PTTL", "h"},
        {"PEXPIRE", "h", "100000"},
        {"PERSIST", "h"},
        {"DEL", "d"},
        {"RENAME", "r", "t"},
        {"GET", "t"},
        {"SET", "s", "v", "XX"},
        {"GET", "s"},
    });
    for (const Dialects& dialect : dialects) {
        for (const Script* script :
             {&scripts::compare_and_delete, &scripts::compare_and_delete_anywhere,
              &scripts::compare_and_expire, &scripts::compare_and_adopt,
              &scripts::compare_and_fence}) {
            pair.script(script->*dialect.text, {"h", "f"}, {"v", "1000", "1000"});
        }
        pair.same({{"SET", "k", "v"}});
        pair.script(scripts::compare_and_fence.*dialect.text, {"k", "h"}, {"v", "1000"});
    }
}

TEST_CASE("memory parity: SCRIPT, EVAL, EVALSHA") {
    Pair pair;
    const ScriptText& text = scripts::compare_and_delete.*known_dialects().front().text;
    const std::string sha1{text.sha1};
    std::string upper = sha1;
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    pair.same({
        {"SCRIPT"},
        {"SCRIPT", "FOO"},
        {"SCRIPT", "LOAD"},
        {"SCRIPT", "LOAD", "a", "b"},
        {"SCRIPT", "EXISTS"},
        {"SCRIPT", "EXISTS", sha1, "x"},
        {"SCRIPT", "FLUSH", "FOO"},
        {"SCRIPT", "FLUSH", "SYNC", "x"},
        {"EVALSHA", sha1, "1", "k", "v"},
        {"EVALSHA", upper, "1", "k", "v"},
        {"EVALSHA", "abc", "0"},
        {"EVALSHA", "abc", "x"},
        {"EVALSHA", sha1, "x"},
        {"EVALSHA", sha1, "2", "k"},
        {"EVALSHA", sha1, "-1"},
        {"EVALSHA", std::string(40, 'a'), "0"},
        {"EVALSHA", sha1},
        {"EVAL", std::string{text.text}},
        {"EVAL"},
        {"EVAL", std::string{text.text}, "x"},
        {"EVAL", std::string{text.text}, "-1"},
        {"EVAL", std::string{text.text}, "2", "k"},
        {"script", "load", std::string{text.text}},
        {"SCRIPT", "EXISTS", sha1, upper, "x"},
        {"EVALSHA", sha1, "1", "k", "v"},
        {"EVALSHA", upper, "1", "k", "v"},
        {"SCRIPT", "FLUSH"},
        {"SCRIPT", "EXISTS", sha1},
        {"EVALSHA", sha1, "1", "k", "v"},
        {"EVAL", std::string{text.text}, "1", "k", "v"},
        {"EVALSHA", sha1, "1", "k", "v"},
        {"SCRIPT", "FLUSH", "ASYNC"},
        {"SCRIPT", "FLUSH", "sync"},
        {"EVALSHA", sha1, "1", "k", "v"},
    });
}

TEST_CASE("memory parity: the scripts, all outcomes, both dialects") {
    for (const Dialects& dialect : known_dialects()) {
        INFO(dialect.name);
        Pair pair;
        const ScriptText& del = scripts::compare_and_delete.*dialect.text;
        const ScriptText& expire = scripts::compare_and_expire.*dialect.text;
        const ScriptText& adopt = scripts::compare_and_adopt.*dialect.text;
        const ScriptText& anywhere = scripts::compare_and_delete_anywhere.getex;
        for (const ScriptText* text : {&del, &expire, &adopt, &anywhere}) {
            pair.same({"SCRIPT", "LOAD", std::string{text->text}});
        }
        for (const bool by_sha : {false, true}) {
            for (const std::string& key : {"k"s, binary, ""s}) {
                for (const std::string& value : {"v"s, binary + "v", ""s}) {
                    const auto hold = [&] { pair.same({"SET", key, value, "PX", "100000"}); };
                    pair.same({"DEL", key});
                    CHECK(pair.script(del, {key}, {value}, by_sha) == "(integer) -1");
                    CHECK(pair.script(expire, {key}, {value, "5000"}, by_sha) == "(integer) -1");
                    CHECK(pair.script(adopt, {key}, {value, "n", "5000"}, by_sha) ==
                          "(integer) -1");
                    hold();
                    CHECK(pair.script(del, {key}, {"other"}, by_sha) == "(integer) 0");
                    CHECK(pair.script(expire, {key}, {"other", "5000"}, by_sha) == "(integer) 0");
                    CHECK(pair.script(adopt, {key}, {"other", "n", "5000"}, by_sha) ==
                          "(integer) 0");
                    pair.same_ttl(key);
                    CHECK(pair.script(expire, {key}, {value, "50000"}, by_sha) == "(integer) 1");
                    pair.same_ttl(key);
                    CHECK(pair.script(adopt, {key}, {value, "n", "9000"}, by_sha) == "(integer) 1");
                    CHECK(pair.script(adopt, {key}, {value, "n", "9000"}, by_sha) == "(integer) 1");
                    pair.same({"GET", key});
                    pair.same_ttl(key);
                    CHECK(pair.script(del, {key}, {value}, by_sha) == "(integer) 0");
                    CHECK(pair.script(anywhere, {key}, {value}, by_sha) == "(integer) 0");
                    CHECK(pair.script(del, {key}, {"n"}, by_sha) == "(integer) 1");
                    pair.same({"EXISTS", key});
                    CHECK(pair.script(anywhere, {key}, {"n"}, by_sha) == "(integer) -1");
                    hold();
                    CHECK(pair.script(anywhere, {key}, {value}, by_sha) == "(integer) 1");
                    pair.same({"EXISTS", key});
                }
            }
        }
    }
}

TEST_CASE("memory parity: scripts called wrongly") {
    for (const Dialects& dialect : dialects) {
        INFO(dialect.name);
        Pair pair;
        const ScriptText& del = scripts::compare_and_delete.*dialect.text;
        const ScriptText& expire = scripts::compare_and_expire.*dialect.text;
        const ScriptText& adopt = scripts::compare_and_adopt.*dialect.text;
        const ScriptText& fence = scripts::compare_and_fence.*dialect.text;
        const ScriptText& anywhere = scripts::compare_and_delete_anywhere.getex;
        for (const ScriptText* text : {&del, &expire, &adopt, &fence, &anywhere}) {
            pair.script(*text, {}, {});
            pair.script(*text, {"none"}, {});
        }
        pair.same({"SET", "k", "v", "PX", "100000"});
        pair.script(del, {"k"}, {});
        pair.script(anywhere, {"k"}, {});
        pair.script(del, {"k", "more"}, {"w", "more"});
        for (const char* ttl : {"0", "-1", "x", "", "1.5", "9223372036854775807"}) {
            pair.same({"SET", "k", "v", "PX", "100000"});
            pair.script(expire, {"k"}, {"v", ttl});
            pair.same({"SET", "k", "v", "PX", "100000"});
            pair.script(adopt, {"k"}, {"v", "w", ttl});
            pair.same({"GET", "k"});
        }
        pair.same({"SET", "k", "v", "PX", "100000"});
        pair.script(expire, {"k"}, {"v"});
        pair.script(adopt, {"k"}, {"v"});
        pair.script(adopt, {"k"}, {"v", "w"});
        pair.script(fence, {"k"}, {"v", "1000"});
        pair.script(fence, {"k", "f"}, {"v"});
        for (const char* keep : {"x", "", "1 x", "--1", "9e30", "-9e30", "inf"}) {
            pair.script(fence, {"k", "f"}, {"v", keep});
        }
        pair.same({{"EXISTS", "f"}, {"GET", "k"}});
    }
}

TEST_CASE("memory parity: fences") {
    for (const Dialects& dialect : known_dialects()) {
        INFO(dialect.name);
        Pair pair;
        const ScriptText& fence = scripts::compare_and_fence.*dialect.text;
        CHECK(pair.script(fence, {"k", "f"}, {"v", "1000"}) == "-1");
        pair.same({"SET", "k", "v", "PX", "100000"});
        CHECK(pair.script(fence, {"k", "f"}, {"w", "1000"}) == "0");
        pair.same({"EXISTS", "f"});

        // the moments differ, so these are compared by what they are
        const Words call = Pair::words_of(fence, {"k", "f"}, {"v", "50000"});
        const auto grow = [&](const auto& run, const auto& pttl) {
            long long last = 0;
            for (int i = 0; i < 20; ++i) {
                const std::string reply = run(call);
                REQUIRE(reply.size() == 16);
                const long long next = std::stoll(reply);
                CHECK(next > last);
                last = next;
            }
            CHECK(pttl() > 48'000);
            CHECK(pttl() <= 50'002);
        };
        grow([&](const Words& words) { return pair.real().command(words); },
             [&] { return pair.real().pttl("f"); });
        grow([&](const Words& words) { return pair.in_memory(words); },
             [&] { return pair.memory.pttl("f"); });

        // ahead of both clocks: from here on the counter decides
        pair.same({"SET", "f", "5000000000000000"});
        CHECK(pair.script(fence, {"k", "f"}, {"v", "50000"}) == "5000000000000001");
        CHECK(pair.script(fence, {"k", "f"}, {"v", " 1e4 "}) == "5000000000000002");
        pair.same({"GET", "f"});
        pair.same({"SET", "f", "9007199254740990"});
        CHECK(pair.script(fence, {"k", "f"}, {"v", "50000"}) == "9007199254740991");
        CHECK(pair.script(fence, {"k", "f"}, {"v", "50000"}) == "(error) FENCE overflow");
        pair.same({"GET", "f"});
        for (const std::string& corrupt :
             {"x"s, ""s, "-1"s, "1.5"s, " 1"s, "1e5"s, "12345678901234567"s, "1\0"s, binary}) {
            pair.same({"SET", "f", corrupt});
            CHECK(pair.script(fence, {"k", "f"}, {"v", "50000"}) == "(error) FENCE corrupt");
            pair.same({"GET", "f"});
        }
        pair.same({"SET", "f", "9999999999999999"});
        CHECK(pair.script(fence, {"k", "f"}, {"v", "50000"}) == "(error) FENCE overflow");
    }
}

TEST_CASE("memory parity: a server without GETEX") {
    Pair pair{without_getex};
    pair.same({{"GETEX", "k"}, {"GETEX"}, {"SET", "k", "v", "PX", "100000"}});
    for (const Dialects& dialect : dialects) {
        pair.script(scripts::compare_and_expire.*dialect.text, {"k"}, {"v", "50000"});
        pair.script(scripts::compare_and_adopt.*dialect.text, {"k"}, {"v", "v", "50000"});
        pair.script(scripts::compare_and_fence.*dialect.text, {"k", "f"}, {"w", "50000"});
        pair.script(scripts::compare_and_delete.*dialect.text, {"k"}, {"v"});
    }
    pair.same({"SET", "k", "v"});
    CHECK(pair.script(scripts::compare_and_delete_anywhere.getex, {"k"}, {"v"}) == "(integer) 1");
}

TEST_CASE("memory parity: a replica") {
    Pair pair;
    pair.same({{"SET", "k", "v"}, {"SET", "f", "5000000000000000"}});
    const leaselock::test::ReservedPort nobody; // a master that never answers
    pair.real().expect_ok({"REPLICAOF", "127.0.0.1", std::to_string(nobody.number())});
    pair.memory.set_read_only(true);
    pair.same({
        {"SET", "k", "w"},
        {"SET", "k", "w", "FOO"},
        {"SET", "k"},
        {"GET", "k"},
        {"GETEX", "k"},
        {"GETRANGE", "k", "0", "1"},
        {"DEL", "k"},
        {"EXISTS", "k"},
        {"PTTL", "k"},
        {"PEXPIRE", "k", "10"},
        {"PERSIST", "k"},
        {"RENAME", "k", "l"},
        {"FLUSHALL"},
        {"PING"},
        {"SCRIPT", "FLUSH"},
        {"SCRIPT", "LOAD", std::string{scripts::compare_and_delete.getex.text}},
    });
    for (const Dialects& dialect : dialects) {
        for (const char* value : {"v", "w"}) {
            pair.script(scripts::compare_and_delete.*dialect.text, {"k"}, {value});
            pair.script(scripts::compare_and_delete_anywhere.getex, {"k"}, {value});
            pair.script(scripts::compare_and_expire.*dialect.text, {"k"}, {value, "50000"});
            pair.script(scripts::compare_and_adopt.*dialect.text, {"k"}, {value, "x", "50000"});
            pair.script(scripts::compare_and_fence.*dialect.text, {"k", "f"}, {value, "50000"});
        }
        pair.script(scripts::compare_and_delete.*dialect.text, {"none"}, {"v"});
    }
    pair.same({"GET", "k"});
}

TEST_CASE("memory parity: full memory") {
    Pair pair;
    pair.same({{"SET", "k", "v"}, {"SET", "f", "5000000000000000"}});
    pair.real().config_set("maxmemory", "1");
    pair.memory.set_out_of_memory(true);
    pair.same({
        {"SET", "k", "w"},
        {"SET", "new", "w", "NX", "PX", "10"},
        {"SET", "k", "w", "FOO"},
        {"SET", "k"},
        {"GET", "k"},
        {"GETEX", "k"},
        {"PEXPIRE", "k", "100000"},
        {"PERSIST", "k"},
        {"RENAME", "k", "l"},
        {"RENAME", "l", "k"},
        {"DEL", "none"},
        {"EXISTS", "k"},
    });
    for (const Dialects& dialect : dialects) {
        pair.script(scripts::compare_and_expire.*dialect.text, {"k"}, {"v", "50000"});
        pair.script(scripts::compare_and_adopt.*dialect.text, {"k"}, {"v", "v", "50000"});
        pair.script(scripts::compare_and_fence.*dialect.text, {"k", "f"}, {"v", "50000"});
        pair.script(scripts::compare_and_adopt.*dialect.text, {"k"}, {"w", "v", "50000"});
    }
    pair.same({"GET", "f"});
    CHECK(pair.script(scripts::compare_and_delete.*known_dialects().front().text, {"k"}, {"v"}) ==
          "(integer) 1");
    CHECK(pair.script(scripts::compare_and_delete_anywhere.getex, {"k"}, {"v"}) == "(integer) -1");
}
