// SPDX-License-Identifier: MIT
#pragma once

/// What the README's adapter uses of redis-plus-plus 1.3, as it is declared there, so that the
/// snippet is compiled where the library is not: Debian has no package of it.
#include <hiredis/hiredis.h>

#include <exception>
#include <memory>

namespace sw::redis {

class Error : public std::exception {};
class IoError : public Error {};
class TimeoutError : public IoError {};
class ReplyError : public Error {};

struct ReplyDeleter {
    void operator()(redisReply* reply) const;
};
using ReplyUPtr = std::unique_ptr<redisReply, ReplyDeleter>;

class Redis {
public:
    template <typename Input>
    ReplyUPtr command(Input first, Input last);
};

} // namespace sw::redis
