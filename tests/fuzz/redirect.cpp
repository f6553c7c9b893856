// SPDX-License-Identifier: MIT
//
// Where a node of a cluster sends its clients: `parse_redirect`. What it takes for a redirection is one,
// by a second, naive reading; and a redirection made of the input is read as what it is.

#include "fuzz/fuzz.hpp"
#include "fuzz/naive.hpp"

#include <leaselock/core/error.hpp>
#include <leaselock/hiredis/detail/redirect.hpp>
#include <leaselock/redis/classify.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace {

using fuzz::check;
using leaselock::detail::parse_redirect;
using leaselock::detail::Redirect;

/// The second reading: words between spaces, the address up to its last colon.
Redirect read(const std::string& line) {
    Redirect found;
    const std::size_t first = line.find(' ');
    if (first == std::string::npos) return {};
    const std::string word = line.substr(0, first);
    if (word != "MOVED" && word != "ASK") return {};
    const std::size_t second = line.find(' ', first + 1);
    const std::size_t colon = line.rfind(':');
    if (second == std::string::npos || colon == std::string::npos || colon < second) return {};
    const int slot =
        fuzz::number_of(std::string_view{line}.substr(first + 1, second - first - 1), 16'383);
    const int port = fuzz::number_of(std::string_view{line}.substr(colon + 1), 65'535);
    const std::string host = line.substr(second + 1, colon - second - 1);
    if (slot < 0 || port < 1 || !fuzz::is_node_host(host)) return {};
    found.kind = word == "MOVED" ? Redirect::moved : Redirect::ask;
    found.slot = static_cast<std::uint16_t>(slot);
    found.port = static_cast<std::uint16_t>(port);
    if (host != "?") found.host = std::string_view{line}.substr(second + 1, host.size());
    return found;
}

void check_line(const std::string& line) {
    const Redirect found = parse_redirect(line);
    const Redirect expected = read(line);
    check(found.kind == expected.kind, "a redirection, or not");
    check(found.slot == expected.slot && found.port == expected.port, "its slot and port");
    check(found.host == expected.host, "its host");
    if (found.kind == Redirect::none) return;
    const auto cause = leaselock::cause_of(line);
    check(cause == (found.kind == Redirect::moved ? leaselock::errc::moved : leaselock::errc::ask),
          "what leads somewhere else has not run here");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text = fuzz::as_text(data, std::min<std::size_t>(size, 1024));
    check_line(std::string{text});

    fuzz::Choices choices{text};
    const bool moved = choices.below(2) == 0;
    const int slot = choices.word() % 16'384;
    const int port = 1 + choices.word() % 65'535;
    constexpr std::string_view letters = "abcXYZ0189-._";
    std::string host;
    while (!choices.empty() && host.size() < 253) host += letters[choices.below(letters.size())];
    const std::string line = (moved ? "MOVED " : "ASK ") + std::to_string(slot) + " " + host + ":" +
                             std::to_string(port);
    const Redirect found = parse_redirect(line);
    check(found.kind == (moved ? Redirect::moved : Redirect::ask) && found.slot == slot &&
              found.port == port && found.host == host,
          "a redirection is read as what it is");
    check_line(line);
    return 0;
}
