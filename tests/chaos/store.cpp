// SPDX-License-Identifier: MIT

#include "chaos/store.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace leaselock::chaos {
namespace {

sockaddr_un address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) throw std::runtime_error(path + " is too long");
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return address;
}

int packet_socket() {
    const int made = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (made < 0) throw std::runtime_error("no socket for the store");
    return made;
}

/// A whole message; empty at the end of the connection.
std::string receive(int from) {
    std::array<char, 1024> text{};
    ssize_t got = -1;
    do {
        got = ::recv(from, text.data(), text.size(), 0);
    } while (got < 0 && errno == EINTR);
    return {text.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

} // namespace

Store::Store(const std::string& path, const Scribe& scribe)
    : scribe_(scribe), listener_(packet_socket()), stop_(::eventfd(0, EFD_CLOEXEC)) {
    const sockaddr_un address = address_of(path);
    if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener_, 64) != 0) {
        throw std::runtime_error("the store cannot listen on " + path);
    }
    thread_ = std::thread{[this] { run(); }};
}

Store::~Store() {
    ::eventfd_write(stop_, 1);
    thread_.join();
    for (const int client : clients_) ::close(client);
    ::close(listener_);
    ::close(stop_);
}

void Store::run() {
    for (;;) {
        std::vector<pollfd> ready{{stop_, POLLIN, 0}, {listener_, POLLIN, 0}};
        for (const int client : clients_) ready.push_back({client, POLLIN, 0});
        if (::poll(ready.data(), ready.size(), -1) < 0) continue;
        if (ready[0].revents != 0) return;
        std::vector<int> stay;
        for (std::size_t i = 2; i < ready.size(); ++i) {
            const int client = ready[i].fd;
            std::string request{"-"};
            if (ready[i].revents != 0) request = receive(client);
            if (request.empty()) {
                ::close(client);
                continue;
            }
            stay.push_back(client);
            if (request == "-") continue;
            const std::string reply = answer(request);
            (void)::send(client, reply.data(), reply.size(), MSG_NOSIGNAL);
        }
        clients_ = std::move(stay);
        if (ready[1].revents == 0) continue;
        const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (client >= 0) clients_.push_back(client);
    }
}

std::string Store::answer(std::string_view request) {
    std::istringstream words{std::string{request}};
    std::string what;
    std::string key;
    std::string token;
    std::uint64_t fence = 0;
    words >> what;
    if (what == "post") {
        leases_.push_back(std::string{request.substr(what.size() + 1)});
        if (leases_.size() > 4) leases_.pop_front();
        return "ok";
    }
    if (what == "fetch") {
        if (leases_.empty()) return "none";
        std::string lease = leases_.front();
        leases_.pop_front();
        return lease;
    }
    words >> key >> token >> fence;
    return ask(what, key, token, fence) ? "done" : "stale";
}

bool Store::ask(std::string_view what, std::string_view key, std::string_view token,
                std::uint64_t fence) {
    auto highest = highest_.find(key);
    if (highest == highest_.end()) highest = highest_.emplace(key, 0).first;
    const bool done = fence >= highest->second;
    if (done) highest->second = fence;
    scribe_.line(scribe_.now(), "store", what, [&](History::Line& line) {
        line.put("key", key).put("token", token).put_unsigned("fence", fence);
        line.put("ok", std::int64_t{done ? 1 : 0});
    });
    return done;
}

StoreClient::StoreClient(const std::string& path) : socket_(packet_socket()) {
    const sockaddr_un address = address_of(path);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        throw std::runtime_error("no store at " + path);
    }
}

StoreClient::~StoreClient() { ::close(socket_); }

std::string StoreClient::round_trip(const std::string& request) {
    const bool sent = ::send(socket_, request.data(), request.size(), MSG_NOSIGNAL) >= 0;
    std::string reply = sent ? receive(socket_) : std::string{};
    if (reply.empty()) std::_Exit(0); // the run is over
    return reply;
}

bool StoreClient::ask(std::string_view what, std::string_view key, std::string_view token,
                      std::uint64_t fence) {
    std::ostringstream request;
    request << what << ' ' << key << ' ' << token << ' ' << fence;
    return round_trip(request.str()) == "done";
}

void StoreClient::post(const Lease& lease) {
    std::ostringstream request;
    request << "post " << lease.key() << ' ' << lease.value() << ' ' << lease.ttl().count();
    (void)round_trip(request.str());
}

std::optional<Lease> StoreClient::fetch() {
    std::istringstream words{round_trip("fetch")};
    std::string key;
    std::string value;
    long long ttl = 0;
    if (!(words >> key >> value >> ttl)) return std::nullopt;
    return Lease{key, value, std::chrono::milliseconds{ttl}};
}

} // namespace leaselock::chaos
