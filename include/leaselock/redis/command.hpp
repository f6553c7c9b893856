#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

#include <span>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// One Redis command: its words, and the key by which a cluster routes it.
/// It owns nothing: words and key live as long as the call that takes it.
struct Command {
    std::span<const std::string_view> argv; ///< any bytes; the first word is the command's name
    std::string_view key;                   ///< empty: any node
};

} // namespace LEASELOCK_ABI
} // namespace leaselock
