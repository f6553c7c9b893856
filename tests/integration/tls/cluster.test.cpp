// SPDX-License-Identifier: MIT
#include "tls_story.hpp"

#include "../support/redis_cluster.hpp"

#include <leaselock/hiredis/cluster_connection.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/redis/key.hpp>

#include <cstddef>
#include <mutex>
#include <span>
#include <string>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

TEST_CASE("S26 X2 ClusterConnection: every node is reached over TLS, and verified") {
    const AllServersSpeakTls now;
    RedisCluster servers{{.arguments = {"--tls-cluster", "yes", "--tls-replication", "yes",
                                        "--tls-ca-cert-file", cast().authority.certificate_file}}};
    const Endpoint seed = our_tls().endpoint(secure_url(servers.url()));
    ClusterConnection cluster{std::span{&seed, 1}};
    for (std::size_t i = 0; i < servers.masters(); ++i) {
        const std::string key = servers.key_on(i, "lock:tls");
        LeaseLock lock{
            cluster, key, {.ttl = 60s, .fencing = true, .timeout = 20s}, std::defer_lock};
        CHECK(lock.try_acquire().answer == Answer::yes);
        CHECK(servers.client_for(key).exists(key));
        CHECK(lock.unlock().answer == Answer::yes);
    }
    const std::string moved = servers.key_on(0, "lock:moved");
    LeaseLock lock{cluster, moved, {.ttl = 60s, .timeout = 20s}};
    servers.begin_migration(hash_slot(moved), 0, 1);
    servers.move_all_keys(hash_slot(moved), 0, 1);
    CHECK(lock.renew().answer == Answer::yes); // by ASK
    servers.end_migration(hash_slot(moved), 0, 1);
    CHECK(lock.renew().answer == Answer::yes); // by MOVED

    // one who trusts others is not told a table, and says why
    const Tls theirs{{.ca_file = cast().other_authority.certificate_file}};
    const Endpoint stranger = theirs.endpoint(secure_url(servers.url()));
    ClusterConnection refused{std::span{&stranger, 1}};
    const Reply reply = contract::call(refused, {"GET", moved}, 20s);
    CHECK(contract::line_of(reply) == "unsent");
    CHECK(reply.cause == errc::insecure);
}
