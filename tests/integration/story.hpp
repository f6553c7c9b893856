// SPDX-License-Identifier: MIT
#pragma once

// What the stories of the guard have in common.

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/eventually.hpp"
#include "support/false_server.hpp"
#include "support/fault_proxy.hpp"
#include "support/pipe.hpp"
#include "support/raw_client.hpp"
#include "support/redis_server.hpp"
#include "support/stopwatch.hpp"

#include <leaselock/leaselock.hpp>

#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace leaselock::test {

using Lock = LeaseLock<HiredisConnection>;

/// For what has to succeed, however slow the machine is.
inline constexpr Options patient{.ttl = std::chrono::seconds{60},
                                 .timeout = std::chrono::seconds{20}};

/// A URL whose connecting takes as long as a call may.
inline std::string patient_url(const std::string& url) { return url + "?connect_timeout=20s"; }
inline std::string patient_url(const RedisServer& server) { return patient_url(server.url()); }
inline std::string patient_url(const FaultProxy& proxy) { return patient_url(proxy.url()); }

/// An answer with its cause, as `no: held by another`, so that a failed check shows both.
inline std::string said(Answer answer, const std::error_code& cause) {
    std::string text{to_string(answer)};
    return cause ? text + ": " + cause.message() : text;
}
inline std::string said(Answer answer) { return said(answer, std::error_code{}); }
inline std::string said(Answer answer, errc cause) { return said(answer, make_error_code(cause)); }
inline std::string said(const Outcome& outcome) { return said(outcome.answer, outcome.cause); }

/// The words of whoever answered.
inline std::string words_of(const Outcome& outcome) { return std::string{outcome.text.view()}; }

inline bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

/// Keeps what an observer hears.
class Recorder final : public Observer {
public:
    struct Heard {
        Verb verb{};
        std::string said;
        std::string key;
        std::string text;
        std::string owner;
        std::string fingerprint;
        std::chrono::nanoseconds remaining{};
    };

    void on_event(const Event& event) noexcept override {
        all.push_back({event.verb, test::said(event.outcome), std::string{event.key},
                       words_of(event.outcome), std::string{event.owner},
                       std::string{event.fingerprint}, event.remaining});
    }

    /// What was said of one verb, in order.
    [[nodiscard]] std::vector<std::string> of(Verb verb) const {
        std::vector<std::string> lines;
        for (const Heard& heard : all) {
            if (heard.verb == verb) {
                lines.push_back(heard.said);
            }
        }
        return lines;
    }

    std::vector<Heard> all;
};

/// Calls per command since `reset_stats`, less those of the watching itself.
inline std::map<std::string, long long> commands_of(RawClient& outside) {
    auto calls = outside.command_stats();
    for (const char* name : {"config|resetstat", "config", "info"}) {
        calls.erase(name);
    }
    return calls;
}

/// Our end of a connection to a unix socket; -1 when there is none.
inline int socket_to(const std::string& unix_path) {
    for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
        const int descriptor = std::stoi(entry.path().filename());
        sockaddr_un peer{};
        socklen_t size = sizeof peer;
        if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
            peer.sun_family == AF_UNIX && unix_path == peer.sun_path) {
            return descriptor;
        }
    }
    return -1;
}

/// Leaves the kernel room for a few KiB only; most of it is the kernel's own bookkeeping.
inline bool shrink_send_buffer(int socket) {
    const int least = 1;
    return setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &least, sizeof least) == 0;
}

/// Takes up room in the send buffer by an empty line, which Redis does not answer.
/// @return false when there was no room
inline bool send_empty_line(int socket) {
    return send(socket, "\r\n", 2, MSG_DONTWAIT | MSG_NOSIGNAL) == 2;
}

/// Runs beside the test, such as a command that keeps the server busy; what it throws is dropped.
class Beside {
public:
    explicit Beside(std::function<void()> work)
        : thread_{[work = std::move(work)] {
              try {
                  work();
              } catch (const std::exception&) { // the story shows what it came to
              }
          }} {}
    Beside(const Beside&) = delete;
    Beside& operator=(const Beside&) = delete;
    ~Beside() { thread_.join(); }

private:
    std::thread thread_;
};

} // namespace leaselock::test
