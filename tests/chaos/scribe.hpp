#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/history.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace leaselock::chaos {

using simulation::History;
using simulation::Time;

/// The time since boot, in ns, whatever a shim makes of this process's clocks.
[[nodiscard]] inline Time true_time() noexcept {
    timespec t{};
    (void)::syscall(SYS_clock_gettime, CLOCK_BOOTTIME, &t);
    return Time{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// Writes the history of one process to a file of its own, each line by one write(2): whoever is killed
/// has written down all that came before. Thread-safety: all members.
class Scribe {
public:
    /// @param epoch when the run began
    Scribe(const std::string& path, std::string actor, Time epoch)
        : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)),
          actor_(std::move(actor)), epoch_(epoch) {
        if (file_ < 0) throw std::runtime_error("cannot write " + path);
    }
    Scribe(const Scribe&) = delete;
    Scribe& operator=(const Scribe&) = delete;
    ~Scribe() { ::close(file_); }

    /// Since the epoch.
    [[nodiscard]] Time now() const noexcept { return true_time() - epoch_; }
    [[nodiscard]] Time epoch() const noexcept { return epoch_; }
    [[nodiscard]] const std::string& actor() const noexcept { return actor_; }

    /// The name of a token of this process: fingerprints alone are too few for all tokens of a long run.
    [[nodiscard]] std::string token(std::string_view fingerprint) const {
        return fingerprint.empty() ? std::string{} : std::string{fingerprint} + "@" + actor_;
    }

    /// @param put gets the line, and puts the fields
    template <class Put>
    void line(Time at, std::string_view actor, std::string_view what, const Put& put) const {
        History history;
        {
            auto line = history.add(at, actor, what);
            put(line);
        }
        write(history.text());
    }
    template <class Put>
    void line(Time at, std::string_view what, const Put& put) const {
        line(at, actor_, what, put);
    }
    template <class Put>
    void line(std::string_view what, const Put& put) const {
        line(now(), actor_, what, put);
    }
    /// Several whole lines.
    void write(std::string_view text) const {
        while (!text.empty()) {
            const ssize_t written = ::write(file_, text.data(), text.size());
            if (written < 0 && errno == EINTR) continue;
            if (written < 0) std::abort(); // a history with holes proves nothing
            text.remove_prefix(static_cast<std::size_t>(written));
        }
    }

private:
    int file_;
    std::string actor_;
    Time epoch_;
};

} // namespace leaselock::chaos
