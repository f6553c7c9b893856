// SPDX-License-Identifier: MIT
//
// Keys: their slot by a second, naive implementation (CRC-16 bit by bit), and the helper keys, which share
// it and belong to one lock alone.

#include "fuzz/fuzz.hpp"

#include <leaselock/redis/key.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace {

using fuzz::check;
using leaselock::HelperForm;
using leaselock::HelperKey;

/// CRC-16/XMODEM as the book has it: polynomial 0x1021, a bit at a time.
unsigned crc_by_bits(std::string_view bytes) {
    unsigned crc = 0;
    for (const char c : bytes) {
        crc ^= static_cast<unsigned>(static_cast<unsigned char>(c)) << 8U;
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc & 0x8000U) != 0 ? crc << 1U ^ 0x1021U : crc << 1U;
        }
    }
    return crc & 0xffffU;
}

/// The rule of the cluster specification, as its own example code goes about it: two loops.
unsigned slot_by_the_book(std::string_view key) {
    std::size_t open = 0;
    while (open < key.size() && key[open] != '{') ++open;
    if (open == key.size()) return crc_by_bits(key) & 16'383U;
    std::size_t close = open + 1;
    while (close < key.size() && key[close] != '}') ++close;
    if (close == key.size() || close == open + 1) return crc_by_bits(key) & 16'383U;
    return crc_by_bits(key.substr(open + 1, close - open - 1)) & 16'383U;
}

std::optional<std::string> helper_of(std::string_view key, std::string_view suffix) {
    if (leaselock::helper_form(key) == HelperForm::impossible) return {};
    const HelperKey helper{key, suffix};
    std::string text(helper.size(), '\0');
    helper.write(text.data());
    return text;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Choices choices{fuzz::as_text(data, std::min<std::size_t>(size, 2049))};
    const std::size_t split = choices.byte();
    const std::string_view all = choices.rest();
    const std::string_view key = all.substr(0, 1024);

    const unsigned slot = slot_by_the_book(key);
    check(leaselock::hash_slot(key) == slot, "the slot by the book");
    check(key.empty() || leaselock::hash_tag(key).size() + 2 <= key.size() ||
              leaselock::hash_tag(key).empty(),
          "a tag is part of the key");

    for (const std::string_view suffix :
         {leaselock::helper_suffix::fence, leaselock::helper_suffix::waiters,
          leaselock::helper_suffix::wake}) {
        const auto helper = helper_of(key, suffix);
        // a key with a '}' and no tag: nothing that ends in a suffix could share its slot
        check(helper.has_value() || key.find('}') != std::string_view::npos,
              "a helper, where it can be");
        if (!helper || key.empty()) continue;
        check(slot_by_the_book(*helper) == slot, "a helper shares the slot of its lock");
        check(helper->find(key) != std::string::npos && helper->ends_with(suffix.substr(1)),
              "and its name");
    }

    // of two keys, two helpers
    const std::string_view one = key.substr(0, split);
    const std::string_view other = key.substr(one.size());
    if (one != other) {
        const auto a = helper_of(one, leaselock::helper_suffix::fence);
        const auto b = helper_of(other, leaselock::helper_suffix::fence);
        check(!a || a != b, "a helper belongs to one lock alone");
    }
    return 0;
}
