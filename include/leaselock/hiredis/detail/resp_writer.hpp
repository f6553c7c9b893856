#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/redis/command.hpp>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// Commands as the bytes that go on the wire, in a buffer that is kept from call to call.
///
/// Words are copied as they are, so that any bytes arrive exact. Nothing throws, since connections do
/// not: a buffer that cannot grow says false.
/// Source: https://redis.io/docs/latest/develop/reference/protocol-spec/, "Sending commands".
class RespWriter {
public:
    RespWriter() noexcept = default;
    RespWriter(const RespWriter&) = delete;
    RespWriter& operator=(const RespWriter&) = delete;
    ~RespWriter() { std::free(bytes_); }

    /// Replaces what is there by `commands`. @return false, with nothing there, for want of memory
    [[nodiscard]] bool write(std::span<const Command> commands) noexcept {
        clear();
        return append(commands);
    }
    void clear() noexcept { size_ = 0; }

    /// Adds `commands` behind what is there. @return false, with nothing added, for want of memory
    [[nodiscard]] bool append(std::span<const Command> commands) noexcept {
        std::size_t room = size_; // an upper bound
        for (const Command& command : commands) {
            room += longest_number;
            for (const std::string_view word : command.argv)
                room += longest_number + word.size() + 2;
        }
        if (!reserve(room)) return false;
        char* end = bytes_ + size_;
        for (const Command& command : commands) {
            end = put_number(end, '*', command.argv.size());
            for (const std::string_view word : command.argv) {
                end = put_number(end, '$', word.size());
                put_bytes(end, word);
                end = put_line_end(end + word.size());
            }
        }
        size_ = static_cast<std::size_t>(end - bytes_);
        return true;
    }

    /// Takes bytes out of the middle.
    void erase(std::size_t at, std::size_t bytes) noexcept {
        std::memmove(bytes_ + at, bytes_ + at + bytes, size_ - at - bytes);
        size_ -= bytes;
    }

    /// How many bytes a command comes to.
    [[nodiscard]] static std::size_t size_of(const Command& command) noexcept {
        std::size_t size = 3 + digits_of(command.argv.size());
        for (const std::string_view word : command.argv) {
            size += 3 + digits_of(word.size()) + word.size() + 2;
        }
        return size;
    }

    [[nodiscard]] std::string_view view() const noexcept { return {bytes_, size_}; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

    /// How many commands have at least one byte among the first `bytes`. Rarely asked, after a
    /// failure only: so it is read off the bytes and not noted down for each command.
    [[nodiscard]] std::size_t count_begun(std::size_t bytes) const noexcept {
        std::size_t count = 0;
        for (std::size_t at = 0; at < bytes && at < size_; ++count) skip_command(at);
        return count;
    }
    /// How many commands lie wholly among the first `bytes`.
    [[nodiscard]] std::size_t count_whole(std::size_t bytes) const noexcept {
        std::size_t count = 0;
        for (std::size_t at = 0; at < size_; ++count) {
            skip_command(at);
            if (at > bytes) break;
        }
        return count;
    }
    /// In a child whose parent may have been in the middle of a change: the memory is left alone.
    void abandon() noexcept {
        bytes_ = nullptr;
        size_ = capacity_ = 0;
    }

private:
    static constexpr std::size_t longest_number = 1 + 20 + 2; // `$`, 2^64-1, CR LF
    static constexpr std::size_t least = 512;                 // a SET and a script call
    static constexpr std::size_t kept = std::size_t{64} * 1024;
    // a server's default client-query-buffer-limit: it drops the client that goes beyond
    static constexpr std::size_t most = std::size_t{1024} * 1024 * 1024;

    [[nodiscard]] bool reserve(std::size_t room) noexcept {
        // what one huge command needed is not kept for ever
        if (room <= capacity_ && (capacity_ <= kept || room > kept || size_ != 0)) return true;
        if (room > most) return false;
        const std::size_t wanted = room < least ? least : room;
        if (size_ != 0) { // grows by doubling: more is likely to be added
            const std::size_t doubled = wanted < 2 * capacity_ ? 2 * capacity_ : wanted;
            void* const grown = std::realloc(bytes_, doubled);
            if (grown == nullptr) return false;
            bytes_ = static_cast<char*>(grown);
            capacity_ = doubled;
            return true;
        }
        std::free(bytes_); // and not realloc: there is nothing to copy
        bytes_ = static_cast<char*>(std::malloc(wanted));
        capacity_ = bytes_ == nullptr ? 0 : wanted;
        return bytes_ != nullptr;
    }

    /// memcpy, without a call for the short words that most are: two loads that may overlap.
    static void put_bytes(char* to, std::string_view word) noexcept {
        const std::size_t size = word.size();
        if (size > 32) {
            std::memcpy(to, word.data(), size);
        } else if (size >= 16) {
            std::memcpy(to, word.data(), 16);
            std::memcpy(to + size - 16, word.data() + size - 16, 16);
        } else if (size >= 8) {
            std::memcpy(to, word.data(), 8);
            std::memcpy(to + size - 8, word.data() + size - 8, 8);
        } else if (size >= 4) {
            std::memcpy(to, word.data(), 4);
            std::memcpy(to + size - 4, word.data() + size - 4, 4);
        } else if (size >= 2) {
            std::memcpy(to, word.data(), 2);
            std::memcpy(to + size - 2, word.data() + size - 2, 2);
        } else if (size == 1) {
            *to = word.front();
        }
    }

    static std::size_t digits_of(std::size_t value) noexcept {
        std::size_t digits = 1;
        for (; value >= 10; value /= 10) ++digits;
        return digits;
    }

    static char* put_line_end(char* to) noexcept {
        *to++ = '\r';
        *to++ = '\n';
        return to;
    }

    static char* put_number(char* to, char mark, std::size_t value) noexcept {
        *to++ = mark;
        if (value < short_lines.size()) {
            const auto& line = short_lines[value];
            std::memcpy(to, line.data(),
                        line.size()); // one byte too many does no harm: there is room
            return to + (value < 10 ? 3 : 4);
        }
        return put_line_end(std::to_chars(to, to + longest_number, value).ptr);
    }

    /// The numbers of one or two digits, which nearly all are, with their line ends.
    static constexpr auto short_lines = [] {
        std::array<std::array<char, 4>, 100> lines{};
        for (std::size_t n = 0; n < lines.size(); ++n) {
            const auto tens = static_cast<char>('0' + n / 10);
            const auto ones = static_cast<char>('0' + n % 10);
            lines[n] =
                n < 10 ? std::array{ones, '\r', '\n', '\0'} : std::array{tens, ones, '\r', '\n'};
        }
        return lines;
    }();

    void skip_command(std::size_t& at) const noexcept {
        for (std::size_t words = take_number(at); words != 0; --words) {
            const std::size_t word = take_number(at);
            at += word + 2;
        }
    }

    /// Reads a number that `put_number` has written at `at`, and goes behind it.
    [[nodiscard]] std::size_t take_number(std::size_t& at) const noexcept {
        std::size_t value = 0;
        while (bytes_[++at] != '\r')
            value = value * 10 + static_cast<std::size_t>(bytes_[at] - '0');
        at += 2;
        return value;
    }

    char* bytes_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
