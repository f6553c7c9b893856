// SPDX-License-Identifier: MIT
#include "dead_end.hpp"

#include "sockets.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <stdexcept>

namespace leaselock::test {

DeadEnd::DeadEnd() : listener_{listen_on_loopback(0, 0)}, port_{port_of(listener_.get())} {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    while (fillers_.size() < 8) {
        const auto& filler = fillers_.emplace_back(tcp_socket(false));
        static_cast<void>(
            connect(filler.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address));
        const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds{50};
        if (!wait_for_events(filler.get(), POLLOUT, limit)) {
            return;
        }
    }
    throw std::runtime_error("the backlog does not fill");
}

} // namespace leaselock::test
