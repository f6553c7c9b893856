// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace example {

/// A program that starts itself again for its child processes: with `role` as its first argument it
/// is one of them.
struct Program {
    std::string_view name;
    std::string_view usage;
    std::string_view role;
    void (*as_child)(std::span<char*> arguments);
    bool (*play)(); ///< @return whether all was as it should be
};

/// What `main` is made of. @return 0 all as it should be, 1 not so, 2 wrong usage, 3 not played at all
inline int run(const Program& program, int argc, char** argv) {
    const std::span words{argv, static_cast<std::size_t>(argc)};
    const std::string name{program.name};
    try {
        if (words.size() > 1 && words[1] == program.role) {
            program.as_child(words.subspan(2));
            return 0;
        }
        if (words.size() == 2 && std::string_view{words[1]} == "--help") {
            std::printf("%s", program.usage.data());
            return 0;
        }
        if (words.size() > 1) {
            std::fprintf(stderr, "%s: unknown option: %s\n\n%s", name.c_str(), words[1],
                         program.usage.data());
            return 2;
        }
        if (program.play()) return 0;
        std::printf("\nIt did not go well: this is a defect of leaselock, or of this example. "
                    "Please report it.\n");
        return 1;
    } catch (const std::exception& error) {
        std::fflush(stdout);
        std::fprintf(stderr, "\n%s: could not be played: %s\n", name.c_str(), error.what());
        return 3;
    }
}

} // namespace example
