// SPDX-License-Identifier: MIT

#include <leaselock/core/error.hpp>
#include <leaselock/hiredis/detail/query.hpp>
#include <leaselock/hiredis/detail/sentinel_reply.hpp>

#include <gmock/gmock.h>

#include <string>
#include <string_view>
#include <system_error>

namespace leaselock::test {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;
using ::testing::Not;

Outcome read(const std::string& bytes, ServerAddress& where) {
    detail::TreeReader reader;
    detail::ReplyTree tree;
    if (!reader.feed(bytes, tree) || tree == nullptr) {
        ADD_FAILURE() << "no reply: " << bytes;
        return {};
    }
    return detail::read_master_address(*tree, where);
}

std::string bulk(const std::string& text) {
    return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}
std::string address(const std::string& host, const std::string& port) {
    return "*2\r\n" + bulk(host) + bulk(port);
}

TEST(SentinelReply, AnAddressIsRead) {
    for (const std::string host :
         {"10.0.0.1", "redis-0.redis.svc.cluster.local", "::1", "fe80::1%eth0", "2001:db8::7"}) {
        ServerAddress where;
        EXPECT_EQ(read(address(host, "6379"), where).answer, Answer::yes) << host;
        EXPECT_EQ(where.host.view(), host);
        EXPECT_EQ(where.port, 6379);
    }
}

TEST(SentinelReply, WhatIsNoAddressIsRefused) {
    for (const std::string& bytes : {address("", "6379"),
                                     address("10.0.0.1", "0"),
                                     address("10.0.0.1", "65536"),
                                     address("10.0.0.1", "-1"),
                                     address("10.0.0.1", "+80"),
                                     address("10.0.0.1", " 80"),
                                     address("10.0.0.1", "80x"),
                                     address("10.0.0.1", ""),
                                     address("10.0.0.1", "99999999999999999999"),
                                     address("10.0.0.1\r\n", "80"),
                                     address("10.0.0.1\0"s, "80"),
                                     address("a b", "80"),
                                     address("/run/redis.sock", "80"),
                                     address("[::1]", "80"),
                                     address("h\xc3\xb6st", "80"),
                                     address(std::string(254, 'a'), "80"),
                                     address(std::string(70'000, 'a'), "80"),
                                     "*0\r\n"s,
                                     "*1\r\n" + bulk("10.0.0.1"),
                                     "*3\r\n" + bulk("10.0.0.1") + bulk("80") + bulk("80"),
                                     "*2\r\n:1\r\n:80\r\n"s,
                                     "*2\r\n" + bulk("10.0.0.1") + ":80\r\n",
                                     "*2\r\n$-1\r\n$-1\r\n"s,
                                     "+OK\r\n"s,
                                     ":80\r\n"s,
                                     bulk("10.0.0.1:80")}) {
        ServerAddress where;
        const Outcome outcome = read(bytes, where);
        EXPECT_EQ(outcome.answer, Answer::unsent) << bytes.substr(0, 60);
        EXPECT_EQ(outcome.cause, errc::protocol_error) << bytes.substr(0, 60);
        EXPECT_EQ(where.port, 0) << "nothing may be left of it";
        EXPECT_TRUE(where.host.empty());
    }
}

TEST(SentinelReply, NilAndErrorsHaveCausesOfTheirOwn) {
    ServerAddress where;
    EXPECT_EQ(read("*-1\r\n", where).cause, errc::no_such_master);
    EXPECT_EQ(read("$-1\r\n", where).cause, errc::no_such_master);
    const Outcome denied = read("-NOAUTH Authentication required.\r\n", where);
    EXPECT_EQ(denied.cause, errc::not_authenticated);
    EXPECT_EQ(denied.text.view(), "NOAUTH Authentication required.");
    EXPECT_EQ(read("-NOPERM no\r\n", where).cause, errc::no_permission);
    EXPECT_EQ(read("-ERR unknown command 'SENTINEL'\r\n", where).cause, errc::unknown_command);
    EXPECT_EQ(read("-IDONTKNOW\r\n", where).cause, errc::server_error);
    EXPECT_EQ(where.port, 0);
}

const Outcome refused{Answer::unsent, std::make_error_code(std::errc::connection_refused),
                      "10.0.0.1:26379"};
const Outcome stranger{Answer::unsent, errc::no_such_master};
const Outcome denied{Answer::unsent, errc::wrong_password, "WRONGPASS invalid pair"};
const Outcome slow{Answer::unsent, errc::timed_out, "10.0.0.1:26379: name lookup"};

std::error_code cause_of_all(std::initializer_list<Outcome> all) {
    detail::SentinelTally tally{"mymaster", all.size()};
    for (const Outcome& said : all) tally.add({"10.0.0.1:26379"}, said);
    EXPECT_EQ(tally.result().answer, Answer::unsent);
    return tally.result().cause;
}

TEST(SentinelTally, OneThatMayComeBackMayKnowBetter) {
    EXPECT_EQ(cause_of_all({stranger, stranger, stranger}), errc::no_such_master);
    EXPECT_EQ(cause_of_all({denied, denied}), errc::wrong_password);
    EXPECT_EQ(cause_of_all({denied, stranger}), errc::wrong_password);
    EXPECT_EQ(cause_of_all({stranger, denied}), errc::no_such_master);
    EXPECT_EQ(cause_of_all({stranger, refused, denied}), std::errc::connection_refused);
    EXPECT_EQ(cause_of_all({denied, slow, refused}), errc::timed_out);
    EXPECT_EQ(cause_of_all({refused, slow}), std::errc::connection_refused);
}

TEST(SentinelTally, TheTextTellsWhatEachSaid) {
    detail::SentinelTally tally{"mymaster", 4};
    tally.add({"10.0.0.1:26379"}, refused);
    tally.add({"s2:26379"}, stranger);
    tally.add({"s3:26379"}, denied);
    tally.add({"10.0.0.1:26379"}, slow);
    const std::string text{tally.result().text.view()};
    EXPECT_THAT(
        text,
        HasSubstr("no sentinel told where 'mymaster' is: 10.0.0.1:26379: Connection refused;"));
    EXPECT_THAT(text, HasSubstr("; s2:26379: no master of this name;"));
    EXPECT_THAT(text, HasSubstr("s3:26379: WRONGPASS invalid pair"));
    EXPECT_THAT(text, HasSubstr("; 10.0.0.1:26379: no answer in time, name lookup"));
}

TEST(SentinelTally, EachHasItsShareOfTheText) {
    const Outcome endless{Answer::unsent, errc::server_error, std::string(280, 'X')};
    detail::SentinelTally tally{std::string(253, 'm'), 16};
    for (int i = 0; i < 16; ++i) tally.add({"s" + std::to_string(i)}, endless);
    const std::string text{tally.result().text.view()};
    EXPECT_FALSE(tally.result().text.truncated());
    EXPECT_THAT(text, HasSubstr("s0: "));
    EXPECT_THAT(text, HasSubstr("; s15: "));
    EXPECT_LE(text.size(), ServerText::capacity() - std::string{"resolver: "}.size());
}

} // namespace
} // namespace leaselock::test
