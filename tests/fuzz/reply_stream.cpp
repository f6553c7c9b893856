// SPDX-License-Identifier: MIT
//
// What a server sends where a lock's command is answered: `ReplyDecoder`. Whole, cut in two at every
// place, and a byte at a time, the same bytes have to give the same replies, and those that a second,
// naive reading of RESP2 finds. What never becomes whole has to end.

#include "fuzz/fuzz.hpp"

#include <leaselock/core/error.hpp>
#include <leaselock/hiredis/detail/reply_decoder.hpp>
#include <leaselock/redis/reply.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace {

using fuzz::check;
using leaselock::Reply;
using leaselock::detail::ReplyDecoder;
using Step = ReplyDecoder::Step;

struct Decoded {
    std::vector<Reply> replies;
    Step end = Step::incomplete;
    std::string complaint;
    std::vector<bool> drained; ///< behind each reply
};

bool same(const Reply& a, const Reply& b) {
    return a.kind == b.kind && a.number == b.number && a.cause == b.cause && a.text == b.text &&
           a.text.truncated() == b.text.truncated();
}

/// Decodes all that there is to decode by now. @return false at the end of the stream
bool drain(ReplyDecoder& decoder, Decoded& decoded) {
    for (;;) {
        Reply reply;
        decoded.end = decoder.next(reply);
        if (decoded.end != Step::decoded) break;
        check(reply.answered(), "a decoded reply is an answer");
        decoded.replies.push_back(reply);
        decoded.drained.push_back(decoder.is_drained());
    }
    if (decoded.end == Step::incomplete) return true;
    check(decoder.error() == leaselock::errc::protocol_error, "what breaks a stream is its bytes");
    decoded.complaint = decoder.complaint();
    check(!decoded.complaint.empty(), "a broken stream has a complaint");
    return false;
}

/// Feeds the bytes in pieces that end at `cut`, or all of `step` bytes.
Decoded decode(std::string_view bytes, std::size_t cut, std::size_t step) {
    ReplyDecoder decoder;
    check(decoder.open(), "open");
    Decoded decoded;
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t end = at < cut ? cut : at + step;
        const std::string_view piece = bytes.substr(at, end - at);
        decoder.feed(piece);
        if (!drain(decoder, decoded)) break;
        at += piece.size();
    }
    return decoded;
}

void check_same(const Decoded& one, const Decoded& other) {
    check(one.replies.size() == other.replies.size(), "as many replies however they are cut");
    for (std::size_t i = 0; i < one.replies.size(); ++i) {
        check(same(one.replies[i], other.replies[i]), "the same replies however they are cut");
    }
    check(one.end == other.end && one.complaint == other.complaint, "the same end");
}

// --- a second reading --------------------------------------------------------------------------

/// An integer as Redis writes it, and no other way.
std::optional<std::int64_t> read_integer(std::string_view digits) {
    std::int64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error != std::errc{} || stop != end || std::to_string(value) != digits) return {};
    return value;
}

enum class Verdict { reply, reply_or_broken, broken, incomplete, not_a_reply };

/// The next reply by the book, which moves `bytes` on.
Verdict read_by_the_book(std::string_view& bytes, Reply& reply) {
    if (bytes.empty()) return Verdict::incomplete;
    const char type = bytes.front();
    if (type != '+' && type != '-' && type != ':' && type != '$') return Verdict::not_a_reply;
    const std::size_t end = bytes.find("\r\n");
    if (end == std::string_view::npos) return Verdict::incomplete;
    const std::string_view line = bytes.substr(1, end - 1);
    const auto number = read_integer(line);
    if (type == '$') {
        if (!number || *number < -1) return Verdict::broken;
        if (*number == -1) {
            reply.set_nil();
        } else {
            const std::string_view rest = bytes.substr(end + 2);
            const auto size = static_cast<std::uint64_t>(*number);
            if (rest.size() < 2 || size > rest.size() - 2) return Verdict::incomplete;
            if (rest.substr(size, 2) != "\r\n") return Verdict::broken;
            reply.set_text(Reply::string, rest.substr(0, size));
            bytes.remove_prefix(size + 2);
        }
        bytes.remove_prefix(end + 2);
        return Verdict::reply;
    }
    if (type == ':' && !number) return Verdict::broken;
    if (type == ':') {
        reply.set_integer(*number);
    } else if (type == '+') {
        reply.set_text(Reply::status, line);
    } else {
        constexpr std::string_view repeated = ", with args beginning with:";
        reply.set_text(Reply::error, line.substr(0, line.find(repeated)));
    }
    bytes.remove_prefix(end + 2);
    // hiredis 1.0 and newer refuse a line feed or a carriage return within a line
    return line.find_first_of("\r\n") == std::string_view::npos ? Verdict::reply
                                                                : Verdict::reply_or_broken;
}

void check_by_the_book(std::string_view bytes, const Decoded& decoded) {
    for (std::size_t i = 0;; ++i) {
        Reply reply;
        const Verdict verdict = read_by_the_book(bytes, reply);
        const bool last = i == decoded.replies.size();
        const bool broken = last && decoded.end == Step::broken;
        if (verdict == Verdict::reply_or_broken && broken) return;
        switch (verdict) {
        case Verdict::reply:
        case Verdict::reply_or_broken:
            check(!last, "what is a reply is decoded");
            check(same(reply, decoded.replies[i]), "it is the reply that the bytes are");
            check(decoded.drained[i] == bytes.empty(), "and what waits behind it is seen");
            break;
        case Verdict::broken: return check(broken, "what is no reply breaks the stream");
        case Verdict::incomplete:
            // broken, perhaps: no hiredis waits for a length that it could never hold
            return check(last, "nothing is decoded that is not there");
        case Verdict::not_a_reply: return check(last, "of RESP3 and arrays nothing is taken");
        }
    }
}

/// What has begun and goes on for ever ends within bounds.
void check_bounded(std::string_view bytes) {
    ReplyDecoder decoder;
    check(decoder.open(), "open");
    Decoded decoded;
    decoder.feed(bytes);
    constexpr std::size_t chunk = 2048; // as from a stream
    const std::string more(chunk, '7');
    std::size_t fed = 0;
    while (drain(decoder, decoded)) {
        check(fed <= ReplyDecoder::longest_reply, "64 KiB that are no reply break the stream");
        decoder.feed(more);
        fed += chunk;
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes = fuzz::as_text(data, std::min<std::size_t>(size, 2048));
    const Decoded whole = decode(bytes, bytes.size(), 1);
    check_by_the_book(bytes, whole);
    check_same(whole, decode(bytes, 0, 1));
    // all places of a short input; of a long one some, other ones for another length
    const std::size_t stride = bytes.size() <= 128 ? 1 : 1 + bytes.size() / 32;
    for (std::size_t cut = 1; cut < bytes.size(); cut += stride) {
        check_same(whole, decode(bytes, cut, bytes.size()));
    }
    check_bounded(bytes);
    return 0;
}
