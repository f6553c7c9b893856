// SPDX-License-Identifier: MIT

#include <leaselock/hiredis/detail/reply_decoder.hpp>

#include <gmock/gmock.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace leaselock::test {
namespace {

using namespace std::string_view_literals;
using Step = detail::ReplyDecoder::Step;

struct Answered {
    Reply::Kind kind;
    std::int64_t number = 0;
    std::string text;
    bool truncated = false;

    bool operator==(const Answered&) const = default;
};

void PrintTo(const Answered& a, std::ostream* out) {
    *out << static_cast<int>(a.kind) << ' ' << a.number << " '" << a.text.substr(0, 40) << "'";
}

Answered seen(const Reply& reply) {
    return {reply.kind, reply.number, std::string{reply.text.view()}, reply.text.truncated()};
}

void feed(detail::ReplyDecoder& decoder, std::string_view bytes) {
    decoder.feed({bytes.data(), bytes.size()});
}

struct Row {
    std::string bytes;
    Answered expected;
};

const std::vector<Row>& rows() {
    static const std::vector<Row> all{
        {"+OK\r\n", {Reply::status, 0, "OK"}},
        {"+\r\n", {Reply::status, 0, ""}},
        {"-ERR syntax error\r\n", {Reply::error, 0, "ERR syntax error"}},
        {":1\r\n", {Reply::integer, 1, ""}},
        {":0\r\n", {Reply::integer, 0, ""}},
        {":-1\r\n", {Reply::integer, -1, ""}},
        {":9223372036854775807\r\n",
         {Reply::integer, std::numeric_limits<std::int64_t>::max(), ""}},
        {":-9223372036854775808\r\n",
         {Reply::integer, std::numeric_limits<std::int64_t>::min(), ""}},
        {"$-1\r\n", {Reply::nil, 0, ""}},
        {"$0\r\n\r\n", {Reply::string, 0, ""}},
        {"$5\r\nhello\r\n", {Reply::string, 0, "hello"}},
        {std::string{"$7\r\n\0\r\n*1\r\n\r\n"sv},
         {Reply::string, 0, std::string{"\0\r\n*1\r\n"sv}}},
        {"$280\r\n" + std::string(280, 'x') + "\r\n", {Reply::string, 0, std::string(280, 'x')}},
        {"$281\r\n" + std::string(281, 'x') + "\r\n",
         {Reply::string, 0, std::string(280, 'x'), true}},
        {"-MOVED 16383 " + std::string(253, 'h') + ":65535\r\n",
         {Reply::error, 0, "MOVED 16383 " + std::string(253, 'h') + ":65535"}},
        {"-" + std::string(5000, 'e') + "\r\n", {Reply::error, 0, std::string(280, 'e'), true}},
        {"$60000\r\n" + std::string(60000, 'y') + "\r\n",
         {Reply::string, 0, std::string(280, 'y'), true}},
    };
    return all;
}

TEST(ReplyDecoder, DecodesEveryKind) {
    for (const Row& row : rows()) {
        detail::ReplyDecoder decoder;
        ASSERT_TRUE(decoder.open());
        Reply reply;
        reply.set_text(Reply::string, "what was there before");
        feed(decoder, row.bytes);
        ASSERT_EQ(decoder.next(reply), Step::decoded) << row.bytes.substr(0, 40);
        EXPECT_EQ(seen(reply), row.expected);
        EXPECT_TRUE(decoder.is_drained());
        EXPECT_EQ(decoder.next(reply), Step::incomplete);
    }
}

/// However the network cuts the stream, the replies are the same, and none is there too early.
TEST(ReplyDecoder, DecodesAStreamCutAnywhere) {
    std::string stream;
    std::vector<Answered> expected;
    std::vector<std::size_t> ends;
    for (const Row& row : rows()) {
        if (row.bytes.size() > 400) continue;
        stream += row.bytes;
        expected.push_back(row.expected);
        ends.push_back(stream.size());
    }
    for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
        detail::ReplyDecoder decoder;
        ASSERT_TRUE(decoder.open());
        Reply reply;
        std::size_t count = 0;
        feed(decoder, std::string_view{stream}.substr(0, cut));
        while (decoder.next(reply) == Step::decoded) {
            ASSERT_LE(ends[count], cut);
            ASSERT_EQ(seen(reply), expected[count++]) << "cut at " << cut;
        }
        ASSERT_TRUE(count == ends.size() || ends[count] > cut) << "withheld, cut at " << cut;
        feed(decoder, std::string_view{stream}.substr(cut));
        while (decoder.next(reply) == Step::decoded) {
            ASSERT_EQ(seen(reply), expected[count++]) << "cut at " << cut;
        }
        ASSERT_EQ(count, expected.size());
        ASSERT_TRUE(decoder.is_drained());
    }
}

