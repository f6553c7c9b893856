// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace leaselock::test {

/// Throws std::runtime_error with the text of errno.
[[noreturn]] inline void system_failure(const std::string& what) {
    throw std::runtime_error(what + ": " + std::generic_category().message(errno));
}

} // namespace leaselock::test
