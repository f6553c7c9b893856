// SPDX-License-Identifier: MIT
#pragma once

#include "support/false_server.hpp"

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace leaselock::test {

/// Slots of a table as CLUSTER SLOTS tells it.
struct ToldSlots {
    int first;
    int last;
    std::string host;
    std::uint16_t port;
};

[[nodiscard]] inline std::string slots_reply(const std::vector<ToldSlots>& table) {
    std::string reply = "*" + std::to_string(table.size()) + "\r\n";
    for (const ToldSlots& part : table) {
        reply += "*3\r\n:" + std::to_string(part.first) + "\r\n:" + std::to_string(part.last) +
                 "\r\n*2\r\n$" + std::to_string(part.host.size()) + "\r\n" + part.host +
                 "\r\n:" + std::to_string(part.port) + "\r\n";
    }
    return reply;
}

/// A node of a cluster that says what a function tells it to: `answer(words)`, several threads at once.
/// An empty answer is silence. Asked for CLUSTER SLOTS it has them all, unless the function has an answer.
class FalseNode {
public:
    using Words = std::vector<std::string>;
    using Answer = std::function<std::string(const Words&)>;

    explicit FalseNode(Answer answer)
        : answer_{std::move(answer)}, server_{[this](FalseServer::Peer& peer) {
              for (;;) {
                  const Words words = peer.expect_command();
                  peer.send(reply_to(words));
              }
          }} {}

    [[nodiscard]] std::uint16_t port() const noexcept { return server_.port(); }
    [[nodiscard]] std::string url() const { return server_.url(); }
    [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port()); }

    /// The commands so far, each in a line, without those that asked for the table.
    [[nodiscard]] Words heard() const {
        const std::lock_guard lock{mutex_};
        return heard_;
    }
    [[nodiscard]] int asked_for_table() const {
        const std::lock_guard lock{mutex_};
        return asked_;
    }

private:
    std::string reply_to(const Words& words) {
        std::string line;
        for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
        const bool table = line == "CLUSTER SLOTS";
        {
            const std::lock_guard lock{mutex_};
            if (table) {
                ++asked_;
            } else {
                heard_.push_back(line);
            }
        }
        std::string reply = answer_(words);
        if (table && reply.empty()) reply = slots_reply({{0, 16383, "127.0.0.1", port()}});
        return reply;
    }

    Answer answer_;
    mutable std::mutex mutex_;
    Words heard_;
    int asked_ = 0;
    FalseServer server_;
};

} // namespace leaselock::test
