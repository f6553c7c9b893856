// SPDX-License-Identifier: MIT
#pragma once

#include "certificates.hpp"

#include "../support/file_descriptor.hpp"

#include <openssl/ssl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace leaselock::test {

/// What speaks TLS to clients and plain text to a server behind it, and remembers what it was told.
/// The end of either side is passed on to the other: an orderly one as such, a reset as a reset.
/// Thread-safety: all members. It has threads, which a forked child lacks.
class TlsFront {
public:
    struct Manners {
        std::string client_authority{}; ///< a file: clients need a certificate that it has signed
        int newest = 0; ///< protocol version, such as TLS1_2_VERSION; 0: as OpenSSL would have it
        std::string ciphers{};            ///< up to TLS 1.2; empty: OpenSSL's
        std::size_t tickets = 2;          ///< sent behind a handshake of TLS 1.3
        bool renews_keys = false;         ///< asks for new ones (RFC 8446, 4.6.3) behind each reply
        bool damages_third_reply = false; ///< of each connection: a record that nobody has sealed
        bool sends_farewell = true;       ///< close_notify at an orderly end
    };

    TlsFront(std::uint16_t server_port, const Identity& identity, const Manners& manners);
    TlsFront(std::uint16_t server_port, const Identity& identity)
        : TlsFront{server_port, identity, Manners{}} {}
    TlsFront(const TlsFront&) = delete;
    TlsFront& operator=(const TlsFront&) = delete;
    ~TlsFront();

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
    /// @param login such as `:password@`
    [[nodiscard]] std::string url(const std::string& host = "127.0.0.1",
                                  const std::string& login = "") const {
        return "rediss://" + login + host + ":" + std::to_string(port_);
    }

    [[nodiscard]] std::size_t connections() const;
    [[nodiscard]] std::size_t handshakes() const; ///< that went well
    [[nodiscard]] std::string received() const;   ///< all that clients have said, decrypted
    [[nodiscard]] std::string wire() const;       ///< the same as it came
    /// The names that SNI asked for, empty where it did not, one for each handshake that got so far.
    [[nodiscard]] std::vector<std::string> asked_for() const;

private:
    class Peer;
    struct Free {
        void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
    };

    void run();
    static int on_name(SSL* ssl, int* alert, void* front);
    static long on_wire(BIO* wire, int what, const char* bytes, std::size_t size, int, long,
                        int result, std::size_t* moved);

    std::uint16_t server_port_;
    Manners manners_;
    std::unique_ptr<SSL_CTX, Free> context_;
    FileDescriptor listener_;
    std::uint16_t port_;
    FileDescriptor stop_; // readable when the front ends
    mutable std::mutex mutex_;
    std::size_t handshakes_ = 0;
    std::string received_;
    std::string wire_;
    std::vector<std::string> asked_for_;
    std::vector<std::thread> peers_;
    std::thread acceptor_;
};

} // namespace leaselock::test
