// SPDX-License-Identifier: MIT
// A header that has only declared is not read again.
#define LEASELOCK_SEPARATE_COMPILATION
#ifndef GOOD
#include <leaselock/core/outcome.hpp>
#endif
#include <leaselock/definitions.ipp>
