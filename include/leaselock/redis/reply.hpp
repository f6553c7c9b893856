#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>

#include <cstdint>
#include <string_view>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// An error line without the words that a server that does not know a command repeats: a password may
/// be among them, or a token. `ERR unknown command 'AUTH', with args beginning with: 'secret' `
[[nodiscard]] constexpr std::string_view without_arguments(std::string_view error_line) noexcept {
    return error_line.substr(0, error_line.find(", with args beginning with:"));
}

/// The answer to one command, with its own verdict. It owns its bytes: no lifetime, no heap.
///
/// There are no arrays: nothing that a lock sends is answered by one.
struct Reply {
    enum Kind : std::uint8_t {
        unsent,  ///< not one byte of the command was accepted by the kernel: it never runs
        unknown, ///< it may have run, or may still
        nil,
        status,
        integer,
        string,
        error,
    };

    Kind kind = unsent;
    std::int64_t number = 0; ///< of an integer
    std::error_code cause{}; ///< of unsent and unknown
    ServerText text{};       ///< of status, string and error; longer ones are cut and flagged

    void set_unsent(std::error_code why) noexcept { set(unsent, why); }
    void set_unknown(std::error_code why) noexcept { set(unknown, why); }
    void set_nil() noexcept { set(nil); }
    void set_integer(std::int64_t value) noexcept {
        set(integer);
        number = value;
    }
    void set_text(Kind which, std::string_view bytes) noexcept {
        set(which);
        text.append(which == error ? without_arguments(bytes) : bytes);
    }

    /// True when the server answered, if only with an error.
    [[nodiscard]] bool answered() const noexcept { return kind != unsent && kind != unknown; }

private:
    void set(Kind which, std::error_code why = {}) noexcept {
        kind = which;
        number = 0;
        cause = why;
        text.clear();
    }
};

} // namespace LEASELOCK_ABI
} // namespace leaselock
