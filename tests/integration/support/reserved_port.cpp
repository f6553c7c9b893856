// SPDX-License-Identifier: MIT
#include "reserved_port.hpp"

#include "sockets.hpp"
#include "system_failure.hpp"

#include <sys/socket.h>

namespace leaselock::test {

ReservedPort::ReservedPort() : socket_{tcp_socket(false)} {
    if (!bind_to_loopback(socket_.get(), 0)) {
        system_failure("no free port");
    }
    // Only now: with it, bind itself might share the port of another reservation.
    const int on = 1;
    if (setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) {
        system_failure("SO_REUSEADDR");
    }
    number_ = port_of(socket_.get());
}

} // namespace leaselock::test
