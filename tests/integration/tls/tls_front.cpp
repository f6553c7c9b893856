// SPDX-License-Identifier: MIT
#include "tls_front.hpp"

#include "../support/signals_blocked.hpp"
#include "../support/sockets.hpp"
#include "../support/system_failure.hpp"

#include <openssl/err.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <exception>
#include <stdexcept>
#include <utility>

namespace leaselock::test {
namespace {

/// The connection has ended: a side has left, or the front is being destroyed.
struct Over : std::exception {};

void must(bool holds, const char* what) {
    if (!holds) {
        throw std::runtime_error(std::string{what} + ": " +
                                 ERR_error_string(ERR_get_error(), nullptr));
    }
}

/// OpenSSL writes to sockets by write(2). Every signal is blocked in our threads; this takes a
/// SIGPIPE off before the thread ends.
void take_off_sigpipe() noexcept {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    const timespec at_once{};
    while (sigtimedwait(&pipe, nullptr, &at_once) > 0) {
    }
}

bool was_reset(int socket) noexcept {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
    return error == ECONNRESET;
}

} // namespace

/// One connection: a thread waits for both sides.
class TlsFront::Peer {
public:
    Peer(TlsFront& front, FileDescriptor socket)
        : front_{front}, client_{std::move(socket)}, ssl_{SSL_new(front.context_.get()), SSL_free} {
        must(ssl_ && SSL_set_fd(ssl_.get(), client_.get()) == 1, "SSL_new");
        BIO* const wire = SSL_get_rbio(ssl_.get());
        BIO_set_callback_arg(wire, reinterpret_cast<char*>(&front));
        BIO_set_callback_ex(wire, &TlsFront::on_wire);
    }

    void serve() {
        while (step(SSL_accept(ssl_.get()), "SSL_accept") <= 0) {
        }
        {
            const std::lock_guard lock{front_.mutex_};
            ++front_.handshakes_;
        }
        server_ = connect_to_loopback(front_.server_port_);
        if (!server_) {
            reset_connection(client_);
            throw Over{};
        }
        for (;;) {
            bool moved = from_client();
            moved = from_server() || moved;
            if (!moved) {
                wait(client_.get(), POLLIN, server_.get(), POLLIN);
            }
        }
    }

private:
    void wait(int a, short a_events, int b = -1, short b_events = 0) const {
        for (;;) {
            std::array<pollfd, 3> set{
                {{front_.stop_.get(), POLLIN, 0}, {a, a_events, 0}, {b, b_events, 0}}};
            const int ready = poll(set.data(), set.size(), -1);
            if (set[0].revents != 0 && ready > 0) {
                throw Over{};
            }
            if (ready > 0) {
                return;
            }
        }
    }

    /// What OpenSSL returned, once it need not wait: above 0, or 0 when it is to be asked again.
    int step(int result, const char* what) {
        if (result > 0) {
            return result;
        }
        switch (SSL_get_error(ssl_.get(), result)) {
        case SSL_ERROR_WANT_READ: wait(client_.get(), POLLIN); return 0;
        case SSL_ERROR_WANT_WRITE: wait(client_.get(), POLLOUT); return 0;
        default: throw std::runtime_error(what);
        }
    }

    [[nodiscard]] bool from_client() {
        std::array<char, 16384> chunk;
        const int got = SSL_read(ssl_.get(), chunk.data(), static_cast<int>(chunk.size()));
        if (got <= 0) {
            switch (SSL_get_error(ssl_.get(), got)) {
            case SSL_ERROR_WANT_READ:
            case SSL_ERROR_WANT_WRITE: return false;
            default: throw Over{};
            }
        }
        std::string_view bytes{chunk.data(), static_cast<std::size_t>(got)};
        {
            const std::lock_guard lock{front_.mutex_};
            front_.received_ += bytes;
        }
        while (!bytes.empty()) {
            wait(server_.get(), POLLOUT);
            const auto sent = send_some(server_.get(), bytes);
            if (!sent) {
                for (;;) { // what it has said before it left
                    static_cast<void>(from_server());
                }
            }
            bytes.remove_prefix(*sent);
        }
        return true;
    }

    [[nodiscard]] bool from_server() {
        errno = 0;
        const auto bytes = receive_some(server_.get());
        if (!bytes) {
            end_of_server();
        }
        if (bytes->empty()) {
            return false;
        }
        if (front_.manners_.damages_third_reply && ++replies_ == 3) {
            static_cast<void>(
                send_some(client_.get(), "\x17\x03\x03\x01\x01" + std::string(257, 'x')));
            return true;
        }
        std::size_t sent = 0;
        while (sent < bytes->size()) {
            const auto left = static_cast<int>(bytes->size() - sent);
            const int result = step(SSL_write(ssl_.get(), bytes->data() + sent, left), "SSL_write");
            sent += static_cast<std::size_t>(result);
        }
        if (front_.manners_.renews_keys) {
            must(SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_REQUESTED) == 1, "SSL_key_update");
            while (step(SSL_do_handshake(ssl_.get()), "SSL_do_handshake") <= 0) {
            }
        }
        return true;
    }

