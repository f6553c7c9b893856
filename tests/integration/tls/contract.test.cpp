// SPDX-License-Identifier: MIT

// The contract of connections, over TLS.

#include "tls_story.hpp"

#include <leaselock/hiredis/hiredis_connection.hpp>
#include <leaselock/hiredis/multiplexed_connection.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

using namespace leaselock;
using namespace leaselock::test;
using namespace leaselock::test::contract;
using namespace std::chrono_literals;

namespace {

/// To servers that speak TLS; a proxy between passes what it does not understand.
const auto make = [](const std::string& url) {
    return std::make_unique<HiredisConnection>(our_tls().endpoint(secure_url(url)));
};
const auto make_shared_one = [](const std::string& url) {
    return std::make_unique<MultiplexedConnection>(our_tls().endpoint(secure_url(url)),
                                                   system_runtime(), 500ms);
};

/// For servers that take their time without being silent for good.
const auto make_patient_one = [](const std::string& url) {
    return std::make_unique<MultiplexedConnection>(our_tls().endpoint(secure_url(url)),
                                                   system_runtime(), 20s);
};

/// To whatever speaks plain text, by a front that speaks TLS for it: proxies behind it understand
/// commands, and false servers say what they like.
template <class C>
struct Fronted {
    template <class... Rest>
    explicit Fronted(const std::string& url, Rest&&... rest)
        : plain{Endpoint::from_url(url)}, front{plain.port, cast().server},
          connection{our_tls().endpoint(secure_url(front.url())), std::forward<Rest>(rest)...} {}

    Endpoint plain;
    TlsFront front;
    C connection;
};
const auto make_fronted = [](const std::string& url) {
    const auto made = std::make_shared<Fronted<HiredisConnection>>(url);
    return std::shared_ptr<HiredisConnection>{made, &made->connection};
};
const auto make_shared_fronted = [](const std::string& url) {
    const auto made =
        std::make_shared<Fronted<MultiplexedConnection>>(url, system_runtime(), 500ms);
    return std::shared_ptr<MultiplexedConnection>{made, &made->connection};
};

} // namespace

// HiredisConnection

