// SPDX-License-Identifier: MIT
// What one stream does for many threads: acquire-and-release pairs a second over one
// `MultiplexedConnection`, over a hand-written connection per thread, and over one connection that one
// thread pipelines, which is the limit. For one thread, over a `HiredisConnection` too.
//
//   leaselock_many_threads [--threads N,N,...] [--rounds R] [--ms M] [--only WAY] [--port P] [--json FILE]
//
// The ways take turns, M ms each, R rounds; the table gives medians and what they lie between. The
// server is a private one, or the one on that port.
// Exits with 1 when a lock was not taken or not released.
#include "benchmark/support/arguments.hpp"
#include "benchmark/support/crowd.hpp"
#include "benchmark/support/records.hpp"
#include "benchmark/support/statistics.hpp"
#include "integration/support/redis_server.hpp"
#include "integration/support/resources.hpp"

#include <leaselock/leaselock.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace leaselock;
using namespace leaselock::bench;
using namespace leaselock::test;

namespace {

struct Plan {
    std::vector<long> threads{1, 64};
    long rounds = 7;
    long ms = 1000;
    long port = 0;    ///< of a server that runs already
    std::string only; ///< one way, for a profiler
    std::string json;
};

struct Way {
    std::string_view name;
    std::size_t threads;
    std::string_view title;
    std::function<double(std::chrono::milliseconds)> run;
    std::vector<double> rates{};
    std::vector<double> here{};  ///< microseconds of our processor time for a pair
    std::vector<double> there{}; ///< and of the server's
};

class Comparison {
public:
    Comparison(const Plan& plan, std::uint16_t port)
        : plan_{plan}, port_{port}, outside_{port}, shared_{url()}, own_{url()} {
        load_script(outside_);
        for (const long threads : plan.threads) add_ways(static_cast<std::size_t>(threads));
    }

    void run() {
        for (long round = 0; round < plan_.rounds; ++round) {
            for (std::size_t i = 0; i < ways_.size(); ++i) {
                run(ways_[(i + static_cast<std::size_t>(round)) % ways_.size()]);
            }
        }
    }

    void print() const {
        std::printf("%s\n%ld rounds of %ld ms each\n", RedisServer::version().c_str(), plan_.rounds,
                    plan_.ms);
        std::printf("%-48s %9s %9s %9s %12s %7s\n", "pairs a second", "median", "least", "most",
                    "us/pair here", "there");
        for (const Way& way : ways_) {
            const auto [least, most] = std::minmax_element(way.rates.begin(), way.rates.end());
            std::printf("%4zu %-43.*s %9.0f %9.0f %9.0f %12.2f %7.2f\n", way.threads,
                        static_cast<int>(way.title.size()), way.title.data(), median(way.rates),
                        *least, *most, median(way.here), median(way.there));
        }
        for (const Way& way : ways_) {
            for (const Way& other : ways_) {
                if (way.threads == other.threads && way.name != "hand" && other.name == "hand") {
                    std::printf("%4zu %s : hand %.3f\n", way.threads, way.name.data(),
                                median(ratios(way.rates, other.rates)));
                }
            }
        }
        std::printf("failures %zu\n", failures.load());
    }

    void write() const {
        Records records;
        for (const Way& way : ways_) {
            records.add("threads")
                .set("way", way.name)
                .set("threads", way.threads)
                .set("pairs_per_second", way.rates)
                .set("us_per_pair_here", way.here)
                .set("us_per_pair_there", way.there);
        }
        records.write(plan_.json);
    }

private:
    [[nodiscard]] std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }

    void add_ways(std::size_t threads) {
        add("shared", threads, "threads, one MultiplexedConnection",
            [=, this](auto span) { return over(shared_, threads, span); });
        add("hand", threads, "threads, a connection each, by hand", [=, this](auto span) {
            return by_hand([=, this](const std::string&) { return port_; }, threads, span);
        });
        if (threads == 1) {
            add("own", threads, "thread, HiredisConnection",
                [=, this](auto span) { return over(own_, 1, span); });
        } else {
            add("pipelined", threads, "pairs at a time, one thread, by hand",
                [=, this](auto span) { return pipelined(port_, threads, span); });
        }
    }
    void add(std::string_view name, std::size_t threads, std::string_view title,
             std::function<double(std::chrono::milliseconds)> run) {
        if (plan_.only.empty() || plan_.only == name) {
            ways_.push_back({name, threads, title, std::move(run)});
        }
    }

    void run(Way& way) {
        const double there = server_seconds(outside_);
        const auto here = processor_time();
        const double rate = way.run(std::chrono::milliseconds{plan_.ms});
        const std::chrono::duration<double> used = processor_time() - here;
        const double pairs = rate * static_cast<double>(plan_.ms) / 1000;
        way.rates.push_back(rate);
        way.here.push_back(1e6 * used.count() / pairs);
        way.there.push_back(1e6 * (server_seconds(outside_) - there) / pairs);
    }

    const Plan& plan_;
    std::uint16_t port_;
    RawClient outside_;
    MultiplexedConnection shared_;
    HiredisConnection own_;
    std::vector<Way> ways_;
};

} // namespace

int main(int argc, char** argv) {
    Plan plan;
    Arguments arguments;
    arguments.add("--threads", plan.threads);
    arguments.add("--rounds", plan.rounds);
    arguments.add("--ms", plan.ms);
    arguments.add("--port", plan.port);
    arguments.add("--only", plan.only);
    arguments.add("--json", plan.json);
    if (!arguments.read(argc, argv)) return 2;

    (void)raise_descriptor_limit();
    std::optional<RedisServer> server;
    if (plan.port == 0) server.emplace();
    Comparison comparison{plan, server ? server->port() : static_cast<std::uint16_t>(plan.port)};
    comparison.run();
    comparison.print();
    comparison.write();
    return failures == 0 ? 0 : 1;
}
