// SPDX-License-Identifier: MIT
#include <leaselock/lock/detail/quorum_tally.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace leaselock::detail {
namespace {

using namespace std::chrono_literals;

TEST(QuorumTally, TakesAnOddNumberFromThreeToFifteen) {
    for (std::size_t nodes = 0; nodes < 40; ++nodes) {
        const bool fits = nodes >= 3 && nodes <= 15 && nodes % 2 == 1;
        EXPECT_EQ(complaint_about_nodes(nodes).empty(), fits) << nodes;
    }
}

/// y yes, n no, r refused, s unsent, u unknown; in capitals: may still become another.
Tally tally(std::string_view votes) {
    Tally result;
    for (const char c : votes) {
        switch (c) {
        case 'y': result.count(Answer::yes); break;
        case 'n': result.count(Answer::no); break;
        case 'r': result.count(Answer::refused); break;
        case 's': result.count(Answer::unsent); break;
        case 'u': result.count(Answer::unknown); break;
        case 'S': result.count(Answer::unsent, true); break;
        case 'U': result.count(Answer::unknown, true); break;
        default: ADD_FAILURE() << c;
        }
    }
    return result;
}

TEST(QuorumTally, Verdicts) {
    struct Row {
        std::string_view votes;
        Verdict verdict;
    };
    constexpr Row rows[] = {
        // three nodes: two votes
        {"yyy", Verdict::yes},
        {"yyn", Verdict::yes},
        {"yyu", Verdict::yes},
        {"yyU", Verdict::yes}, // without waiting for the third
        {"yUU", Verdict::open},
        {"yuU", Verdict::open},
        {"yuu", Verdict::failed},
        {"ynu", Verdict::failed}, // one 0 and one silence are no loss
        {"ynU", Verdict::open},
        {"nUU", Verdict::open},
        {"nnU", Verdict::no}, // nor can the third mend it
        {"nny", Verdict::no},
        {"nnn", Verdict::no},
        {"nuu", Verdict::failed}, // never by one 0
        {"uuu", Verdict::failed}, // nor by silence
        {"sss", Verdict::failed},
        {"rrr", Verdict::failed},
        {"rrU", Verdict::failed}, // the third alone makes nothing
        {"rsU", Verdict::failed},
        {"UUU", Verdict::open},
        {"SSS", Verdict::open},
        // five nodes: three votes, and a loss takes more than two 0
        {"yyynn", Verdict::yes},
        {"yyyUU", Verdict::yes},
        {"yynnU", Verdict::open},
        {"yynnu", Verdict::failed},
        {"yynnn", Verdict::no},
        {"nnUUU", Verdict::open},
        {"nnuuu", Verdict::failed},
        {"nnnUU", Verdict::no},
        {"nnssU", Verdict::open},
        {"nrssU", Verdict::failed},
        {"yrssU", Verdict::failed},
        {"yySrr", Verdict::open},
        // seven
        {"yyyyuuu", Verdict::yes},
        {"yyyuuuu", Verdict::failed},
        {"nnnyyyu", Verdict::failed},
        {"nnnnyyy", Verdict::no},
    };
    for (const Row& row : rows) EXPECT_EQ(tally(row.votes).verdict(), row.verdict) << row.votes;
}

/// For every mix of votes on up to seven nodes: it is never both, and open votes change it only where it
/// was said to be open.
TEST(QuorumTally, VerdictsStandHoweverTheOpenVotesFall) {
    constexpr std::string_view kinds = "ynrsuU";
    for (const std::size_t nodes : {3U, 5U, 7U}) {
        std::vector<std::size_t> digits(nodes, 0);
        for (bool more = true; more;) {
            std::string votes;
            for (const std::size_t digit : digits) votes += kinds[digit];
            const Verdict now = tally(votes).verdict();
            bool may_be_yes = false;
            bool may_be_no = false;
            for (const char fate : {'y', 'n', 'u'}) {
                std::string then = votes;
                for (char& c : then) c = c == 'U' ? fate : c;
                const Verdict verdict = tally(then).verdict();
                may_be_yes = may_be_yes || verdict == Verdict::yes;
                may_be_no = may_be_no || verdict == Verdict::no;
            }
            switch (now) {
            case Verdict::yes: ASSERT_TRUE(may_be_yes && !may_be_no) << votes; break;
            case Verdict::no: ASSERT_TRUE(may_be_no && !may_be_yes) << votes; break;
            case Verdict::failed: ASSERT_FALSE(may_be_no || may_be_yes) << votes; break;
            case Verdict::open: ASSERT_TRUE(may_be_no || may_be_yes) << votes; break;
            }
            std::size_t at = 0;
            while (at < nodes && ++digits[at] == kinds.size()) digits[at++] = 0;
            more = at < nodes;
        }
    }
}

TEST(QuorumTally, WhatAFailureIs) {
    struct Row {
        std::string_view votes;
        Answer take;   ///< SET, or the swap
        Answer change; ///< renewal, release
    };
    constexpr Row rows[] = {
        {"sss", Answer::unsent, Answer::unsent},
        {"rrr", Answer::refused, Answer::refused},
        {"rss", Answer::refused, Answer::refused},
        {"nss", Answer::refused, Answer::refused},
        {"yss", Answer::refused, Answer::unknown}, // surely no acquisition, but half a renewal
        {"ynr", Answer::refused, Answer::unknown},
        {"uss", Answer::refused, Answer::unknown},
        {"yuu", Answer::unknown, Answer::unknown},
        {"yus", Answer::unknown, Answer::unknown}, // the silent one would make it two
        {"uuu", Answer::unknown, Answer::unknown},
        {"uus", Answer::unknown, Answer::unknown},
        {"yynnu", Answer::unknown, Answer::unknown},
        {"yynnr", Answer::refused, Answer::unknown},
        {"uunnr", Answer::refused, Answer::unknown},
    };
    for (const Row& row : rows) {
        EXPECT_EQ(tally(row.votes).failed_take(), row.take) << row.votes;
        EXPECT_EQ(tally(row.votes).failed_change(), row.change) << row.votes;
    }
}

Vote vote(Answer answer, errc cause) { return {answer, make_error_code(cause)}; }
const Vote yes{Answer::yes};
const Vote busy = vote(Answer::no, errc::busy);
const Vote taken = vote(Answer::no, errc::taken);
const Vote gone = vote(Answer::no, errc::gone);
const Vote silent = vote(Answer::unknown, errc::timed_out);
const Vote denied = vote(Answer::refused, errc::not_authenticated);
const Vote loading = vote(Answer::refused, errc::loading);
const Vote down{Answer::unsent, std::make_error_code(std::errc::connection_refused)};

TEST(QuorumTally, TheCauseOfANoIsWhatMostOfThemSay) {
    EXPECT_TRUE(leading_cause(std::vector{gone, taken, taken, yes}, Answer::no) == errc::taken);
    EXPECT_TRUE(leading_cause(std::vector{taken, gone, gone}, Answer::no) == errc::gone);
    EXPECT_TRUE(leading_cause(std::vector{yes, gone, taken}, Answer::no) == errc::gone);
    EXPECT_FALSE(leading_cause(std::vector{yes, down}, Answer::no));
}

TEST(QuorumTally, TheCauseOfAFailureIsIncurableOnlyWhereThatAloneDecides) {
    struct Row {
        std::vector<Vote> votes;
        errc cause;
    };
    const Row rows[] = {
        {{yes, denied, denied}, errc::not_authenticated},
        {{denied, denied, denied}, errc::not_authenticated},
        {{yes, denied, silent}, errc::no_majority}, // the silent one may come back
        {{yes, denied, loading}, errc::no_majority},
        {{busy, denied, yes}, errc::no_majority},
        {{yes, down, down}, errc::no_majority},
        {{yes, yes, denied, denied, down}, errc::no_majority},
        {{yes, yes, denied, denied, denied}, errc::not_authenticated},
    };
    for (const Row& row : rows) {
        EXPECT_TRUE(cause_of_failure(row.votes) == row.cause)
            << cause_of_failure(row.votes).message();
    }
}

TEST(QuorumTally, EachNodesAnswerIsListed) {
    const auto text = [](std::vector<Vote> votes, std::vector<std::string_view> words) {
        return std::string{describe_votes(votes, words).view()};
    };
    EXPECT_EQ(text({yes, yes, yes}, {"", "", ""}), "");
    EXPECT_EQ(text({yes, yes, down}, {"", "", "127.0.0.1:7003"}),
              "2 of 3 nodes; 3: 127.0.0.1:7003 Connection refused");
    EXPECT_EQ(
        text({busy, silent, loading}, {"", "a:1", "LOADING Redis is loading"}),
        "0 of 3 nodes; 1: held by another; 2: a:1 no answer in time; 3: LOADING Redis is loading");
    Vote open = silent;
    open.open = true;
    EXPECT_EQ(text({yes, yes, open}, {"", "", ""}), "2 of 3 nodes; 3: no answer yet");
}

TEST(QuorumTally, NoNodesAnswerIsCrowdedOut) {
    const std::string line(500, 'x');
    for (const std::size_t nodes : {3U, 5U, 7U, 15U}) {
        const std::vector<Vote> votes(nodes, denied);
        const std::vector<std::string_view> words(nodes, line);
        const ServerText text = describe_votes(votes, words);
        EXPECT_LE(text.size(), ServerText::capacity());
        for (std::size_t i = 1; i <= nodes; ++i) {
            EXPECT_NE(text.view().find("; " + std::to_string(i) + ": x"), std::string_view::npos)
                << nodes << ": " << text.view();
        }
    }
}

TEST(QuorumTally, WhatIsLeftUntilAMajorityIsFree) {
    using Left = std::vector<std::optional<std::chrono::milliseconds>>;
    EXPECT_EQ(majority_left(Left{5ms, 9ms, 7ms}), 7ms);
    EXPECT_EQ(majority_left(Left{0ms, 0ms, 7ms}), 0ms);
    EXPECT_EQ(majority_left(Left{5ms, 5ms, 5ms}), 5ms);
    EXPECT_EQ(majority_left(Left{std::nullopt, 9ms, 7ms}), 9ms);
    EXPECT_EQ(majority_left(Left{std::nullopt, std::nullopt, 7ms}), std::nullopt);
    EXPECT_EQ(majority_left(Left{4ms, 1ms, 3ms, 2ms, 5ms}), 3ms);
}

} // namespace
} // namespace leaselock::detail
