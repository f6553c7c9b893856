// SPDX-License-Identifier: MIT

#include "simulation/history.hpp"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace leaselock::simulation {
namespace {

template <class Number>
void append(std::string& text, Number number) {
    std::array<char, 20> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    text.append(digits.data(), end);
}

std::string_view take_word(std::string_view& line) {
    const std::size_t end = line.find(' ');
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
    return word;
}

bool parse(std::string_view word, std::int64_t& number) noexcept {
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, number);
    return error == std::errc{} && stop == end;
}

} // namespace

History::Line History::add(Time time, std::string_view actor, std::string_view what) {
    append(text_, time);
    text_.append(" ").append(actor).append(" ").append(what);
    return Line{&text_};
}

History::Line& History::Line::put(std::string_view name, std::string_view value) {
    if (text_ == nullptr) return *this;
    text_->append(" ").append(name).append("=");
    if (value.empty()) text_->push_back('-');
    for (const char c : value) text_->push_back(static_cast<unsigned char>(c) <= ' ' ? '_' : c);
    return *this;
}

History::Line& History::Line::put(std::string_view name, std::int64_t value) {
    if (text_ == nullptr) return *this;
    text_->append(" ").append(name).append("=");
    append(*text_, value);
    return *this;
}

History::Line& History::Line::put_unsigned(std::string_view name, std::uint64_t value) {
    if (text_ == nullptr) return *this;
    text_->append(" ").append(name).append("=");
    append(*text_, value);
    return *this;
}

std::string_view HistoryLine::text(std::string_view name) const noexcept {
    for (const auto& [known, value] : fields) {
        if (known == name) return value == "-" ? std::string_view{} : value;
    }
    return {};
}

std::int64_t HistoryLine::number(std::string_view name, std::int64_t otherwise) const noexcept {
    std::int64_t value = 0;
    return parse(text(name), value) ? value : otherwise;
}

bool HistoryLine::has(std::string_view name) const noexcept { return !text(name).empty(); }

bool read_line(std::string_view& text, HistoryLine& line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return false;
    std::string_view rest = text.substr(0, end);
    line.fields.clear();
    if (!parse(take_word(rest), line.time)) return false;
    line.actor = take_word(rest);
    line.what = take_word(rest);
    if (line.actor.empty() || line.what.empty()) return false;
    while (!rest.empty()) {
        const std::string_view word = take_word(rest);
        const std::size_t equals = word.find('=');
        if (equals == 0 || equals == std::string_view::npos) return false;
        line.fields.emplace_back(word.substr(0, equals), word.substr(equals + 1));
    }
    text.remove_prefix(end + 1);
    return true;
}

} // namespace leaselock::simulation
