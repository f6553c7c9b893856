// SPDX-License-Identifier: MIT
#include "pipe.hpp"

#include "sockets.hpp"
#include "system_failure.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>

namespace leaselock::test {

Pipe::Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
        system_failure("pipe2");
    }
    read_ = FileDescriptor{ends[0]};
    write_ = FileDescriptor{ends[1]};
}

void Pipe::write_line(std::string_view text) {
    std::string line{text};
    line += '\n';
    ssize_t written = 0;
    do {
        written = write(write_.get(), line.data(), line.size());
    } while (written < 0 && errno == EINTR);
    if (written != static_cast<ssize_t>(line.size())) {
        system_failure("cannot write to the pipe");
    }
}

std::string Pipe::read_line(std::chrono::milliseconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    for (;;) {
        if (const auto end = pending_.find('\n'); end != std::string::npos) {
            std::string line = pending_.substr(0, end);
            pending_.erase(0, end + 1);
            return line;
        }
        if (!wait_readable(read_.get(), deadline)) {
            throw std::runtime_error("no line came through the pipe within " +
                                     std::to_string(limit.count()) + " ms");
        }
        std::array<char, 512> chunk{};
        const ssize_t got = read(read_.get(), chunk.data(), chunk.size());
        if (got > 0) {
            pending_.append(chunk.data(), static_cast<std::size_t>(got));
        } else if (got == 0) {
            throw std::runtime_error("the pipe ended before a line was complete");
        } else if (errno != EINTR) {
            system_failure("cannot read from the pipe");
        }
    }
}

} // namespace leaselock::test
