// SPDX-License-Identifier: MIT
#include <boost/redis/src.hpp> // Boost.Redis itself: it wants one translation unit
