// SPDX-License-Identifier: MIT

#include "simulation/server.hpp"

#include "simulation/deed.hpp"

#include <leaselock/core/token.hpp>
#include <leaselock/testing/memory_redis.hpp>
#include <leaselock/testing/memory_reply.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace leaselock::simulation {

using testing::MemoryRedis;
using testing::MemoryReply;

void Server::arrive(std::function<void()> what) {
    if (paused_) {
        inbox_.push_back(std::move(what));
    } else {
        what();
    }
}

void Server::unpause() {
    paused_ = false;
    for (const std::function<void()>& what : std::exchange(inbox_, {})) what();
}

void Server::restart(MemoryRedis::Restart how) {
    redis.restart(how);
    ++life_;
}

MemoryReply Server::execute(std::uint64_t id, const std::vector<std::string>& argv) {
    const Deed deed = deed_of(argv);
    const std::string key{deed.key};
    const std::string before = redis.get(key).value_or("");
    const std::vector<std::string_view> words{argv.begin(), argv.end()};
    const MemoryReply reply = redis.execute(words, id);
    redis.clear_log(); // ours is the history
    const std::string after = redis.get(key).value_or("");
    const std::int64_t clock_ms = redis.clock().count() / 1000;
    auto line = world_.line(name_, "exec");
    line.put_unsigned("id", id).put("verb", deed.verb).put("key", deed.key);
    line.put("token", deed.token).put("heir", deed.heir).put("is", word_of(reply));
    line.put("before", fingerprint_of(before)).put("after", fingerprint_of(after));
    line.put("left", redis.pttl(key)).put("clock", clock_ms);
    if (deed.ttl != 0) line.put("ttl", deed.ttl);
    if (!deed.counter.empty()) line.put("counter_left", redis.pttl(deed.counter));
    replicate(key);
    if (!deed.counter.empty()) replicate(deed.counter);
    return reply;
}

void Server::replicate_to(Server* replica, Time lag) noexcept {
    replica_ = replica;
    lag_ = lag;
    ++link_;
}

/// A key as it is now reaches the replica later: its value, and when it expires by this server's clock,
/// as Redis replicates the effects of a command and not the command.
void Server::replicate(std::string_view key) {
    if (replica_ == nullptr) return;
    const std::optional<std::string> value = redis.get(key);
    const std::int64_t left = redis.pttl(key);
    const std::int64_t expires = redis.clock().count() / 1000 + left;
    last_change_ = std::max(last_change_ + 1, world_.now() + lag_);
    world_.at(last_change_, [this, link = link_, key = std::string{key}, value, left, expires] {
        if (link != link_ || replica_ == nullptr) return;
        MemoryRedis& replica = replica_->redis;
        if (!value) {
            (void)replica.del(key);
        } else if (left < 0) {
            replica.set(key, *value);
        } else {
            (void)replica.execute({"SET", key, *value, "PXAT", std::to_string(expires)});
            replica.clear_log();
        }
    });
}

} // namespace leaselock::simulation
