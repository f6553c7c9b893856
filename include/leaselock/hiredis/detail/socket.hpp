#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/address.hpp>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

/// Sockets, and the two ways in which they are waited for: poll, and a receive with a time limit.
///
/// hiredis cannot do it: its timeouts count per read, start anew after each signal, are lost on
/// reconnect; its writes raise SIGPIPE and its descriptors survive exec. Source: design, "The connection".
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

[[nodiscard]] inline std::error_code system_error_code() noexcept {
    return {errno, std::system_category()};
}

/// How long a receive waits at most, give or take a tick of the kernel's clock.
inline constexpr std::chrono::milliseconds receive_limit{100};
/// Whether a receive may wait where all has to be over by `by`.
[[nodiscard]] inline bool is_patient(Deadline now, Deadline by) noexcept {
    return later(now, 2 * receive_limit) < by;
}

/// Owns a socket that exec closes. Closing writes nothing and shuts nothing down, so that
/// a forked child may do it.
class Socket {
public:
    Socket() noexcept = default;
    explicit Socket(int descriptor) noexcept : descriptor_(descriptor) {}
    Socket(Socket&& other) noexcept
        : descriptor_(std::exchange(other.descriptor_, -1)), waits_(other.waits_) {}
    Socket& operator=(Socket&& other) noexcept {
        if (this != &other) {
            close();
            descriptor_ = std::exchange(other.descriptor_, -1);
            waits_ = other.waits_;
        }
        return *this;
    }
    ~Socket() { close(); }

    [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
    [[nodiscard]] bool is_open() const noexcept { return descriptor_ >= 0; }
    /// Lets `receive_waiting` wait, but never for long.
    void let_wait() noexcept {
        const timeval limit{0, std::chrono::microseconds{receive_limit}.count()};
        const int flags = ::fcntl(descriptor_, F_GETFL);
        waits_ = ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
                 flags >= 0 && ::fcntl(descriptor_, F_SETFL, flags & ~O_NONBLOCK) == 0;
    }
    [[nodiscard]] bool waits() const noexcept { return waits_; }
    /// Lets go of the descriptor, which stays open.
    int release() noexcept { return std::exchange(descriptor_, -1); }
    void close() noexcept {
        // not repeated after EINTR: Linux has freed the number by then
        if (descriptor_ >= 0) (void)::close(std::exchange(descriptor_, -1));
    }

private:
    int descriptor_ = -1;
    bool waits_ = false;
};

inline void set_option(int socket, int level, int name, int value) noexcept {
    // none of them is vital: a refusal changes nothing but latency, or how soon a dead peer shows
    (void)::setsockopt(socket, level, name, &value, sizeof value);
}

/// Begins to connect. @param keepalive silence after which the kernel asks whether the other side is
/// there still, and three times more in a third of that each; 0 for never
/// @return an open socket, or a closed one and `error`
[[nodiscard]] inline Socket begin_connect(const Address& address, std::chrono::seconds keepalive,
                                          std::error_code& error) noexcept {
    Socket socket{
        ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (!socket.is_open()) {
        error = system_error_code();
        return socket;
    }
    if (!address.is_unix()) {
        set_option(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, 1);
        const int idle = static_cast<int>(keepalive.count());
        set_option(socket.descriptor(), SOL_SOCKET, SO_KEEPALIVE, idle != 0 ? 1 : 0);
        if (idle != 0) {
            set_option(socket.descriptor(), IPPROTO_TCP, TCP_KEEPIDLE, idle);
            set_option(socket.descriptor(), IPPROTO_TCP, TCP_KEEPINTVL, (std::max)(1, idle / 3));
            set_option(socket.descriptor(), IPPROTO_TCP, TCP_KEEPCNT, 3);
        }
    }
    // An interrupted connect goes on by itself (POSIX), like one that is in progress. A unix socket
    // whose backlog is full says EAGAIN, and nothing can be waited for.
    if (::connect(socket.descriptor(), address.get(), address.size) != 0 && errno != EINPROGRESS &&
        errno != EINTR) {
        error = system_error_code();
        socket.close();
    }
    return socket;
}

enum class ConnectState : std::uint8_t { pending, connected, failed };

/// How a connect stands.
[[nodiscard]] inline ConnectState connect_state(int socket, std::error_code& error) noexcept {
    int code = 0;
    socklen_t size = sizeof code;
    if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &size) != 0) code = errno;
    Address peer;
    peer.size = sizeof peer.storage;
    if (code == 0 &&
        ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer.storage), &peer.size) != 0) {
        if (errno == ENOTCONN) return ConnectState::pending;
        code = errno;
    }
    // TCP may connect a local port to itself where nobody listens, and hear its own commands.
    Address self;
    self.size = sizeof self.storage;
    if (code == 0 && !peer.is_unix() &&
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&self.storage), &self.size) == 0 &&
        self.size == peer.size && std::memcmp(&self.storage, &peer.storage, self.size) == 0) {
        code = ECONNREFUSED;
    }
    if (code == 0) return ConnectState::connected;
    error = {code, std::system_category()};
    return ConnectState::failed;
}

