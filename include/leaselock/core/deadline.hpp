#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <ratio>
#include <type_traits>

/// Deadline arithmetic: pure, and without overflow for any argument.
namespace leaselock {
inline namespace LEASELOCK_ABI {

/// The longest ttl that is accepted: 2^31-1 ms, about 24.8 days.
inline constexpr std::chrono::milliseconds max_ttl{2'147'483'647};

/// `at + span`, held at the ends of the clock instead of wrapping around.
[[nodiscard]] constexpr Deadline later(Deadline at, LeaseClock::duration span) noexcept {
    using limits = std::numeric_limits<LeaseClock::rep>;
    const LeaseClock::rep t = at.time_since_epoch().count();
    const LeaseClock::rep s = span.count();
    if (s > 0 && t > (limits::max)() - s) return (Deadline::max)();
    if (s < 0 && t < (limits::min)() - s) return (Deadline::min)();
    return at + span;
}

/// Any duration as whole units of `To`, rounded up, held at the ends of `To`. NaN becomes the least,
/// which every check refuses.
template <class To, class Rep, class Period>
[[nodiscard]] constexpr To ceil_saturated(std::chrono::duration<Rep, Period> span) noexcept {
    using Ratio = std::ratio_divide<Period, typename To::period>;
    using limits = std::numeric_limits<typename To::rep>;
    if constexpr (std::is_floating_point_v<Rep>) {
        const long double wanted = static_cast<long double>(span.count()) *
                                   static_cast<long double>(Ratio::num) /
                                   static_cast<long double>(Ratio::den);
        // 2^63 is exact in a long double, and the first value that does not fit
        constexpr long double end = -static_cast<long double>((limits::min)());
        if (!(wanted > -end)) return To{(limits::min)()};
        if (wanted >= end) return To{(limits::max)()};
        const auto whole = static_cast<typename To::rep>(wanted);
        return To{static_cast<long double>(whole) < wanted ? whole + 1 : whole};
    } else {
        static_assert(sizeof(Rep) <= sizeof(std::int64_t), "durations of up to 64 bits");
        const Rep n = span.count();
        if constexpr (std::is_unsigned_v<Rep>) {
            if (static_cast<std::uint64_t>(n) > static_cast<std::uint64_t>((limits::max)())) {
                return To{(limits::max)()};
            }
        }
        const auto count = static_cast<std::int64_t>(n);
        constexpr std::int64_t top = (limits::max)() / Ratio::num;
        if (count > top) return To{(limits::max)()};
        if (count < -top) return To{(limits::min)()};
        const std::int64_t scaled = count * Ratio::num;
        const std::int64_t whole = scaled / Ratio::den;
        return To{scaled % Ratio::den > 0 ? whole + 1 : whole};
    }
}

/// From one point of a clock to a later one; zero where it is not later, and held at the longest.
template <class Clock, class From, class To>
[[nodiscard]] constexpr LeaseClock::duration
span_between(std::chrono::time_point<Clock, From> from,
             std::chrono::time_point<Clock, To> to) noexcept {
    const auto begin = ceil_saturated<LeaseClock::duration>(from.time_since_epoch());
    const auto end = ceil_saturated<LeaseClock::duration>(to.time_since_epoch());
    if (end <= begin) return LeaseClock::duration::zero();
    const bool fits = begin.count() >= 0 || end <= (LeaseClock::duration::max)() + begin;
    return fits ? end - begin : (LeaseClock::duration::max)();
}

/// A ttl as Redis takes it: whole milliseconds, rounded up.
template <class Rep, class Period>
[[nodiscard]] constexpr std::chrono::milliseconds
to_ttl(std::chrono::duration<Rep, Period> span) noexcept {
    return ceil_saturated<std::chrono::milliseconds>(span);
}

/// The drift allowance taken off a ttl unless the user sets one: ttl/100 + 2 ms.
/// It covers clocks whose rates differ by up to one per cent. Source: design, "The wire".
[[nodiscard]] constexpr std::chrono::nanoseconds
default_margin(std::chrono::milliseconds ttl) noexcept {
    return std::chrono::nanoseconds{ttl} / 100 + std::chrono::milliseconds{2};
}

/// When a lease ends: counted from *before* the send, since the server may have started its clock
/// at any moment after that. Source: design, "What is promised" (honesty).
[[nodiscard]] constexpr Deadline lease_deadline(Deadline before_send, std::chrono::milliseconds ttl,
                                                std::chrono::nanoseconds margin) noexcept {
    return later(before_send, std::chrono::nanoseconds{ttl} - margin);
}

} // namespace LEASELOCK_ABI
} // namespace leaselock
