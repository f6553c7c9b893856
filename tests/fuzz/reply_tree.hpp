#pragma once
// SPDX-License-Identifier: MIT

#include "fuzz/fuzz.hpp"

#include <leaselock/hiredis/detail/query.hpp>

#include <string_view>

namespace fuzz {

/// The first reply in the bytes, as a query reads it; null where there is none.
inline leaselock::detail::ReplyTree read_tree(std::string_view bytes) {
    leaselock::detail::TreeReader reader;
    leaselock::detail::ReplyTree tree;
    if (!reader.feed(bytes, tree)) return nullptr;
    return tree;
}

inline std::string_view text_of(const redisReply& reply) {
    return {reply.str, static_cast<std::size_t>(reply.len)};
}

} // namespace fuzz
