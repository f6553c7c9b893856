// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

namespace example {

/// For so long an example waits for what has to come, on however slow a machine.
inline constexpr std::chrono::seconds patience{30};

/// Returns when the condition holds. @throws std::runtime_error when it does not come true
template <class Condition>
void await(const std::string& what, const Condition& holds) {
    const auto limit = std::chrono::steady_clock::now() + patience;
    while (!holds()) {
        if (std::chrono::steady_clock::now() > limit) {
            throw std::runtime_error("waited in vain for: " + what);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
}

} // namespace example
