// SPDX-License-Identifier: MIT
#include "sockets.hpp"

#include "system_failure.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string>

namespace leaselock::test {
namespace {

sockaddr_in loopback(std::uint16_t port) noexcept {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

const sockaddr* generic(const sockaddr_in& address) noexcept {
    return reinterpret_cast<const sockaddr*>(&address);
}

void turn_on(int socket, int level, int option) noexcept {
    const int on = 1;
    setsockopt(socket, level, option, &on, sizeof on);
}

} // namespace

FileDescriptor tcp_socket(bool reuse) {
    FileDescriptor made{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (!made) {
        system_failure("socket");
    }
    if (reuse) {
        turn_on(made.get(), SOL_SOCKET, SO_REUSEADDR);
    }
    return made;
}

bool bind_to_loopback(int socket, std::uint16_t port) noexcept {
    const auto address = loopback(port);
    return bind(socket, generic(address), sizeof address) == 0;
}

FileDescriptor listen_on_loopback(std::uint16_t port, int backlog) {
    auto listener = tcp_socket(true);
    if (!bind_to_loopback(listener.get(), port) || listen(listener.get(), backlog) != 0) {
        system_failure("cannot listen on port " + std::to_string(port));
    }
    return listener;
}

FileDescriptor connect_to_loopback(std::uint16_t port) {
    auto made = tcp_socket(false);
    const auto address = loopback(port);
    if (connect(made.get(), generic(address), sizeof address) != 0) {
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{2};
        int error = errno;
        if (error == EINPROGRESS && wait_for_events(made.get(), POLLOUT, limit)) {
            socklen_t size = sizeof error;
            getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &size);
        }
        if (error != 0) {
            return FileDescriptor{};
        }
    }
    turn_on(made.get(), IPPROTO_TCP, TCP_NODELAY);
    return made;
}

FileDescriptor accept_one(int listener) noexcept {
    FileDescriptor made{accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (made) {
        turn_on(made.get(), IPPROTO_TCP, TCP_NODELAY);
    }
    return made;
}

std::uint16_t port_of(int socket) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        system_failure("getsockname");
    }
    return ntohs(address.sin_port);
}

std::optional<std::string> receive_some(int socket) {
    std::array<char, 65536> chunk; // not cleared: every read would pay for it
    for (;;) {
        const ssize_t got = recv(socket, chunk.data(), chunk.size(), 0);
        if (got > 0) {
            return std::string(chunk.data(), static_cast<std::size_t>(got));
        }
        if (got < 0 && errno == EAGAIN) {
            return std::string{};
        }
        if (got == 0 || errno != EINTR) {
            return std::nullopt;
        }
    }
}

bool input_waits(std::uint16_t except_to) {
    for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
        const int descriptor = std::stoi(entry.path().filename());
        sockaddr_in peer{};
        socklen_t size = sizeof peer;
        int waiting = 0;
        if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
            peer.sin_family == AF_INET && ntohs(peer.sin_port) != except_to &&
            ioctl(descriptor, FIONREAD, &waiting) == 0 && waiting > 0) {
            return true;
        }
    }
    return false;
}

std::optional<std::size_t> send_some(int socket, std::string_view bytes) noexcept {
    for (;;) {
        const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent >= 0) {
            return static_cast<std::size_t>(sent);
        }
        if (errno == EAGAIN) {
            return 0;
        }
        if (errno != EINTR) {
            return std::nullopt;
        }
    }
}

void reset_connection(FileDescriptor& socket) noexcept {
    if (socket) {
        const linger now{1, 0};
        setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
        socket.close();
    }
}

bool wait_for_events(int descriptor, short events, std::chrono::steady_clock::time_point deadline) {
    for (;;) {
        pollfd waiting{descriptor, events, 0};
        const int ready = poll(&waiting, 1, poll_timeout(deadline));
        if (ready > 0) {
            return true;
        }
        if (ready == 0 && std::chrono::steady_clock::now() >= deadline) {
            return false;
        }
        if (ready < 0 && errno != EINTR) {
            system_failure("poll");
        }
    }
}

bool wait_readable(int descriptor, std::chrono::steady_clock::time_point deadline) {
    return wait_for_events(descriptor, POLLIN, deadline);
}

int poll_timeout(std::chrono::steady_clock::time_point deadline) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    return static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(left.count(), 0, 60'000));
}

} // namespace leaselock::test