/// What one read or write came to. `again`: the kernel would have to wait. `failed`: see errno.
enum class IoState : std::uint8_t { moved, again, end, failed };
struct Io {
    IoState state = IoState::again;
    std::size_t bytes = 0;
};

[[nodiscard]] inline Io io_failure() noexcept {
    return {errno == EAGAIN || errno == EWOULDBLOCK ? IoState::again : IoState::failed};
}

/// Hands to the kernel what it takes at once; a broken connection is an error here, not a SIGPIPE.
[[nodiscard]] inline Io send_some(int socket, std::string_view bytes) noexcept {
    for (;;) {
        const ssize_t sent =
            ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) return {IoState::moved, static_cast<std::size_t>(sent)};
        if (errno != EINTR) return io_failure();
    }
}

[[nodiscard]] inline Io received(ssize_t got) noexcept {
    if (got > 0) return {IoState::moved, static_cast<std::size_t>(got)};
    return got == 0 ? Io{IoState::end} : io_failure();
}
/// Takes what has come.
[[nodiscard]] inline Io receive_some(int socket, std::span<char> room) noexcept {
    for (;;) {
        const ssize_t got = ::recv(socket, room.data(), room.size(), MSG_DONTWAIT);
        if (got >= 0 || errno != EINTR) return received(got);
    }
}
/// The same, and waits for something to come: for `receive_limit` at most, and until a signal.
/// One system call, where poll and receive_some are two.
[[nodiscard]] inline Io receive_waiting(int socket, std::span<char> room) noexcept {
    const ssize_t got = ::recv(socket, room.data(), room.size(), 0);
    return got < 0 && errno == EINTR ? Io{} : received(got);
}

/// True when nothing has come on a stream that should be silent: neither bytes, nor its end, nor an
/// error. One system call, which takes no lock of the socket's.
[[nodiscard]] inline bool is_silent(int socket) noexcept {
    pollfd alone{socket, POLLIN, 0};
    int ready = 0;
    do {
        ready = ::poll(&alone, 1, 0);
    } while (ready < 0 && errno == EINTR);
    return ready == 0;
}

/// Waits until something happens to one of `set`, or until `by` has passed on the runtime's clock.
/// Signals do not matter. It looks at `set` once even when `by` has passed already.
inline void wait_ready(std::span<pollfd> set, Deadline by, const Runtime& runtime) noexcept {
    for (;;) {
        const Deadline now = runtime.now();
        const std::int64_t left = by > now ? (by - now).count() : 0;
        // the kernel's timeout stands still while the machine sleeps, the lease clock does not: a
        // suspend is noticed within a second of waking up
        const std::int64_t slice = std::min<std::int64_t>(left, 1'000'000'000);
        timespec timeout{};
        timeout.tv_sec = slice / 1'000'000'000;
        timeout.tv_nsec = slice % 1'000'000'000;
        const int ready = ::ppoll(set.data(), set.size(), &timeout, nullptr);
        if (ready > 0 || left == 0) return;
        if (ready < 0 && errno != EINTR) return; // ENOMEM: the next read or write says more
    }
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
