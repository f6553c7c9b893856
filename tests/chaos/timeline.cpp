// SPDX-License-Identifier: MIT

#include "chaos/timeline.hpp"

#include "chaos/svg.hpp"
#include "chaos/torment.hpp"

#include "simulation/clock.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace leaselock::chaos {
namespace {

constexpr double left = 74;
constexpr double top = 64;
constexpr double lane_height = 15;
constexpr double bar_height = 12;
constexpr double strip_height = 12;
constexpr double gap = 14;

/// Told apart by those who see few colours: Okabe and Ito 2008.
constexpr std::array<std::string_view, 8> colours{"#0072B2", "#E69F00", "#009E73", "#CC79A7",
                                                  "#56B4E9", "#D55E00", "#F0E442", "#999933"};

constexpr std::string_view patterns =
    "<defs><pattern id=\"stopped\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#e4e4e4\"/>"
    "<rect width=\"2\" height=\"6\" fill=\"#bdbdbd\"/></pattern></defs>\n";

class Drawing {
public:
    Drawing(const Tally& tally, Time from, Time until)
        : tally_(tally), from_(from), until_(std::max(until, from + simulation::s)) {
        const double seconds = static_cast<double>(until_ - from_) / simulation::s;
        width_ = std::clamp(seconds * 110, 1000.0, 2600.0);
        for (const Hold& hold : tally.holds) keys_.insert(hold.key);
        collect();
    }

    std::string draw(std::string_view title) {
        lay_out();
        draw_axis();
        for (const auto& [name, row] : rows_) {
            if (name.front() == 's')
                draw_server(name, row);
            else
                draw_worker(name, row);
        }
        draw_overlaps();
        svg_.text(12, 22, title, "font-size=\"15\" font-weight=\"bold\"");
        const double height = draw_legend(bottom_ + 34);
        return svg_.finish(left + width_ + 20, height, patterns);
    }

private:
    struct Row {
        std::vector<std::vector<const Hold*>> lanes{};
        std::vector<const Mark*> marks{};
        double y = 0;
        double height = 0;
    };

    [[nodiscard]] bool shows(Time from, Time until) const {
        return from < until_ && until >= from_;
    }
    [[nodiscard]] double x(Time time) const {
        const Time inside = std::clamp(time, from_, until_) - from_;
        return left + width_ * static_cast<double>(inside) / static_cast<double>(until_ - from_);
    }
    [[nodiscard]] std::string_view colour(const std::string& key) const {
        const auto place = std::distance(keys_.begin(), keys_.find(key));
        return colours.at(static_cast<std::size_t>(place) % colours.size());
    }

    void collect() {
        for (const Hold& hold : tally_.holds) {
            if (!shows(hold.from, hold.until)) continue;
            auto& lanes = rows_[hold.worker].lanes;
            const auto free = std::find_if(lanes.begin(), lanes.end(), [&](const auto& lane) {
                return lane.back()->until <= hold.from;
            });
            if (free == lanes.end())
                lanes.push_back({&hold});
            else
                free->push_back(&hold);
        }
        for (const Mark& mark : tally_.marks) {
            const bool known = !mark.worker.empty() || !mark.server.empty();
            if (!known || !shows(mark.from, mark.until)) continue;
            rows_[mark.worker.empty() ? mark.server : mark.worker].marks.push_back(&mark);
        }
    }
    /// Workers above, then servers.
    void lay_out() {
        double y = top;
        for (const char first : {'w', 'p', 's'}) {
            for (auto& [name, row] : rows_) {
                if (name.front() != first) continue;
                row.y = y;
                const std::size_t lanes = std::max<std::size_t>(row.lanes.size(), 1);
                row.height = first == 's' ? 2 * strip_height + 4
                                          : static_cast<double>(lanes) * lane_height +
                                                (first == 'w' ? 2 * strip_height + 2 : 0);
                y += row.height + gap;
            }
        }
        bottom_ = y - gap;
    }

    void draw_axis() {
        const Time span = until_ - from_;
        const Time step = span <= 40 * simulation::s ? simulation::s : 5 * simulation::s;
        for (Time at = (from_ + step - 1) / step * step; at <= until_; at += step) {
            svg_.line(x(at), top - 12, x(at), bottom_ + 6, "stroke=\"#dddddd\"");
            const std::string label = std::to_string(at / simulation::s) + " s";
            svg_.text(x(at), top - 17, label, "text-anchor=\"middle\" fill=\"#666666\"");
            svg_.text(x(at), bottom_ + 18, label, "text-anchor=\"middle\" fill=\"#666666\"");
        }
    }

