// SPDX-License-Identifier: MIT

#include "simulation/network.hpp"

#include <leaselock/testing/memory_reply.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace leaselock::simulation {

using testing::MemoryReply;

Time Network::travel(Link& link, Time slow) const {
    const Time more = slow == 0 ? 0 : link.random.between(0, slow);
    return link.random.between(link.latency, 3 * link.latency) + more;
}

/// The commands go out. Where the stream breaks on the way, the first of them may still arrive.
void Network::send(Link& link, const std::shared_ptr<Exchange>& exchange) {
    Stream& stream = *exchange->stream;
    std::size_t count = exchange->commands.size();
    if (stream.deaf) {
        count = 0;
    } else if (link.random.chance(link.loses_there)) {
        stream.deaf = true;
        count = link.random.below(count);
    }
    stream.waiting.push_back(exchange);
    if (count == 0) return;
    stream.last_there =
        std::max(stream.last_there + 1, world.now() + travel(link, link.slow_there));
    world.at(stream.last_there, [this, &link, exchange, count] {
        if (exchange->stream->lost) return;
        exchange->stream->server->arrive(
            [this, &link, exchange, count] { execute(link, exchange, count); });
    });
}

void Network::execute(Link& link, const std::shared_ptr<Exchange>& exchange, std::size_t count) {
    Stream& stream = *exchange->stream;
    Server& server = *stream.server;
    if (!server.up || stream.life != server.life()) return break_stream(link, stream);
    std::vector<MemoryReply> replies;
    for (std::size_t i = 0; i < count; ++i) {
        if (!server.error.empty()) {
            replies.push_back(MemoryReply::failure(server.error));
            continue;
        }
        replies.push_back(server.execute(exchange->ids[i], exchange->commands[i]));
        if (link.random.chance(link.lies)) {
            replies.back() = MemoryReply::failure("ERR Connection timed out");
        }
    }
    answer(link, exchange, std::move(replies));
}

void Network::answer(Link& link, const std::shared_ptr<Exchange>& exchange,
                     std::vector<MemoryReply> replies) {
    Stream& stream = *exchange->stream;
    if (stream.mute) return;
    if (link.random.chance(link.loses_back)) {
        stream.mute = true;
        replies.resize(link.random.below(replies.size()));
        if (replies.empty()) return;
    }
    stream.last_back = std::max(stream.last_back + 1, world.now() + travel(link, link.slow_back));
    world.at(stream.last_back, [this, exchange, replies = std::move(replies)] {
        Stream& from = *exchange->stream;
        if (!from.open) return;
        from.heard = world.now();
        exchange->replies = replies;
        if (replies.size() < exchange->commands.size()) return;
        end(*exchange);
    });
}

/// All that will come is there.
void Network::end(Exchange& exchange) const {
    exchange.over.store(1);
    world.notify_all(exchange.over);
    if (exchange.bell == nullptr) return;
    exchange.bell->store(1);
    world.notify_all(*exchange.bell);
}

/// The client hears of it, in its own time. Of what it had sent, some may be executed all the same.
void Network::break_stream(Link& link, Stream& stream) {
    if (!stream.open) return;
    stream.open = false;
    stream.mute = true;
    stream.lost = link.random.chance(500);
    for (const std::weak_ptr<Exchange>& waiting : std::exchange(stream.waiting, {})) {
        const std::shared_ptr<Exchange> exchange = waiting.lock();
        if (!exchange) continue;
        world.at(world.now() + travel(link, 0), [this, exchange] { end(*exchange); });
    }
}

void Network::cut(Link& link) {
    for (const std::weak_ptr<Stream>& known : std::exchange(link.streams, {})) {
        if (const std::shared_ptr<Stream> stream = known.lock()) break_stream(link, *stream);
    }
}

void Network::cut(const Server& server, std::span<Link> links) {
    for (Link& link : links) {
        for (const std::weak_ptr<Stream>& known : link.streams) {
            const std::shared_ptr<Stream> stream = known.lock();
            if (stream && stream->server == &server) break_stream(link, *stream);
        }
    }
}

} // namespace leaselock::simulation
