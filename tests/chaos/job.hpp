#pragma once
// SPDX-License-Identifier: MIT

#include "chaos/scribe.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace leaselock::chaos {

/// What a worker process is told on its command line.
struct Job {
    std::string actor;
    std::uint64_t serial = 0; ///< another one for each process of a run
    std::uint64_t seed = 0;
    Time epoch = 0;
    std::int64_t ppm = 0;          ///< that its lease clock is fast; its shim sees to that
    std::vector<std::string> urls; ///< of the servers, in their order
    std::size_t keys = 0;          ///< on each
    std::string history;
    std::string witness;
    std::string store;
    bool shares = false; ///< one connection for all its threads
    Time probe =
        0; ///< takes each key once, each in that time, and ends; 0: works until it is killed

    [[nodiscard]] std::vector<std::string> to_words() const;
    /// @throws std::runtime_error for a word that it does not know
    [[nodiscard]] static Job from_words(const std::vector<std::string>& words);
};

[[nodiscard]] inline std::string key_name(std::size_t server, std::size_t key) {
    return "s" + std::to_string(server) + ":k" + std::to_string(key);
}

/// A worker's whole life. @return its exit code
int work(const Job& job);

} // namespace leaselock::chaos
