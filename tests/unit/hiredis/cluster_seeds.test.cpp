// SPDX-License-Identifier: MIT
#include <leaselock/hiredis/cluster_connection.hpp>
#include <leaselock/hiredis/detail/cluster_seeds.hpp>
#include <leaselock/hiredis/endpoint.hpp>

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace leaselock::test {
namespace {

using detail::check_seeds;

static_assert(RoutedConnection<ClusterConnection>);
static_assert(!std::is_move_constructible_v<ClusterConnection>);

std::vector<Endpoint> endpoints(const std::vector<std::string_view>& urls) {
    std::vector<Endpoint> all;
    for (const std::string_view url : urls) all.push_back(Endpoint::from_url(url));
    return all;
}

TEST(ClusterSeeds, OneOrManyThatDifferInHostAndPort) {
    EXPECT_TRUE(check_seeds(endpoints({"redis://a"})));
    EXPECT_TRUE(
        check_seeds(endpoints({"redis://u:p@a?client_name=x", "redis://u:p@b:7?client_name=x",
                               "redis://u:p@[::1]?client_name=x"})));
}

TEST(ClusterSeeds, WhatWillNotDoIsSaid) {
    const struct {
        std::vector<std::string_view> urls;
        std::string_view says;
    } rows[] = {
        {{}, "at least one"},
        {{"unix:///tmp/redis.sock"}, "unix"},
        {{"redis://a", "unix:///tmp/redis.sock"}, "unix"},
        {{"redis://a/1"}, "no other db"},
        {{"redis://a", "redis://b?db=2"}, "no other db"},
        {{"redis://u:p@a", "redis://u:q@b"}, "has to be the same"},
        {{"redis://u:p@a", "redis://v:p@b"}, "has to be the same"},
        {{"redis://u:p@a", "redis://b"}, "has to be the same"},
        {{"redis://a?connect_timeout=1s", "redis://b?connect_timeout=2s"}, "has to be the same"},
        {{"redis://a?keepalive=1s", "redis://b"}, "has to be the same"},
        {{"redis://a?client_name=x", "redis://b"}, "has to be the same"},
        {{"rediss://a"}, "TLS"},
    };
    for (const auto& row : rows) {
        const Outcome outcome = check_seeds(endpoints(row.urls));
        EXPECT_EQ(outcome.answer, Answer::unsent) << row.says;
        EXPECT_EQ(outcome.cause, errc::invalid_argument) << row.says;
        EXPECT_NE(outcome.text.view().find(row.says), std::string_view::npos)
            << outcome.text.view();
        if (!row.urls.empty() && row.urls.front().starts_with("rediss")) continue;
        EXPECT_THROW(ClusterConnection{row.urls}, Error) << row.says;
    }
    class NoResolver final : public Resolver {
        Outcome resolve(ServerAddress&) noexcept override { return {}; }
    };
    Endpoint resolved;
    resolved.resolver = std::make_shared<NoResolver>();
    EXPECT_NE(check_seeds({&resolved, 1}).text.view().find("no resolver"), std::string_view::npos);
    Endpoint hostless;
    hostless.host.clear();
    EXPECT_EQ(check_seeds({&hostless, 1}).cause, errc::invalid_argument);
}

TEST(ClusterSeeds, WithoutGoodOnesEveryCallSaysSo) {
    Endpoint bad;
    bad.db = 3;
    ClusterConnection cluster{std::span<const Endpoint>{&bad, 1}};
    const std::string_view words[] = {"PING"};
    const Command command{words, {}};
    Reply reply;
    cluster.call({&command, 1}, {&reply, 1}, Deadline::max());
    EXPECT_EQ(reply.kind, Reply::unsent);
    EXPECT_EQ(reply.cause, errc::invalid_argument);
    EXPECT_EQ(reply.text.view(), "seeds: a cluster has no other db than 0");
}

TEST(ClusterSeeds, CanBeGivenInEachWay) {
    ClusterConnection one{"redis://127.0.0.1:1"};
    const std::string text = "redis://127.0.0.1:1";
    ClusterConnection two{text};
    ClusterConnection several{{"redis://127.0.0.1:1", "redis://127.0.0.1:2"}};
    const std::vector<Endpoint> parsed = endpoints({"redis://127.0.0.1:1"});
    ClusterConnection ready{parsed};
    EXPECT_EQ(one.lane("key"), 0U); // nothing is known
    EXPECT_THROW(ClusterConnection{"http://127.0.0.1"}, Error);
    EXPECT_THROW(ClusterConnection{std::vector<std::string_view>{}}, Error);
}

} // namespace
} // namespace leaselock::test
