// SPDX-License-Identifier: MIT
//
// What a reply proves: the classification of any reply to any verb. An error is never a yes or a no;
// a yes and a no are what the wire says they are; and every answer but yes has a cause.

#include "fuzz/fuzz.hpp"

#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/reply.hpp>
#include <leaselock/redis/script.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

namespace {

using fuzz::check;
using leaselock::Answer;
using leaselock::errc;
using leaselock::Outcome;
using leaselock::Reply;

Reply make_reply(fuzz::Choices& choices) {
    Reply reply;
    switch (choices.below(8)) {
    case 0: reply.set_unsent(std::make_error_code(std::errc::connection_refused)); break;
    case 1: reply.set_unknown(leaselock::make_error_code(errc::timed_out)); break;
    case 2: reply.set_nil(); break;
    case 3: reply.set_integer(choices.number()); break;
    case 4: reply.set_text(Reply::status, choices.rest()); break;
    case 5: reply.set_text(Reply::string, choices.rest()); break;
    default: reply.set_text(Reply::error, choices.rest()); break;
    }
    return reply;
}

/// What goes for every verb.
void check_outcome(const Reply& reply, const Outcome& outcome) {
    check((outcome.answer == Answer::yes) != static_cast<bool>(outcome.cause),
          "every answer but yes has a cause");
    switch (reply.kind) {
    case Reply::unsent: return check(outcome.answer == Answer::unsent, "unsent stays unsent");
    case Reply::unknown: return check(outcome.answer == Answer::unknown, "unknown stays unknown");
    case Reply::error: {
        const errc cause = leaselock::cause_of(reply.text.view());
        check(outcome.cause == cause, "the cause that the line names");
        check(outcome.answer == (cause == errc::server_error ? Answer::unknown : Answer::refused),
              "an error refuses where it is known, and proves nothing where it is not");
        check(outcome.text.view().starts_with(reply.text.view()), "in the server's words");
        return check(outcome.text.view().find(", with args beginning with:") ==
                         std::string_view::npos,
                     "without the words that the server repeats");
    }
    default:
        return check(outcome.answer != Answer::refused && outcome.answer != Answer::unsent,
                     "what is no error refuses nothing");
    }
}

void check_set(const Reply& reply) {
    const Outcome outcome = leaselock::classify_set(reply);
    check_outcome(reply, outcome);
    const bool ok = reply.kind == Reply::status && reply.text.view() == "OK";
    check((outcome.answer == Answer::yes) == ok, "SET: +OK alone is yes");
    check((outcome.answer == Answer::no) == (reply.kind == Reply::nil), "SET: nil alone is no");
}

void check_compare(const Reply& reply, const leaselock::Script& script) {
    const Outcome outcome = leaselock::classify_compare(reply, script);
    check_outcome(reply, outcome);
    const bool integer = reply.kind == Reply::integer;
    check((outcome.answer == Answer::yes) == (integer && reply.number == 1), "1 alone is yes");
    check((outcome.cause == errc::taken) == (integer && reply.number == 0), "0 alone is taken");
    check((outcome.cause == errc::gone) == (integer && reply.number == -1), "-1 alone is gone");
}

void check_fence(const Reply& reply) {
    std::uint64_t fence = 42;
    const Outcome outcome = leaselock::classify_fence(reply, fence);
    check_outcome(reply, outcome);
    check(outcome || fence == 42, "no fencing token without a yes");
    const std::string_view digits = reply.text.view();
    const bool number = reply.kind == Reply::string && !digits.empty() && digits.size() <= 16 &&
                        digits.find_first_not_of("0123456789") == std::string_view::npos;
    check(static_cast<bool>(outcome) == (number && digits != "0"),
          "a number, and no other, is yes");
    if (outcome) check(fence == std::stoull(std::string{digits}), "the number that it is");
}

/// The table by a second reading: whole words at the beginning.
void check_cause(std::string_view line) {
    const errc cause = leaselock::cause_of(line);
    if (line.starts_with("ERR Error running script")) return; // unwrapped first
    const bool known =
        std::any_of(std::begin(leaselock::refusal_rows), std::end(leaselock::refusal_rows),
                    [&](const leaselock::RefusalRow& row) {
                        if (line.substr(0, row.prefix.size()) != row.prefix) return false;
                        const std::string_view behind = line.substr(row.prefix.size());
                        return behind.empty() || std::string_view{" ,:'"}.find(behind.front()) !=
                                                     std::string_view::npos;
                    });
    check(known == (cause != errc::server_error), "known lines, and no others, have a cause");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Choices choices{fuzz::as_text(data, std::min<std::size_t>(size, 512))};
    const Reply reply = make_reply(choices);
    check_set(reply);
    for (const leaselock::Script* script :
         {&leaselock::scripts::compare_and_delete, &leaselock::scripts::compare_and_expire,
          &leaselock::scripts::compare_and_adopt}) {
        check_compare(reply, *script);
    }
    check_fence(reply);
    check_cause(reply.text.view());
    check_cause(fuzz::as_text(data, size));
    return 0;
}