    void draw_worker(const std::string& name, const Row& row) {
        svg_.text(left - 12, row.y + 13, name, "text-anchor=\"end\" font-weight=\"bold\"");
        const bool has_links = name.front() == 'w';
        const double links = row.y + row.height - 2 * strip_height;
        for (const Mark* mark : row.marks) {
            if (mark->server.empty() && mark->kind != "refused" && mark->kind != "overlap")
                draw_state(*mark, row);
        }
        for (std::size_t i = 0; i < row.lanes.size(); ++i) {
            for (const Hold* hold : row.lanes[i]) {
                draw_hold(*hold, row.y + static_cast<double>(i) * lane_height + 1);
            }
        }
        for (std::size_t server = 0; has_links && server < 2; ++server) {
            const double y = links + static_cast<double>(server) * strip_height;
            const std::string server_name = "s" + std::to_string(server);
            svg_.text(left - 12, y + 8, "to " + server_name,
                      "text-anchor=\"end\" font-size=\"9\" fill=\"#777777\"");
            svg_.line(left, y + 5, left + width_, y + 5, "stroke=\"#eeeeee\"");
            for (const Mark* mark : row.marks) {
                if (mark->server == server_name) draw_strip(*mark, y, "#f6c7b6", "#7a2c10");
            }
        }
        for (const Mark* mark : row.marks) {
            if (mark->kind != "refused") continue;
            svg_.circle(x(mark->from), row.y - 4, 3, "fill=\"#c00000\"",
                        "the store refuses a stale write to " + mark->key);
        }
    }
    /// What is done to a process: behind its leases.
    void draw_state(const Mark& mark, const Row& row) {
        const double from = x(mark.from);
        const double width = std::max(x(mark.until) - from, 2.0);
        const bool stop = mark.kind == "stop";
        const bool kill = mark.kind == "kill";
        const double height = row.height - 2 * strip_height - 2;
        const std::string_view style = stop   ? "fill=\"url(#stopped)\""
                                       : kill ? "fill=\"#444444\""
                                              : "fill=\"#fff2b8\"";
        svg_.rectangle(from, row.y - 1, width, height + 2, style, hint_of(mark));
        if (!stop && !kill) {
            svg_.text(from + 3, row.y - 2, mark.kind, "font-size=\"9\" fill=\"#8a6d00\"");
        }
    }
    void draw_hold(const Hold& hold, double y) {
        const double from = x(hold.from);
        const double until = std::max(x(hold.until), from + 1);
        const std::string fill{colour(hold.key)};
        static constexpr std::array<std::string_view, 5> ends{
            "given back", "lost", "ran out, and nobody looked", "its holder was killed",
            "held to the end of the run"};
        const std::string hint = hold.key + ", " + hold.actor + ", " +
                                 Svg::number(static_cast<double>(hold.until - hold.from) / 1e6) +
                                 " ms: " + std::string{ends[static_cast<std::size_t>(hold.end)]};
        const bool out = hold.end == End::ran_out;
        svg_.rectangle(
            from, y, until - from, bar_height,
            "fill=\"" + fill + "\"" +
                (out ? " fill-opacity=\"0.6\" stroke=\"" + fill + "\" stroke-dasharray=\"3 2\""
                     : ""),
            hint);
        if (until - from > 34) {
            svg_.text(from + 3, y + 9.5, hold.key, "font-size=\"9\" fill=\"white\"");
        }
        if (hold.until > until_) return;
        if (hold.end == End::lost) {
            svg_.rectangle(until - 2, y - 2, 3, bar_height + 4, "fill=\"#c00000\"", hint);
        } else if (hold.end == End::killed) {
            svg_.cross(until, y + bar_height / 2);
        }
    }
    void draw_strip(const Mark& mark, double y, std::string_view fill, std::string_view ink) {
        const double from = x(mark.from);
        const double width = x(mark.until) - from;
        const std::string style = "fill=\"" + std::string{fill} + "\"";
        if (width < 3) {
            svg_.triangle(from, y, "fill=\"" + std::string{ink} + "\"", hint_of(mark));
        } else {
            svg_.rectangle(from, y, width, strip_height - 2, style, hint_of(mark));
        }
        const bool fits = width > label_width(mark);
        svg_.text(fits ? from + 2 : from + std::max(width, 3.0) + 3, y + 8, mark.kind,
                  "font-size=\"9\" fill=\"" + std::string{ink} + "\"");
    }
    static double label_width(const Mark& mark) {
        return 5.0 * static_cast<double>(mark.kind.size()) + 4;
    }
    /// Where the next mark can begin without lying on this one, or on its words.
    [[nodiscard]] double end_of(const Mark& mark) const {
        const double from = x(mark.from);
        const double width = x(mark.until) - from;
        const bool fits = width > label_width(mark);
        return fits ? from + width : from + std::max(width, 3.0) + 3 + label_width(mark);
    }
    void draw_server(const std::string& name, const Row& row) {
        svg_.text(left - 12, row.y + 13, name, "text-anchor=\"end\" font-weight=\"bold\"");
        svg_.rectangle(left, row.y - 2, width_, row.height, "fill=\"#f4f4f8\"");
        double free_from = 0;
        for (const Mark* mark : row.marks) {
            const double from = x(mark->from);
            const bool crowded = from < free_from;
            draw_strip(*mark, row.y + (crowded ? strip_height : 0), "#c9cbea", "#2b2f7a");
            if (!crowded) free_from = end_of(*mark);
        }
    }
    void draw_overlaps() {
        for (const Mark& mark : tally_.marks) {
            if (mark.kind != "overlap" || !shows(mark.from, mark.until)) continue;
            svg_.line(x(mark.from), top - 8, x(mark.from), bottom_,
                      "stroke=\"#c00000\" stroke-width=\"1.5\" stroke-opacity=\"0.7\"",
                      "two claims to " + mark.key + " at once");
        }
    }
    static std::string hint_of(const Mark& mark) {
        std::string text = mark.kind;
        if (!mark.worker.empty()) text += " " + mark.worker;
        if (!mark.server.empty()) text += " " + mark.server;
        for (const KindFacts& kind : facts) {
            if (kind.name == mark.kind) text += ": " + std::string{kind.what};
        }
        return text;
    }

