// SPDX-License-Identifier: MIT

#include "simulation/network.hpp"

#include "simulation/deed.hpp"

#include <leaselock/core/error.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>
#include <leaselock/testing/memory_reply.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
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
        exchange->over.store(1);
        world.notify_all(exchange->over);
    });
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
        world.at(world.now() + travel(link, 0), [this, exchange] {
            exchange->over.store(1);
            world.notify_all(exchange->over);
        });
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

// --- the connection

std::error_code SimulatedConnection::connect(Time by) {
    World& world = network_.world;
    const Time start = world.reading();
    if (start >= by) return make_error_code(errc::timed_out);
    if (link_.swallows) {
        world.sleep_until(by);
        return make_error_code(errc::timed_out);
    }
    const Time round = 2 * network_.travel(link_, 0);
    world.sleep_until(std::min(by, start + round));
    if (start + round >= by) return make_error_code(errc::timed_out);
    Server& server = *network_.master;
    if (link_.refuses || !server.up) return std::make_error_code(std::errc::connection_refused);
    stream_ = std::make_shared<Stream>(Stream{&server, server.life()});
    stream_->heard = world.now();
    std::erase_if(link_.streams, [](const auto& known) { return known.expired(); });
    link_.streams.push_back(stream_);
    dialect_.reset();
    return {};
}

void SimulatedConnection::call(std::span<const Command> commands, std::span<Reply> replies,
                               Deadline deadline, bool shared) noexcept {
    World& world = network_.world;
    const Time by = deadline.time_since_epoch().count();
    const Time asked = world.now();
    const auto unsent = [&](std::error_code why) {
        for (Reply& reply : replies) reply.set_unsent(why);
    };
    // the thread may lose the processor here, behind whatever it has decided
    if (link_.random.chance(60)) {
        world.sleep_until(world.reading() + link_.random.between(0, 4 * ms));
    }
    if (!stream_ || !stream_->open) {
        if (const std::error_code error = connect(by)) return unsent(error);
    }
    if (world.process().killed) return unsent(make_error_code(errc::connection_lost));

    const auto exchange = std::make_shared<Exchange>();
    exchange->stream = stream_;
    for (const Command& command : commands) {
        exchange->commands.emplace_back(command.argv.begin(), command.argv.end());
        exchange->ids.push_back(world.new_id());
        const Deed deed = deed_of(command.argv);
        auto line = world.line("send");
        line.put_unsigned("id", exchange->ids.back()).put("verb", deed.verb).put("key", deed.key);
        line.put("token", deed.token).put("heir", deed.heir).put("to", stream_->server->name());
        if (deed.ttl != 0) line.put("ttl", deed.ttl);
        line.put("asked", asked);
    }
    network_.send(link_, exchange);
    const bool answered = world.wait_until(exchange->over, 0, by);
    collect(*exchange, replies, !answered);
    for (std::size_t i = 0; i < replies.size(); ++i) {
        world.line("reply").put_unsigned("id", exchange->ids[i]).put("is", word_of(replies[i]));
    }
    // a late reply must not answer the next command
    constexpr Time silence = 2 * s;
    Stream& stream = *exchange->stream;
    if (!answered && (!shared || world.now() - stream.heard > silence)) stream.open = false;
}

void SimulatedConnection::collect(const Exchange& exchange, std::span<Reply> replies,
                                  bool timed_out) const {
    for (std::size_t i = 0; i < replies.size(); ++i) {
        if (i < exchange.replies.size()) {
            exchange.replies[i].write_to(replies[i]);
        } else {
            replies[i].set_unknown(
                make_error_code(timed_out ? errc::timed_out : errc::connection_lost));
        }
    }
}

} // namespace leaselock::simulation
