// SPDX-License-Identifier: MIT
#pragma once

/// What the README's snippets take for granted: the reader's own service.
#include <leaselock/leaselock.hpp>

using namespace std::chrono_literals;

void close_expired_orders();