    double draw_legend(double y) {
        double at = left;
        const auto entry = [&](std::string_view words, const auto& sample) {
            const double needed = 34 + 6.2 * static_cast<double>(words.size());
            if (at + needed > left + width_) {
                at = left;
                y += 20;
            }
            sample(at, y);
            svg_.text(at + 22, y + 9, words, "fill=\"#333333\"");
            at += needed;
        };
        for (const std::string& key : keys_) {
            entry("holds " + key, [&](double x0, double y0) {
                svg_.rectangle(x0, y0, 16, bar_height, "fill=\"" + std::string{colour(key)} + "\"");
            });
        }
        draw_legend_of_marks(entry);
        return y + 30;
    }
    template <class Entry>
    void draw_legend_of_marks(const Entry& entry) {
        const auto box = [&](std::string_view style) {
            return [this, style](double x0, double y0) {
                svg_.rectangle(x0, y0, 16, bar_height, style);
            };
        };
        entry("lost", [&](double x0, double y0) {
            svg_.rectangle(x0 + 6, y0 - 2, 3, bar_height + 4, "fill=\"#c00000\"");
        });
        entry("ran out at its deadline",
              box("fill=\"#999999\" fill-opacity=\"0.6\" stroke=\"#999999\" "
                  "stroke-dasharray=\"3 2\""));
        entry("holder killed", [&](double x0, double y0) { svg_.cross(x0 + 8, y0 + 6); });
        entry("process stopped", box("fill=\"url(#stopped)\""));
        entry("no process", box("fill=\"#444444\""));
        entry("clock slow or fast", box("fill=\"#fff2b8\""));
        entry("link disturbed", box("fill=\"#f6c7b6\""));
        entry("server disturbed", box("fill=\"#c9cbea\""));
        entry("stale write refused",
              [&](double x0, double y0) { svg_.circle(x0 + 8, y0 + 6, 3, "fill=\"#c00000\""); });
        entry("two claims at once", [&](double x0, double y0) {
            svg_.line(x0 + 8, y0 - 2, x0 + 8, y0 + 14, "stroke=\"#c00000\" stroke-width=\"1.5\"");
        });
    }

    const Tally& tally_;
    Time from_;
    Time until_;
    double width_ = 0;
    double bottom_ = 0;
    std::set<std::string> keys_;
    std::map<std::string, Row> rows_;
    Svg svg_;
};

} // namespace

std::string draw_timeline(const Tally& tally, std::string_view title, Time from, Time until) {
    return Drawing{tally, from, until}.draw(title);
}

} // namespace leaselock::chaos
