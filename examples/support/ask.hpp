// SPDX-License-Identifier: MIT
#pragma once

#include <leaselock/hiredis/hiredis_connection.hpp>

#include <chrono>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

namespace example {

/// One command, as one would type it. @throws std::runtime_error for an error, and for no answer
inline leaselock::Reply ask(leaselock::HiredisConnection& redis,
                            std::initializer_list<std::string_view> words) {
    const leaselock::Command command{{words.begin(), words.size()}, {}};
    leaselock::Reply reply;
    redis.call({&command, 1}, {&reply, 1}, leaselock::LeaseClock::now() + std::chrono::seconds{5});
    if (!reply.answered()) {
        throw std::runtime_error(std::string{reply.text.view()} + ": " + reply.cause.message());
    }
    if (reply.kind == leaselock::Reply::error) {
        throw std::runtime_error(std::string{reply.text.view()});
    }
    return reply;
}

} // namespace example
