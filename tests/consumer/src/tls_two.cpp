// SPDX-License-Identifier: MIT
#include <leaselock/hiredis/tls.hpp>

#include <memory>

leaselock::Outcome load_nothing(std::shared_ptr<const leaselock::TransportSecurity>& security) {
    return leaselock::Tls::load({.ca_file = "/does/not/exist"}, security);
}
