#pragma once
// SPDX-License-Identifier: MIT

#include "chaos/scribe.hpp"

#include <leaselock/lock/lease.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace leaselock::chaos {

/// What the holders of locks write to: it registers fencing tokens, and refuses smaller ones. One thread
/// behind a socket, so that what it does has one order, whatever becomes of those who ask. It also
/// passes on leases that one process hands over to another.
class Store {
public:
    /// @param path of the socket
    Store(const std::string& path, const Scribe& scribe);
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;
    ~Store();

private:
    void run();
    [[nodiscard]] std::string answer(std::string_view request);
    [[nodiscard]] bool ask(std::string_view what, std::string_view key, std::string_view token,
                           std::uint64_t fence);

    const Scribe& scribe_;
    int listener_;
    int stop_;
    std::vector<int> clients_;
    std::map<std::string, std::uint64_t, std::less<>> highest_;
    std::deque<std::string> leases_;
    std::thread thread_;
};

/// A worker's end of it. One thread at a time.
class StoreClient {
public:
    explicit StoreClient(const std::string& path);
    StoreClient(const StoreClient&) = delete;
    StoreClient& operator=(const StoreClient&) = delete;
    ~StoreClient();

    /// @param what `register` or `write` @return whether the store did it
    bool ask(std::string_view what, std::string_view key, std::string_view token,
             std::uint64_t fence);
    void post(const Lease& lease);
    [[nodiscard]] std::optional<Lease> fetch();

private:
    [[nodiscard]] std::string round_trip(const std::string& request);
    int socket_;
};

} // namespace leaselock::chaos