TEST(ReplyDecoder, DecodesAStreamByteByByte) {
    detail::ReplyDecoder decoder;
    ASSERT_TRUE(decoder.open());
    for (const Row& row : rows()) {
        if (row.bytes.size() > 10'000) continue;
        Reply reply;
        for (std::size_t i = 0; i + 1 < row.bytes.size(); ++i) {
            feed(decoder, std::string_view{row.bytes}.substr(i, 1));
            ASSERT_EQ(decoder.next(reply), Step::incomplete);
            ASSERT_EQ(reply.kind, Reply::unsent) << "touched before it was whole";
        }
        feed(decoder, std::string_view{row.bytes}.substr(row.bytes.size() - 1));
        ASSERT_EQ(decoder.next(reply), Step::decoded);
        EXPECT_EQ(seen(reply), row.expected);
    }
}

TEST(ReplyDecoder, N13_SeesThatSomethingWaits) {
    detail::ReplyDecoder decoder;
    ASSERT_TRUE(decoder.open());
    EXPECT_TRUE(decoder.is_drained());
    Reply reply;
    for (const std::string_view surplus : {"+"sv, ":1\r\n"sv, "$5\r\nhel"sv, "garbage"sv}) {
        ASSERT_TRUE(decoder.open());
        feed(decoder, "+OK\r\n");
        feed(decoder, surplus);
        ASSERT_EQ(decoder.next(reply), Step::decoded);
        EXPECT_FALSE(decoder.is_drained()) << surplus;
    }
}

TEST(ReplyDecoder, N12_RefusesWhatIsNoReplyToALock) {
    const std::string_view garbage[] = {
        "HTTP/1.1 400 Bad Request\r\n", "\0"sv, "OK\r\n", "\r\n", "x", ":1x\r\n", ":\r\n",
        ": 1\r\n", ":9223372036854775808\r\n", ":01\r\n", "$x\r\n", "$-2\r\n", "$5\r\nhelloXX",
        "$99999999999999999999\r\n",
        // arrays, also of nothing, nested, endless
        "*0\r\n", "*-1\r\n", "*1\r\n", "*1\r\n*1\r\n*1\r\n", "*2147483647\r\n", "*x\r\n",
        "*99999999999999999999\r\n",
        // RESP3
        ">2\r\n+invalidate\r\n*-1\r\n", "%1\r\n+a\r\n:1\r\n", "~1\r\n:1\r\n", "_\r\n", "#t\r\n",
        ",1.5\r\n", "(3492890328409238509324850943850943825024385\r\n",
        "=15\r\ntxt:Some string\r\n", "!5\r\nERR x\r\n", "|1\r\n+a\r\n+b\r\n"};
    for (const std::string_view bytes : garbage) {
        detail::ReplyDecoder decoder;
        ASSERT_TRUE(decoder.open());
        Reply reply;
        feed(decoder, bytes);
        ASSERT_EQ(decoder.next(reply), Step::broken) << bytes;
        EXPECT_EQ(decoder.error(), errc::protocol_error) << bytes;
        EXPECT_FALSE(decoder.complaint().empty());
        EXPECT_EQ(reply.kind, Reply::unsent) << "touched by " << bytes;
        feed(decoder, "+OK\r\n");
        EXPECT_EQ(decoder.next(reply), Step::broken) << "G1: it stays broken";
        ASSERT_TRUE(decoder.open()); // a new stream is another matter
        feed(decoder, "+OK\r\n");
        EXPECT_EQ(decoder.next(reply), Step::decoded);
    }
}

TEST(ReplyDecoder, KeepsTheRepliesBeforeTheGarbage) {
    detail::ReplyDecoder decoder;
    ASSERT_TRUE(decoder.open());
    feed(decoder, "+OK\r\n:1\r\n*1\r\n");
    Reply reply;
    ASSERT_EQ(decoder.next(reply), Step::decoded);
    EXPECT_EQ(reply.kind, Reply::status);
    ASSERT_EQ(decoder.next(reply), Step::decoded);
    EXPECT_EQ(reply.kind, Reply::integer);
    EXPECT_EQ(decoder.next(reply), Step::broken);
    EXPECT_EQ(reply.kind, Reply::integer);
}

/// What is known byte for byte is taken ahead of hiredis: in the order in which it came all the same.
TEST(ReplyDecoder, KeepsTheOrderOfWhatItKnowsAndWhatHiredisParses) {
    const std::string_view usual[] = {"+OK\r\n", ":1\r\n", "$-1\r\n"};
    const std::string_view others[] = {":0\r\n", ":10\r\n", "+OKAY\r\n", "$2\r\nOK\r\n", "-OK\r\n"};
    std::string stream;
    std::vector<Answered> expected;
    const auto add = [&](std::string_view bytes) {
        detail::ReplyDecoder alone;
        ASSERT_TRUE(alone.open());
        Reply reply;
        for (const char& byte : bytes) alone.feed({&byte, 1}); // nothing is known byte by byte
        ASSERT_EQ(alone.next(reply), Step::decoded) << bytes;
        stream += bytes;
        expected.push_back(seen(reply));
    };
    while (stream.size() < 3'000) { // past what is held back from hiredis
        for (const std::string_view other : others) {
            for (const std::string_view one : usual) add(one);
            add(other);
        }
    }
    for (const std::size_t piece : {1U, 2U, 5U, 7U, 64U, 511U, 512U, 513U, 2048U, 4096U}) {
        detail::ReplyDecoder decoder;
        ASSERT_TRUE(decoder.open());
        Reply reply;
        std::size_t count = 0;
        for (std::size_t at = 0; at < stream.size(); at += piece) {
            feed(decoder, std::string_view{stream}.substr(at, piece));
            while (decoder.next(reply) == Step::decoded) {
                ASSERT_LT(count, expected.size());
                ASSERT_EQ(seen(reply), expected[count++]) << "in pieces of " << piece;
            }
        }
        ASSERT_EQ(count, expected.size()) << "in pieces of " << piece;
        ASSERT_TRUE(decoder.is_drained());
    }
}

TEST(ReplyDecoder, TakesWhatItKnowsForAReplyOnlyWhereOneBegins) {
    detail::ReplyDecoder decoder;
    ASSERT_TRUE(decoder.open());
    Reply reply;
    feed(decoder, "$5\r\n"); // a bulk string, cut in front of what looks like a reply
    ASSERT_EQ(decoder.next(reply), Step::incomplete);
    feed(decoder, "+OK\r\n");
    ASSERT_EQ(decoder.next(reply), Step::incomplete);
    feed(decoder, "\r\n:0\r\n");
    feed(decoder, ":1\r\n"); // behind one that nobody has taken yet
    for (const Answered& expected :
         {Answered{Reply::string, 0, "+OK\r\n"}, Answered{Reply::integer, 0, ""},
          Answered{Reply::integer, 1, ""}}) {
        ASSERT_EQ(decoder.next(reply), Step::decoded);
        EXPECT_EQ(seen(reply), expected);
    }
    EXPECT_TRUE(decoder.is_drained());

    feed(decoder, "+"); // hiredis has taken it, and holds nothing more
    ASSERT_EQ(decoder.next(reply), Step::incomplete);
    EXPECT_FALSE(decoder.is_drained());
    feed(decoder, ":1\r\n");
    ASSERT_EQ(decoder.next(reply), Step::decoded);
    EXPECT_EQ(seen(reply), (Answered{Reply::status, 0, ":1"}));
}

/// A reply without an end is given up long before it fills the memory, whatever length it claims.
TEST(ReplyDecoder, N12_BoundsWhatItHolds) {
    for (const std::string_view head :
         {"$1000000000\r\n"sv, "$9223372036854775807\r\n"sv, "+"sv, "-"sv, ":"sv, "*"sv, "$"sv}) {
        detail::ReplyDecoder decoder;
        ASSERT_TRUE(decoder.open());
        feed(decoder, head);
        Reply reply;
        const std::string chunk(2048, '1');
        std::size_t fed = 0;
        Step step = decoder.next(reply);
        while (step == Step::incomplete && fed < 10'000'000) {
            feed(decoder, chunk);
            fed += chunk.size();
            step = decoder.next(reply);
        }
        EXPECT_EQ(step, Step::broken) << head;
        EXPECT_EQ(decoder.error(), errc::protocol_error);
        EXPECT_LE(fed, detail::ReplyDecoder::longest_reply + chunk.size()) << head;
    }
}

} // namespace
} // namespace leaselock::test
