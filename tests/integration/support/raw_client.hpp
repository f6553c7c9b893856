// SPDX-License-Identifier: MIT
#pragma once

#include <hiredis/hiredis.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace leaselock::test {

/// A plain client, the "C2" of the test cases: it looks at the server from outside, and plays the
/// other party. Connects when first used, and again after a failure; a command is sent once, never
/// repeated. Words may hold any bytes. Throws std::runtime_error when no reply comes.
/// One thread at a time.
class RawClient {
public:
    explicit RawClient(std::uint16_t port, std::string password = {});
    explicit RawClient(std::string unix_path, std::string password = {});

    /// The reply as text: `OK`, `text`, `(nil)`, `(integer) 1`, `(error) ERR ...`, `[a, b]`.
    std::string command(const std::vector<std::string>& words);

    /// The reply, which has to be an integer.
    long long integer(const std::vector<std::string>& words);

    std::string eval(const std::string& script, const std::vector<std::string>& keys = {},
                     const std::vector<std::string>& arguments = {});

    [[nodiscard]] std::optional<std::string> get(const std::string& key);
    [[nodiscard]] bool exists(const std::string& key);
    [[nodiscard]] long long pttl(const std::string& key); ///< -1 without ttl, -2 without key

    /// Puts what must work in a test's setting: throws unless the reply is OK.
    void expect_ok(const std::vector<std::string>& words);
    void config_set(const std::string& name, const std::string& value);

    /// Calls per command since `reset_stats`, lower case, subcommands as `client|kill`. Commands
    /// that scripts call count too.
    [[nodiscard]] std::map<std::string, long long> command_stats();
    void reset_stats();

    /// Kills every other normal client, and says how many there were.
    long long client_kill_normal();

    /// The ids of the other normal clients.
    [[nodiscard]] std::set<long long> client_ids();

    void disconnect() noexcept { context_.reset(); }
    void set_timeout(std::chrono::milliseconds limit) noexcept { limit_ = limit; }

private:
    struct Free {
        void operator()(redisContext* context) const noexcept { redisFree(context); }
        void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
    };
    using Reply = std::unique_ptr<redisReply, Free>;

    void connect();
    [[nodiscard]] bool dropped_by_server() const;
    [[nodiscard]] Reply call(const std::vector<std::string>& words);
    [[nodiscard]] Reply round_trip(const std::vector<std::string>& words);
    [[noreturn]] void fail(const std::string& what);

    std::uint16_t port_ = 0;
    std::string unix_path_;
    std::string password_;
    std::chrono::milliseconds limit_ = std::chrono::seconds{10};
    std::unique_ptr<redisContext, Free> context_;
};

} // namespace leaselock::test
