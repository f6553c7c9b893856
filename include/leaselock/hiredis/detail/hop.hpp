#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/hiredis/detail/redirect.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/key.hpp>
#include <leaselock/redis/reply.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

/// What a cluster's answer asks of its client: pure.
namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// How many MOVED and ASK one command follows.
inline constexpr unsigned most_hops = 5;

/// What becomes of a command. All but `done` have proof that it did not run.
enum class Hop : std::uint8_t {
    done,    ///< its reply is its verdict
    moved,   ///< to the slot's new owner, at once
    ask,     ///< to another node, this once, behind ASKING
    stay,    ///< to the same node, after a pause
    look_up, ///< to whoever has the slot once the cluster has been asked, after a pause
};

/// Whether a reply is final at first sight, as nearly all are.
[[nodiscard]] inline bool is_final(const Reply& reply) noexcept {
    return reply.kind != Reply::error && reply.kind != Reply::unsent;
}

/// @param hops MOVED and ASK that were followed before
/// @param redirect set for moved and ask; refers to the reply
[[nodiscard]] inline Hop next_hop(const Reply& reply, std::string_view key, unsigned hops,
                                  Redirect& redirect) noexcept {
    if (is_final(reply)) return Hop::done; // unknown too: it may have run
    if (reply.kind == Reply::unsent) {
        // no way to the node: another may have its slots by now
        const bool may_pass =
            reply.cause == condition::unreachable || reply.cause == condition::not_ready;
        return may_pass ? Hop::look_up : Hop::done;
    }
    switch (cause_of(reply.text.view())) {
    case errc::moved:
    case errc::ask:
        redirect = parse_redirect(reply.text.view());
        // nonsense is not followed: of another slot, or of no slot at all
        if (redirect.kind == Redirect::none || key.empty() || redirect.slot != hash_slot(key) ||
            hops >= most_hops) {
            return Hop::done;
        }
        return redirect.kind == Redirect::moved ? Hop::moved : Hop::ask;
    case errc::try_again: return Hop::stay; // some of its keys are here, others still on their way
    case errc::cluster_down:
    case errc::loading:
    case errc::read_only:
    case errc::master_down: return Hop::look_up;
    default: return Hop::done;
    }
}

/// A command of a round, and what its reply asks for.
struct Sent {
    std::string_view key;
    const Reply* reply = nullptr;
    Hop hop = Hop::done;
    Redirect to{}; ///< for moved and ask; refers to the reply
};

/// Takes back what would turn the order of one key's commands around. A command is sent again only
/// - if none before it has ended without an answer, for that one may still run;
/// - if none behind it has run already, but for TRYAGAIN, which is about its other keys.
/// It happens only when a slot changes hands between two commands of one write.
inline void keep_order(std::span<Sent> round) noexcept {
    for (std::size_t i = 0; i < round.size(); ++i) {
        if (round[i].hop == Hop::done || round[i].key.empty()) continue;
        for (std::size_t k = 0; k < round.size(); ++k) {
            const Sent& other = round[k];
            if (k == i || other.hop != Hop::done || other.key != round[i].key) continue;
            const bool open = other.reply->kind == Reply::unknown;
            const bool ran = open || (other.reply->answered() && other.reply->kind != Reply::error);
            if (k < i ? open : ran && round[i].hop != Hop::stay) round[i].hop = Hop::done;
        }
    }
}

/// The pause before a command is sent again: from half of a ceiling to all of it; the ceiling doubles
/// from 4 to 64 ms.
/// @param round pauses made before
/// @param random any 64 bits
[[nodiscard]] constexpr std::chrono::nanoseconds retry_pause(unsigned round,
                                                             std::uint64_t random) noexcept {
    const std::chrono::nanoseconds ceiling =
        std::chrono::milliseconds{4} * (1U << (std::min)(round, 4U));
    const auto half = static_cast<std::uint64_t>(ceiling.count() / 2);
    return ceiling / 2 + std::chrono::nanoseconds{static_cast<std::int64_t>(random % (half + 1))};
}

/// What has to be left of a call's time for another try: four times what the last one took, and an eighth
/// of the whole at least, but no more than a quarter of it. An answer that is sure is worth more than the
/// last try, which may end in *unknown*.
[[nodiscard]] constexpr std::chrono::nanoseconds
answer_time(std::chrono::nanoseconds took, std::chrono::nanoseconds whole) noexcept {
    return std::clamp(4 * (std::min)(took, whole), whole / 8, whole / 4);
}

/// Whether the keys of a script's call share a slot; of other commands only the routing key matters.
[[nodiscard]] inline bool shares_slot(const Command& command) noexcept {
    constexpr std::size_t before_keys = 3; // EVALSHA sha1 numkeys
    const auto argv = command.argv;
    if (argv.size() < before_keys + 2 || !argv[0].starts_with("EVAL")) return true;
    long long keys = 0;
    const auto most = static_cast<long long>(argv.size() - before_keys);
    if (!parse_number(argv[2], 2, most, keys)) return true;
    const std::uint16_t slot = hash_slot(command.key);
    return std::all_of(argv.begin() + before_keys, argv.begin() + before_keys + keys,
                       [slot](std::string_view key) { return hash_slot(key) == slot; });
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
