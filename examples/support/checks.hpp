// SPDX-License-Identifier: MIT
#pragma once

#include <leaselock/core/outcome.hpp>

#include <cstdio>
#include <string>

namespace example {

/// What has to be so, one line each.
class Checks {
public:
    void expect(bool fine, const std::string& what) {
        std::printf("   %-6s %s\n", fine ? "ok" : "WRONG", what.c_str());
        all_fine_ = all_fine_ && fine;
    }
    [[nodiscard]] bool all_fine() const { return all_fine_; }

private:
    bool all_fine_ = true;
};

inline std::string in_words(const leaselock::Outcome& outcome) {
    std::string text{to_string(outcome.answer)};
    if (outcome.cause) text += ", " + outcome.cause.message();
    return text;
}

} // namespace example
