#pragma once
// SPDX-License-Identifier: MIT

/// leaselock: a lease lock on Redis and Valkey, over hiredis. This header brings what a service
/// uses: the guard, and the connections. What its unit tests use is in <leaselock/testing/…>, and
/// stays out of here so that nobody pays for compiling it twice.

#include <leaselock/core/outcome.hpp>
#include <leaselock/hiredis/borrowed_hiredis_connection.hpp>
#include <leaselock/hiredis/cluster_connection.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/hiredis/hiredis_connection.hpp>
#include <leaselock/hiredis/multiplexed_connection.hpp>
#include <leaselock/hiredis/sentinel.hpp>
#include <leaselock/hiredis/sentinel_connection.hpp>
#include <leaselock/lock/inspect.hpp>
#include <leaselock/lock/lease.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/options.hpp>
#include <leaselock/lock/quorum.hpp>
#include <leaselock/lock/renewer.hpp>
