// SPDX-License-Identifier: MIT
#pragma once

#include "nowhere.hpp"

/// A split connection that leads nowhere.
struct SplitNowhere : Nowhere {
    void start(std::span<const leaselock::Command>, leaselock::Deadline) noexcept {}
    bool finish(std::span<leaselock::Reply>) noexcept { return true; }
    static void wait_any(std::span<SplitNowhere* const>, leaselock::Deadline) noexcept {}
};
