// SPDX-License-Identifier: MIT
//
// A lease on its way to another process: `Lease::from_text`. What it takes is a lease within the limits,
// the same when written out again; a text with one byte changed, cut or added is none.

#include "fuzz/fuzz.hpp"

#include <leaselock/core/deadline.hpp>
#include <leaselock/lock/lease.hpp>
#include <leaselock/redis/key.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace {

using fuzz::check;
using leaselock::Lease;

void check_taken(const Lease& lease) {
    check(!lease.key().empty() && lease.key().size() <= leaselock::max_key_size, "a key");
    check(lease.ttl().count() >= 1 && lease.ttl() <= leaselock::max_ttl, "a ttl");
    check(lease.value().size() >= 32 && lease.value().size() <= 32 + 1 + 128, "a value");
    check(lease.value().find_first_not_of("0123456789abcdef") >= 32, "that begins with a token");
    check(lease.owner().size() <= 128, "an owner label");
    check(Lease::from_text(lease.to_text()) == lease, "the same when written out again");
}

/// A lease of the input's making.
Lease make_lease(fuzz::Choices& choices) {
    std::string value;
    for (int i = 0; i < 32; ++i) value += "0123456789abcdef"[choices.below(16)];
    const std::int64_t ttl = 1 + (std::int64_t{choices.word()} << 15U | choices.word() >> 1U);
    if (choices.below(2) == 1) value.append(":").append(choices.text(choices.below(129)));
    std::string key{choices.text(1024)};
    if (key.empty()) key = "k";
    return {key, value, std::chrono::milliseconds{std::min<std::int64_t>(ttl, 2'147'483'647)}};
}

/// Hex digits may be written large.
std::string lower(std::string text) {
    for (char& c : text) c = c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c;
    return text;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes = fuzz::as_text(data, std::min<std::size_t>(size, 4096));
    if (const std::optional<Lease> lease = Lease::from_text(bytes)) check_taken(*lease);

    fuzz::Choices choices{bytes};
    const std::size_t place = choices.word();
    const std::uint8_t change = choices.byte();
    const Lease lease = make_lease(choices);
    const std::string text = lease.to_text();
    check(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.") == std::string::npos,
          "one line of printable characters");
    check(Lease::from_text(text) == lease, "what is written is read");
    check_taken(lease);

    std::string damaged = text;
    const std::size_t at = place % text.size();
    damaged[at] = static_cast<char>(damaged[at] ^ change);
    check(lower(damaged) == text || !Lease::from_text(damaged), "a changed text is no lease");
    check(!Lease::from_text(text.substr(0, at)), "a text that was cut is no lease");
    check(!Lease::from_text(text + static_cast<char>(change)), "nor is one with more behind it");
    return 0;
}
