// SPDX-License-Identifier: MIT
#pragma once

#include <leaselock/core/lease_clock.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>

#include <span>

/// The least that is a connection: it sends nothing, so every reply stays unsent.
struct Nowhere {
    void call(std::span<const leaselock::Command>, std::span<leaselock::Reply>,
              leaselock::Deadline) noexcept {}
};
