// SPDX-License-Identifier: MIT
#include <leaselock/definitions.ipp>

#include <leaselock/hiredis/tls.hpp>
#include <leaselock/testing/memory_connection.hpp>

#include "own.hpp"

LEASELOCK_INSTANTIATE(own::Connection);
LEASELOCK_INSTANTIATE(leaselock::testing::MemoryConnection);
