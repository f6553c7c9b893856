// SPDX-License-Identifier: MIT
#include "own.hpp"

#include <leaselock/core/error.hpp>

void own::Connection::call(std::span<const leaselock::Command> /*commands*/,
                           std::span<leaselock::Reply> replies,
                           leaselock::Deadline /*by*/) noexcept {
    for (leaselock::Reply& reply : replies) {
        reply.set_unsent(make_error_code(leaselock::errc::connection_lost));
    }
}
