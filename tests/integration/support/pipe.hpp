// SPDX-License-Identifier: MIT
#pragma once

#include "file_descriptor.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace leaselock::test {

/// Lines between a test and its child process; make it before the fork. It stays open in both, so
/// the end of the other process shows as the reader's time limit unless the ends are closed.
class Pipe {
public:
    Pipe();

    /// Writes the text and a line end. At most PIPE_BUF bytes, so that lines never mix.
    void write_line(std::string_view text);

    /// The next line without its end; throws at the limit and at the end of the stream.
    [[nodiscard]] std::string read_line(std::chrono::milliseconds limit = std::chrono::seconds{10});

    void close_read() noexcept { read_.close(); }
    void close_write() noexcept { write_.close(); }

private:
    FileDescriptor read_;
    FileDescriptor write_;
    std::string pending_;
};

} // namespace leaselock::test
