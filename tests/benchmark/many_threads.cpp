// SPDX-License-Identifier: MIT
// What one stream does for many threads: acquire-and-release pairs a second over one
// `MultiplexedConnection`, over a hand-written connection per thread, and over one connection that one
// thread pipelines, which is the limit. Then one thread alone, over either of the library's connections.
//
//   leaselock_many_threads [--threads N] [--rounds R] [--ms M] [--only WAY]
//
// The ways take turns, M ms each, R rounds; the table gives medians and what they lie between. The
// server is a private one.
// Exits with 1 when a lock was not taken or not released.
#include "integration/support/redis_server.hpp"
#include "integration/support/resources.hpp"

#include <leaselock/leaselock.hpp>

#include <hiredis/hiredis.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

struct Plan {
    long threads = 64;
    long rounds = 7;
    long ms = 1000;
    std::string_view only; ///< one way, for a profiler
};

bool read_plan(std::span<char*> arguments, Plan& plan) {
    for (std::size_t i = 0; i + 1 < arguments.size(); i += 2) {
        const std::string_view name = arguments[i];
        const std::string_view value = arguments[i + 1];
        if (name == "--only") {
            plan.only = value;
            continue;
        }
        long* const target = name == "--threads"  ? &plan.threads
                             : name == "--rounds" ? &plan.rounds
                             : name == "--ms"     ? &plan.ms
                                                  : nullptr;
        if (target == nullptr) {
            return false;
        }
        const auto end = value.data() + value.size();
        if (std::from_chars(value.data(), end, *target).ptr != end || *target < 1) {
            return false;
        }
    }
    return arguments.size() % 2 == 0;
}

constexpr Options options{.ttl = 30s, .timeout = 10s};
constexpr std::string_view ttl_text = "30000";

std::string key_of(std::size_t thread) { return "lock:thread:" + std::to_string(thread); }
std::string token_of(std::size_t thread) {
    std::string token(32, 'a');
    return token.replace(0, 4, std::to_string(1000 + thread % 9000));
}

/// Pairs that did not come to what they should.
std::atomic<std::size_t> failures{0};

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

/// What is sent for one thread's pair.
class Pair {
public:
    static inline const ScriptText* text = &scripts::compare_and_delete.getex;

    explicit Pair(std::size_t thread) : key_{key_of(thread)}, token_{token_of(thread)} {}
    [[nodiscard]] std::array<std::string_view, 6> acquire() const {
        return {"SET", key_, token_, "NX", "PX", ttl_text};
    }
    [[nodiscard]] std::array<std::string_view, 5> release() const {
        return {"EVALSHA", text->sha1, "1", key_, token_};
    }

private:
    std::string key_;
    std::string token_;
};

/// Lets `threads` threads work for a while. @param work does one step, given its thread's number, and
/// says how many pairs that was. @return pairs a second
double measure(std::size_t threads, std::chrono::milliseconds span,
               const std::function<std::function<std::size_t()>(std::size_t)>& make) {
    std::atomic<std::size_t> ready{0};
    std::atomic<bool> go{false};
    std::atomic<bool> stop{false};
    std::atomic<std::size_t> pairs{0};
    std::vector<std::thread> all;
    for (std::size_t i = 0; i < threads; ++i) {
        all.emplace_back([&, i] {
            const std::function<std::size_t()> step = make(i);
            (void)step(); // connects
            ++ready;
            go.wait(false);
            std::size_t mine = 0;
            while (!stop.load(std::memory_order_relaxed)) mine += step();
            pairs += mine;
        });
    }
    while (ready != threads) std::this_thread::sleep_for(1ms);
    const Deadline start = LeaseClock::now();
    go = true;
    go.notify_all();
    std::this_thread::sleep_for(span);
    stop = true;
    const std::chrono::duration<double> took = LeaseClock::now() - start;
    for (auto& thread : all) thread.join();
    return static_cast<double>(pairs) / took.count();
}

template <Connection C>
double over(C& connection, std::size_t threads, std::chrono::milliseconds span) {
    return measure(threads, span, [&](std::size_t i) {
        auto lock = std::make_shared<LeaseLock<C>>(connection, key_of(i), options, std::defer_lock);
        return [lock]() -> std::size_t {
            const bool taken = static_cast<bool>(lock->try_acquire());
            if (!taken || !lock->unlock()) ++failures;
            return 1;
        };
    });
}

double by_hand(std::uint16_t port, std::size_t threads, std::chrono::milliseconds span) {
    return measure(threads, span, [=](std::size_t i) {
        auto connection = std::make_shared<ByHand>(port);
        auto pair = std::make_shared<Pair>(i);
        return [=]() -> std::size_t {
            const bool taken = connection->call(pair->acquire());
            if (!taken || !connection->call(pair->release())) ++failures;
            return 1;
        };
    });
}

