// SPDX-License-Identifier: MIT
#include "connection_contract.hpp"

#include <leaselock/hiredis/cluster_connection.hpp>
#include <leaselock/hiredis/endpoint.hpp>

#include <memory>
#include <span>
#include <string>
#include <vector>

using namespace leaselock;
using namespace leaselock::test;
using namespace leaselock::test::contract;
using namespace std::chrono_literals;

// The contract of every connection, on a cluster of one node. Its row's server is that node, and need not
// be in cluster mode: the slot table comes from a seed beside it.

namespace {

FalseServer::Script tells_of(const Endpoint& node) {
    const std::string table = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$" +
                              std::to_string(node.host.size()) + "\r\n" + node.host +
                              "\r\n:" + std::to_string(node.port) + "\r\n";
    return [table](FalseServer::Peer& peer) {
        for (;;) peer.send(peer.expect_command().front() == "CLUSTER" ? table : "+OK\r\n");
    };
}

class OneNodeCluster {
public:
    explicit OneNodeCluster(const std::string& url)
        : endpoint_{Endpoint::from_url(url)}, seed_{tells_of(endpoint_)} {
        endpoint_.host = "127.0.0.1";
        endpoint_.port = seed_.port();
        connection_ = std::make_unique<ClusterConnection>(std::span<const Endpoint>{&endpoint_, 1},
                                                          system_runtime(), 500ms);
    }
    ClusterConnection& operator*() const { return *connection_; }
    ClusterConnection* operator->() const { return connection_.get(); }
    void reset() { connection_.reset(); }

private:
    Endpoint endpoint_;
    FalseServer seed_;
    std::unique_ptr<ClusterConnection> connection_;
};

const auto make = [](const std::string& url) { return OneNodeCluster{url}; };

} // namespace

TEST_CASE("ClusterConnection: answers of every kind") { answers_of_every_kind(make); }
TEST_CASE("ClusterConnection: a batch for one node is one round trip, in order") {
    batches_are_one_round_trip_in_order(make);
}
TEST_CASE("ClusterConnection: no command, no I/O") { nothing_to_call_is_nothing_done(make); }
TEST_CASE("ClusterConnection: a past deadline writes and does not wait") {
    past_deadline_is_written_but_not_waited_for(make);
}
TEST_CASE("X1 ClusterConnection: bytes arrive exact") { x1_bytes_arrive_exact(make); }
TEST_CASE("N1 ClusterConnection: connects again when the node is back") { n1_comes_back(make); }
TEST_CASE("N2 ClusterConnection: connecting keeps the deadline") { n2_connect_goes_nowhere(make); }
TEST_CASE("N5 B52 ClusterConnection: a late reply answers nobody") {
    n5_late_reply_answers_nobody(make);
}
TEST_CASE("N9 ClusterConnection: one deadline for dripping replies") {
    n9_one_deadline_for_dripping_replies(make);
}
TEST_CASE("N10 ClusterConnection: what arrived before the break is kept") {
    n10_what_arrived_is_kept(make);
}
TEST_CASE("N10 ClusterConnection: a reset in place of the reply is unknown") {
    n10_reset_in_place_of_the_reply(make);
}
TEST_CASE("N12 ClusterConnection: garbage is a protocol error") { n12_garbage(make); }
TEST_CASE("N12 ClusterConnection: an endless reply takes bounded memory") {
    n12_endless_reply(make);
}
TEST_CASE("N13 ClusterConnection: a reply too many is seen before the next send") {
    n13_reply_too_many(make);
}
TEST_CASE("N13 ClusterConnection: nothing is sent into a stream that has ended") {
    n13_closed_while_idle(make);
}
TEST_CASE("N14 ClusterConnection: short writes go on") { n14_short_writes(make); }
TEST_CASE("N16 ClusterConnection: too many clients is refused") { n16_too_many_clients(make); }
TEST_CASE("N16 ClusterConnection: too many clients, behind a proxy, is one command's answer") {
    n16_too_many_clients_behind_a_proxy(make);
}
TEST_CASE("N17 ClusterConnection: a killed client connects again") { n17_client_killed(make); }
TEST_CASE("S16 ClusterConnection: no password is refused") { s16_no_password(make); }
TEST_CASE("S16 ClusterConnection: a wrong password is refused") { s16_wrong_password(make); }
TEST_CASE("P4 ClusterConnection: destroyed in the child, the parent's goes on") {
    p4_destroyed_in_the_child(make);
}
TEST_CASE("P6 ClusterConnection: closed on exec") { p6_closed_on_exec(make); }
TEST_CASE("P11 ClusterConnection: a storm of signals changes nothing") { p11_signal_storm(make); }
TEST_CASE("P13 ClusterConnection: no descriptors left") { p13_no_descriptors_left(make); }
