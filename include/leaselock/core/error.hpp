#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#if LEASELOCK_DEFINES
#include <leaselock/core/detail/linux.hpp>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// Why a verb ended as it did: what `Outcome::cause` is compared with.
///
/// `errc` is an error *condition*: `outcome.cause == errc::busy` compares the name of the category
/// and not its address, so that it also holds across plugins that each carry their own copy.
enum class errc : int {
    // misuse: nothing was sent
    not_held = 1,
    already_held,
    invalid_argument,
    already_kept,
    other_process,
    in_use,
    // the key speaks
    busy,
    taken,
    gone,
    // time speaks
    expired,
    held_too_long,
    unkept,
    too_late,
    timed_out,
    stopped,
    // the way there
    unconfirmed,
    connection_lost,
    protocol_error,
    no_address,
    insecure,
    not_master,
    no_such_master,
    // the server's error replies
    moved,
    ask,
    try_again,
    cluster_down,
    loading,
    script_running,
    read_only,
    master_down,
    snapshot_failing,
    too_few_replicas,
    out_of_memory,
    too_many_clients,
    not_authenticated,
    wrong_password,
    no_permission,
    script_not_permitted,
    wrong_type,
    transaction_aborted,
    syntax,
    cross_slot,
    no_cluster,
    unknown_command,
    script_missing,
    fence_corrupt,
    fence_overflow,
    no_majority,
    same_server,
    server_error,
};

/// What an error asks of the caller; each `errc`, and the system's own network errors, have one.
enum class condition : int {
    misuse = 1,  ///< the call itself is wrong: mend the code
    contention,  ///< somebody else holds the lock
    not_owner,   ///< this acquisition does not, or no longer, own the key
    unreachable, ///< no answer in time, or no way to the server: another try may succeed
    not_ready,   ///< the server cannot now: another try may succeed
    denied,      ///< authentication or permission: waiting cures nothing
    unusable,    ///< the server, or something between, does not speak as expected
    stopped,     ///< the caller asked for the end of its wait
};

namespace detail {

struct ErrorRow {
    errc code;
    condition group;
    std::string_view text;
};

/// The one list of messages and groups.
inline constexpr ErrorRow error_rows[] = {
    {errc::not_held, condition::misuse, "no lease is held"},
    {errc::already_held, condition::misuse, "a lease is held already"},
    {errc::invalid_argument, condition::misuse, "invalid argument"},
    {errc::already_kept, condition::misuse, "the lease is kept by a renewer already"},
    {errc::in_use, condition::misuse, "the connection is in a call of another thread"},
    {errc::other_process, condition::misuse, "belongs to another process (fork)"},
    {errc::busy, condition::contention, "held by another"},
    {errc::taken, condition::not_owner, "the key holds another's value"},
    {errc::gone, condition::not_owner, "the key is absent"},
    {errc::expired, condition::not_owner, "the deadline of the lease has passed"},
    {errc::held_too_long, condition::not_owner, "the longest hold that was asked for has ended"},
    {errc::unkept, condition::not_owner, "the renewer of the lease has gone"},
    {errc::too_late, condition::unreachable, "the answer came after the deadline of the lease"},
    {errc::timed_out, condition::unreachable, "no answer in time"},
    {errc::stopped, condition::stopped, "a stop was requested"},
    {errc::unconfirmed, condition::unreachable, "an earlier release went unanswered"},
    {errc::connection_lost, condition::unreachable, "connection lost"},
    {errc::protocol_error, condition::unusable, "not a Redis reply"},
    {errc::no_address, condition::unreachable, "host name not resolved"},
    {errc::insecure, condition::denied, "authentication by TLS failed"},
    {errc::not_master, condition::not_ready, "server is no master"},
    {errc::no_such_master, condition::misuse, "no master of this name"},
    {errc::moved, condition::not_ready, "slot lives on another node"},
    {errc::ask, condition::not_ready, "slot is in migration"},
    {errc::try_again, condition::not_ready, "keys are in migration"},
    {errc::cluster_down, condition::not_ready, "cluster is down"},
    {errc::loading, condition::not_ready, "server is loading its data"},
    {errc::script_running, condition::not_ready, "server is busy with a script"},
    {errc::read_only, condition::not_ready, "server is a read-only replica"},
    {errc::master_down, condition::not_ready, "replica has lost its master"},
    {errc::snapshot_failing, condition::not_ready, "server refuses writes: its snapshots fail"},
    {errc::too_few_replicas, condition::not_ready, "too few replicas"},
    {errc::out_of_memory, condition::not_ready, "server is out of memory"},
    {errc::too_many_clients, condition::not_ready, "server has too many clients"},
    {errc::not_authenticated, condition::denied, "authentication required"},
    {errc::wrong_password, condition::denied, "wrong user or password"},
    {errc::no_permission, condition::denied, "no permission"},
    {errc::script_not_permitted, condition::denied, "no permission inside a script"},
    {errc::wrong_type, condition::not_owner, "the key holds another type"},
    {errc::transaction_aborted, condition::unusable, "transaction aborted"},
    {errc::syntax, condition::unusable, "server does not know this form of the command"},
    {errc::cross_slot, condition::misuse, "keys do not share a hash slot"},
    {errc::no_cluster, condition::unusable, "server is not in cluster mode"},
    {errc::unknown_command, condition::unusable, "server does not know this command"},
    {errc::script_missing, condition::not_ready, "script not in the server's cache"},
    {errc::fence_corrupt, condition::unusable, "fence counter holds no number"},
    {errc::fence_overflow, condition::unusable, "fence counter is beyond 2^53"},
    {errc::no_majority, condition::unreachable, "no majority of the nodes agreed"},
    {errc::same_server, condition::misuse, "two nodes of the quorum are one server"},
    {errc::server_error, condition::unusable, "server error"},
};

constexpr const ErrorRow* find_error_row(int value) noexcept {
    for (const ErrorRow& row : error_rows) {
        if (static_cast<int>(row.code) == value) return &row;
    }
    return nullptr;
}

inline constexpr std::string_view category_name = "leaselock";

} // namespace detail

