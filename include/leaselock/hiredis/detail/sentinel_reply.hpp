#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/hiredis/detail/host.hpp>
#include <leaselock/hiredis/detail/url.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/hiredis/resolver.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/reply.hpp>

#include <hiredis/hiredis.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>

/// What sentinels say, and what all of it comes to: pure.
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// The reply to `SENTINEL GET-MASTER-ADDR-BY-NAME`: host and port, or nil for a name that it does not
/// know. Source: redis.io/docs/latest/develop/reference/sentinel-clients
/// @return yes, with `where` set; or unsent, and why
[[nodiscard]] inline Outcome read_master_address(const redisReply& reply,
                                                 ServerAddress& where) noexcept {
    const auto text_of = [](const redisReply& r) -> std::string_view { return {r.str, r.len}; };
    if (reply.type == REDIS_REPLY_NIL) return {Answer::unsent, errc::no_such_master};
    if (reply.type == REDIS_REPLY_ERROR) {
        return {Answer::unsent, cause_of(text_of(reply)), without_arguments(text_of(reply))};
    }
    Outcome garbage{Answer::unsent, errc::protocol_error, "no address of a master"};
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements != 2 || reply.element[0] == nullptr ||
        reply.element[1] == nullptr || reply.element[0]->type != REDIS_REPLY_STRING ||
        reply.element[1]->type != REDIS_REPLY_STRING) {
        return garbage;
    }
    long long port = 0;
    if (!parse_number(text_of(*reply.element[1]), 1, 65'535, port)) return garbage;
    const ServerAddress named{text_of(*reply.element[0]), static_cast<std::uint16_t>(port)};
    if (!is_address(named)) return garbage;
    where = named;
    return {Answer::yes};
}

/// `cause.message()`, but without an allocation.
[[nodiscard]] inline ServerText text_of(const std::error_code& cause) noexcept {
    std::array<char, 128> buffer{};
    return {message_of(cause, buffer)};
}

/// Adds up why no sentinel named a master.
class SentinelTally {
public:
    /// @param count of the sentinels: each has its share of the text
    SentinelTally(std::string_view master, std::size_t count) noexcept
        : result_(begin(master)),
          share_((ServerText::capacity() - reserve - result_.text.size()) / count) {}

    /// @param label what the sentinel is called, @param said its failure
    void add(const ServerText& label, const Outcome& said) noexcept {
        std::string_view words = said.text.view();
        if (words.starts_with(label.view())) words.remove_prefix(label.size());
        if (words.starts_with(": ")) words.remove_prefix(2);
        ServerText entry = label;
        entry.append(": ");
        // a server's error line speaks for itself; our own words say where, and not what
        const bool a_line = !words.empty() && words.front() >= 'A' && words.front() <= 'Z';
        if (!a_line) entry.append(text_of(said.cause).view());
        if (!a_line && !words.empty()) entry.append(", ");
        entry.append(words);
        if (added_) result_.text.append("; ");
        result_.text.append(entry.view().substr(0, share_ > 2 ? share_ - 2 : 0));

        // One that may answer later decides: what the others say, it may know better.
        if (!added_ || (!may_pass_by_waiting(result_.cause) && may_pass_by_waiting(said.cause))) {
            result_.cause = said.cause;
        }
        added_ = true;
    }

    [[nodiscard]] const Outcome& result() const noexcept { return result_; }

private:
    static constexpr std::size_t reserve = 10; ///< for the `resolver: ` in front of it

    static Outcome begin(std::string_view master) noexcept {
        Outcome outcome{Answer::unsent};
        outcome.text.append("no sentinel told where '")
            .append(master.substr(0, 64))
            .append("' is: ");
        return outcome;
    }

    Outcome result_;
    std::size_t share_;
    bool added_ = false;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
