// SPDX-License-Identifier: MIT
#pragma once

#include <leaselock/hiredis/detail/address.hpp>

#include <netdb.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace leaselock::test {

/// A name server that never answers, until the story ends.
struct DeadNameServer {
    static int look_up(const char* /*host*/, std::uint16_t /*port*/,
                       detail::AddressList& /*found*/) {
        std::unique_lock lock{mutex};
        ++asking;
        changed.wait(lock, [] { return over; });
        --asking;
        changed.notify_all();
        return EAI_AGAIN;
    }
    DeadNameServer() { over = false; }
    DeadNameServer(const DeadNameServer&) = delete;
    DeadNameServer& operator=(const DeadNameServer&) = delete;
    ~DeadNameServer() {
        std::unique_lock lock{mutex};
        over = true;
        changed.notify_all();
        changed.wait(lock, [] { return asking == 0; });
    }
    static std::size_t askers() {
        const std::lock_guard lock{mutex};
        return asking;
    }

    static inline std::mutex mutex;
    static inline std::condition_variable changed;
    static inline bool over = false;
    static inline std::size_t asking = 0;
};

} // namespace leaselock::test
