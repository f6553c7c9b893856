#pragma once
// SPDX-License-Identifier: MIT

/// What the translation unit was compiled with, decided in one place.
///
/// `LEASELOCK_EXCEPTIONS` is 1 where exceptions are on. `LEASELOCK_ABI` names the inline namespace:
/// units built with and without exceptions must not share symbols.
#if defined(__cplusplus) && __cplusplus < 202002L
#error "leaselock needs C++20: compile with -std=c++20 or later"
#endif

#if defined(__cpp_exceptions) && __cpp_exceptions
#define LEASELOCK_EXCEPTIONS 1
#define LEASELOCK_ABI v1
#else
#define LEASELOCK_EXCEPTIONS 0
#define LEASELOCK_ABI v1_noexcept
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {}
} // namespace leaselock
