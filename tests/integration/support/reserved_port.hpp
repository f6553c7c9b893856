// SPDX-License-Identifier: MIT
#pragma once

#include "file_descriptor.hpp"

#include <cstdint>

namespace leaselock::test {

/// A free port of 127.0.0.1 that stays ours while nothing listens on it, between a restart's stop
/// and start for instance. It is bound, but does not listen: connecting is refused, a listener that
/// sets SO_REUSEADDR (Redis does) can take it, and the kernel gives it to nobody else.
class ReservedPort {
public:
    ReservedPort();

    [[nodiscard]] std::uint16_t number() const noexcept { return number_; }

private:
    FileDescriptor socket_;
    std::uint16_t number_ = 0;
};

} // namespace leaselock::test
