// SPDX-License-Identifier: MIT
//
// What sentinels say: an address of a master is taken where a second, naive reading takes it, and an error
// in the sentinel's words; and what all of them said adds up to one outcome that is never a yes.

#include "fuzz/naive.hpp"
#include "fuzz/reply_tree.hpp"

#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/hiredis/detail/host.hpp>
#include <leaselock/hiredis/detail/sentinel_reply.hpp>
#include <leaselock/hiredis/resolver.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace {

using fuzz::check;
using leaselock::Answer;
using leaselock::errc;
using leaselock::Outcome;
using leaselock::ServerAddress;

bool is_string(const redisReply* reply) {
    return reply != nullptr && reply->type == REDIS_REPLY_STRING;
}

void check_reply(const redisReply& reply) {
    ServerAddress where{std::string_view{"as.it.was"}, 1};
    const Outcome outcome = leaselock::detail::read_master_address(reply, where);
    const bool pair = reply.type == REDIS_REPLY_ARRAY && reply.elements == 2 &&
                      is_string(reply.element[0]) && is_string(reply.element[1]);
    const std::string host{pair ? fuzz::text_of(*reply.element[0]) : std::string_view{}};
    const int port = pair ? fuzz::number_of(fuzz::text_of(*reply.element[1]), 65'535) : -1;
    const bool expected = port >= 1 && fuzz::is_host(host);
    check(outcome.answer == (expected ? Answer::yes : Answer::unsent), "an address, or not");
    if (expected) {
        check(where.host.view() == host && where.port == port, "the address that it is");
        return;
    }
    check(where.host.view() == "as.it.was" && where.port == 1, "else it is left alone");
    check(static_cast<bool>(outcome.cause), "with a cause");
    check((outcome.cause == errc::no_such_master) == (reply.type == REDIS_REPLY_NIL),
          "nil alone says that there is no such master");
    if (reply.type == REDIS_REPLY_ERROR) {
        const std::string_view line = fuzz::text_of(reply);
        const std::string_view said = line.substr(0, line.find(", with args beginning with:"));
        check(outcome.text.view() == said.substr(0, outcome.text.capacity()), "in its words");
    }
}

void check_tally(fuzz::Choices& choices) {
    const std::size_t count = 1 + choices.below(9);
    const std::string master{choices.text(choices.below(80))};
    leaselock::detail::SentinelTally tally{master, count};
    bool may_pass = false;
    for (std::size_t i = 0; i < count; ++i) {
        const leaselock::ServerText label = leaselock::detail::label_of(
            std::string(1 + choices.below(255), 'h'), static_cast<std::uint16_t>(choices.word()));
        const auto cause = static_cast<errc>(1 + choices.below(60));
        const Outcome said{Answer::unsent, cause, choices.text(choices.below(256))};
        may_pass = may_pass || leaselock::may_pass_by_waiting(said.cause);
        tally.add(label, said);
    }
    const Outcome& result = tally.result();
    check(result.answer == Answer::unsent && static_cast<bool>(result.cause),
          "unsent, with a cause");
    check(may_pass == leaselock::may_pass_by_waiting(result.cause),
          "one that may answer later is worth waiting for");
    check(result.text.view().starts_with("no sentinel told where '"), "in words");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes = fuzz::as_text(data, std::min<std::size_t>(size, 2048));
    if (const auto tree = fuzz::read_tree(bytes)) check_reply(*tree);
    fuzz::Choices choices{bytes};
    check_tally(choices);
    return 0;
}
