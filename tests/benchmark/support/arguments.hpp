// SPDX-License-Identifier: MIT
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace leaselock::bench {

/// The command line of a program that measures: pairs of a name and a value. Numbers are whole and
/// `least` at least; a list has commas between them.
class Arguments {
public:
    void add(std::string name, long& number, long least = 1) {
        all_.push_back({std::move(name), &number, least});
    }
    void add(std::string name, std::vector<long>& numbers, long least = 1) {
        all_.push_back({std::move(name), &numbers, least});
    }
    void add(std::string name, std::string& text) { all_.push_back({std::move(name), &text, 0}); }

    /// @return false after telling what may be said: the program exits with 2
    [[nodiscard]] bool read(int argc, char** argv) const {
        const std::span words{argv, static_cast<std::size_t>(argc)};
        bool fine = words.size() % 2 == 1;
        for (std::size_t i = 1; fine && i + 1 < words.size(); i += 2) {
            fine = read(words[i], words[i + 1]);
        }
        if (!fine) {
            std::fprintf(stderr, "usage: %s", words[0]);
            for (const Argument& argument : all_) {
                const char* const value[] = {"N", "N,N,...", "TEXT"};
                std::fprintf(stderr, " [%s %s]", argument.name.c_str(),
                             value[argument.target.index()]);
            }
            std::fprintf(stderr, "\n");
        }
        return fine;
    }

private:
    struct Argument {
        std::string name;
        std::variant<long*, std::vector<long>*, std::string*> target;
        long least;
    };

    static bool to_number(std::string_view text, long least, long& number) {
        const auto end = text.data() + text.size();
        return std::from_chars(text.data(), end, number).ptr == end && !text.empty() &&
               number >= least;
    }

    static bool to_numbers(std::string_view text, long least, std::vector<long>& numbers) {
        numbers.clear();
        while (true) {
            const std::size_t comma = text.find(',');
            if (!to_number(text.substr(0, comma), least, numbers.emplace_back())) return false;
            if (comma == std::string_view::npos) return true;
            text.remove_prefix(comma + 1);
        }
    }

    [[nodiscard]] bool read(std::string_view name, std::string_view value) const {
        for (const Argument& argument : all_) {
            if (argument.name != name) continue;
            if (auto* const number = std::get_if<long*>(&argument.target)) {
                return to_number(value, argument.least, **number);
            }
            if (auto* const numbers = std::get_if<std::vector<long>*>(&argument.target)) {
                return to_numbers(value, argument.least, **numbers);
            }
            *std::get<std::string*>(argument.target) = value;
            return true;
        }
        return false;
    }

    std::vector<Argument> all_;
};

} // namespace leaselock::bench
