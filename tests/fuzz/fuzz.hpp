#pragma once
// SPDX-License-Identifier: MIT

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

/// What every fuzz body includes. A body is one function; libFuzzer, or replay.cpp, calls it with bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fuzz {

[[noreturn]] inline void fail(std::string_view what, int line) {
    std::fprintf(stderr, "line %d does not hold: %.*s\n", line, static_cast<int>(what.size()),
                 what.data());
    std::abort(); // which libFuzzer and replay.cpp take for a finding
}

/// What has to hold for any input.
inline void check(bool holds, std::string_view what, int line = __builtin_LINE()) {
    if (!holds) fail(what, line);
}

/// The bytes as the server's, or the user's, text.
inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
    return {reinterpret_cast<const char*>(data), size};
}

/// Takes decisions out of the input, in order; behind its end all of them are 0.
class Choices {
public:
    explicit Choices(std::string_view bytes) : bytes_(bytes) {}

    [[nodiscard]] bool empty() const { return bytes_.empty(); }
    std::uint8_t byte() {
        if (bytes_.empty()) return 0;
        const char c = bytes_.front();
        bytes_.remove_prefix(1);
        return static_cast<std::uint8_t>(c);
    }
    /// From 0 to below `count`.
    std::size_t below(std::size_t count) { return byte() % count; }
    std::uint16_t word() {
        const unsigned high = byte();
        return static_cast<std::uint16_t>(high << 8U | byte());
    }
    std::int64_t number() {
        std::uint64_t value = 0;
        for (int i = 0; i < 8; ++i) value = value << 8U | byte();
        return static_cast<std::int64_t>(value);
    }
    std::string_view text(std::size_t most) {
        const std::string_view taken = bytes_.substr(0, std::min(most, bytes_.size()));
        bytes_.remove_prefix(taken.size());
        return taken;
    }
    std::string_view rest() { return text(bytes_.size()); }

private:
    std::string_view bytes_;
};

} // namespace fuzz
