// SPDX-License-Identifier: MIT
#pragma once

#include "file_descriptor.hpp"
#include "resp_stream.hpp"

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace leaselock::test {

/// A server that says what a script tells it to, RESP or not (faults N12, N13). The script runs in
/// a thread of its own for every connection; its connection is closed when it returns.
/// Thread-safety: all members. No assertions in scripts: what they throw ends their connection.
class FalseServer {
public:
    class Peer;
    using Script = std::function<void(Peer&)>;

    explicit FalseServer(Script script);

    /// Each connection gets these replies, one per command, then silence until the client leaves.
    explicit FalseServer(std::vector<std::string> replies);

    FalseServer(const FalseServer&) = delete;
    FalseServer& operator=(const FalseServer&) = delete;
    ~FalseServer();

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
    [[nodiscard]] std::string url() const;
    [[nodiscard]] std::size_t connections() const;
    [[nodiscard]] std::string received() const; ///< all bytes, of all connections

private:
    void run();
    void serve(FileDescriptor socket);
    void record(std::string_view bytes);

    Script script_;
    FileDescriptor listener_;
    std::uint16_t port_;
    FileDescriptor stop_; // readable when the server ends
    mutable std::mutex mutex_;
    std::string received_;
    std::vector<std::thread> peers_;
    std::thread acceptor_;
};

/// The script's end of a connection. Every wait ends, by an exception, when the client leaves or
/// the server is destroyed.
class FalseServer::Peer {
public:
    /// Waits for a whole command, and gives its words.
    std::vector<std::string> expect_command();

    void send(std::string_view bytes);
    void drip(std::string_view bytes, std::chrono::milliseconds each);
    void pause(std::chrono::milliseconds time);
    void wait_for_bytes() { wait(POLLIN); } ///< they are left unread
    void wait_for_close();
    void reset() noexcept; ///< closes with a reset (RST)

private:
    friend class FalseServer;
    Peer(FalseServer& server, FileDescriptor socket) noexcept;

    void wait(short events);
    void receive();

    FalseServer& server_;
    FileDescriptor socket_;
    RespStream stream_;
    std::deque<std::vector<std::string>> commands_;
};

} // namespace leaselock::test
