#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/hiredis/detail/lookup_function.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/hiredis/resolver.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <ranges>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#if LEASELOCK_DEFINES
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/address.hpp>
#include <leaselock/hiredis/detail/host.hpp>
#include <leaselock/hiredis/detail/kept_lookups.hpp>
#include <leaselock/hiredis/detail/lookup.hpp>
#include <leaselock/hiredis/detail/query.hpp>
#include <leaselock/hiredis/detail/sentinel_order.hpp>
#include <leaselock/hiredis/detail/sentinel_reply.hpp>
#include <leaselock/redis/command.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {

namespace detail {

class Lookup;
struct Sentinels;

template <class R>
concept RangeOfTexts = std::ranges::input_range<const R> &&
    std::convertible_to<std::ranges::range_reference_t<const R>, std::string_view>;

template <RangeOfTexts R>
std::vector<std::string> texts_of(const R& range) {
    std::vector<std::string> texts;
    for (const auto& text : range) texts.emplace_back(std::string_view{text});
    return texts;
}

} // namespace detail

/// Asks Redis Sentinel where the master is: the resolver of an `Endpoint` with `must_be_master`, as
/// `SentinelConnection` sets it.
///
/// The sentinels are asked one after another until one names a master, each for its share of the
/// limit, so that a dead one does not use up the time of the others. The one that answered last comes
/// first the next time; one that named what was no master comes after the others. No sentinel is
/// believed: an address is checked before anybody connects there, and its role behind the connect.
///
/// When no sentinel names a master, the text lists what each said, and the cause is one that waiting
/// may cure, if there is one. When all of those that can be asked know no such master, that is
/// `errc::no_such_master`.
///
/// Thread-safety: any number of threads; several connections may share one.
/// Source: redis.io/docs/latest/develop/reference/sentinel-clients
class Sentinel final : public Resolver {
public:
    static constexpr std::size_t most_sentinels = 16;
    static constexpr std::chrono::milliseconds default_limit{1'000};

#if LEASELOCK_EXCEPTIONS
    /// @param urls of the sentinels, as `Endpoint::parse` reads them, with the sentinels' own user and
    ///        password. Mind the port: a URL without one means 6379.
    /// @throws Error for a malformed URL, or what the third constructor would complain about
    Sentinel(std::initializer_list<std::string_view> urls, std::string master,
             std::chrono::milliseconds limit = default_limit);
    /// The same, with URLs from a `std::vector<std::string>` or another range of texts.
    template <detail::RangeOfTexts R>
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): it delegates
    Sentinel(const R& urls, std::string master, std::chrono::milliseconds limit = default_limit)
        : Sentinel(detail::texts_of(urls), std::move(master), limit) {}
    Sentinel(const std::vector<std::string>& urls, std::string master,
             std::chrono::milliseconds limit = default_limit);
#endif

    /// @param sentinels 1 to 16. The connect_timeout of each is the longest that it may take to answer.
    ///        If anything is out of its limits, every `resolve` answers unsent and says so.
    /// @param master its name, as `sentinel monitor` gives it
    /// @param limit for asking all of them: 1 ms to an hour
    /// @param lookup for tests of this library
    Sentinel(std::vector<Endpoint> sentinels, std::string master,
             std::chrono::milliseconds limit = default_limit,
             detail::LookupFunction lookup = detail::system_lookup);
    Sentinel(const Sentinel&) = delete;
    Sentinel& operator=(const Sentinel&) = delete;
    LEASELOCK_INLINE ~Sentinel() override;

    /// @return yes, with `where` set; or unsent, and why. Blocks, until the limit at most.
    // inline here too: else every file that includes this has to have the class's vtable, and all that
    // hangs on it
    [[nodiscard]] LEASELOCK_INLINE Outcome resolve(ServerAddress& where) noexcept override;

    LEASELOCK_INLINE void on_failure(const ServerAddress& where,
                                     const std::error_code& cause) noexcept override;

    [[nodiscard]] const std::string& master() const noexcept { return master_; }

private:
    [[nodiscard]] Outcome check() const noexcept;
    [[nodiscard]] Outcome ask(const Endpoint& sentinel, detail::Lookup& lookup, Deadline by,
                              ServerAddress& where) const noexcept;

    std::unique_ptr<detail::Sentinels> sentinels_;
    std::string master_;
    std::chrono::milliseconds limit_;
    detail::LookupFunction lookup_;
    Outcome valid_;
};

#if LEASELOCK_DEFINES
/// All of them, and whom to ask first.
struct detail::Sentinels {
    explicit Sentinels(std::vector<Endpoint>&& some) noexcept : endpoints(std::move(some)) {}

