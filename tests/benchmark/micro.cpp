// SPDX-License-Identifier: MIT
// The steps of one cycle, for one thread, beside what people write by hand. Google Benchmark's own
// options: --benchmark_filter, --benchmark_repetitions, --benchmark_out and so on.
#include "benchmark/support/by_hand.hpp"
#include "integration/support/redis_server.hpp"

#include <leaselock/hiredis/detail/reply_decoder.hpp>
#include <leaselock/hiredis/detail/resp_writer.hpp>
#include <leaselock/leaselock.hpp>

#include <benchmark/benchmark.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

using namespace leaselock;
using namespace leaselock::bench;

namespace {

std::uint16_t port = 0;
std::string url() { return "redis://127.0.0.1:" + std::to_string(port); }

// --- a cycle: acquire and release, against a server of ours -------------------------------------

void cycle_by_hand(::benchmark::State& state) {
    ByHand connection{port};
    const Pair pair{std::size_t{0}};
    for (auto unused : state) {
        if (!connection.call(pair.acquire()) || !connection.call(pair.release())) {
            state.SkipWithError("not taken, or not released");
        }
    }
}
BENCHMARK(cycle_by_hand)->UseRealTime();

template <class C>
void cycle(::benchmark::State& state) {
    C connection{url()};
    LeaseLock<C> lock{connection, "lock:micro", Options{}, std::defer_lock};
    for (auto unused : state) {
        if (!lock.try_acquire() || !lock.unlock()) {
            state.SkipWithError("not taken, or not released");
        }
    }
}
BENCHMARK(cycle<HiredisConnection>)->Name("cycle_HiredisConnection")->UseRealTime();
BENCHMARK(cycle<MultiplexedConnection>)->Name("cycle_MultiplexedConnection")->UseRealTime();

/// A guard for each cycle, as most services write it.
void cycle_with_a_new_guard(::benchmark::State& state) {
    HiredisConnection connection{url()};
    for (auto unused : state) {
        const LeaseLock lock{connection, "lock:micro", std::chrono::seconds{30}};
        ::benchmark::DoNotOptimize(lock.owns_lock());
    }
}
BENCHMARK(cycle_with_a_new_guard)->UseRealTime();

// --- its steps, without a server ----------------------------------------------------------------

void token_draw(::benchmark::State& state) {
    Token token;
    for (auto unused : state) {
        if (token.draw(system_runtime())) state.SkipWithError("no random bits");
        ::benchmark::DoNotOptimize(token);
    }
}
BENCHMARK(token_draw);

void format_acquire(::benchmark::State& state) {
    const Pair pair{std::size_t{0}};
    const auto words = pair.acquire();
    const Command command{words, pair.key()};
    detail::RespWriter writer;
    for (auto unused : state) {
        if (!writer.write(std::span{&command, 1})) state.SkipWithError("no memory");
        ::benchmark::ClobberMemory();
    }
}
BENCHMARK(format_acquire);

void format_acquire_by_hiredis(::benchmark::State& state) {
    const Pair pair{std::size_t{0}};
    std::array<const char*, 6> text{};
    std::array<std::size_t, 6> size{};
    const auto words = pair.acquire();
    for (std::size_t i = 0; i < words.size(); ++i) {
        text[i] = words[i].data();
        size[i] = words[i].size();
    }
    for (auto unused : state) {
        char* bytes = nullptr;
        ::benchmark::DoNotOptimize(::redisFormatCommandArgv(&bytes, static_cast<int>(text.size()),
                                                            text.data(), size.data()));
        ::redisFreeCommand(bytes);
    }
}
BENCHMARK(format_acquire_by_hiredis);

constexpr std::string_view replies = "+OK\r\n:1\r\n"; // to an acquire and a release

void decode_replies(::benchmark::State& state) {
    detail::ReplyDecoder decoder;
    if (!decoder.open()) state.SkipWithError("no memory");
    Reply reply;
    for (auto unused : state) {
        decoder.feed(replies);
        for (int i = 0; i < 2; ++i) {
            if (decoder.next(reply) != detail::ReplyDecoder::Step::decoded) {
                state.SkipWithError("not decoded");
            }
        }
        ::benchmark::DoNotOptimize(reply);
    }
}
BENCHMARK(decode_replies);

void decode_replies_by_hiredis(::benchmark::State& state) {
    redisReader* const reader = ::redisReaderCreate();
    for (auto unused : state) {
        (void)::redisReaderFeed(reader, replies.data(), replies.size());
        for (int i = 0; i < 2; ++i) {
            void* reply = nullptr;
            if (::redisReaderGetReply(reader, &reply) != REDIS_OK || reply == nullptr) {
                state.SkipWithError("not decoded");
            }
            ::freeReplyObject(reply);
        }
    }
    ::redisReaderFree(reader);
}
BENCHMARK(decode_replies_by_hiredis);

void owns_lock(::benchmark::State& state) {
    HiredisConnection connection{url()};
    const LeaseLock lock{connection, "lock:owned", std::chrono::hours{1}};
    for (auto unused : state) ::benchmark::DoNotOptimize(lock.owns_lock());
    if (!lock.owns_lock()) state.SkipWithError("lost");
}
BENCHMARK(owns_lock);

} // namespace

int main(int argc, char** argv) {
    const test::RedisServer server;
    port = server.port();
    test::RawClient outside = server.client();
    (void)outside.command({"SCRIPT", "LOAD", std::string{scripts::compare_and_delete.get.text}});
    ::benchmark::Initialize(&argc, argv);
    if (::benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    const std::size_t run = ::benchmark::RunSpecifiedBenchmarks();
    ::benchmark::Shutdown();
    return run == 0 ? 1 : 0;
}