/// The threads' commands without the threads: all acquires in one write, then all releases.
double pipelined(std::uint16_t port, std::size_t threads, std::chrono::milliseconds span) {
    return measure(1, span, [=](std::size_t) {
        auto connection = std::make_shared<ByHand>(port);
        auto pairs = std::make_shared<std::vector<Pair>>();
        for (std::size_t i = 0; i < threads; ++i) pairs->emplace_back(i);
        return [=]() -> std::size_t {
            std::size_t yes = 0;
            for (const Pair& pair : *pairs) connection->begin(pair.acquire());
            for (std::size_t i = 0; i < threads; ++i) yes += connection->finish() ? 1U : 0U;
            for (const Pair& pair : *pairs) connection->begin(pair.release());
            for (std::size_t i = 0; i < threads; ++i) yes += connection->finish() ? 1U : 0U;
            failures += 2 * threads - yes;
            return threads;
        };
    });
}

/// The processor time that the server has used so far, from its own account.
double server_seconds(RawClient& outside) {
    const std::string info = outside.command({"INFO", "cpu"});
    double sum = 0;
    for (const char* name : {"used_cpu_sys:", "used_cpu_user:"}) {
        const std::size_t at = info.find(name);
        if (at != std::string::npos) {
            sum += std::atof(info.c_str() + at + std::string_view{name}.size());
        }
    }
    return sum;
}

struct Way {
    std::string_view name;
    std::string title;
    std::function<double(std::chrono::milliseconds)> run;
    std::vector<double> rates{};
    std::vector<double> here{};  ///< microseconds of our processor time for a pair
    std::vector<double> there{}; ///< and of the server's
};

double median(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    const std::size_t half = all.size() / 2;
    return all.size() % 2 != 0 ? all[half] : (all[half - 1] + all[half]) / 2;
}

/// Medians of the rounds' own ratios: what disturbs one round disturbs both sides of it.
double ratio(const Way& a, const Way& b) {
    std::vector<double> all;
    for (std::size_t i = 0; i < a.rates.size(); ++i) all.push_back(a.rates[i] / b.rates[i]);
    return median(all);
}

void print(const std::vector<Way>& ways) {
    std::printf("%-46s %9s %9s %9s %12s %7s\n", "pairs a second", "median", "least", "most",
                "us/pair here", "there");
    for (const Way& way : ways) {
        const auto [least, most] = std::minmax_element(way.rates.begin(), way.rates.end());
        std::printf("%-46s %9.0f %9.0f %9.0f %12.2f %7.2f\n", way.title.c_str(), median(way.rates),
                    *least, *most, median(way.here), median(way.there));
    }
}

} // namespace

int main(int argc, char** argv) {
    Plan plan;
    if (!read_plan(std::span{argv, static_cast<std::size_t>(argc)}.subspan(1), plan)) {
        std::fprintf(stderr, "usage: %s [--threads N] [--rounds R] [--ms M] [--only WAY]\n",
                     argv[0]);
        return 2;
    }
    (void)raise_descriptor_limit();
    const RedisServer server;
    RawClient outside = server.client();
    if (!server.has_getex()) Pair::text = &scripts::compare_and_delete.get;
    (void)outside.command({"SCRIPT", "LOAD", std::string{Pair::text->text}});
    MultiplexedConnection shared{server.url()};
    HiredisConnection own{server.url()};
    const auto threads = static_cast<std::size_t>(plan.threads);
    const std::string many = std::to_string(threads) + " threads, ";

    std::vector<Way> ways;
    const auto add = [&](std::string_view name, std::string title, auto run) {
        if (plan.only.empty() || plan.only == name)
            ways.push_back({name, std::move(title), std::move(run)});
    };
    add("shared", many + "one MultiplexedConnection",
        [&](auto span) { return over(shared, threads, span); });
    add("hand", many + "a connection each, by hand",
        [&](auto span) { return by_hand(server.port(), threads, span); });
    add("pipelined", std::to_string(threads) + " pairs at a time, one thread, by hand",
        [&](auto span) { return pipelined(server.port(), threads, span); });
    add("own", "1 thread, HiredisConnection", [&](auto span) { return over(own, 1, span); });
    add("alone", "1 thread, MultiplexedConnection",
        [&](auto span) { return over(shared, 1, span); });

    for (long round = 0; round < plan.rounds; ++round) {
        for (std::size_t i = 0; i < ways.size(); ++i) {
            Way& way = ways[(i + static_cast<std::size_t>(round)) % ways.size()];
            const double there = server_seconds(outside);
            const auto here = processor_time();
            const double rate = way.run(std::chrono::milliseconds{plan.ms});
            const std::chrono::duration<double> used = processor_time() - here;
            const double pairs = rate * static_cast<double>(plan.ms) / 1000;
            way.rates.push_back(rate);
            way.here.push_back(1e6 * used.count() / pairs);
            way.there.push_back(1e6 * (server_seconds(outside) - there) / pairs);
        }
    }
    std::printf("%s\n%ld rounds of %ld ms each\n", RedisServer::version().c_str(), plan.rounds,
                plan.ms);
    print(ways);
    if (plan.only.empty()) {
        std::printf(
            "shared : by hand %.2f   shared : limit %.2f   alone : HiredisConnection %.3f\n",
            ratio(ways[0], ways[1]), ratio(ways[0], ways[2]), ratio(ways[4], ways[3]));
    }
    std::printf("failures %zu\n", failures.load());
    return failures == 0 ? 0 : 1;
}
