#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/history.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace leaselock::chaos {

/// One history from those of many processes: by time, and in the order of each where times are equal.
/// The last line of a process that was killed while it wrote is left out.
[[nodiscard]] inline std::string merge(const std::vector<std::string>& histories) {
    std::vector<std::pair<simulation::Time, std::string_view>> lines;
    std::size_t size = 0;
    for (const std::string_view history : histories) {
        for (std::size_t at = 0; at < history.size();) {
            const std::size_t end = history.find('\n', at);
            if (end == std::string_view::npos) break;
            const std::string_view line = history.substr(at, end + 1 - at);
            std::string_view rest = line;
            simulation::HistoryLine read;
            // what is no line stays, at the time of the one before it, for the checker to find
            const bool good = simulation::read_line(rest, read);
            const simulation::Time before = lines.empty() ? 0 : lines.back().first;
            lines.emplace_back(good ? read.time : before, line);
            size += line.size();
            at = end + 1;
        }
    }
    std::stable_sort(lines.begin(), lines.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::string merged;
    merged.reserve(size);
    for (const auto& [time, line] : lines) merged.append(line);
    return merged;
}

/// All files of a folder that are called `*.history`.
[[nodiscard]] inline std::vector<std::string> read_histories(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator{folder}) {
        if (entry.path().extension() == ".history") paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> histories;
    for (const std::filesystem::path& path : paths) {
        std::ifstream file{path, std::ios::binary};
        std::ostringstream text;
        text << file.rdbuf();
        histories.push_back(std::move(text).str());
    }
    return histories;
}

} // namespace leaselock::chaos
