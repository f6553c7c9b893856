// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace leaselock::bench {

/// The value below which that share of them lies, between neighbours in proportion; 0 of nothing.
[[nodiscard]] inline double percentile(std::vector<double> all, double share) {
    if (all.empty()) return 0;
    std::sort(all.begin(), all.end());
    const double at = share * static_cast<double>(all.size() - 1);
    const auto below = static_cast<std::size_t>(at);
    const std::size_t above = std::min(below + 1, all.size() - 1);
    return all[below] + (at - static_cast<double>(below)) * (all[above] - all[below]);
}

[[nodiscard]] inline double median(std::vector<double> all) {
    return percentile(std::move(all), 0.5);
}

/// Round by round, since what disturbs one round disturbs both sides of it.
[[nodiscard]] inline std::vector<double> ratios(std::span<const double> a,
                                                std::span<const double> b) {
    std::vector<double> all;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) all.push_back(a[i] / b[i]);
    return all;
}

} // namespace leaselock::bench
