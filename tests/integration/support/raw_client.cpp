// SPDX-License-Identifier: MIT
#include "raw_client.hpp"

#include "sockets.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace leaselock::test {
namespace {

std::string printable(const redisReply& reply) {
    switch (reply.type) {
    case REDIS_REPLY_NIL: return "(nil)";
    case REDIS_REPLY_INTEGER: return "(integer) " + std::to_string(reply.integer);
    case REDIS_REPLY_ERROR:
        return "(error) " + std::string(reply.str, static_cast<std::size_t>(reply.len));
    case REDIS_REPLY_ARRAY: {
        std::string text = "[";
        for (std::size_t i = 0; i < static_cast<std::size_t>(reply.elements); ++i) {
            text += (i == 0 ? "" : ", ") + printable(*reply.element[i]);
        }
        return text + "]";
    }
    default: return {reply.str, static_cast<std::size_t>(reply.len)};
    }
}

/// The number behind `name` in a line of `name=value` fields.
std::optional<long long> number_after(const std::string& line, std::string_view name) {
    const auto at = line.find(name);
    if (at == std::string::npos) {
        return std::nullopt;
    }
    return std::strtoll(line.c_str() + at + name.size(), nullptr, 10);
}

} // namespace

RawClient::RawClient(std::uint16_t port, std::string password)
    : port_{port}, password_{std::move(password)} {}

RawClient::RawClient(std::string unix_path, std::string password)
    : unix_path_{std::move(unix_path)}, password_{std::move(password)} {}

void RawClient::fail(const std::string& what) {
    context_.reset(); // a late reply must not answer the next command
    throw std::runtime_error("raw client of " +
                             (unix_path_.empty() ? "port " + std::to_string(port_) : unix_path_) +
                             ": " + what);
}

void RawClient::connect() {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit_);
    const timeval limit{
        static_cast<time_t>(seconds.count()),
        static_cast<suseconds_t>(std::chrono::microseconds{limit_ - seconds}.count())};
    context_.reset(unix_path_.empty() ? redisConnectWithTimeout("127.0.0.1", port_, limit)
                                      : redisConnectUnixWithTimeout(unix_path_.c_str(), limit));
    if (!context_ || context_->err != 0) {
        fail(context_ ? std::string{"cannot connect: "} + context_->errstr : "no memory");
    }
    fcntl(context_->fd, F_SETFD, FD_CLOEXEC);
    if (!password_.empty()) {
        if (const auto reply = printable(*round_trip({"AUTH", password_})); reply != "OK") {
            fail("AUTH: " + reply);
        }
    }
}

/// Between commands nothing may arrive: what does is the end of the stream, or not for us.
bool RawClient::dropped_by_server() const {
    pollfd idle{context_->fd, POLLIN, 0};
    return poll(&idle, 1, 0) != 0;
}

RawClient::Reply RawClient::call(const std::vector<std::string>& words) {
    if (!context_ || dropped_by_server()) {
        connect();
    }
    return round_trip(words);
}

RawClient::Reply RawClient::round_trip(const std::vector<std::string>& words) {
    std::string request = "*" + std::to_string(words.size()) + "\r\n";
    for (const auto& word : words) {
        request.append("$").append(std::to_string(word.size())).append("\r\n");
        request.append(word).append("\r\n");
    }
    // Own sending and waiting: hiredis may raise SIGPIPE, and signals restart its time limit.
    const auto deadline = std::chrono::steady_clock::now() + limit_;
    for (std::string_view rest = request; !rest.empty();) {
        if (!wait_for_events(context_->fd, POLLOUT, deadline)) {
            fail("cannot send " + words.front() + " in time");
        }
        const auto sent = send_some(context_->fd, rest);
        if (!sent) {
            fail("connection lost while sending " + words.front());
        }
        rest.remove_prefix(*sent);
    }
    for (;;) {
        void* reply = nullptr;
        if (redisGetReplyFromReader(context_.get(), &reply) != REDIS_OK) {
            fail(words.front() + ": " + context_->errstr);
        }
        if (reply != nullptr) {
            return Reply{static_cast<redisReply*>(reply)};
        }
        if (!wait_readable(context_->fd, deadline)) {
            fail("no reply to " + words.front() + " in time");
        }
        if (redisBufferRead(context_.get()) != REDIS_OK) {
            fail(words.front() + ": " + context_->errstr);
        }
    }
}

std::string RawClient::command(const std::vector<std::string>& words) {
    return printable(*call(words));
}

long long RawClient::integer(const std::vector<std::string>& words) {
    const auto reply = call(words);
    if (reply->type != REDIS_REPLY_INTEGER) {
        throw std::runtime_error(words.front() + " answered no integer but " + printable(*reply));
    }
    return reply->integer;
}

std::string RawClient::eval(const std::string& script, const std::vector<std::string>& keys,
                            const std::vector<std::string>& arguments) {
    std::vector<std::string> words{"EVAL", script, std::to_string(keys.size())};
    words.insert(words.end(), keys.begin(), keys.end());
    words.insert(words.end(), arguments.begin(), arguments.end());
    return command(words);
}

std::optional<std::string> RawClient::get(const std::string& key) {
    const auto reply = call({"GET", key});
    if (reply->type == REDIS_REPLY_NIL) {
        return std::nullopt;
    }
    if (reply->type != REDIS_REPLY_STRING) {
        throw std::runtime_error("GET answered " + printable(*reply));
    }
    return printable(*reply);
}

bool RawClient::exists(const std::string& key) { return integer({"EXISTS", key}) == 1; }

long long RawClient::pttl(const std::string& key) { return integer({"PTTL", key}); }

void RawClient::expect_ok(const std::vector<std::string>& words) {
    if (const auto reply = command(words); reply != "OK") {
        throw std::runtime_error(words.front() + " answered " + reply);
    }
}

void RawClient::config_set(const std::string& name, const std::string& value) {
    expect_ok({"CONFIG", "SET", name, value});
}

std::map<std::string, long long> RawClient::command_stats() {
    std::map<std::string, long long> calls;
    std::istringstream lines{command({"INFO", "commandstats"})};
    const std::string prefix = "cmdstat_";
    for (std::string line; std::getline(lines, line);) {
        const auto count = number_after(line, ":calls=");
        if (count && line.starts_with(prefix)) {
            calls[line.substr(prefix.size(), line.find(':') - prefix.size())] = *count;
        }
    }
    return calls;
}

void RawClient::reset_stats() { expect_ok({"CONFIG", "RESETSTAT"}); }

long long RawClient::client_kill_normal() {
    return integer({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
}

std::set<long long> RawClient::client_ids() {
    std::set<long long> ids;
    std::istringstream lines{command({"CLIENT", "LIST", "TYPE", "normal"})};
    for (std::string line; std::getline(lines, line);) {
        if (const auto id = number_after(line, "id=")) {
            ids.insert(*id);
        }
    }
    ids.erase(integer({"CLIENT", "ID"}));
    return ids;
}

} // namespace leaselock::test
