// SPDX-License-Identifier: MIT
// A file of a service that takes a lock by hand. It is compiled behind the standard headers that the
// library's own headers include.
#include <hiredis/hiredis.h>

bool close_orders_once(redisContext* redis, void (*work)()) {
    const char* acquire[] = {"SET", "lock:order-timeout", "a-token", "NX", "PX", "10000"};
    const char* release[] = {"EVALSHA", "0123456789012345678901234567890123456789", "1",
                             "lock:order-timeout", "a-token"};
    auto* reply = static_cast<redisReply*>(redisCommandArgv(redis, 6, acquire, nullptr));
    const bool taken = reply != nullptr && reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    if (!taken) return false;
    work();
    reply = static_cast<redisReply*>(redisCommandArgv(redis, 5, release, nullptr));
    const bool released = reply != nullptr && reply->integer == 1;
    freeReplyObject(reply);
    return released;
}
