#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/hiredis/detail/reply_decoder.hpp>
#include <leaselock/hiredis/detail/secure_layer.hpp>
#include <leaselock/hiredis/detail/socket.hpp>

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// Why something ended without an answer.
struct Failure {
    std::error_code cause;
    ServerText text;
};

enum class Progress : std::uint8_t {
    waiting, ///< for the other side
    done,
    failed,
};

/// A socket, what encrypts it, if anything, and what has been read from it.
struct Stream {
    Socket socket;
    std::unique_ptr<SecureLayer> secure; ///< null: plain text
    ReplyDecoder decoder;
    bool fresh = true; ///< no reply has come on it yet

    [[nodiscard]] bool is_open() const noexcept { return socket.is_open(); }
    void close() noexcept {
        secure.reset();
        socket.close();
        decoder.close();
    }
    /// In a forked child: its copy of the descriptor is closed, and nothing else is touched.
    void abandon() noexcept {
        (void)secure.release(); // another thread of the parent may have been inside
        socket.close();
        decoder.abandon();
    }

    /// Hands to the kernel what it takes at once.
    [[nodiscard]] Io send(std::string_view bytes) const noexcept {
        return secure ? secure->send(bytes) : send_some(socket.descriptor(), bytes);
    }
    [[nodiscard]] Io receive(std::span<char> room) const noexcept {
        return secure ? secure->receive(room) : receive_some(socket.descriptor(), room);
    }
    /// The same, and waits a while for something to come, if `waits`.
    [[nodiscard]] Io receive_waiting(std::span<char> room) const noexcept {
        return detail::receive_waiting(socket.descriptor(), room);
    }
    [[nodiscard]] bool waits() const noexcept { return !secure && socket.waits(); }
    /// Why the last send or receive failed or ended; asked right behind it.
    [[nodiscard]] Failure failure(IoState state) const noexcept {
        if (state == IoState::end) return {make_error_code(errc::connection_lost), {}};
        return secure ? Failure{secure->error(), secure->complaint()}
                      : Failure{system_error_code(), {}};
    }
    /// Whether a receive of so many bytes may have left some behind that poll would not tell of.
    [[nodiscard]] bool may_have_more(std::size_t bytes, std::size_t room) const noexcept {
        return secure || bytes == room;
    }
    /// True when nothing has come on a stream that should be silent.
    [[nodiscard]] bool is_silent() const noexcept {
        return secure ? secure->is_silent() : detail::is_silent(socket.descriptor());
    }
    /// What to poll for, where there is something left to send or not.
    [[nodiscard]] pollfd interest(bool sending) const noexcept {
        const int events = sending ? POLLIN | POLLOUT : POLLIN;
        return {socket.descriptor(),
                static_cast<short>(secure ? events | secure->events() : events), 0};
    }
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
