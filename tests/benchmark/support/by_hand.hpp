// SPDX-License-Identifier: MIT
#pragma once

#include <leaselock/redis/script.hpp>

#include <hiredis/hiredis.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace leaselock::bench {

inline constexpr std::string_view ttl_text = "30000";

[[nodiscard]] inline std::string key_of(std::size_t thread) {
    return "lock:thread:" + std::to_string(thread);
}

/// The commands that a lock takes, ready to be sent again and again. The token stays the same: a
/// hand-written loop would draw one, too, which is left out in its favour.
class Pair {
public:
    explicit Pair(std::size_t thread) : Pair{key_of(thread), thread} {}
    Pair(std::string key, std::size_t thread) : key_{std::move(key)} {
        token_.replace(0, 4, std::to_string(1000 + thread % 9000));
    }
    [[nodiscard]] const std::string& key() const noexcept { return key_; }
    [[nodiscard]] std::array<std::string_view, 6> acquire() const {
        return {"SET", key_, token_, "NX", "PX", ttl_text};
    }
    [[nodiscard]] std::array<std::string_view, 5> release() const {
        return {"EVALSHA", scripts::compare_and_delete.get.sha1, "1", key_, token_};
    }

private:
    std::string key_;
    std::string token_ = std::string(32, 'a');
};

/// A connection as people write it by hand; what it does not have is the library's promises.
class ByHand {
public:
    explicit ByHand(std::uint16_t port) : context_{::redisConnect("127.0.0.1", port)} {}
    ByHand(const ByHand&) = delete;
    ByHand& operator=(const ByHand&) = delete;
    ~ByHand() { ::redisFree(context_); }

    void begin(std::span<const std::string_view> words) {
        List list = to_list(words);
        (void)::redisAppendCommandArgv(context_, static_cast<int>(words.size()), list.text.data(),
                                       list.size.data());
    }
    /// @return whether the reply is `OK` or 1
    bool finish() {
        void* reply = nullptr;
        return ::redisGetReply(context_, &reply) == REDIS_OK &&
               is_yes(static_cast<redisReply*>(reply));
    }
    bool call(std::span<const std::string_view> words) {
        List list = to_list(words);
        return is_yes(static_cast<redisReply*>(::redisCommandArgv(
            context_, static_cast<int>(words.size()), list.text.data(), list.size.data())));
    }

private:
    struct List {
        std::array<const char*, 8> text{};
        std::array<std::size_t, 8> size{};
    };
    static List to_list(std::span<const std::string_view> words) {
        List list;
        for (std::size_t i = 0; i < words.size(); ++i) {
            list.text[i] = words[i].data();
            list.size[i] = words[i].size();
        }
        return list;
    }
    static bool is_yes(redisReply* reply) {
        if (reply == nullptr) {
            return false;
        }
        const bool yes = reply->type == REDIS_REPLY_STATUS ||
                         (reply->type == REDIS_REPLY_INTEGER && reply->integer == 1);
        ::freeReplyObject(reply);
        return yes;
    }

    redisContext* context_;
};

} // namespace leaselock::bench
