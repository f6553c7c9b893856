#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

/// What may be sent again, to whoever is the master then: pure.
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// What a reply proves about its command.
enum class Proof : std::uint8_t {
    ran,       ///< the server did what it says
    may_run,   ///< it may have run, or may still: it is never sent again
    did_not,   ///< it did not run, for a reason that the next server would have too
    elsewhere, ///< it did not run, and a master that is found anew may take it
};

[[nodiscard]] inline Proof proof_of(const Reply& reply) noexcept {
    if (reply.kind == Reply::unknown) return Proof::may_run;
    if (reply.kind == Reply::unsent) {
        // protocol_error: what a sentinel named was no Redis at all
        const bool cured = reply.cause == condition::unreachable ||
                           reply.cause == condition::not_ready ||
                           reply.cause == errc::protocol_error;
        return cured ? Proof::elsewhere : Proof::did_not;
    }
    if (reply.kind != Reply::error) return Proof::ran;
    switch (cause_of(reply.text.view())) {
    case errc::read_only:        // a replica, or a master that was demoted
    case errc::master_down:      // a replica
    case errc::loading:          // just restarted: a failover may be under way
    case errc::too_few_replicas: // cut off: the others may have a new master
        return Proof::elsewhere;
    case errc::server_error: return Proof::may_run; // a proxy's words prove nothing
    default: return Proof::did_not;
    }
}

/// Commands of this library that change nothing: they may run twice, and ahead of a write that they
/// stood behind.
[[nodiscard]] inline bool is_read(const Command& command) noexcept {
    if (command.argv.empty()) return false;
    const std::string_view name = command.argv.front();
    return name == "PTTL" || name == "GETRANGE";
}

/// From which command on a batch is to be sent again; as many as there are replies: not at all.
///
/// The order of the batch stands: it is sent again to its end, or not. So nothing in that part may
/// have run, and nothing in front of it may still be about to.
[[nodiscard]] inline std::size_t first_to_send_again(std::span<const Command> commands,
                                                     std::span<const Reply> replies) noexcept {
    const std::size_t count = (std::min)(commands.size(), replies.size());
    const std::size_t none = replies.size();
    std::size_t first = none;
    for (std::size_t i = 0; i < count; ++i) {
        const Proof proof = proof_of(replies[i]);
        if (proof == Proof::may_run) return none;
        if (first == none && proof == Proof::elsewhere) first = i;
        if (first != none && proof == Proof::ran && !is_read(commands[i])) return none;
    }
    return first;
}

/// How long to wait before a master is looked for again: from 10 ms on, doubled each time up to
/// 200 ms, of that half at random, for many lose their master at the same moment.
[[nodiscard]] constexpr std::chrono::nanoseconds rediscovery_pause(unsigned failed,
                                                                   std::uint64_t random) noexcept {
    constexpr std::chrono::nanoseconds first = std::chrono::milliseconds{10};
    constexpr std::chrono::nanoseconds cap = std::chrono::milliseconds{200};
    const std::chrono::nanoseconds whole = (std::min)(first * (1 << (std::min)(failed, 8U)), cap);
    const auto half = static_cast<std::uint64_t>(whole.count() / 2);
    return whole / 2 + std::chrono::nanoseconds{static_cast<std::int64_t>(random % (half + 1))};
}

/// The last try found no more than that time was over: then the words of the one before tell more.
inline void keep_last_words(const Reply& before, std::span<Reply> replies) noexcept {
    for (const Reply& reply : replies) {
        if (reply.kind != Reply::unsent || reply.cause != errc::timed_out) return;
    }
    std::fill(replies.begin(), replies.end(), before);
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
