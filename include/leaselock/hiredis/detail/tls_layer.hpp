#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/hiredis/detail/secure_layer.hpp>
#include <leaselock/hiredis/detail/socket.hpp>
#include <leaselock/hiredis/detail/tls_error.hpp>
#include <leaselock/hiredis/detail/tls_name.hpp>
#include <leaselock/hiredis/detail/tls_socket.hpp>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/tls1.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <poll.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

struct FreeTls {
    void operator()(SSL* ssl) const noexcept { SSL_free(ssl); }
    void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
};

/// TLS on one socket, by OpenSSL. Each step leaves this thread's error queue of OpenSSL empty.
///
/// Closing says nothing to the other side, for a forked child closes too; that Redis takes an end
/// without a farewell for what it is does no harm, as replies have lengths.
class TlsLayer final : public SecureLayer {
public:
    explicit TlsLayer(int socket) noexcept { socket_.descriptor = socket; }

    /// Names the peer that is expected. @return false for want of memory
    [[nodiscard]] bool begin(SSL_CTX& context, std::string_view host) noexcept {
        name_ = tls_name(host);
        ERR_clear_error();
        ssl_.reset(SSL_new(&context));
        const bool made = ssl_ && attach_socket() && expect_peer();
        ERR_clear_error();
        return made;
    }

    [[nodiscard]] Handshake shake_hands() noexcept override {
        prepare();
        const int result = SSL_connect(ssl_.get());
        if (result == 1) return check_peer();
        switch (conclude(result)) {
        case IoState::again: return Handshake::pending;
        case IoState::end:
            fail(errc::connection_lost, "closed by the server in the handshake");
            break;
        case IoState::moved:
        case IoState::failed: break;
        }
        return Handshake::failed;
    }

    [[nodiscard]] Io send(std::string_view bytes) noexcept override {
        prepare();
        std::size_t sent = 0;
        const int result = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &sent);
        return result == 1 ? Io{IoState::moved, sent} : Io{conclude(result)};
    }

    [[nodiscard]] Io receive(std::span<char> room) noexcept override {
        prepare();
        std::size_t got = 0;
        const int result = SSL_read_ex(ssl_.get(), room.data(), room.size(), &got);
        return result == 1 ? Io{IoState::moved, got} : Io{conclude(result)};
    }

    /// What TLS itself says meanwhile, such as a session ticket, is dealt with and breaks no silence.
    [[nodiscard]] bool is_silent() noexcept override {
        prepare();
        char byte = 0;
        std::size_t got = 0;
        const int result = SSL_peek_ex(ssl_.get(), &byte, 1, &got);
        return result != 1 && conclude(result) == IoState::again;
    }

    [[nodiscard]] short events() const noexcept override { return events_; }
    [[nodiscard]] std::error_code error() const noexcept override { return error_; }
    [[nodiscard]] std::string_view complaint() const noexcept override { return complaint_.view(); }

    /// With TLS 1.3 the handshake is over for the client before the server has looked at its
    /// certificate. Source: RFC 8446, section 4.4.
    [[nodiscard]] bool may_yet_be_refused() const noexcept override {
        return asked_ && SSL_version(ssl_.get()) >= TLS1_3_VERSION;
    }

    /// OpenSSL's `SSL_CTX_set_cert_cb`: the server asks for a certificate of ours.
    static int on_asked(SSL* ssl, void*) noexcept {
        static_cast<TlsLayer*>(SSL_get_ex_data(ssl, 0))->asked_ = true;
        return 1; // go on, with the certificate of the context or without any
    }

private:
    [[nodiscard]] bool attach_socket() noexcept {
        const BIO_METHOD* const method = tls_socket_method();
        BIO* const bio = method != nullptr ? BIO_new(method) : nullptr;
        if (bio == nullptr) return false;
        BIO_set_data(bio, &socket_);
        BIO_set_init(bio, 1);
        SSL_set_bio(ssl_.get(), bio, bio);
        return SSL_set_ex_data(ssl_.get(), 0, this) == 1;
    }

    /// A chain to a trusted authority says that somebody owns a certificate; only with the name it
    /// says that it is the server that was meant.
    [[nodiscard]] bool expect_peer() noexcept {
        std::array<char, decltype(name_.text)::capacity() + 1> name{};
        name_.text.view().copy(name.data(), name_.text.size());
        SSL* const ssl = ssl_.get();
        if (name_.is_address) {
            return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name.data()) == 1;
        }
        SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        // SSL_set_tlsext_host_name is a macro with a C cast
        return SSL_set1_host(ssl, name.data()) == 1 &&
               SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                        name.data()) == 1;
    }

    /// OpenSSL has verified the certificate by now, unless there was none to verify: a machine's
    /// openssl.cnf may allow ciphers that do without.
    [[nodiscard]] Handshake check_peer() noexcept {
        const long verdict = SSL_get_verify_result(ssl_.get());
        if (verdict == X509_V_OK && SSL_get_peer_cert_chain(ssl_.get()) != nullptr) {
            return Handshake::done;
        }
        fail(errc::insecure, verdict == X509_V_OK ? "the server has no certificate"
                                                  : X509_verify_cert_error_string(verdict));
        return Handshake::failed;
    }

    void prepare() noexcept {
        ERR_clear_error(); // SSL_get_error looks at the whole queue
        socket_.forget();
    }

    /// What a step without success came to.
    [[nodiscard]] IoState conclude(int result) noexcept {
        switch (SSL_get_error(ssl_.get(), result)) {
        case SSL_ERROR_WANT_READ: events_ = POLLIN; return IoState::again;
        case SSL_ERROR_WANT_WRITE: events_ = POLLOUT; return IoState::again;
        case SSL_ERROR_ZERO_RETURN: return IoState::end;
        case SSL_ERROR_SSL:
            if (!socket_.ended) {
                explain();
                return IoState::failed;
            }
            break;
        default: break;
        }
        ERR_clear_error();
        if (socket_.ended) return IoState::end;
        error_ = socket_.error ? socket_.error : make_error_code(errc::connection_lost);
        complaint_.clear();
        return IoState::failed;
    }

    /// Takes cause and words from OpenSSL's queue.
    void explain() noexcept {
        const int reason = ERR_GET_REASON(ERR_peek_error());
        const ServerText words = take_tls_reason();
        const long verdict = SSL_get_verify_result(ssl_.get());
        const errc cause = cause_of_tls(reason, asked_);
        if (verdict != X509_V_OK) {
            fail(errc::insecure, X509_verify_cert_error_string(verdict));
            if (verdict == X509_V_ERR_HOSTNAME_MISMATCH ||
                verdict == X509_V_ERR_IP_ADDRESS_MISMATCH) {
                complaint_.append(", not the certificate of ").append(name_.text.view());
            }
            return;
        }
        fail(cause, words.view());
        if (is_plain_text(reason) && SSL_is_init_finished(ssl_.get()) == 0)
            complaint_.append(": what answers does not speak TLS");
        if (cause == errc::insecure && asked_ && SSL_get_certificate(ssl_.get()) == nullptr) {
            complaint_.append(": the server asks for a client certificate, and none is set");
        }
    }

    void fail(errc cause, std::string_view words) noexcept {
        error_ = make_error_code(cause);
        complaint_ = ServerText{"TLS: "}.append(words);
    }

    TlsSocket socket_;
    TlsName name_;
    std::unique_ptr<SSL, FreeTls> ssl_; // gone before the socket that it refers to
    bool asked_ = false;
    short events_ = POLLOUT; ///< the client speaks first
    std::error_code error_;
    ServerText complaint_;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
