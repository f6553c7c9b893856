// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace leaselock::test {

/// What happens to one command on its way through a FaultProxy.
enum class Fault : std::uint8_t {
    drop_request, ///< it never reaches the server
    drop_reply,   ///< the server runs it, and the client never hears of it
    hold_request, ///< it waits for `deliver_held`, and reaches the server even if the client has
                  ///< left
    cut_request,  ///< the connection is reset in its place
    cut_reply,    ///< the server runs it, and the connection is reset in place of the reply
};

/// What has come through a FaultProxy.
struct Traffic {
    std::size_t connections = 0; ///< accepted
    std::size_t open = 0;        ///< of them, with a client that has not left
    std::size_t client_bytes = 0;
    std::size_t server_bytes = 0;
    std::size_t reads = 0;       ///< arrivals of client bytes; the kernel may merge quick writes
    std::size_t round_trips = 0; ///< client bytes that follow a reply, or are a connection's first
    std::vector<std::vector<std::string>> requests; ///< whole commands, dropped ones too

    /// The commands' names in upper case, in order.
    [[nodiscard]] std::vector<std::string> names() const;
    [[nodiscard]] std::size_t count(std::string_view name) const;
};

/// A TCP proxy between a client and a server on 127.0.0.1, whose faults are set while it runs. When
/// a setter returns, the setting holds. Settings add up until `pass`.
/// As TCP loses nothing from the middle, a connection that lost a request loses all later ones, and
/// the same goes for replies; new connections start afresh. A client that leaves is reported to the
/// server in every mode, once what it sent before has been delivered.
/// Thread-safety: all members. It has a thread, which a forked child lacks.
class FaultProxy {
public:
    explicit FaultProxy(std::uint16_t server_port);
    FaultProxy(const FaultProxy&) = delete;
    FaultProxy& operator=(const FaultProxy&) = delete;
    ~FaultProxy();

    [[nodiscard]] std::uint16_t port() const noexcept;
    [[nodiscard]] std::string url() const;

    void pass(); ///< ends all modes and rules; held requests stay
    void drop_requests();
    void drop_replies();
    void black_hole();                        ///< neither passes, and the connections stay open
    void delay(std::chrono::milliseconds by); ///< both directions
    void delay_requests(std::chrono::milliseconds by);
    void delay_replies(std::chrono::milliseconds by);
    void drip(std::chrono::milliseconds each); ///< replies, byte by byte
    void drip_requests(std::chrono::milliseconds each);
    void cut();                                 ///< resets all connections, once
    void cut_after_reply_bytes(std::size_t n);  ///< resets a connection, once, behind n more bytes
    void refuse();                              ///< closes the listener; open connections stay
    void accept_again();                        ///< the same port
    void forward_to(std::uint16_t server_port); ///< new connections; open ones stay where they are

    /// The next `times` commands with this word, any case, as name or argument (a script's SHA, a
    /// key). Earlier rules go first.
    void on_command(std::string word, Fault fault, int times = 1);
    std::size_t deliver_held(); ///< says how many requests were held
    [[nodiscard]] std::size_t held() const;

    [[nodiscard]] Traffic traffic() const;
    void reset_traffic(); ///< `open` stays

private:
    class Loop;
    std::unique_ptr<Loop> loop_;
};

} // namespace leaselock::test
