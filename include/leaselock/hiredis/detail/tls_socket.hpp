#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/hiredis/detail/socket.hpp>

#include <openssl/bio.h>
#include <openssl/crypto.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <string_view>
#include <system_error>

#if OPENSSL_VERSION_NUMBER < 0x10101000L
#error "leaselock::tls needs OpenSSL 1.1.1 or newer"
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// What OpenSSL reads and writes through. Its own BIO over a socket calls write(2), which raises
/// SIGPIPE on a broken connection; this one sends as the rest of the library does.
struct TlsSocket {
    int descriptor = -1;
    bool ended = false;    ///< the last step read the end of the stream
    std::error_code error; ///< of the system, in the last step

    void forget() noexcept {
        ended = false;
        error.clear();
    }
};

[[nodiscard]] inline TlsSocket& tls_socket_of(BIO* bio) noexcept {
    return *static_cast<TlsSocket*>(BIO_get_data(bio));
}

inline int tls_socket_write(BIO* bio, const char* bytes, int size) noexcept {
    TlsSocket& socket = tls_socket_of(bio);
    BIO_clear_retry_flags(bio);
    const Io io = send_some(socket.descriptor, {bytes, static_cast<std::size_t>(size)});
    if (io.state == IoState::moved) return static_cast<int>(io.bytes);
    if (io.state == IoState::again) {
        BIO_set_retry_write(bio);
    } else {
        socket.error = system_error_code();
    }
    return -1;
}

inline int tls_socket_read(BIO* bio, char* room, int size) noexcept {
    TlsSocket& socket = tls_socket_of(bio);
    BIO_clear_retry_flags(bio);
    const Io io = receive_some(socket.descriptor, {room, static_cast<std::size_t>(size)});
    switch (io.state) {
    case IoState::moved: return static_cast<int>(io.bytes);
    case IoState::again: BIO_set_retry_read(bio); return -1;
    case IoState::end: socket.ended = true; return 0;
    case IoState::failed: socket.error = system_error_code(); break;
    }
    return -1;
}

inline long tls_socket_control(BIO* bio, int command, long, void*) noexcept {
    switch (command) {
    case BIO_CTRL_FLUSH: return 1; // nothing is held back
    case BIO_CTRL_EOF: return tls_socket_of(bio).ended ? 1 : 0;
    default: return 0;
    }
}

/// Made once, and never freed: connections may live as long as the process. Null for want of memory.
[[nodiscard]] inline const BIO_METHOD* tls_socket_method() noexcept {
    static const BIO_METHOD* const method = []() -> const BIO_METHOD* {
        const int index = BIO_get_new_index();
        if (index == -1) return nullptr;
        BIO_METHOD* const made = BIO_meth_new(index | BIO_TYPE_SOURCE_SINK, "leaselock socket");
        if (made == nullptr) return nullptr;
        (void)BIO_meth_set_write(made, tls_socket_write);
        (void)BIO_meth_set_read(made, tls_socket_read);
        (void)BIO_meth_set_ctrl(made, tls_socket_control);
        return made;
    }();
    return method;
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
