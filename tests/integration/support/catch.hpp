// SPDX-License-Identifier: MIT
#pragma once

// Catch2 3 has a header of its own for each part, Catch2 2 has one for all. The stories use what
// both have; include this, never catch2/ itself.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
