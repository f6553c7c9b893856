#pragma once
// SPDX-License-Identifier: MIT

/// Everything that `LEASELOCK_SEPARATE_COMPILATION` keeps out of a service's files, for one of them:
///
///     #include <leaselock/definitions.ipp>
///     #include <leaselock/hiredis/tls.hpp>    // where TLS is used
///     LEASELOCK_INSTANTIATE(my::Connection);  // for a connection of your own
///
/// All files of a program define that macro, or none, and have the same answer to exceptions.
#if !defined(LEASELOCK_SEPARATE_COMPILATION)
#error "leaselock/definitions.ipp needs LEASELOCK_SEPARATE_COMPILATION, defined for all files"
#endif
#if defined(LEASELOCK_DEFINES)
#error "leaselock/definitions.ipp comes before all other headers of leaselock"
#endif
#define LEASELOCK_DEFINITIONS

#include <leaselock/leaselock.hpp>

#include <chrono>
#include <string_view>

// clang-format off

/// What guards and renewers over a connection, and `inspect`, are made of. At namespace scope.
#define LEASELOCK_INSTANTIATE(C)                                                                   \
    template class ::leaselock::detail::GuardState<C>;                                             \
    template class ::leaselock::Renewer<C>;                                                        \
    template ::leaselock::Inspection leaselock::inspect(C&, std::string_view,                      \
                                                        std::chrono::milliseconds) noexcept

// clang-format on

template class leaselock::SentinelConnection<leaselock::HiredisConnection>;
template class leaselock::SentinelConnection<leaselock::MultiplexedConnection>;
template class leaselock::Quorum<leaselock::HiredisConnection>;
template class leaselock::detail::GuardState<leaselock::Quorum<leaselock::HiredisConnection>>;
template class leaselock::Renewer<leaselock::Quorum<leaselock::HiredisConnection>>;

LEASELOCK_INSTANTIATE(leaselock::HiredisConnection);
LEASELOCK_INSTANTIATE(leaselock::MultiplexedConnection);
LEASELOCK_INSTANTIATE(leaselock::BorrowedHiredisConnection);
LEASELOCK_INSTANTIATE(leaselock::ClusterConnection);
LEASELOCK_INSTANTIATE(leaselock::SentinelConnection<leaselock::HiredisConnection>);
LEASELOCK_INSTANTIATE(leaselock::SentinelConnection<leaselock::MultiplexedConnection>);