/// The message of a code, without an allocation.
[[nodiscard]] constexpr std::string_view to_string(errc code) noexcept {
    const detail::ErrorRow* const row = detail::find_error_row(static_cast<int>(code));
    return row != nullptr ? row->text : std::string_view{"unknown error"};
}

namespace detail {

/// The message of a code of ours or of the system's, without an allocation; empty for any other.
/// @param buffer may be used for it, and outlives it
[[nodiscard]] std::string_view message_of(const std::error_code& code,
                                          std::span<char> buffer) noexcept;

} // namespace detail

/// The category of this library's codes. Its objects are compared by name, not by address.
const std::error_category& error_category() noexcept;
const std::error_category& condition_category() noexcept;
inline std::error_code make_error_code(errc code) noexcept {
    return {static_cast<int>(code), error_category()};
}
inline std::error_condition make_error_condition(errc code) noexcept {
    return {static_cast<int>(code), error_category()};
}
inline std::error_condition make_error_condition(condition group) noexcept {
    return {static_cast<int>(group), condition_category()};
}

#if LEASELOCK_DEFINES
namespace detail {

inline bool is_ours(const std::error_code& code) noexcept {
    return std::string_view{code.category().name()} == category_name;
}

/// The group of a system error: what stands between us and the server is *unreachable*.
inline bool is_unreachable(const std::error_code& code) noexcept {
    for (const std::errc e :
         {std::errc::connection_refused, std::errc::connection_reset, std::errc::broken_pipe,
          std::errc::network_unreachable, std::errc::host_unreachable, std::errc::timed_out,
          std::errc::network_down, std::errc::network_reset, std::errc::connection_aborted,
          std::errc::not_connected, std::errc::no_such_file_or_directory,
          std::errc::address_not_available, std::errc::resource_unavailable_try_again,
          std::errc::too_many_files_open, std::errc::too_many_files_open_in_system,
          std::errc::no_buffer_space}) {
        if (code == e) return true;
    }
    return false;
}

class ErrorCategory final : public std::error_category {
public:
    [[nodiscard]] const char* name() const noexcept override { return category_name.data(); }
    [[nodiscard]] std::string message(int value) const override {
        const ErrorRow* const row = find_error_row(value);
        return std::string{row != nullptr ? row->text : "unknown error"};
    }
    /// `code == errc::x`: the same number in a category of our name, wherever it lives.
    [[nodiscard]] bool equivalent(const std::error_code& code, int value) const noexcept override {
        return code.value() == value && is_ours(code);
    }
};

class ConditionCategory final : public std::error_category {
public:
    [[nodiscard]] const char* name() const noexcept override { return "leaselock.condition"; }
    [[nodiscard]] std::string message(int value) const override {
        switch (static_cast<condition>(value)) {
        case condition::misuse: return "misuse";
        case condition::contention: return "contention";
        case condition::not_owner: return "not owner";
        case condition::unreachable: return "unreachable";
        case condition::not_ready: return "not ready";
        case condition::denied: return "denied";
        case condition::unusable: return "unusable";
        case condition::stopped: return "stopped";
        }
        return "unknown condition";
    }
    [[nodiscard]] bool equivalent(const std::error_code& code, int value) const noexcept override {
        if (!is_ours(code)) {
            return static_cast<condition>(value) == condition::unreachable && is_unreachable(code);
        }
        const ErrorRow* row = find_error_row(code.value());
        return row != nullptr && static_cast<int>(row->group) == value;
    }
};

LEASELOCK_INLINE std::string_view message_of(const std::error_code& code,
                                             std::span<char> buffer) noexcept {
    if (is_ours(code)) return to_string(static_cast<errc>(code.value()));
    if (code.category() != std::system_category() && code.category() != std::generic_category()) {
        return {};
    }
    return system_error_text(code.value(), buffer);
}

} // namespace detail

LEASELOCK_INLINE const std::error_category& error_category() noexcept {
    static const detail::ErrorCategory category;
    return category;
}
LEASELOCK_INLINE const std::error_category& condition_category() noexcept {
    static const detail::ConditionCategory category;
    return category;
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock

template <>
struct std::is_error_condition_enum<leaselock::errc> : std::true_type {};
template <>
struct std::is_error_condition_enum<leaselock::condition> : std::true_type {};
