#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/fixed_text.hpp>
#include <leaselock/core/outcome.hpp>

#include <cstdint>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// Where a server is: a name or an address without brackets, and a port.
struct ServerAddress {
    FixedText<253> host{};
    std::uint16_t port = 0; ///< 1 to 65535
};

/// Says where the server is, anew at each connect: a hook for service discovery. `Sentinel` is one.
class Resolver {
public:
    Resolver() = default;
    Resolver(const Resolver&) = delete;
    Resolver& operator=(const Resolver&) = delete;
    virtual ~Resolver() = default;

    /// It may block: it is called on a thread of its own, which a call whose deadline comes leaves
    /// behind. The name that it gives is looked up there as well.
    /// @return yes, with `where` set; anything else fails the connect with its cause and text. What is
    ///         no host or no port is refused, `errc::no_address`.
    /// Thread-safety: several threads at once, where several connections share it.
    [[nodiscard]] virtual Outcome resolve(ServerAddress& where) noexcept = 0;

    /// Told when there was no signing in at an address that it gave: nobody there, no master, a wrong
    /// password. A resolver that asks several sources may begin with another the next time. Called by
    /// the thread whose call it is: it must not block.
    virtual void on_failure(const ServerAddress& where, const std::error_code& cause) noexcept {
        (void)where;
        (void)cause;
    }
};

} // namespace LEASELOCK_ABI
} // namespace leaselock
