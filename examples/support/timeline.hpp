// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace example {

/// What a worker does at a moment.
enum class Doing : char {
    nothing = ' ',
    working = '#', ///< is inside, and does what must not be done twice
    stalled = '~', ///< is inside, but does not run
};

/// Prints events as they come, remembers who was inside when, and draws that to scale: a lane for each
/// actor, under them a row for each thing that is one actor's at a time.
/// For any number of threads.
class Timeline {
public:
    /// One line: when, who (' ' for nobody), the fingerprint of a token or nothing, what.
    void say(char who, std::string_view fingerprint, const std::string& what) {
        const std::scoped_lock lock{mutex_};
        std::printf("%6lld ms   %c   %-8.*s   %s\n", count(now()), who,
                    static_cast<int>(fingerprint.size()), fingerprint.data(), what.c_str());
        std::fflush(stdout);
    }

    /// From now on `who` does this.
    void turn(char who, Doing what) {
        const std::scoped_lock lock{mutex_};
        lanes_[who].push_back({now(), static_cast<char>(what)});
    }

    /// A mark on the lane of `who`, at this moment.
    void mark(char who, char sign) {
        const std::scoped_lock lock{mutex_};
        marks_[who].push_back({now(), sign});
    }

    /// From now on `row` belongs to `who`, or to nobody: '.'.
    void belongs(const std::string& row, char who) {
        const std::scoped_lock lock{mutex_};
        auto found = std::find_if(rows_.begin(), rows_.end(),
                                  [&](const Row& known) { return known.name == row; });
        if (found == rows_.end()) found = rows_.insert(found, {row, {}});
        std::vector<Change>& changes = found->changes;
        if (changes.empty() || changes.back().is != who) changes.push_back({now(), who});
    }
    /// From now on Redis holds the token of `who`, or '.' for none.
    void holds(char who) { belongs("Redis", who); }

    /// For how long both were at work at once.
    [[nodiscard]] std::chrono::milliseconds overlap(char a, char b) const {
        const std::scoped_lock lock{mutex_};
        Span both{0};
        for (const Stretch& x : working(a)) {
            for (const Stretch& y : working(b)) {
                both += std::max(Span{0}, std::min(x.to, y.to) - std::max(x.from, y.from));
            }
        }
        // the least overlap is one too many
        return std::chrono::ceil<std::chrono::milliseconds>(both);
    }

    /// One character for each slice of time, and where two were at work at once.
    void draw(std::string_view legend = "# inside, at work    ~ inside, stalled    "
                                        "Redis: whose token the key holds") const {
        const std::scoped_lock lock{mutex_};
        const Span slice = std::max(Span{now() / (width - 1)}, Span{1});
        std::printf("\n           %s\n", ruler(slice).c_str());
        std::string at_once(width, ' ');
        std::string busy(width, ' ');
        for (const auto& [who, lane] : lanes_) {
            const std::string drawn = render(lane, slice);
            std::printf("   %c       %s\n", who, trimmed(marked(who, drawn, slice)).c_str());
            for (std::size_t i = 0; i < width; ++i) {
                if (drawn[i] != static_cast<char>(Doing::working)) continue;
                if (busy[i] != ' ') at_once[i] = '^';
                busy[i] = '#';
            }
        }
        if (at_once.find('^') != std::string::npos) {
            std::printf("           %s <- two at work at once\n", trimmed(at_once).c_str());
        }
        for (const Row& row : rows_) {
            std::printf("   %-7s %s\n", row.name.c_str(),
                        trimmed(render(row.changes, slice)).c_str());
        }
        std::printf("\n           %.*s\n", static_cast<int>(legend.size()), legend.data());
    }

private:
    using Clock = std::chrono::steady_clock;
    using Span = Clock::duration;

    struct Change {
        Span at;
        char is;
    };
    struct Stretch {
        Span from;
        Span to;
    };
    struct Row {
        std::string name;
        std::vector<Change> changes;
    };

    [[nodiscard]] Span now() const { return Clock::now() - start_; }
    static long long count(Span span) {
        return std::chrono::duration_cast<std::chrono::milliseconds>(span).count();
    }

    [[nodiscard]] std::vector<Stretch> working(char who) const {
        std::vector<Stretch> found;
        const auto lane = lanes_.find(who);
        if (lane == lanes_.end()) return found;
        const std::vector<Change>& changes = lane->second;
        for (std::size_t i = 0; i < changes.size(); ++i) {
            if (changes[i].is != static_cast<char>(Doing::working)) continue;
            found.push_back({changes[i].at, i + 1 < changes.size() ? changes[i + 1].at : now()});
        }
        return found;
    }

    /// A slice shows what was so at its end; two changes within one slice show the second.
    static std::string render(const std::vector<Change>& changes, Span slice) {
        std::string lane(width, ' ');
        for (const Change& change : changes) {
            const auto from = std::min(static_cast<std::size_t>(change.at / slice), width);
            std::fill(lane.begin() + static_cast<std::ptrdiff_t>(from), lane.end(), change.is);
        }
        return lane;
    }

    [[nodiscard]] std::string marked(char who, std::string lane, Span slice) const {
        const auto found = marks_.find(who);
        if (found == marks_.end()) return lane;
        for (const Change& mark : found->second) {
            lane[std::min(static_cast<std::size_t>(mark.at / slice), width - 1)] = mark.is;
        }
        return lane;
    }

    /// A mark every 100 ms, or every 200, 400 and so on, so that the figures do not touch.
    static std::string ruler(Span slice) {
        std::string text;
        Span step = std::chrono::milliseconds{100};
        while (step / slice < 10) step *= 2;
        for (Span at{0};; at += step) {
            const auto column = static_cast<std::size_t>(at / slice);
            if (column + 8 > width) return text + " ms";
            text.resize(column, ' ');
            text.append("|").append(std::to_string(count(at)));
        }
    }

    static std::string trimmed(std::string text) {
        text.erase(text.find_last_not_of(' ') + 1);
        return text;
    }

    static constexpr std::size_t width = 72; // characters

    mutable std::mutex mutex_;
    Clock::time_point start_ = Clock::now();
    std::map<char, std::vector<Change>> lanes_;
    std::map<char, std::vector<Change>> marks_;
    std::vector<Row> rows_;
};

} // namespace example
