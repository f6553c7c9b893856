// SPDX-License-Identifier: MIT
#include <leaselock/core/outcome.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <system_error>
#include <type_traits>

namespace {

using leaselock::Answer;
using leaselock::errc;
using leaselock::Loss;
using leaselock::Outcome;

static_assert(std::is_nothrow_copy_constructible_v<Outcome>);
static_assert(std::is_nothrow_move_assignable_v<Outcome>);
static_assert(!std::is_convertible_v<Outcome, bool>); // explicit only
static_assert(leaselock::ServerText::capacity() >= sizeof "MOVED 16383 :65535" - 1 + 253);

TEST(Outcome, IsTrueForYesAlone) {
    EXPECT_TRUE(Outcome{Answer::yes});
    for (const Answer a : {Answer::no, Answer::refused, Answer::unsent, Answer::unknown}) {
        EXPECT_FALSE(Outcome{a}) << to_string(a);
    }
    EXPECT_FALSE(Outcome{});
}

TEST(Outcome, KeepsCauseAndText) {
    const Outcome outcome{Answer::refused, errc::loading, "LOADING Redis is loading"};
    EXPECT_EQ(outcome.answer, Answer::refused);
    EXPECT_EQ(outcome.cause, errc::loading);
    EXPECT_EQ(outcome.text.view(), "LOADING Redis is loading");
    EXPECT_FALSE(Outcome{Answer::yes}.cause);
    EXPECT_EQ(Outcome{}.answer, Answer::unsent);
}

TEST(Outcome, EveryAnswerAndLossHasAName) {
    std::set<std::string_view> names;
    for (const Answer a :
         {Answer::yes, Answer::no, Answer::refused, Answer::unsent, Answer::unknown}) {
        EXPECT_TRUE(names.insert(to_string(a)).second);
    }
    for (const Loss l :
         {Loss::none, Loss::taken, Loss::gone, Loss::expired, Loss::max_hold, Loss::unkept}) {
        EXPECT_TRUE(names.insert(to_string(l)).second);
    }
    EXPECT_FALSE(names.contains("?"));
    EXPECT_EQ(to_string(static_cast<Answer>(99)), "?");
    EXPECT_EQ(to_string(static_cast<Loss>(99)), "?");
}

#if LEASELOCK_EXCEPTIONS
TEST(ErrorException, TellsVerbKeyAnswerTextAndCause) {
    const Outcome outcome{Answer::refused, errc::read_only, "READONLY You can't write"};
    const leaselock::Error error{outcome, "acquire", "lock:a"};
    EXPECT_EQ(std::string{error.what()},
              "leaselock: acquire 'lock:a': refused: READONLY You can't write: "
              "server is a read-only replica");
    EXPECT_EQ(error.answer(), Answer::refused);
    EXPECT_EQ(error.code(), errc::read_only);
    EXPECT_EQ(error.outcome().text.view(), "READONLY You can't write");
    static_assert(std::is_base_of_v<std::system_error, leaselock::Error>);
}

TEST(ErrorException, ShortensLongKeys) {
    const leaselock::Error error{Outcome{Answer::unknown, errc::timed_out}, "renew",
                                 std::string(65, 'k')};
    EXPECT_EQ(std::string{error.what()},
              "leaselock: renew '" + std::string(64, 'k') + "...': unknown: no answer in time");
}
#endif

} // namespace