    [[noreturn]] void end_of_server() {
        if (errno == ECONNRESET || was_reset(server_.get())) {
            reset_connection(client_);
        } else if (front_.manners_.sends_farewell) {
            SSL_shutdown(ssl_.get());
        }
        throw Over{};
    }

    TlsFront& front_;
    FileDescriptor client_;
    FileDescriptor server_;
    int replies_ = 0;
    std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
};

TlsFront::TlsFront(std::uint16_t server_port, const Identity& identity, const Manners& manners)
    : server_port_{server_port}, manners_{manners}, context_{SSL_CTX_new(TLS_server_method())},
      listener_{listen_on_loopback(0)}, port_{port_of(listener_.get())}, stop_{eventfd(
                                                                             0, EFD_CLOEXEC |
                                                                                    EFD_NONBLOCK)} {
    SSL_CTX* const c = context_.get();
    must(c != nullptr && stop_, "SSL_CTX_new");
    must(SSL_CTX_use_certificate(c, identity.certificate.get()) == 1, "certificate");
    must(SSL_CTX_use_PrivateKey(c, identity.key.get()) == 1, "key");
    if (!manners.client_authority.empty()) {
        must(SSL_CTX_load_verify_locations(c, manners.client_authority.c_str(), nullptr) == 1,
             "client authority");
        SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    }
    if (!manners.ciphers.empty()) {
        must(SSL_CTX_set_cipher_list(c, manners.ciphers.c_str()) == 1, "ciphers");
    }
    if (manners.newest != 0) {
        must(SSL_CTX_set_min_proto_version(c, 0) == 1, "oldest version");
        must(SSL_CTX_set_max_proto_version(c, manners.newest) == 1, "newest version");
    }
    must(SSL_CTX_set_num_tickets(c, manners.tickets) == 1, "tickets");
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_tlsext_servername_arg(c, this);
    // SSL_CTX_set_tlsext_servername_callback is a macro with a C cast
    must(SSL_CTX_callback_ctrl(c, SSL_CTRL_SET_TLSEXT_SERVERNAME_CB,
                               reinterpret_cast<void (*)()>(&TlsFront::on_name)) == 1,
         "SNI");
    const SignalsBlocked for_the_threads;
    acceptor_ = std::thread{[this] { run(); }};
}

TlsFront::~TlsFront() {
    eventfd_write(stop_.get(), 1);
    acceptor_.join(); // no peers are added from here on
    for (auto& peer : peers_) {
        peer.join();
    }
}

int TlsFront::on_name(SSL* ssl, int*, void* front) {
    auto& self = *static_cast<TlsFront*>(front);
    const char* const name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    const std::lock_guard lock{self.mutex_};
    self.asked_for_.emplace_back(name != nullptr ? name : "");
    return SSL_TLSEXT_ERR_OK;
}

long TlsFront::on_wire(BIO* wire, int what, const char* bytes, std::size_t, int, long, int result,
                       std::size_t* moved) {
    if (what == (BIO_CB_READ | BIO_CB_RETURN) && result > 0) {
        auto& self = *reinterpret_cast<TlsFront*>(BIO_get_callback_arg(wire));
        const std::lock_guard lock{self.mutex_};
        self.wire_.append(bytes, *moved);
    }
    return result;
}

void TlsFront::run() {
    for (;;) {
        std::array<pollfd, 2> set{{{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}}};
        if (poll(set.data(), set.size(), -1) <= 0) {
            continue;
        }
        if (set[0].revents != 0) {
            return;
        }
        auto socket = accept_one(listener_.get());
        if (!socket) {
            continue;
        }
        const std::lock_guard lock{mutex_};
        peers_.emplace_back([this, mine = std::move(socket)]() mutable {
            try {
                Peer{*this, std::move(mine)}.serve();
            } catch (const std::exception&) { // its connection ends with it
            }
            ERR_clear_error();
            take_off_sigpipe();
        });
    }
}

std::size_t TlsFront::connections() const {
    const std::lock_guard lock{mutex_};
    return peers_.size();
}

std::size_t TlsFront::handshakes() const {
    const std::lock_guard lock{mutex_};
    return handshakes_;
}

std::string TlsFront::received() const {
    const std::lock_guard lock{mutex_};
    return received_;
}

std::string TlsFront::wire() const {
    const std::lock_guard lock{mutex_};
    return wire_;
}

std::vector<std::string> TlsFront::asked_for() const {
    const std::lock_guard lock{mutex_};
    return asked_for_;
}

} // namespace leaselock::test
