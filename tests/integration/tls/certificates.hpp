// SPDX-License-Identifier: MIT
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

namespace leaselock::test {

/// A certificate and its key, in files and for use by OpenSSL.
struct Identity {
    std::shared_ptr<X509> certificate;
    std::shared_ptr<EVP_PKEY> key;
    std::string certificate_file;
    std::string key_file;
};

/// Makes certificates in a folder of its own, which goes with it.
class Certificates {
public:
    /// What a certificate says.
    struct Wish {
        std::string common_name = "leaselock test";
        std::string names{}; ///< subjectAltName, such as `DNS:localhost,IP:127.0.0.1`; empty: none
        std::chrono::hours begins{-24}; ///< from now
        std::chrono::hours ends{24};
        bool authority = false; ///< may sign others
        std::string use{};      ///< extendedKeyUsage, such as `clientAuth`; empty: any
    };

    Certificates();
    Certificates(const Certificates&) = delete;
    Certificates& operator=(const Certificates&) = delete;
    ~Certificates();

    /// @param issuer null: signed by itself
    [[nodiscard]] Identity make(const Wish& wish, const Identity* issuer);
    [[nodiscard]] Identity authority(const std::string& name) {
        return make({.common_name = name, .authority = true}, nullptr);
    }
    /// A file in the folder, with that text.
    [[nodiscard]] std::string file(const std::string& name, const std::string& text) const;
    /// A folder of authorities, as `openssl rehash` leaves it.
    [[nodiscard]] std::string folder_of(const Identity& authority);
    /// The key, encrypted.
    [[nodiscard]] std::string locked_key(const Identity& identity);

    [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

private:
    [[nodiscard]] std::string next_file(const std::string& what);

    std::filesystem::path folder_;
    int made_ = 0;
};

} // namespace leaselock::test
