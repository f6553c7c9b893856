// SPDX-License-Identifier: MIT
#include "resp_stream.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>

namespace leaselock::test {
namespace {

struct Incomplete {};
struct NotResp {};

/// Reads one line behind its type character.
std::string_view take_line(std::string_view& rest) {
    const auto end = rest.find("\r\n");
    if (end == std::string_view::npos) {
        throw Incomplete{};
    }
    const auto line = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    return line;
}

long long take_number(std::string_view& rest) {
    const auto line = take_line(rest);
    long long number = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
    if (error != std::errc{} || end != line.data() + line.size()) {
        throw NotResp{};
    }
    return number;
}

std::string_view take_bulk(std::string_view& rest) {
    const auto size = take_number(rest);
    if (size < 0) {
        return {};
    }
    const auto length = static_cast<std::size_t>(size);
    if (rest.size() < length + 2) {
        throw Incomplete{};
    }
    const auto text = rest.substr(0, length);
    rest.remove_prefix(length + 2);
    return text;
}

void skip_message(std::string_view& rest) {
    for (long long left = 1; left > 0; --left) {
        if (rest.empty()) {
            throw Incomplete{};
        }
        const char type = rest.front();
        if (std::string_view{"+-:(,#_$=!*~>%|"}.find(type) == std::string_view::npos) {
            throw NotResp{};
        }
        rest.remove_prefix(1);
        if (type == '$' || type == '=' || type == '!') {
            take_bulk(rest);
        } else if (type == '*' || type == '~' || type == '>') {
            left += std::max(0LL, take_number(rest));
        } else if (type == '%' || type == '|') {
            // An attribute ('|') is followed by the value that it describes.
            left += 2 * take_number(rest) + (type == '|' ? 1 : 0);
        } else {
            take_line(rest);
        }
    }
}

} // namespace

std::vector<std::string> RespStream::feed(std::string_view bytes) {
    pending_ += bytes;
    std::vector<std::string> messages;
    std::string_view rest = pending_;
    try {
        while (!rest.empty()) {
            const auto whole = rest;
            auto behind = rest;
            skip_message(behind);
            messages.emplace_back(whole.substr(0, whole.size() - behind.size()));
            rest = behind;
        }
    } catch (const Incomplete&) {
    } catch (const NotResp&) {
        messages.emplace_back(rest);
        rest = {};
    }
    pending_.erase(0, pending_.size() - rest.size());
    return messages;
}

std::vector<std::string> request_words(std::string_view message) {
    std::vector<std::string> words;
    try {
        if (message.empty() || message.front() != '*') {
            return {};
        }
        message.remove_prefix(1);
        for (auto left = take_number(message); left > 0; --left) {
            if (message.empty() || message.front() != '$') {
                return {};
            }
            message.remove_prefix(1);
            words.emplace_back(take_bulk(message));
        }
    } catch (const Incomplete&) {
        return {};
    } catch (const NotResp&) {
        return {};
    }
    return words;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](char x, char y) { return lower(x) == lower(y); });
}

} // namespace leaselock::test
