// SPDX-License-Identifier: MIT
// One file defines what all others have defined themselves.
#ifdef GOOD
#define LEASELOCK_SEPARATE_COMPILATION
#endif
#include <leaselock/definitions.ipp>