TEST_CASE_METHOD(AllServersSpeakTls, "TLS HiredisConnection: answers of every kind") {
    answers_of_every_kind(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "TLS HiredisConnection: a past deadline does not wait") {
    past_deadline_is_written_but_not_waited_for(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "X1 TLS HiredisConnection: bytes arrive exact") {
    x1_bytes_arrive_exact(make);
}
TEST_CASE("N1 TLS HiredisConnection: refused is unsent") { n1_refused(make); }
TEST_CASE_METHOD(AllServersSpeakTls, "N1 TLS HiredisConnection: connects again") {
    n1_comes_back(make);
}
TEST_CASE("N2 TLS HiredisConnection: connecting keeps the deadline") {
    n2_connect_goes_nowhere(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "N3 TLS HiredisConnection: a lost reply is unknown") {
    n3_reply_lost(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "N4 TLS HiredisConnection: a lost request is unknown") {
    n4_request_lost(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "N5 TLS HiredisConnection: a late reply answers nobody") {
    n5_late_reply_answers_nobody(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "N9 TLS HiredisConnection: one deadline for dripping bytes") {
    n9_one_deadline_for_dripping_replies(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "N14 TLS HiredisConnection: short writes go on") {
    n14_short_writes(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "N14 TLS HiredisConnection: what never went out is unsent") {
    n14_what_the_kernel_never_took_is_unsent(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "N17 TLS HiredisConnection: a killed client connects again") {
    n17_client_killed(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "S16 TLS HiredisConnection: no password is refused") {
    s16_no_password(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "S16 TLS HiredisConnection: a wrong password is refused") {
    s16_wrong_password(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "P4 TLS HiredisConnection: a child has its own stream") {
    p4_fork(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "P4 TLS HiredisConnection: destroyed in the child") {
    p4_destroyed_in_the_child(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "P6 TLS HiredisConnection: closed on exec") {
    p6_closed_on_exec(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "P11 TLS HiredisConnection: a storm of signals") {
    p11_signal_storm(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "P13 TLS HiredisConnection: no descriptors left") {
    p13_no_descriptors_left(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "TLS HiredisConnection: waiting for many at once") {
    split_calls(make);
}
TEST_CASE_METHOD(AllServersSpeakTls, "TLS HiredisConnection: a call given up answers nobody") {
    split_call_given_up(make);
}

TEST_CASE("TLS HiredisConnection: a batch is one round trip, in order") {
    batches_are_one_round_trip_in_order(make_fronted);
}
TEST_CASE("N10 TLS HiredisConnection: what arrived before the break is kept") {
    n10_what_arrived_is_kept(make_fronted);
}
TEST_CASE("N10 TLS HiredisConnection: a reset in place of the reply is unknown") {
    n10_reset_in_place_of_the_reply(make_fronted);
}
TEST_CASE("N12 TLS HiredisConnection: garbage is a protocol error") { n12_garbage(make_fronted); }
TEST_CASE("N12 TLS HiredisConnection: an endless reply takes bounded memory") {
    n12_endless_reply(make_fronted);
}
TEST_CASE("N13 TLS HiredisConnection: a reply too many is seen") {
    n13_reply_too_many(make_fronted, true);
}
TEST_CASE("N13 TLS HiredisConnection: nothing is sent into a stream that has ended") {
    n13_closed_while_idle(make_fronted);
}
TEST_CASE("N16 TLS HiredisConnection: too many clients is refused") {
    n16_too_many_clients(make_fronted);
}
TEST_CASE("N16 TLS HiredisConnection: too many clients, behind a proxy") {
    n16_too_many_clients_behind_a_proxy(make_fronted);
}
TEST_CASE("P12 B54 TLS HiredisConnection: no SIGPIPE") { p12_no_sigpipe(make_fronted); }

// MultiplexedConnection

TEST_CASE_METHOD(AllServersSpeakTls, "TLS MultiplexedConnection: answers of every kind") {
    answers_of_every_kind(make_shared_one);
}
TEST_CASE_METHOD(AllServersSpeakTls, "TLS MultiplexedConnection: a past deadline does not wait") {
    past_deadline_is_written_but_not_waited_for(make_shared_one);
}
TEST_CASE_METHOD(AllServersSpeakTls, "X1 TLS MultiplexedConnection: bytes arrive exact") {
    x1_bytes_arrive_exact(make_shared_one);
}
TEST_CASE_METHOD(AllServersSpeakTls, "N1 TLS MultiplexedConnection: connects again") {
    n1_comes_back(make_shared_one);
}
TEST_CASE_METHOD(AllServersSpeakTls, "N5 TLS MultiplexedConnection: a late reply answers nobody") {
    n5_late_reply_answers_nobody(make_shared_one);
}
TEST_CASE_METHOD(AllServersSpeakTls, "N9 TLS MultiplexedConnection: dripping bytes") {
    n9_one_deadline_for_dripping_replies(make_shared_one);
}
TEST_CASE_METHOD(AllServersSpeakTls, "N14 TLS MultiplexedConnection: short writes go on") {
    n14_short_writes(make_patient_one);
}
TEST_CASE_METHOD(AllServersSpeakTls, "N17 TLS MultiplexedConnection: a killed client") {
    n17_client_killed(make_shared_one);
}
TEST_CASE_METHOD(AllServersSpeakTls, "S16 TLS MultiplexedConnection: a wrong password") {
    s16_wrong_password(make_shared_one);
}
TEST_CASE_METHOD(AllServersSpeakTls, "P4 TLS MultiplexedConnection: destroyed in the child") {
    p4_destroyed_in_the_child(make_shared_one);
}
TEST_CASE_METHOD(AllServersSpeakTls, "P11 TLS MultiplexedConnection: a storm of signals") {
    p11_signal_storm(make_patient_one);
}

TEST_CASE("TLS MultiplexedConnection: a batch is one round trip, in order") {
    batches_are_one_round_trip_in_order(make_shared_fronted);
}
TEST_CASE("N10 TLS MultiplexedConnection: what arrived before the break is kept") {
    n10_what_arrived_is_kept(make_shared_fronted);
}
TEST_CASE("N10 TLS MultiplexedConnection: a reset in place of the reply is unknown") {
    n10_reset_in_place_of_the_reply(make_shared_fronted);
}
TEST_CASE("N12 TLS MultiplexedConnection: garbage is a protocol error") {
    n12_garbage(make_shared_fronted);
}
TEST_CASE("N13 TLS MultiplexedConnection: a reply too many is seen") {
    n13_reply_too_many(make_shared_fronted, true);
}
TEST_CASE("N13 TLS MultiplexedConnection: nothing is sent into a stream that has ended") {
    n13_closed_while_idle(make_shared_fronted);
}
