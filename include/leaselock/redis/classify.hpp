#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/redis/reply.hpp>
#include <leaselock/redis/script.hpp>

#include <cstdint>
#include <string_view>

/// What a reply proves: from replies to outcomes, pure.
namespace leaselock {
inline namespace LEASELOCK_ABI {

/// How an error line of a server begins, and what it means. Every row proves that the command did
/// not run, or ended before it changed anything.
struct RefusalRow {
    std::string_view prefix; ///< whole words
    errc cause;
};

/// The one table of error replies. What is not in it proves nothing: a proxy's
/// `ERR Connection timed out` has come back for a SET that had run.
inline constexpr RefusalRow refusal_rows[] = {
    {"MOVED", errc::moved},
    {"ASK", errc::ask},
    {"TRYAGAIN", errc::try_again},
    {"CLUSTERDOWN", errc::cluster_down},
    {"CROSSSLOT", errc::cross_slot},
    {"LOADING", errc::loading},
    {"BUSY", errc::script_running},
    {"UNKILLABLE", errc::script_running},
    {"READONLY", errc::read_only},
    {"MASTERDOWN", errc::master_down},
    {"MISCONF", errc::snapshot_failing},
    {"NOREPLICAS", errc::too_few_replicas},
    {"OOM", errc::out_of_memory},
    {"NOAUTH", errc::not_authenticated},
    {"WRONGPASS", errc::wrong_password},
    {"NOPERM", errc::no_permission},
    {"WRONGTYPE", errc::wrong_type},
    {"EXECABORT", errc::transaction_aborted},
    {"NOSCRIPT", errc::script_missing},
    {"FENCE corrupt", errc::fence_corrupt},
    {"FENCE overflow", errc::fence_overflow},
    {"DENIED", errc::no_permission}, // protected mode
    {"ERR max number of clients", errc::too_many_clients},
    {"ERR max number of clients + cluster connections reached", errc::too_many_clients},
    {"ERR syntax error", errc::syntax},
    {"ERR wrong number of arguments", errc::syntax},
    {"ERR unknown command", errc::unknown_command},
    {"ERR unsupported command", errc::unknown_command},
    {"ERR invalid expire time", errc::invalid_argument},
    {"ERR value is not an integer or out of range", errc::invalid_argument},
    {"ERR DB index is out of range", errc::invalid_argument},
    {"ERR invalid DB index", errc::invalid_argument},
    {"ERR SELECT is not allowed in cluster mode", errc::invalid_argument},
    {"ERR This instance has cluster support disabled", errc::no_cluster},
    {"ERR invalid password", errc::wrong_password},
    {"ERR AUTH <password> called without any password configured", errc::wrong_password},
    {"ERR Client sent AUTH, but no password is set", errc::wrong_password},
    {"ERR The user executing the script can't", errc::script_not_permitted},
    {"ERR ACL failure in script", errc::script_not_permitted},
    {"ERR Unknown Redis command called from", errc::unknown_command},
    {"ERR Unknown command called from", errc::unknown_command},
};

namespace detail {

/// An error raised inside a script, without what servers before 7 wrap around it:
/// `ERR Error running script (call to f_…): @user_script:1: @user_script: 1: -READONLY …`.
constexpr std::string_view unwrap_script_error(std::string_view line) noexcept {
    if (!line.starts_with("ERR Error running script")) return line;
    constexpr std::string_view mark = "user_script:";
    const std::size_t at = line.rfind(mark);
    if (at == std::string_view::npos) return line;
    line.remove_prefix(at + mark.size());
    const std::size_t word = line.find_first_not_of(" 0123456789:-");
    return word == std::string_view::npos ? std::string_view{} : line.substr(word);
}

constexpr bool begins_with_words(std::string_view line, std::string_view words) noexcept {
    return line.starts_with(words) &&
           (line.size() == words.size() || line[words.size()] == ' ' || line[words.size()] == ',' ||
            line[words.size()] == ':' || line[words.size()] == '\'');
}

} // namespace detail

/// The cause that an error line names; `errc::server_error` when no row knows it.
[[nodiscard]] constexpr errc cause_of(std::string_view error_line) noexcept {
    const std::string_view line = detail::unwrap_script_error(error_line);
    for (const RefusalRow& row : refusal_rows) {
        if (detail::begins_with_words(line, row.prefix)) return row.cause;
        // wrapped by an old server, an error of its own has no code: `Unknown Redis command …`
        if (line.data() != error_line.data() && row.prefix.starts_with("ERR ") &&
            detail::begins_with_words(line, row.prefix.substr(4))) {
            return row.cause;
        }
    }
    return errc::server_error;
}

/// An error reply, unsent or unknown, as an outcome. Must not be called with another kind.
/// @param script the script that was called, if any: its permissions are named where they lack
[[nodiscard]] inline Outcome classify_failure(const Reply& reply,
                                              const Script* script = nullptr) noexcept {
    if (reply.kind == Reply::unsent) return {Answer::unsent, reply.cause, reply.text.view()};
    if (reply.kind == Reply::unknown) return {Answer::unknown, reply.cause, reply.text.view()};
    if (reply.kind != Reply::error) return {Answer::unknown, errc::protocol_error};
    const errc cause = cause_of(reply.text.view());
    Outcome outcome{cause == errc::server_error ? Answer::unknown : Answer::refused, cause,
                    reply.text.view()};
    if (script != nullptr &&
        (cause == errc::script_not_permitted || cause == errc::no_permission)) {
        outcome.text.append(" (the script needs +evalsha +eval ")
            .append(script->permissions)
            .append("; before Redis 6.2 +get for +getex)");
    }
    return outcome;
}

/// The reply to `SET key value NX PX ttl`.
[[nodiscard]] inline Outcome classify_set(const Reply& reply) noexcept {
    if (reply.kind == Reply::status && reply.text.view() == "OK") return {Answer::yes};
    if (reply.kind == Reply::nil) return {Answer::no, errc::busy};
    return classify_failure(reply);
}

/// The reply to a compare-and-… script that answers 1, 0 or -1.
[[nodiscard]] inline Outcome classify_compare(const Reply& reply, const Script& script) noexcept {
    if (reply.kind == Reply::integer) {
        if (reply.number == 1) return {Answer::yes};
        if (reply.number == 0) return {Answer::no, errc::taken};
        if (reply.number == -1) return {Answer::no, errc::gone};
    }
    return classify_failure(reply, &script);
}

/// The reply to compare-and-fence; `fence` is set when the answer is yes.
[[nodiscard]] inline Outcome classify_fence(const Reply& reply, std::uint64_t& fence) noexcept {
    if (reply.kind == Reply::string) {
        const std::string_view digits = reply.text.view();
        if (digits == "0") return {Answer::no, errc::taken};
        if (digits == "-1") return {Answer::no, errc::gone};
        std::uint64_t value = 0;
        bool valid = !digits.empty() && digits.size() <= 16;
        for (const char c : digits) {
            valid = valid && c >= '0' && c <= '9';
            value = value * 10 + static_cast<unsigned char>(c - '0');
        }
        if (!valid) return {Answer::unknown, errc::protocol_error};
        fence = value;
        return {Answer::yes};
    }
    return classify_failure(reply, &scripts::compare_and_fence);
}

/// Whether another attempt, later, may end differently without anybody mending anything. An error
/// that nobody knows may: a proxy's, for one.
[[nodiscard]] inline bool may_pass_by_waiting(const std::error_code& cause) noexcept {
    return cause == condition::contention || cause == condition::unreachable ||
           cause == condition::not_ready || cause == errc::server_error;
}

} // namespace LEASELOCK_ABI
} // namespace leaselock
