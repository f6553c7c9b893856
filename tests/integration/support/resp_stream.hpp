// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace leaselock::test {

/// Cuts a stream into whole RESP messages, requests and replies alike. What is not RESP passes as
/// one message, whatever has arrived of it.
/// Source: https://redis.io/docs/latest/develop/reference/protocol-spec/
class RespStream {
public:
    [[nodiscard]] std::vector<std::string> feed(std::string_view bytes);

private:
    std::string pending_;
};

/// The words of a request, an array of bulk strings; empty for anything else.
[[nodiscard]] std::vector<std::string> request_words(std::string_view message);

[[nodiscard]] bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept;

} // namespace leaselock::test
