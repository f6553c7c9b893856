// SPDX-License-Identifier: MIT
#pragma once

#include "file_descriptor.hpp"

#include <cstdint>
#include <vector>

namespace leaselock::test {

/// A port where connecting neither succeeds nor fails: its backlog is full (fault N2).
class DeadEnd {
public:
    DeadEnd();

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

private:
    FileDescriptor listener_;
    std::uint16_t port_ = 0;
    std::vector<FileDescriptor> fillers_;
};

} // namespace leaselock::test
