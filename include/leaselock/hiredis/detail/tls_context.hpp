#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/hiredis/detail/secure_layer.hpp>
#include <leaselock/hiredis/detail/tls_error.hpp>
#include <leaselock/hiredis/detail/tls_layer.hpp>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// What all streams of one `Tls` share: whom to trust, who we are. It never changes, and OpenSSL
/// guards what it counts in it: any number of threads.
class TlsContext final : public TransportSecurity {
public:
    /// @param context null when there was no memory
    /// @param server_name of the certificate, instead of the host's; empty for the host's
    TlsContext(std::unique_ptr<SSL_CTX, FreeTls> context, std::string server_name) noexcept
        : context_(std::move(context)), server_name_(std::move(server_name)) {}

    [[nodiscard]] std::unique_ptr<SecureLayer>
    secure(int socket, std::string_view host, std::error_code& error) const noexcept override {
        std::unique_ptr<TlsLayer> layer{new (std::nothrow) TlsLayer{socket}};
        if (!layer || !layer->begin(*context_,
                                    server_name_.empty() ? host : std::string_view{server_name_})) {
            error = std::make_error_code(std::errc::not_enough_memory);
            return nullptr;
        }
        return layer;
    }

private:
    std::unique_ptr<SSL_CTX, FreeTls> context_;
    std::string server_name_;
};

[[nodiscard]] inline Outcome tls_complaint(std::string_view option, std::string_view value,
                                           std::string_view why) noexcept {
    Outcome outcome{Answer::unsent, errc::invalid_argument, "tls: "};
    // a long path is cut at its front, so that its end and the reason behind it are there
    constexpr std::size_t longest = 160;
    const bool cut = value.size() > longest;
    if (cut) value.remove_prefix(value.size() - longest);
    outcome.text.append(option).append(cut ? " ..." : " ").append(value).append(": ").append(why);
    return outcome;
}

/// As OpenSSL would have it, but never less than TLS 1.2; what openssl.cnf demands beyond stays.
[[nodiscard]] inline std::unique_ptr<SSL_CTX, FreeTls> make_tls_context() noexcept {
#ifdef OPENSSL_INIT_NO_ATEXIT // 1.1.1b
    // A lookup that a call left behind may be inside OpenSSL, with a sentinel, when the process ends:
    // nothing may be freed under it. Where somebody else used OpenSSL first, that one has decided.
    (void)OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
#endif
    std::unique_ptr<SSL_CTX, FreeTls> context{SSL_CTX_new(TLS_client_method())};
    if (!context) return context;
    SSL_CTX* const c = context.get();
    if (SSL_CTX_get_min_proto_version(c) < TLS1_2_VERSION &&
        SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) != 1) {
        return nullptr;
    }
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER, nullptr);
    (void)SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    // a write that has to wait is repeated from a buffer that has grown, and may have moved
    (void)SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_cert_cb(c, &TlsLayer::on_asked, nullptr);
    // left to itself, OpenSSL would ask for a pass phrase on the terminal
    SSL_CTX_set_default_passwd_cb(c, [](char*, int, int, void* asked) {
        if (asked != nullptr) *static_cast<bool*>(asked) = true;
        return -1;
    });
    return context;
}

/// OpenSSL looks into a folder when a certificate comes, and would not say that there is none.
[[nodiscard]] inline int folder_error(const char* path) noexcept {
    struct stat place {};
    if (::stat(path, &place) != 0) return errno;
    if (!S_ISDIR(place.st_mode)) return ENOTDIR;
    return ::access(path, R_OK | X_OK) == 0 ? 0 : errno;
}

[[nodiscard]] inline Outcome trust(SSL_CTX& context, const std::string& ca_file,
                                   const std::string& ca_path) {
    ERR_clear_error();
    if (ca_file.empty() && ca_path.empty()) {
        if (SSL_CTX_set_default_verify_paths(&context) == 1) return {Answer::yes};
        return tls_complaint("ca_file", "of the system", take_tls_reason().view());
    }
    if (!ca_file.empty() &&
        SSL_CTX_load_verify_locations(&context, ca_file.c_str(), nullptr) != 1) {
        return tls_complaint("ca_file", ca_file, take_tls_reason().view());
    }
    if (ca_path.empty()) return {Answer::yes};
    if (const int error = folder_error(ca_path.c_str()); error != 0) {
        return tls_complaint("ca_path", ca_path, std::generic_category().message(error));
    }
    if (SSL_CTX_load_verify_locations(&context, nullptr, ca_path.c_str()) == 1) {
        return {Answer::yes};
    }
    return tls_complaint("ca_path", ca_path, take_tls_reason().view());
}

/// Reads the key. @return what is wrong with it, or empty
[[nodiscard]] inline ServerText use_key(SSL_CTX& context, const char* file) noexcept {
    bool locked = false;
    SSL_CTX_set_default_passwd_cb_userdata(&context, &locked);
    const bool done = SSL_CTX_use_PrivateKey_file(&context, file, SSL_FILETYPE_PEM) == 1 &&
                      SSL_CTX_check_private_key(&context) == 1;
    SSL_CTX_set_default_passwd_cb_userdata(&context, nullptr);
    if (done) return {};
    const ServerText why = take_tls_reason();
    if (locked) return {"it needs a pass phrase; decrypt it first"};
    // 1.1.1 says the one of a file without a key, 3.x the other
    const bool none = why.view() == "no start line" || why.view() == "unsupported";
    return none ? ServerText{"it holds no private key"} : why;
}

/// @param key_file empty: the key is in the file of the certificate
[[nodiscard]] inline Outcome identify(SSL_CTX& context, const std::string& certificate_file,
                                      const std::string& key_file) noexcept {
    ERR_clear_error();
    if (certificate_file.empty()) {
        if (key_file.empty()) return {Answer::yes};
        return tls_complaint("key_file", key_file, "needs certificate_file");
    }
    if (SSL_CTX_use_certificate_chain_file(&context, certificate_file.c_str()) != 1) {
        return tls_complaint("certificate_file", certificate_file, take_tls_reason().view());
    }
    const bool apart = !key_file.empty();
    const std::string& key = apart ? key_file : certificate_file;
    const ServerText why = use_key(context, key.c_str());
    if (why.empty()) return {Answer::yes};
    return tls_complaint(apart ? "key_file" : "key in certificate_file", key, why.view());
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
