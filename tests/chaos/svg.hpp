#pragma once
// SPDX-License-Identifier: MIT

#include <array>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>

namespace leaselock::chaos {

/// Text of an SVG picture, shape by shape. Coordinates are in pixels.
class Svg {
public:
    /// @param style the attributes of a shape, `fill="red"`
    void rectangle(double x, double y, double width, double height, std::string_view style,
                   std::string_view hint = {}) {
        body_ += "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(width) +
                 "\" height=\"" + number(height) + "\" ";
        close("rect", style, hint);
    }
    void line(double x1, double y1, double x2, double y2, std::string_view style,
              std::string_view hint = {}) {
        body_ += "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
                 "\" y2=\"" + number(y2) + "\" ";
        close("line", style, hint);
    }
    void circle(double x, double y, double radius, std::string_view style,
                std::string_view hint = {}) {
        body_ += "<circle cx=\"" + number(x) + "\" cy=\"" + number(y) + "\" r=\"" + number(radius) +
                 "\" ";
        close("circle", style, hint);
    }
    /// Points down, from there.
    void triangle(double x, double y, std::string_view style, std::string_view hint = {}) {
        path({{'M', x - 4, y}, {'L', x + 4, y}, {'L', x, y + 8}}, style, hint);
    }
    void cross(double x, double y) {
        path({{'M', x - 4, y - 4}, {'L', x + 4, y + 4}, {'M', x - 4, y + 4}, {'L', x + 4, y - 4}},
             "stroke=\"black\" stroke-width=\"2\"", {});
    }
    void text(double x, double y, std::string_view words, std::string_view style = {}) {
        body_ += "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" ";
        body_.append(style).append(">").append(escaped(words)).append("</text>\n");
    }
    /// @param definitions what goes into `defs`
    [[nodiscard]] std::string finish(double width, double height,
                                     std::string_view definitions) const {
        const std::string size = "width=\"" + number(width) + "\" height=\"" + number(height) +
                                 "\" viewBox=\"0 0 " + number(width) + " " + number(height) + "\"";
        std::string all = "<svg xmlns=\"http://www.w3.org/2000/svg\" " + size +
                          " font-family=\"sans-serif\" font-size=\"11\">\n";
        all.append(definitions);
        all += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
        return all + body_ + "</svg>\n";
    }

    [[nodiscard]] static std::string number(double value) {
        std::array<char, 32> digits{};
        std::snprintf(digits.data(), digits.size(), "%.1f", value);
        return digits.data();
    }

private:
    struct Move {
        char how;
        double x;
        double y;
    };
    void path(std::initializer_list<Move> moves, std::string_view style, std::string_view hint) {
        body_ += "<path d=\"";
        for (const Move& move : moves) body_ += move.how + number(move.x) + " " + number(move.y);
        body_ += "\" ";
        close("path", style, hint);
    }
    static std::string escaped(std::string_view words) {
        std::string text;
        for (const char c : words) {
            if (c == '<')
                text += "&lt;";
            else if (c == '>')
                text += "&gt;";
            else if (c == '&')
                text += "&amp;";
            else
                text += c;
        }
        return text;
    }
    void close(std::string_view shape, std::string_view style, std::string_view hint) {
        body_.append(style);
        if (hint.empty()) {
            body_ += "/>\n";
            return;
        }
        body_.append("><title>").append(escaped(hint)).append("</title></");
        body_.append(shape).append(">\n");
    }

    std::string body_;
};

} // namespace leaselock::chaos
