#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/observer.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#if LEASELOCK_DEFINES
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/fixed_text.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/redis/key.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {

inline constexpr std::size_t max_owner_size = 128;

/// How a lock is taken and held.
struct Options {
    /// How long a lease lasts; more than the margin, at most 2^31-1 ms. Fixed for an acquisition.
    std::chrono::milliseconds ttl{30'000};
    /// Whether each acquisition also gets a fencing token, in the same round trip.
    bool fencing = false;
    /// A label for people who read Redis by hand, up to 128 bytes; stored behind the token.
    std::string_view owner{};
    /// How long one call to the server may take; at least 1 ms, beyond 2^31-1 ms as that.
    std::chrono::milliseconds timeout{1'000};
    /// Taken off the ttl for clocks that differ in rate; from 0 to below the ttl. Unset: ttl/100 + 2 ms.
    std::optional<std::chrono::milliseconds> margin{};
    /// Hears every outcome; outlives the guard. None: costs nothing.
    Observer* observer = nullptr;
    /// Waiting calls pause between their attempts for a random time from here, at least 1 ms, …
    std::chrono::milliseconds wait_floor{10};
    /// … to a ceiling that starts at twice that and doubles up to here; not below the floor.
    std::chrono::milliseconds wait_cap{500};
};

template <class C>
class Quorum;

namespace detail {

/// Stands where `fencing` stands among the options of a single Redis, to say why it is not there.
struct NoFencing {
    constexpr NoFencing() noexcept = default;
    template <class T>
    constexpr NoFencing(T /*wanted*/) noexcept {
        static_assert(sizeof(T) == 0,
                      "a quorum has no fencing tokens: counters of independent nodes "
                      "do not form one order");
    }
};

} // namespace detail

/// How a lock is taken and held on a quorum; as `Options`, but without fencing.
struct QuorumOptions {
    std::chrono::milliseconds ttl{30'000};
    /// Not to be had: it does not compile.
    [[no_unique_address]] detail::NoFencing fencing{};
    std::string_view owner{};
    /// How long the nodes, all at once, may take to answer one call; far below the ttl.
    std::chrono::milliseconds timeout{50};
    std::optional<std::chrono::milliseconds> margin{};
    Observer* observer = nullptr;
    std::chrono::milliseconds wait_floor{10};
    std::chrono::milliseconds wait_cap{500};
};

namespace detail {

/// Which options a guard over `B` takes; asks nothing of `B`, which may be incomplete.
template <class B>
struct OptionsOf {
    using type = Options;
};
template <class C>
struct OptionsOf<Quorum<C>> {
    using type = QuorumOptions;
};

constexpr const Options& as_options(const Options& options) noexcept { return options; }
constexpr Options as_options(const QuorumOptions& options) noexcept {
    return {.ttl = options.ttl,
            .fencing = false,
            .owner = options.owner,
            .timeout = options.timeout,
            .margin = options.margin,
            .observer = options.observer,
            .wait_floor = options.wait_floor,
            .wait_cap = options.wait_cap};
}

/// The first thing that is wrong with what a guard was made of.
enum class Flaw : std::uint8_t {
    none,
    key_empty,
    key_too_long,
    key_without_helper,
    owner_too_long,
    ttl_too_short,
    ttl_too_long,
    margin_negative,
    timeout_too_short,
    wait_bounds,
};

#if LEASELOCK_DEFINES
constexpr std::chrono::nanoseconds margin_of(const Options& options) noexcept {
    // in between the flaws, so that it cannot overflow
    const std::chrono::milliseconds none{0};
    if (options.margin) return std::clamp(*options.margin, none, max_ttl);
    return default_margin(std::clamp(options.ttl, none, max_ttl));
}

constexpr Flaw find_flaw(std::string_view key, const Options& options) noexcept {
    if (key.empty()) return Flaw::key_empty;
    if (key.size() > max_key_size) return Flaw::key_too_long;
    if (options.fencing && helper_form(key) == HelperForm::impossible) {
        return Flaw::key_without_helper;
    }
    if (options.owner.size() > max_owner_size) return Flaw::owner_too_long;
    if (options.margin && *options.margin < std::chrono::milliseconds::zero()) {
        return Flaw::margin_negative;
    }
    if (options.ttl <= std::chrono::milliseconds::zero()) return Flaw::ttl_too_short;
    if (options.ttl > max_ttl) return Flaw::ttl_too_long;
    if (std::chrono::nanoseconds{options.ttl} <= margin_of(options)) return Flaw::ttl_too_short;
    if (options.timeout < std::chrono::milliseconds{1}) return Flaw::timeout_too_short;
    if (options.wait_floor < std::chrono::milliseconds{1} ||
        options.wait_cap < options.wait_floor) {
        return Flaw::wait_bounds;
    }
    return Flaw::none;
}

template <std::size_t N>
void append_number(FixedText<N>& text, std::int64_t number) noexcept {
    std::array<char, 20> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    text.append({digits.data(), static_cast<std::size_t>(end - digits.data())});
}

/// Names the argument, and the limit that it breaks.
inline ServerText describe(Flaw flaw, std::chrono::milliseconds ttl,
                           std::chrono::nanoseconds margin) noexcept {
    ServerText text;
    switch (flaw) {
    case Flaw::none: break;
    case Flaw::key_empty: return {"key is empty: it must have 1 to 1024 bytes"};
    case Flaw::key_too_long: return {"key is too long: it must have 1 to 1024 bytes"};
    case Flaw::key_without_helper:
        return {"key has a '}' and no hash tag: a fence counter cannot share its slot; use a key "
                "with a {tag}, or without '}'"};
    case Flaw::owner_too_long: return {"owner label is too long: at most 128 bytes"};
    case Flaw::margin_negative: return {"margin is negative: it must be from 0 to below the ttl"};
    case Flaw::timeout_too_short: return {"timeout is too short: it must be at least 1 ms"};
    case Flaw::wait_bounds: return {"wait_floor must be at least 1 ms and wait_cap not below it"};
    case Flaw::ttl_too_long:
        text.append("ttl is ");
        append_number(text, ttl.count());
        text.append(" ms: it must be at most 2147483647 ms");
        break;
    case Flaw::ttl_too_short:
        text.append("ttl is ");
        append_number(text, ttl.count());
        text.append(" ms: it must be more than the margin of ");
        append_number(text, std::chrono::ceil<std::chrono::milliseconds>(margin).count());
        text.append(" ms");
        break;
    }
    return text;
}
#endif

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
