// SPDX-License-Identifier: MIT
#pragma once

#include "file_descriptor.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace leaselock::test {

// TCP on 127.0.0.1. Every socket made here is closed on exec, and does not block after it is open.

/// An unbound socket; with `reuse` it may bind where only non-listening sockets are.
[[nodiscard]] FileDescriptor tcp_socket(bool reuse);

/// Binds to a port, 0 for any free one. False, with errno, if it cannot be had.
[[nodiscard]] bool bind_to_loopback(int socket, std::uint16_t port) noexcept;

[[nodiscard]] FileDescriptor listen_on_loopback(std::uint16_t port, int backlog = 128);

/// Empty when refused.
[[nodiscard]] FileDescriptor connect_to_loopback(std::uint16_t port);

/// Empty when nobody waits.
[[nodiscard]] FileDescriptor accept_one(int listener) noexcept;

[[nodiscard]] std::uint16_t port_of(int socket);

/// What has arrived: empty when there is nothing yet, nullopt at the end of the connection.
[[nodiscard]] std::optional<std::string> receive_some(int socket);

/// Whether something waits to be read on a connection of this process, other than to that port.
[[nodiscard]] bool input_waits(std::uint16_t except_to);

/// How much the kernel took, 0 when its buffer is full, nullopt when the connection is broken.
[[nodiscard]] std::optional<std::size_t> send_some(int socket, std::string_view bytes) noexcept;

/// Closes with a reset (RST), not an orderly end.
void reset_connection(FileDescriptor& socket) noexcept;

/// Waits for the events of poll(2), signals or not; false at the deadline.
[[nodiscard]] bool wait_for_events(int descriptor, short events,
                                   std::chrono::steady_clock::time_point deadline);
[[nodiscard]] bool wait_readable(int descriptor, std::chrono::steady_clock::time_point deadline);

/// Milliseconds for poll(2), rounded up, never negative.
[[nodiscard]] int poll_timeout(std::chrono::steady_clock::time_point deadline);

} // namespace leaselock::test
