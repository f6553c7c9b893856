// SPDX-License-Identifier: MIT

#include "simulation/connection.hpp"

#include "simulation/deed.hpp"

#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>

namespace leaselock::simulation {
namespace {

Time time_of(Deadline deadline) { return deadline.time_since_epoch().count(); }

} // namespace

void SimulatedConnection::stall() {
    if (!link_.random.chance(60)) return;
    World& world = network_.world;
    world.sleep_until(world.reading() + link_.random.between(0, 4 * ms));
}

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
    return open();
}

/// The handshake is over.
std::error_code SimulatedConnection::open() {
    Server& server = network_.reach(link_);
    if (link_.refuses || !server.up) return std::make_error_code(std::errc::connection_refused);
    stream_ = std::make_shared<Stream>(Stream{&server, server.life()});
    stream_->heard = network_.world.now();
    std::erase_if(link_.streams, [](const auto& known) { return known.expired(); });
    link_.streams.push_back(stream_);
    dialect_.reset();
    return {};
}

std::shared_ptr<Exchange> SimulatedConnection::pack(std::span<const Command> commands) const {
    const auto exchange = std::make_shared<Exchange>();
    for (const Command& command : commands) {
        exchange->commands.emplace_back(command.argv.begin(), command.argv.end());
        exchange->ids.push_back(network_.world.new_id());
    }
    return exchange;
}

/// @param what `send`, or `dial`: it connects first
void SimulatedConnection::say(std::string_view what, const Exchange& exchange, Time asked) const {
    for (std::size_t i = 0; i < exchange.ids.size(); ++i) {
        const Deed deed = deed_of(exchange.commands[i]);
        auto line = network_.world.line(what);
        line.put_unsigned("id", exchange.ids[i]).put("verb", deed.verb).put("key", deed.key);
        line.put("token", deed.token).put("heir", deed.heir);
        if (exchange.stream) line.put("to", exchange.stream->server->name());
        if (!via_.empty()) line.put("via", via_).put_unsigned("slot", link_.node);
        if (deed.ttl != 0) line.put("ttl", deed.ttl);
        line.put("asked", asked);
    }
}

void SimulatedConnection::call(std::span<const Command> commands, std::span<Reply> replies,
                               Deadline deadline, bool shared) noexcept {
    World& world = network_.world;
    const Time by = time_of(deadline);
    const Time asked = world.now();
    const auto unsent = [&](std::error_code why) {
        for (Reply& reply : replies) reply.set_unsent(why);
    };
    stall();
    if (!stream_ || !stream_->open) {
        if (const std::error_code error = connect(by)) return unsent(error);
    }
    if (world.process().killed) return unsent(make_error_code(errc::connection_lost));

    const std::shared_ptr<Exchange> exchange = pack(commands);
    exchange->stream = stream_;
    say("send", *exchange, asked);
    network_.send(link_, exchange);
    const bool answered = world.wait_until(exchange->over, 0, by);
    collect(*exchange, replies, !answered);
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
        network_.world.line("reply")
            .put_unsigned("id", exchange.ids[i])
            .put("is", word_of(replies[i]));
    }
}

// --- many at once

void SimulatedConnection::start(std::span<const Command> commands, Deadline by) noexcept {
    World& world = network_.world;
    Flight flight{pack(commands), time_of(by), 0, world.now()};
    stall();
    if (world.process().killed) {
        flight.error = make_error_code(errc::connection_lost);
        flight.over = true;
    } else if (stream_ && stream_->open) {
        depart(flight);
    } else {
        say("dial", *flight.exchange, flight.asked);
        flight.connected =
            link_.swallows ? flight.by : world.reading() + 2 * network_.travel(link_, 0);
    }
    flight_ = std::move(flight);
}

void SimulatedConnection::depart(Flight& flight) {
    flight.exchange->stream = stream_;
    say("send", *flight.exchange, flight.asked);
    network_.send(link_, flight.exchange);
}

/// As far as it gets without waiting. @return false: it is over
bool SimulatedConnection::goes_on(Flight& flight) {
    const Time now = network_.world.reading();
    if (!flight.over && !flight.exchange->stream) {
        if (network_.world.process().killed) {
            flight.error = make_error_code(errc::connection_lost);
        } else if (now >= flight.by) {
            flight.error = make_error_code(errc::timed_out);
        } else if (now < flight.connected) {
            return true;
        } else if (flight.error = open(); !flight.error) {
            depart(flight);
        }
        flight.over = static_cast<bool>(flight.error);
    }
    flight.over = flight.over || flight.exchange->over.load() != 0 || now >= flight.by;
    return !flight.over;
}

bool SimulatedConnection::finish(std::span<Reply> replies) noexcept {
    if (flight_ && goes_on(*flight_)) return false;
    const std::optional<Flight> flight = std::exchange(flight_, std::nullopt);
    if (!flight || flight->error) {
        const std::error_code why =
            flight ? flight->error : std::make_error_code(std::errc::not_connected);
        for (std::size_t i = 0; i < replies.size(); ++i) {
            replies[i].set_unsent(why);
            if (!flight) continue;
            network_.world.line("reply")
                .put_unsigned("id", flight->exchange->ids[i])
                .put("is", word_of(replies[i]));
        }
        return true;
    }
    const bool answered = flight->exchange->over.load() != 0;
    collect(*flight->exchange, replies, !answered);
    if (!answered) flight->exchange->stream->open = false;
    return true;
}

void SimulatedConnection::wait_any(std::span<SimulatedConnection* const> all,
                                   Deadline by) noexcept {
    std::atomic<std::uint32_t> bell{0};
    Time first = time_of(by);
    for (SimulatedConnection* const one : all) {
        if (!one->flight_) continue;
        Flight& flight = *one->flight_;
        if (!one->goes_on(flight)) bell.store(1);
        const bool connects = !flight.exchange->stream;
        first = std::min({first, flight.by, connects ? flight.connected : flight.by});
        flight.exchange->bell = &bell;
    }
    if (!all.empty()) (void)all.front()->network_.world.wait_until(bell, 0, first);
    for (SimulatedConnection* const one : all) {
        if (one->flight_) one->flight_->exchange->bell = nullptr;
    }
}

} // namespace leaselock::simulation