    static_assert(SentinelOrder::most == Sentinel::most_sentinels);
    std::vector<Endpoint> endpoints;
    SentinelOrder order;
    LookupPool<SentinelOrder::most> lookups; ///< of their own names
};

#if LEASELOCK_EXCEPTIONS
LEASELOCK_INLINE Sentinel::Sentinel(std::initializer_list<std::string_view> urls,
                                    std::string master, std::chrono::milliseconds limit)
    : Sentinel(detail::texts_of(urls), std::move(master), limit) {}
LEASELOCK_INLINE Sentinel::Sentinel(const std::vector<std::string>& urls, std::string master,
                                    std::chrono::milliseconds limit)
    : Sentinel(detail::read_urls(urls), std::move(master), limit) {
    if (!valid_) throw Error{valid_, "read", "the sentinels"};
}
#endif
LEASELOCK_INLINE Sentinel::Sentinel(std::vector<Endpoint> sentinels, std::string master,
                                    std::chrono::milliseconds limit, detail::LookupFunction lookup)
    : sentinels_(std::make_unique<detail::Sentinels>(std::move(sentinels))),
      master_(std::move(master)), limit_(limit), lookup_(lookup), valid_(check()) {}
LEASELOCK_INLINE Sentinel::~Sentinel() = default;

LEASELOCK_INLINE Outcome Sentinel::check() const noexcept {
    const auto complain = [](std::string_view text) -> Outcome {
        return {Answer::unsent, errc::invalid_argument, text};
    };
    const std::vector<Endpoint>& endpoints = sentinels_->endpoints;
    if (endpoints.empty() || endpoints.size() > most_sentinels)
        return complain("1 to 16 sentinels");
    if (!detail::is_host_name(master_)) {
        return complain("name of the master: 1 to 253 letters, digits, '-', '.' or '_'");
    }
    if (limit_.count() < 1 || limit_ > Endpoint::max_connect_timeout) {
        return complain("limit for the sentinels: from 1ms to 3600s");
    }
    for (const Endpoint& sentinel : endpoints) {
        if (Outcome outcome = sentinel.check(); !outcome) return outcome;
        if (sentinel.db != 0 || sentinel.resolver != nullptr || sentinel.must_be_master) {
            return complain("sentinel: neither db, nor resolver, nor must_be_master");
        }
    }
    return {Answer::yes};
}

LEASELOCK_INLINE Outcome Sentinel::resolve(ServerAddress& where) noexcept {
    if (!valid_) return valid_;
    auto& [endpoints, order, pool] = *sentinels_;
    auto lookups = pool.borrow();
    if (lookups == nullptr) {
        return {Answer::unsent, std::make_error_code(std::errc::not_enough_memory)};
    }
    const std::size_t count = endpoints.size();
    const Deadline until = later(system_runtime().now(), limit_);
    detail::SentinelTally tally{master_, count};
    std::uint32_t asked = 0;
    for (std::size_t left = count; left != 0; --left) {
        const std::size_t i = order.next(count, asked);
        asked |= std::uint32_t{1} << i;
        const Deadline now = system_runtime().now();
        const LeaseClock::duration share = span_between(now, until) / static_cast<int>(left);
        const Deadline by =
            later(now, std::min<LeaseClock::duration>(share, endpoints[i].connect_timeout));
        Outcome said = ask(endpoints[i], lookups->of[i], by, where);
        if (said) {
            order.answered(i);
            pool.give_back(std::move(lookups));
            return said;
        }
        order.failed(i);
        tally.add(endpoints[i].label(), said);
    }
    pool.give_back(std::move(lookups));
    return tally.result();
}

LEASELOCK_INLINE void Sentinel::on_failure(const ServerAddress& /*where*/,
                                           const std::error_code& /*cause*/) noexcept {
    sentinels_->order.misled();
}

LEASELOCK_INLINE Outcome Sentinel::ask(const Endpoint& sentinel, detail::Lookup& lookup,
                                       Deadline by, ServerAddress& where) const noexcept {
    const std::array<std::string_view, 3> argv{"SENTINEL", "GET-MASTER-ADDR-BY-NAME", master_};
    detail::Failure failure;
    const detail::ReplyTree reply =
        detail::query(sentinel, system_runtime(), lookup_, lookup, {argv, {}}, by, failure);
    if (reply == nullptr) return {Answer::unsent, failure.cause, failure.text.view()};
    return detail::read_master_address(*reply, where);
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
