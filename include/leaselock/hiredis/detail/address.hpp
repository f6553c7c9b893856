#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/hiredis/detail/lookup_function.hpp>

#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// A socket address of any family.
struct Address {
    sockaddr_storage storage{};
    socklen_t size = 0;

    [[nodiscard]] const sockaddr* get() const noexcept {
        return reinterpret_cast<const sockaddr*>(&storage);
    }
    [[nodiscard]] bool is_unix() const noexcept { return storage.ss_family == AF_UNIX; }
};

/// The addresses to try, in order. A name with more of them is cut off: nobody tries so many
/// within one deadline.
class AddressList {
public:
    void add(const sockaddr* address, socklen_t size) noexcept {
        if (count_ == items_.size() || size > sizeof(sockaddr_storage)) return;
        std::memcpy(&items_[count_].storage, address, size);
        items_[count_++].size = size;
    }
    void clear() noexcept { count_ = 0; }
    [[nodiscard]] std::size_t size() const noexcept { return count_; }
    [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
    [[nodiscard]] const Address& operator[](std::size_t i) const noexcept { return items_[i]; }

private:
    std::array<Address, 8> items_{};
    std::size_t count_ = 0;
};

/// `path` has to fit, as `Endpoint::check` makes sure.
inline void add_unix_address(const std::string& path, AddressList& found) noexcept {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return;
    std::memcpy(address.sun_path, path.data(), path.size());
    found.add(reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

/// Asks getaddrinfo. @return 0 or its `EAI_` code
inline int query_addresses(const char* host, std::uint16_t port, int flags,
                           AddressList& found) noexcept {
    std::array<char, 6> digits{};
    (void)std::to_chars(digits.data(), digits.data() + digits.size() - 1, port);
    addrinfo wanted{};
    wanted.ai_family = AF_UNSPEC;
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* list = nullptr;
    const int code = ::getaddrinfo(host, digits.data(), &wanted, &list);
    if (code != 0) return code;
    for (const addrinfo* a = list; a != nullptr; a = a->ai_next)
        found.add(a->ai_addr, a->ai_addrlen);
    ::freeaddrinfo(list);
    return found.empty() ? EAI_NONAME : 0;
}

/// Reads an address written in digits. It asks nobody, and so does not block.
[[nodiscard]] inline bool add_numeric_address(const char* host, std::uint16_t port,
                                              AddressList& found) noexcept {
    return query_addresses(host, port, AI_NUMERICHOST, found) == 0;
}

#if LEASELOCK_DEFINES
LEASELOCK_INLINE int system_lookup(const char* host, std::uint16_t port,
                                   AddressList& found) noexcept {
    return query_addresses(host, port, 0, found);
}
#endif

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
