#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/redis/reply.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace testing {

/// What a `MemoryRedis` answers: everything that a server may say, arrays and long strings too.
struct MemoryReply {
    enum Kind : std::uint8_t { nil, status, integer, string, error, array } kind = nil;
    std::int64_t number = 0;
    std::string text{};               ///< of status, string and error
    std::vector<MemoryReply> items{}; ///< of an array

    static MemoryReply ok() { return {status, 0, "OK"}; }
    static MemoryReply of(std::int64_t value) { return {integer, value}; }
    static MemoryReply of(Kind kind, std::string_view text) { return {kind, 0, std::string{text}}; }
    static MemoryReply failure(std::string_view text) { return of(error, text); }

    /// As a connection hands it on. Arrays have no place there: unknown, with a protocol error.
    void write_to(Reply& reply) const noexcept {
        switch (kind) {
        case nil: return reply.set_nil();
        case status: return reply.set_text(Reply::status, text);
        case integer: return reply.set_integer(number);
        case string: return reply.set_text(Reply::string, text);
        case error: return reply.set_text(Reply::error, text);
        case array: return reply.set_unknown(make_error_code(errc::protocol_error));
        }
    }
};

/// For people: `OK`, `text`, `(nil)`, `(integer) 1`, `(error) ERR ...`, `[a, b]`.
[[nodiscard]] inline std::string to_string(const MemoryReply& reply) {
    switch (reply.kind) {
    case MemoryReply::nil: return "(nil)";
    case MemoryReply::status:
    case MemoryReply::string: return reply.text;
    case MemoryReply::integer: return "(integer) " + std::to_string(reply.number);
    case MemoryReply::error: return "(error) " + reply.text;
    case MemoryReply::array: break;
    }
    std::string list = "[";
    for (const MemoryReply& item : reply.items) {
        if (list.size() > 1) list += ", ";
        list += to_string(item);
    }
    return list + "]";
}

} // namespace testing
} // namespace LEASELOCK_ABI
} // namespace leaselock
