#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

#include <cstddef>
#include <string_view>

/// How many nodes make a quorum. Source: design, "Quorum".
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

inline constexpr std::size_t least_nodes = 3;
inline constexpr std::size_t most_nodes = 15;

/// What is wrong with a number of nodes, or empty. An even number bears no more failures than the odd
/// one below it, and needs one more answer.
[[nodiscard]] constexpr std::string_view complaint_about_nodes(std::size_t nodes) noexcept {
    if (nodes >= least_nodes && nodes <= most_nodes && nodes % 2 == 1) return {};
    return "a quorum takes an odd number of nodes, from 3 to 15";
}

[[nodiscard]] constexpr std::size_t majority_of(std::size_t nodes) noexcept {
    return nodes / 2 + 1;
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
