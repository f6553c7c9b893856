// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <deque>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace leaselock::bench {

/// What was measured at one point, as an object of JSON. Names and texts are our own: plain ASCII
/// without quotes.
class Record {
public:
    explicit Record(std::string_view name) { set("name", name); }

    Record& set(std::string_view key, std::string_view text) {
        return put(key, '"' + std::string{text} + '"');
    }
    template <class N>
    requires std::integral<N> || std::floating_point<N> Record& set(std::string_view key,
                                                                    N number) {
        return put(key, text_of(number));
    }
    /// One value for each round.
    Record& set(std::string_view key, std::span<const double> rounds) {
        std::string list;
        for (const double number : rounds) {
            list += (list.empty() ? "" : ", ") + text_of(number);
        }
        return put(key, '[' + list + ']');
    }

    [[nodiscard]] std::string json() const { return '{' + fields_ + '}'; }

private:
    template <class N>
    static std::string text_of(N number) {
        std::array<char, 64> text{};
        const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
        return {text.data(), end};
    }
    Record& put(std::string_view key, const std::string& value) {
        fields_ += (fields_.empty() ? "\"" : ", \"") + std::string{key} + "\": " + value;
        return *this;
    }

    std::string fields_;
};

/// The records of one program.
class Records {
public:
    Record& add(std::string_view name) { return all_.emplace_back(name); }

    /// As an array of JSON; nowhere if there is no path. Throws when that fails.
    void write(const std::string& path) const {
        if (path.empty()) return;
        std::ofstream file{path};
        const char* between = "[\n";
        for (const Record& record : all_) {
            file << std::exchange(between, ",\n") << record.json();
        }
        file << "\n]\n" << std::flush;
        if (!file) throw std::runtime_error("cannot write " + path);
    }

private:
    std::deque<Record> all_;
};

} // namespace leaselock::bench
