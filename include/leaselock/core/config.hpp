#pragma once
// SPDX-License-Identifier: MIT

/// What the translation unit was compiled with, decided in one place.
///
/// `LEASELOCK_EXCEPTIONS` is 1 where exceptions are on. `LEASELOCK_ABI` names the inline namespace:
/// units built with and without exceptions must not share symbols.
///
/// A service whose files define `LEASELOCK_SEPARATE_COMPILATION`, all of them, compiles the library once,
/// in the one that includes <leaselock/definitions.ipp>. `LEASELOCK_DEFINES` is 1 where the definitions are
/// wanted that this spares the others; those that others call are `LEASELOCK_INLINE`.
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

#if defined(LEASELOCK_SEPARATE_COMPILATION)
#define LEASELOCK_INLINE
#else
#define LEASELOCK_INLINE inline
#endif
#if defined(LEASELOCK_SEPARATE_COMPILATION) && !defined(LEASELOCK_DEFINITIONS)
#define LEASELOCK_DEFINES 0
#else
#define LEASELOCK_DEFINES 1
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {}
} // namespace leaselock
