#pragma once
// SPDX-License-Identifier: MIT

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The history of a run, a line of text to an event, in the order in which things happened:
///
///     <time> <actor> <what> <name>=<value> ...
///
/// Time is in ns of the run. What is said, by whom, and with which fields: see README.md.
namespace leaselock::simulation {

using Time = std::int64_t; ///< ns

/// Writes a history.
class History {
public:
    /// One line, ended by the destructor.
    class Line {
    public:
        ~Line() {
            if (text_ != nullptr) text_->push_back('\n');
        }
        Line(const Line&) = delete;
        Line& operator=(const Line&) = delete;

        /// Spaces and control bytes of the value become `_`, an empty value `-`.
        Line& put(std::string_view name, std::string_view value);
        Line& put(std::string_view name, std::int64_t value);
        Line& put_unsigned(std::string_view name, std::uint64_t value);

    private:
        friend History;
        explicit Line(std::string* text) noexcept : text_(text) {}
        std::string* text_; ///< null: nobody writes it down
    };

    Line add(Time time, std::string_view actor, std::string_view what);
    /// A line that nobody writes down.
    static Line nothing() { return Line{nullptr}; }
    [[nodiscard]] const std::string& text() const noexcept { return text_; }

private:
    std::string text_;
};

/// A line that was read. The views are into the text that it was read from.
struct HistoryLine {
    Time time = 0;
    std::string_view actor;
    std::string_view what;
    std::vector<std::pair<std::string_view, std::string_view>> fields{};

    /// Empty where there is no such field, or where its value is `-`.
    [[nodiscard]] std::string_view text(std::string_view name) const noexcept;
    [[nodiscard]] std::int64_t number(std::string_view name,
                                      std::int64_t otherwise = 0) const noexcept;
    [[nodiscard]] bool has(std::string_view name) const noexcept;
};

/// Reads the next line of `text` and takes it off. @return false at the end, or where it is no line of a
/// history, which is then what `text` begins with
[[nodiscard]] bool read_line(std::string_view& text, HistoryLine& line);

} // namespace leaselock::simulation
