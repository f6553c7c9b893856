// SPDX-License-Identifier: MIT
//
// Replies with arrays in them, from sentinels and clusters: `TreeReader`. The same bytes give the same
// tree wherever they are cut; the tree is what the bytes say; and what it costs is bounded.

#include "fuzz/reply_tree.hpp"
#include "fuzz/naive.hpp"

#include <leaselock/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace {

using fuzz::check;
using leaselock::detail::ReplyTree;
using leaselock::detail::TreeReader;

enum class End { tree, waiting, broken };

struct Read {
    End end = End::waiting;
    ReplyTree tree;
    std::string complaint;
};

Read read(std::string_view bytes, std::size_t cut, std::size_t step) {
    TreeReader reader;
    Read result;
    for (std::size_t at = 0; at < bytes.size() && result.end == End::waiting;) {
        const std::size_t end = at < cut ? cut : at + step;
        const std::string_view piece = bytes.substr(at, end - at);
        if (!reader.feed(piece, result.tree)) {
            result.end = End::broken;
            check(reader.error() == leaselock::errc::protocol_error, "the bytes are to blame");
            result.complaint = reader.complaint();
            check(!result.complaint.empty(), "a refused reply has a complaint");
        } else if (result.tree != nullptr) {
            result.end = End::tree;
        }
        at += piece.size();
    }
    return result;
}

bool same(const redisReply* a, const redisReply* b) {
    if (a == nullptr || b == nullptr) return a == b;
    if (a->type != b->type || a->integer != b->integer || a->elements != b->elements) return false;
    if ((a->str == nullptr) != (b->str == nullptr)) return false;
    if (a->str != nullptr && fuzz::text_of(*a) != fuzz::text_of(*b)) return false;
    for (std::size_t i = 0; i < a->elements; ++i) {
        if (!same(a->element[i], b->element[i])) return false;
    }
    return true;
}

bool take(std::string_view& bytes, std::string_view expected) {
    if (!bytes.starts_with(expected)) return false;
    bytes.remove_prefix(expected.size());
    return true;
}

/// Whether the reply, written as RESP2, is what the bytes begin with; true, too, for what RESP3 added,
/// which is not written here.
bool is_written(const redisReply& reply, std::string_view& bytes, bool& resp3) {
    if (resp3) return true;
    const auto size = std::to_string(reply.len);
    switch (reply.type) {
    case REDIS_REPLY_STATUS:
        return take(bytes, "+") && take(bytes, fuzz::text_of(reply)) && take(bytes, "\r\n");
    case REDIS_REPLY_ERROR:
        if (bytes.starts_with('!')) break;
        return take(bytes, "-") && take(bytes, fuzz::text_of(reply)) && take(bytes, "\r\n");
    case REDIS_REPLY_INTEGER: return take(bytes, ":" + std::to_string(reply.integer) + "\r\n");
    case REDIS_REPLY_STRING:
        // hiredis skips the two bytes behind it unseen, and so do queries
        if (!take(bytes, "$" + size + "\r\n") || !take(bytes, fuzz::text_of(reply))) return false;
        if (bytes.size() < 2) return false;
        bytes.remove_prefix(2);
        return true;
    case REDIS_REPLY_NIL:
        if (bytes.starts_with('_')) break;
        return take(bytes, "$-1\r\n") || take(bytes, "*-1\r\n");
    case REDIS_REPLY_ARRAY:
        if (!take(bytes, "*" + std::to_string(reply.elements) + "\r\n")) return false;
        for (std::size_t i = 0; i < reply.elements; ++i) {
            if (!is_written(*reply.element[i], bytes, resp3)) return false;
        }
        return true;
    default: break;
    }
    resp3 = true;
    return true;
}

/// Whether the bytes begin a reply of RESP2 that says of itself that it is larger than what is taken: more
/// than six arrays in one another, or more elements in all.
bool is_too_large(std::string_view bytes) {
    std::vector<long long> left{1}; ///< of each array that is open, what is still to come
    std::size_t elements = 0;
    while (!left.empty()) {
        const std::size_t end = bytes.find("\r\n");
        if (end == std::string_view::npos || end == 0) return false;
        const char type = bytes.front();
        const int number = fuzz::number_of(bytes.substr(1, end - 1), 200'000'000);
        const bool array = type == '*' && number > 0;
        std::size_t skipped = end + 2;
        if (type == '$' && number >= 0) skipped += static_cast<std::size_t>(number) + 2;
        if (std::string_view{"+-:$*"}.find(type) == std::string_view::npos) return false;
        if (std::string_view{":$*"}.find(type) != std::string_view::npos && number < 0)
            return false;
        if (array && left.size() > 6) return true;
        if (array) elements += static_cast<std::size_t>(number);
        if (elements > TreeReader::most_elements) return true;
        if (skipped > bytes.size()) return false;
        bytes.remove_prefix(skipped);
        --left.back();
        if (array) left.push_back(number);
        while (!left.empty() && left.back() == 0) left.pop_back();
    }
    return false;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes = fuzz::as_text(data, std::min<std::size_t>(size, 2048));
    const Read whole = read(bytes, bytes.size(), bytes.size());
    if (whole.tree != nullptr) {
        std::string_view rest = bytes;
        bool resp3 = false;
        check(is_written(*whole.tree, rest, resp3), "the tree is what the bytes say");
    }
    check(whole.end == End::broken || !is_too_large(bytes), "what is too large is refused");
    const auto check_cut = [&](std::size_t cut, std::size_t step) {
        const Read other = read(bytes, cut, step);
        check(other.end == whole.end && other.complaint == whole.complaint, "the same end");
        check(same(whole.tree.get(), other.tree.get()), "the same tree however it is cut");
    };
    check_cut(0, 1);
    // all places of a short input; of a long one some, other ones for another length
    const std::size_t stride = bytes.size() <= 128 ? 1 : 1 + bytes.size() / 32;
    for (std::size_t cut = 1; cut < bytes.size(); cut += stride) check_cut(cut, bytes.size());
    return 0;
}
