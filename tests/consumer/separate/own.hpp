// SPDX-License-Identifier: MIT
#pragma once

#include <leaselock/redis/connection.hpp>

#include <span>

namespace own {

/// A connection of the service's own, which answers nothing.
struct Connection {
    void call(std::span<const leaselock::Command> commands, std::span<leaselock::Reply> replies,
              leaselock::Deadline by) noexcept;
};

} // namespace own
