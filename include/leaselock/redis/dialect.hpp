#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

#include <atomic>
#include <cstdint>

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// What the server behind a connection cannot do, as far as its answers have told, and whether a quorum
/// knows it.
///
/// A connection that has one, `c.dialect()`, spares all its users the round trip that finds out, and
/// resets it when it connects anew. Thread-safety: any number of threads.
class Dialect {
public:
    [[nodiscard]] bool lacks_getex() const noexcept { return has(getex_bit); }
    [[nodiscard]] bool lacks_evalsha() const noexcept { return has(evalsha_bit); }
    void set_lacks_getex() noexcept { bits_.fetch_or(getex_bit, std::memory_order_relaxed); }
    void set_lacks_evalsha() noexcept { bits_.fetch_or(evalsha_bit, std::memory_order_relaxed); }
    /// Whether the server on this stream has said who it is.
    [[nodiscard]] bool is_identified() const noexcept { return has(identified_bit); }
    void set_identified() noexcept { bits_.fetch_or(identified_bit, std::memory_order_relaxed); }
    void reset() noexcept { bits_.store(0, std::memory_order_relaxed); }

private:
    static constexpr std::uint8_t getex_bit = 1;
    static constexpr std::uint8_t evalsha_bit = 2;
    static constexpr std::uint8_t identified_bit = 4;
    [[nodiscard]] bool has(std::uint8_t bit) const noexcept {
        return (bits_.load(std::memory_order_relaxed) & bit) != 0;
    }
    std::atomic<std::uint8_t> bits_{0};
};

namespace detail {

template <class C>
Dialect& find_dialect(C& connection, Dialect& otherwise) noexcept {
    if constexpr (requires { connection.dialect(); }) {
        return connection.dialect();
    } else {
        return otherwise;
    }
}

} // namespace detail

} // namespace LEASELOCK_ABI
} // namespace leaselock
