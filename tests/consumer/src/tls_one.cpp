// SPDX-License-Identifier: MIT
// Two translation units with TLS: what is not inline is defined twice.
#include <leaselock/hiredis/tls.hpp>
#include <leaselock/leaselock.hpp>

#include <memory>

leaselock::Outcome load_nothing(std::shared_ptr<const leaselock::TransportSecurity>& security);

int main() {
    std::shared_ptr<const leaselock::TransportSecurity> security;
    const bool refused = load_nothing(security).cause == leaselock::errc::invalid_argument;
    const leaselock::Tls tls; // the system's authorities, be there any or not
    // Nobody listens on port 1.
    leaselock::HiredisConnection redis{tls.endpoint("rediss://127.0.0.1:1")};
    leaselock::LeaseLock lock{redis, "key", std::chrono::seconds{10}, std::defer_lock};
    return refused && lock.try_acquire().cause == leaselock::condition::unreachable ? 0 : 1;
}
