#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

#include <cstdint>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

class AddressList;

/// Asks for the addresses of a name; blocks. @return 0 or an `EAI_` code
using LookupFunction = int (*)(const char* host, std::uint16_t port, AddressList& found);

/// The system's resolver. It blocks for as long as it likes: 20 s with a dead name server.
int system_lookup(const char* host, std::uint16_t port, AddressList& found) noexcept;

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
