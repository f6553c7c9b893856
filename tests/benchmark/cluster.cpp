// SPDX-License-Identifier: MIT
// How a cluster grows: acquire-and-release pairs a second of many threads over one `ClusterConnection`,
// and over hand-written connections, one per thread, to the node that has the thread's key.
//
//   leaselock_cluster [--masters N,N,...] [--threads N] [--rounds R] [--ms M] [--json FILE]
//
// Private clusters of so many masters, all running all the time; the ways take turns, M ms each, R
// rounds. Exits with 1 when a lock was not taken or not released.
#include "benchmark/support/arguments.hpp"
#include "benchmark/support/crowd.hpp"
#include "benchmark/support/records.hpp"
#include "benchmark/support/statistics.hpp"
#include "integration/support/redis_cluster.hpp"
#include "integration/support/resources.hpp"

#include <leaselock/leaselock.hpp>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

using namespace leaselock;
using namespace leaselock::bench;
using namespace leaselock::test;

namespace {

/// One cluster, and what was measured on it.
struct Subject {
    explicit Subject(long masters)
        : cluster{{.masters = static_cast<std::size_t>(masters)}}, connection{cluster.url()} {
        for (std::size_t i = 0; i < cluster.masters(); ++i) {
            RawClient node = cluster.client(i);
            load_script(node);
        }
    }

    void run(std::size_t threads, std::chrono::milliseconds span) {
        shared.push_back(over(connection, threads, span));
        hand.push_back(by_hand(
            [this](const std::string& key) {
                return cluster.master(cluster.first_owner(hash_slot(key))).port();
            },
            threads, span));
    }

    RedisCluster cluster;
    ClusterConnection connection;
    std::vector<double> shared{};
    std::vector<double> hand{};
};

} // namespace

int main(int argc, char** argv) {
    std::vector<long> masters{1, 2, 3};
    long threads = 64;
    long rounds = 5;
    long ms = 1000;
    std::string json;
    Arguments arguments;
    arguments.add("--masters", masters);
    arguments.add("--threads", threads);
    arguments.add("--rounds", rounds);
    arguments.add("--ms", ms);
    arguments.add("--json", json);
    if (!arguments.read(argc, argv)) return 2;

    (void)raise_descriptor_limit();
    std::deque<Subject> subjects;
    for (const long count : masters) subjects.emplace_back(count);
    for (long round = 0; round < rounds; ++round) {
        for (Subject& subject : subjects) {
            subject.run(static_cast<std::size_t>(threads), std::chrono::milliseconds{ms});
        }
    }

    Records records;
    std::printf("%s\npairs a second of %ld threads, medians of %ld rounds of %ld ms\n",
                RedisServer::version().c_str(), threads, rounds, ms);
    std::printf("masters   one ClusterConnection   a connection per thread, by hand\n");
    for (const Subject& subject : subjects) {
        std::printf("%7zu %23.0f %34.0f\n", subject.cluster.masters(), median(subject.shared),
                    median(subject.hand));
        for (const bool ours : {true, false}) {
            records.add("cluster")
                .set("way", ours ? "shared" : "hand")
                .set("masters", subject.cluster.masters())
                .set("threads", threads)
                .set("pairs_per_second", ours ? subject.shared : subject.hand);
        }
    }
    std::printf("failures %zu\n", failures.load());
    records.write(json);
    return failures == 0 ? 0 : 1;
}
