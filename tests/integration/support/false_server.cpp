// SPDX-License-Identifier: MIT
#include "false_server.hpp"

#include "signals_blocked.hpp"
#include "sockets.hpp"
#include "system_failure.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <exception>
#include <utility>

namespace leaselock::test {
namespace {

/// Ends a script: the client has left, or the server is being destroyed.
struct ConnectionOver : std::exception {};

FalseServer::Script one_reply_each(std::vector<std::string> replies) {
    return [replies = std::move(replies)](FalseServer::Peer& peer) {
        for (const auto& reply : replies) {
            peer.expect_command();
            peer.send(reply);
        }
        peer.wait_for_close();
    };
}

/// Waits for a socket, -1 for none, or for the stop; false at the deadline.
bool wait_for_either(int socket, short events, int stop,
                     std::chrono::steady_clock::time_point deadline) {
    for (;;) {
        std::array<pollfd, 2> waiting{{{stop, POLLIN, 0}, {socket, events, 0}}};
        const int ready = poll(waiting.data(), waiting.size(), poll_timeout(deadline));
        if (ready < 0 && errno != EINTR) {
            system_failure("poll");
        }
        if (ready > 0 && waiting[0].revents != 0) {
            throw ConnectionOver{};
        }
        if (ready > 0) {
            return true;
        }
        if (std::chrono::steady_clock::now() >= deadline) {
            return false;
        }
    }
}

constexpr auto never = std::chrono::steady_clock::time_point::max();

} // namespace

FalseServer::FalseServer(Script script)
    : script_{std::move(script)}, listener_{listen_on_loopback(0)}, port_{port_of(listener_.get())},
      stop_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
    if (!stop_) {
        system_failure("eventfd");
    }
    const SignalsBlocked for_the_threads;
    acceptor_ = std::thread{[this] { run(); }};
}

FalseServer::FalseServer(std::vector<std::string> replies)
    : FalseServer{one_reply_each(std::move(replies))} {}

FalseServer::~FalseServer() {
    eventfd_write(stop_.get(), 1);
    acceptor_.join(); // no peers are added from here on
    for (auto& peer : peers_) {
        peer.join();
    }
}

std::string FalseServer::url() const { return "redis://127.0.0.1:" + std::to_string(port_); }

std::size_t FalseServer::connections() const {
    const std::lock_guard lock{mutex_};
    return peers_.size();
}

std::string FalseServer::received() const {
    const std::lock_guard lock{mutex_};
    return received_;
}

void FalseServer::record(std::string_view bytes) {
    const std::lock_guard lock{mutex_};
    received_ += bytes;
}

void FalseServer::run() {
    try {
        while (wait_for_either(listener_.get(), POLLIN, stop_.get(), never)) {
            if (auto socket = accept_one(listener_.get())) {
                const std::lock_guard lock{mutex_};
                peers_.emplace_back(
                    [this, mine = std::move(socket)]() mutable { serve(std::move(mine)); });
            }
        }
    } catch (const ConnectionOver&) {
    }
}

void FalseServer::serve(FileDescriptor socket) {
    Peer peer{*this, std::move(socket)};
    try {
        script_(peer);
    } catch (const std::exception&) { // the script's connection ends with it
    }
}

FalseServer::Peer::Peer(FalseServer& server, FileDescriptor socket) noexcept
    : server_{server}, socket_{std::move(socket)} {}

void FalseServer::Peer::wait(short events) {
    if (!socket_) {
        throw ConnectionOver{};
    }
    static_cast<void>(wait_for_either(socket_.get(), events, server_.stop_.get(), never));
}

void FalseServer::Peer::receive() {
    wait(POLLIN);
    const auto bytes = receive_some(socket_.get());
    if (!bytes) {
        throw ConnectionOver{};
    }
    server_.record(*bytes);
    for (const auto& message : stream_.feed(*bytes)) {
        commands_.push_back(request_words(message));
    }
}

std::vector<std::string> FalseServer::Peer::expect_command() {
    while (commands_.empty()) {
        receive();
    }
    auto words = std::move(commands_.front());
    commands_.pop_front();
    return words;
}

void FalseServer::Peer::send(std::string_view bytes) {
    while (!bytes.empty()) {
        wait(POLLOUT);
        const auto sent = send_some(socket_.get(), bytes);
        if (!sent) {
            throw ConnectionOver{};
        }
        bytes.remove_prefix(*sent);
    }
}

void FalseServer::Peer::drip(std::string_view bytes, std::chrono::milliseconds each) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        send(bytes.substr(i, 1));
        pause(each);
    }
}

void FalseServer::Peer::pause(std::chrono::milliseconds time) {
    static_cast<void>(
        wait_for_either(-1, 0, server_.stop_.get(), std::chrono::steady_clock::now() + time));
}

void FalseServer::Peer::wait_for_close() {
    for (;;) {
        receive();
    }
}

void FalseServer::Peer::reset() noexcept { reset_connection(socket_); }

} // namespace leaselock::test
