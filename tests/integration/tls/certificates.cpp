// SPDX-License-Identifier: MIT
#include "certificates.hpp"

#include "../support/system_failure.hpp"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace leaselock::test {
namespace {

namespace fs = std::filesystem;

/// Throws with OpenSSL's words unless a call has given what it should.
template <class T>
T sure(T result, const char* what) {
    if (!result) {
        throw std::runtime_error(std::string{what} + ": " +
                                 ERR_error_string(ERR_get_error(), nullptr));
    }
    return result;
}

std::shared_ptr<EVP_PKEY> make_key() {
    const std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)> context{
        sure(EVP_PKEY_CTX_new_id(EVP_PKEY_EC, nullptr), "key"), EVP_PKEY_CTX_free};
    sure(EVP_PKEY_keygen_init(context.get()) == 1, "key");
    sure(EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context.get(), NID_X9_62_prime256v1) == 1, "curve");
    EVP_PKEY* key = nullptr;
    sure(EVP_PKEY_keygen(context.get(), &key) == 1, "key");
    return {key, EVP_PKEY_free};
}

void add_extension(X509* certificate, X509* issuer, int nid, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
    const std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> extension{
        sure(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()), "extension"),
        X509_EXTENSION_free};
    sure(X509_add_ext(certificate, extension.get(), -1) == 1, "extension");
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File open_for_writing(const std::string& path) {
    File file{std::fopen(path.c_str(), "we"), std::fclose};
    if (!file) {
        system_failure("cannot write " + path);
    }
    return file;
}

} // namespace

Certificates::Certificates() {
    auto pattern = (fs::temp_directory_path() / "leaselock-certificates-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
        system_failure("cannot make " + pattern);
    }
    folder_ = pattern;
}

Certificates::~Certificates() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
}

std::string Certificates::next_file(const std::string& what) {
    return folder_ / (std::to_string(++made_) + "-" + what + ".pem");
}

std::string Certificates::file(const std::string& name, const std::string& text) const {
    std::ofstream{folder_ / name} << text;
    return folder_ / name;
}

Identity Certificates::make(const Wish& wish, const Identity* issuer) {
    Identity made{{sure(X509_new(), "certificate"), X509_free},
                  make_key(),
                  next_file("crt"),
                  next_file("key")};
    X509* const certificate = made.certificate.get();
    X509* const signer = issuer != nullptr ? issuer->certificate.get() : certificate;
    sure(X509_set_version(certificate, 2) == 1, "version"); // 2 means 3
    sure(ASN1_INTEGER_set(X509_get_serialNumber(certificate), made_) == 1, "serial number");
    sure(X509_gmtime_adj(X509_getm_notBefore(certificate),
                         std::chrono::seconds{wish.begins}.count()) != nullptr,
         "begin");
    sure(X509_gmtime_adj(X509_getm_notAfter(certificate),
                         std::chrono::seconds{wish.ends}.count()) != nullptr,
         "end");
    sure(X509_NAME_add_entry_by_txt(
             X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
             reinterpret_cast<const unsigned char*>(wish.common_name.c_str()), -1, -1, 0) == 1,
         "name");
    sure(X509_set_issuer_name(certificate, X509_get_subject_name(signer)) == 1, "issuer");
    sure(X509_set_pubkey(certificate, made.key.get()) == 1, "key");
    if (wish.authority) {
        add_extension(certificate, signer, NID_basic_constraints, "critical,CA:TRUE");
    }
    if (!wish.names.empty()) {
        add_extension(certificate, signer, NID_subject_alt_name, wish.names);
    }
    if (!wish.use.empty()) {
        add_extension(certificate, signer, NID_ext_key_usage, wish.use);
    }
    EVP_PKEY* const signing = issuer != nullptr ? issuer->key.get() : made.key.get();
    sure(X509_sign(certificate, signing, EVP_sha256()) > 0, "signature");

    sure(PEM_write_X509(open_for_writing(made.certificate_file).get(), certificate) == 1, "file");
    sure(PEM_write_PrivateKey(open_for_writing(made.key_file).get(), made.key.get(), nullptr,
                              nullptr, 0, nullptr, nullptr) == 1,
         "file");
    return made;
}

std::string Certificates::folder_of(const Identity& authority) {
    const auto folder = folder_ / ("folder-" + std::to_string(++made_));
    fs::create_directory(folder);
    char name[16];
    std::snprintf(name, sizeof name, "%08lx.0",
                  X509_subject_name_hash(authority.certificate.get()));
    fs::copy_file(authority.certificate_file, folder / name);
    return folder;
}

std::string Certificates::locked_key(const Identity& identity) {
    const std::string path = next_file("locked-key");
    std::string phrase = "open sesame";
    sure(PEM_write_PrivateKey(open_for_writing(path).get(), identity.key.get(), EVP_aes_128_cbc(),
                              reinterpret_cast<unsigned char*>(phrase.data()),
                              static_cast<int>(phrase.size()), nullptr, nullptr) == 1,
         "file");
    return path;
}

} // namespace leaselock::test
