// SPDX-License-Identifier: MIT

#include "chaos/plan.hpp"

#include "chaos/torment.hpp"
#include "simulation/clock.hpp"
#include "simulation/random.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace leaselock::chaos {
namespace {

using simulation::ms;
using simulation::Random;

constexpr Time start_up = 500 * ms; ///< workers come to life
constexpr Time rest = 200 * ms;     ///< between two torments of one target

class Drawing {
public:
    explicit Drawing(const PlanSettings& settings)
        : settings_(settings), random_(settings.seed), worker_free_(settings.workers),
          server_free_(servers), link_free_(settings.workers * servers) {}

    std::vector<Torment> run() {
        if (settings_.kinds.empty()) return {};
        const auto spread = settings_.every / 2;
        Time at = start_up;
        while (at < settings_.span) {
            place(at);
            at += random_.between(settings_.every - spread, settings_.every + spread);
        }
        return std::move(torments_);
    }

private:
    /// The first of the deck that finds a target.
    void place(Time at) {
        if (deck_.size() < settings_.kinds.size()) shuffle_in();
        for (std::size_t i = 0; i < deck_.size(); ++i) {
            const KindFacts& kind = facts_of(deck_[i]);
            Torment torment{at, kind.kind};
            torment.lasts = random_.between(kind.least_ms, kind.most_ms) * ms;
            torment.amount = static_cast<int>(random_.between(kind.least, kind.most));
            if (at + torment.lasts + rest > settings_.span || !aim(torment)) continue;
            deck_.erase(deck_.begin() + static_cast<std::ptrdiff_t>(i));
            torments_.push_back(torment);
            return;
        }
    }

    void shuffle_in() {
        std::vector<Kind> kinds = settings_.kinds;
        for (const Kind kind : settings_.kinds) { // what processes suffer is what it is about
            if (facts_of(kind).target == Target::worker) kinds.push_back(kind);
        }
        for (std::size_t i = kinds.size(); i > 1; --i) {
            std::swap(kinds[i - 1], kinds[static_cast<std::size_t>(random_.below(i))]);
        }
        deck_.insert(deck_.end(), kinds.begin(), kinds.end());
    }

    bool aim(Torment& torment) {
        const Target target = facts_of(torment.kind).target;
        std::vector<Time>& free = target == Target::worker   ? worker_free_
                                  : target == Target::server ? server_free_
                                                             : link_free_;
        std::vector<std::size_t> candidates;
        for (std::size_t i = 0; i < free.size(); ++i) {
            if (target == Target::server && !suits(torment.kind, i)) continue;
            if (free[i] <= torment.at) candidates.push_back(i);
        }
        if (candidates.empty()) return false;
        const std::size_t chosen = random_.pick(candidates);
        free[chosen] = torment.at + torment.lasts + rest;
        if (target == Target::worker) torment.worker = chosen;
        if (target == Target::server) torment.server = chosen;
        if (target == Target::link) {
            torment.worker = chosen / servers;
            torment.server = chosen % servers;
        }
        return true;
    }

    [[nodiscard]] bool suits(Kind kind, std::size_t server) const {
        if (kind == Kind::forget || kind == Kind::promotion) return server == forgetful;
        const bool keeps = !forgets(settings_.kinds) || server != forgetful;
        const bool needs_memory =
            kind == Kind::restart || kind == Kind::clock_back || kind == Kind::clock_forward;
        return keeps || !needs_memory;
    }

    const PlanSettings& settings_;
    Random random_;
    std::deque<Kind> deck_;
    std::vector<Time> worker_free_;
    std::vector<Time> server_free_;
    std::vector<Time> link_free_;
    std::vector<Torment> torments_;
};

} // namespace

bool forgets(const std::vector<Kind>& kinds) noexcept {
    return std::any_of(kinds.begin(), kinds.end(),
                       [](Kind kind) { return kind == Kind::forget || kind == Kind::promotion; });
}

std::vector<Torment> draw(const PlanSettings& settings) { return Drawing{settings}.run(); }

std::optional<std::vector<Kind>> parse_kinds(std::string_view names) {
    std::vector<Kind> chosen;
    while (!names.empty()) {
        const std::size_t comma = names.find(',');
        const std::string_view name = names.substr(0, comma);
        names.remove_prefix(comma == std::string_view::npos ? names.size() : comma + 1);
        bool known = false;
        for (const KindFacts& kind : facts) {
            const bool meant = name == kind.name || name == "all" || (name == "safe" && kind.safe);
            known = known || meant;
            const bool twice = std::find(chosen.begin(), chosen.end(), kind.kind) != chosen.end();
            if (meant && !twice) chosen.push_back(kind.kind);
        }
        if (!known && name != "none") return std::nullopt;
    }
    return chosen;
}

std::string to_string(const Torment& torment) {
    const KindFacts& kind = facts_of(torment.kind);
    std::string whom = kind.target == Target::server ? "s" + std::to_string(torment.server)
                                                     : "w" + std::to_string(torment.worker);
    if (kind.target == Target::link) whom += "-s" + std::to_string(torment.server);
    std::array<char, 120> text{};
    std::snprintf(text.data(), text.size(), "%.3f s %s %s",
                  static_cast<double>(torment.at) / simulation::s, std::string{kind.name}.c_str(),
                  whom.c_str());
    std::string line{text.data()};
    if (kind.most != 0) line += ", " + std::to_string(torment.amount);
    if (torment.lasts != 0) line += ", for " + std::to_string(torment.lasts / ms) + " ms";
    return line;
}

} // namespace leaselock::chaos
