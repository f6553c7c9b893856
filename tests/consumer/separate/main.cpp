// SPDX-License-Identifier: MIT
#include <leaselock/leaselock.hpp>

#include <chrono>
#include <string_view>

bool all_kinds_work();

int main() {
    // The categories are one for all files, and what is thrown says the same in each.
    leaselock::HiredisConnection redis{"redis://127.0.0.1:1"};
    try {
        const leaselock::LeaseLock lock{redis, "key", std::chrono::seconds{10}};
    } catch (const leaselock::Error& error) {
        const bool clear =
            std::string_view{error.what()}.find("127.0.0.1:1") != std::string_view::npos &&
            error.code() == leaselock::condition::unreachable;
        return clear && all_kinds_work() ? 0 : 1;
    }
    return 1;
}
