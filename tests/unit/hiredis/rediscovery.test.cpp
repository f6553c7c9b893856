// SPDX-License-Identifier: MIT

#include <leaselock/core/error.hpp>
#include <leaselock/hiredis/detail/rediscovery.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string_view>
#include <system_error>
#include <vector>

namespace leaselock::test {
namespace {

using namespace std::chrono_literals;
using detail::Proof;

Reply unsent(std::error_code cause) {
    Reply reply;
    reply.set_unsent(cause);
    return reply;
}
Reply unsent(errc cause) { return unsent(make_error_code(cause)); }
Reply unsent(std::errc cause) { return unsent(std::make_error_code(cause)); }
Reply unknown(errc cause) {
    Reply reply;
    reply.set_unknown(make_error_code(cause));
    return reply;
}
Reply text(Reply::Kind kind, std::string_view words) {
    Reply reply;
    reply.set_text(kind, words);
    return reply;
}
Reply error(std::string_view line) { return text(Reply::error, line); }
Reply ok() { return text(Reply::status, "OK"); }
Reply integer(std::int64_t number) {
    Reply reply;
    reply.set_integer(number);
    return reply;
}
Reply nil() {
    Reply reply;
    reply.set_nil();
    return reply;
}

struct Row {
    std::string_view name;
    Reply reply;
    Proof proof;
};

TEST(Rediscovery, WhatAReplyProves) {
    const Row rows[] = {
        {"set", ok(), Proof::ran},
        {"busy", nil(), Proof::ran},
        {"compared", integer(0), Proof::ran},
        {"fence", text(Reply::string, "1700000000000000"), Proof::ran},

        {"lost on the way", unknown(errc::connection_lost), Proof::may_run},
        {"timed out on the way", unknown(errc::timed_out), Proof::may_run},
        {"unknown is never READONLY", unknown(errc::read_only), Proof::may_run},
        {"a proxy's words", error("ERR Connection timed out"), Proof::may_run},
        {"words of nobody", error("WHATEVER"), Proof::may_run},

        {"nobody there", unsent(std::errc::connection_refused), Proof::elsewhere},
        {"no descriptors", unsent(std::errc::too_many_files_open), Proof::elsewhere},
        {"connect too slow", unsent(errc::timed_out), Proof::elsewhere},
        {"lost while signing in", unsent(errc::connection_lost), Proof::elsewhere},
        {"no address", unsent(errc::no_address), Proof::elsewhere},
        {"a replica was named", unsent(errc::not_master), Proof::elsewhere},
        {"no Redis was named", unsent(errc::protocol_error), Proof::elsewhere},
        {"READONLY", error("READONLY You can't write against a read only replica."),
         Proof::elsewhere},
        {"READONLY in a script",
         error("ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY "
               "You can't write against a read only replica."),
         Proof::elsewhere},
        {"MASTERDOWN", error("MASTERDOWN Link with MASTER is down"), Proof::elsewhere},
        {"LOADING", error("LOADING Redis is loading the dataset in memory"), Proof::elsewhere},
        {"NOREPLICAS", error("NOREPLICAS Not enough good replicas to write."), Proof::elsewhere},

        {"in another thread's call", unsent(errc::in_use), Proof::did_not},
        {"in a forked child", unsent(errc::other_process), Proof::did_not},
        {"bad endpoint", unsent(errc::invalid_argument), Proof::did_not},
        {"no such master", unsent(errc::no_such_master), Proof::did_not},
        {"certificate", unsent(errc::insecure), Proof::did_not},
        {"no memory", unsent(std::errc::not_enough_memory), Proof::did_not},
        {"password", error("WRONGPASS invalid username-password pair"), Proof::did_not},
        {"no password", error("NOAUTH Authentication required."), Proof::did_not},
        {"permission", error("NOPERM this user has no permissions"), Proof::did_not},
        {"script not cached", error("NOSCRIPT No matching script."), Proof::did_not},
        {"memory full", error("OOM command not allowed"), Proof::did_not},
        {"a script runs", error("BUSY Redis is busy running a script"), Proof::did_not},
        {"other type", error("WRONGTYPE Operation against a key"), Proof::did_not},
        {"too many clients", error("ERR max number of clients reached"), Proof::did_not},
        {"another slot", error("MOVED 1 127.0.0.1:7000"), Proof::did_not},
    };
    for (const Row& row : rows) EXPECT_EQ(detail::proof_of(row.reply), row.proof) << row.name;
}

constexpr std::string_view set_words[] = {"SET", "k", "v", "NX", "PX", "1000"};
constexpr std::string_view script_words[] = {"EVALSHA", "sha", "1", "k", "v"};
constexpr std::string_view pttl_words[] = {"PTTL", "k"};
const Command set{set_words, "k"};
const Command script{script_words, "k"};
const Command pttl{pttl_words, "k"};

struct Batch {
    std::string_view name;
    std::vector<Command> commands;
    std::vector<Reply> replies;
    int again; ///< from which on; -1: not at all
};

TEST(Rediscovery, WhatOfABatchIsSentAgain) {
    const Reply readonly = error("READONLY You can't write against a read only replica.");
    const Reply refused = unsent(std::errc::connection_refused);
    const Reply lost = unknown(errc::connection_lost);
    const Reply noscript = error("NOSCRIPT No matching script.");
    const Batch rows[] = {
        {"nothing", {}, {}, -1},
        {"all well", {set, script, pttl}, {ok(), integer(1), integer(9)}, -1},
        {"busy", {set, pttl}, {nil(), integer(9)}, -1},
        {"unknown alone", {set}, {lost}, -1},
        {"one, refused by a replica", {set}, {readonly}, 0},
        {"one, nobody there", {set}, {refused}, 0},
        {"all of it, nobody there", {set, script, pttl}, {refused, refused, refused}, 0},
        {"a replica reads, it does not write",
         {set, script, pttl},
         {readonly, readonly, integer(9)},
         0},
        {"behind a refused one, others that did not run go along",
         {set, script},
         {readonly, noscript},
         0},
        {"demoted in the middle: the rest",
         {script, script, script},
         {integer(1), readonly, readonly},
         1},
        {"promoted in the middle: what ran behind it would be overtaken",
         {set, script},
         {readonly, integer(-1)},
         -1},
        {"promoted in the middle, longer",
         {set, script, pttl},
         {readonly, readonly, integer(1)},
         0},
        {"promoted at the end", {set, set, script}, {readonly, readonly, integer(1)}, -1},
        {"the first may still land: nothing behind it may overtake it",
         {set, script, pttl},
         {lost, refused, refused},
         -1},
        {"one behind may have run", {set, script}, {readonly, lost}, -1},
        {"a proxy's words in front", {set, script}, {error("ERR no backend"), readonly}, -1},
        {"refused for a reason of its own", {set}, {error("OOM command not allowed")}, -1},
        {"that, and a replica", {set, script}, {error("OOM command not allowed"), readonly}, 1},
    };
    for (const Batch& row : rows) {
        const std::size_t first = detail::first_to_send_again(row.commands, row.replies);
        const std::size_t expected =
            row.again < 0 ? row.replies.size() : static_cast<std::size_t>(row.again);
        EXPECT_EQ(first, expected) << row.name;
    }
}

TEST(Rediscovery, PausesGrowAndAreBounded) {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    for (const std::uint64_t random : {std::uint64_t{0}, std::uint64_t{5'000'000}, most}) {
        EXPECT_GE(detail::rediscovery_pause(0, random), 5ms);
        EXPECT_LE(detail::rediscovery_pause(0, random), 10ms);
        EXPECT_GE(detail::rediscovery_pause(3, random), 40ms);
        EXPECT_LE(detail::rediscovery_pause(3, random), 80ms);
        for (const unsigned failed : {5U, 31U, 32U, 1000U, std::numeric_limits<unsigned>::max()}) {
            EXPECT_GE(detail::rediscovery_pause(failed, random), 100ms) << failed;
            EXPECT_LE(detail::rediscovery_pause(failed, random), 200ms) << failed;
        }
    }
    EXPECT_NE(detail::rediscovery_pause(5, 1), detail::rediscovery_pause(5, 77'777'777));
}

TEST(Rediscovery, TheLastWordsAreThoseThatTellMore) {
    const Reply before = error("READONLY You can't write against a read only replica.");
    std::array<Reply, 2> replies{unsent(errc::timed_out), unsent(errc::timed_out)};
    detail::keep_last_words(before, replies);
    for (const Reply& reply : replies) {
        EXPECT_EQ(reply.kind, Reply::error);
        EXPECT_EQ(reply.text, before.text);
    }
    for (const Reply& last : {unsent(errc::not_master), unknown(errc::timed_out), ok()}) {
        replies = {unsent(errc::timed_out), last};
        detail::keep_last_words(before, replies);
        EXPECT_EQ(replies[0].kind, Reply::unsent);
        EXPECT_EQ(replies[1].kind, last.kind);
        EXPECT_EQ(replies[1].cause, last.cause);
    }
}

} // namespace
} // namespace leaselock::test
