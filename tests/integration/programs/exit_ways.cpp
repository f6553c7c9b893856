// SPDX-License-Identifier: MIT
// A process, or a thread, that ends in the way that its second argument names while a renewer keeps
// a lease for it. The first is the server's URL. Sanitizers and the exit code say what came of it.
#include <leaselock/leaselock.hpp>

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

using namespace leaselock;
using namespace std::chrono_literals;

namespace {

using Lock = LeaseLock<HiredisConnection>;
using Keeper = Renewer<HiredisConnection>;

std::string url;
constexpr Options options{.ttl = 3s, .timeout = 20s};

struct Holder {
    HiredisConnection redis{url};
    HiredisConnection wire{url};
    Keeper renewer{wire};
    Lock lock{redis, "lock:exit", options};

    Holder() {
        renewer.keep(lock);
        const Deadline first = lock.deadline();
        while (lock.owns_lock() && lock.deadline() == first) { // its thread is at work
            std::this_thread::sleep_for(1ms);
        }
    }
};

/// Its renewer goes first.
struct Unkept {
    HiredisConnection redis{url};
    HiredisConnection wire{url};
    Lock lock{redis, "lock:exit", options};
    Keeper renewer{wire};

    Unkept() { renewer.keep(lock); }
};

template <class T>
T& in_a_static() {
    static T held;
    return held;
}
template <class T>
T& in_a_thread() {
    thread_local T held;
    return held;
}

int delete_key(const char* name) {
    HiredisConnection redis{url};
    const std::string_view argv[] = {"DEL", name};
    const Command command{argv, name};
    Reply reply;
    redis.call({&command, 1}, {&reply, 1}, LeaseClock::now() + 20s);
    return static_cast<int>(reply.number);
}

/// Ends the process on the renewer's own thread: `exit` runs there, and destroys the renewer too.
int exit_in_callback() {
    static Holder& held = in_a_static<Holder>();
    static const std::stop_callback callback{held.lock.stop_token(), [] { std::exit(0); }};
    if (delete_key("lock:exit") != 1) {
        return 1;
    }
    std::this_thread::sleep_for(30s);
    return 2;
}

const std::map<std::string, std::function<int()>> ways{
    {"return",
     [] {
         const Holder held;
         return 0;
     }},
    {"return, renewer first",
     [] {
         const Unkept held;
         return 0;
     }},
    {"return, of statics",
     [] {
         in_a_static<Holder>();
         return 0;
     }},
    {"exit, of statics",
     []() -> int {
         in_a_static<Holder>();
         std::exit(0);
     }},
    {"exit, renewer first",
     []() -> int {
         in_a_static<Unkept>();
         std::exit(0);
     }},
    {"exit, of locals",
     []() -> int {
         const Holder held;
         std::exit(0);
     }},
    {"exit, on another thread",
     [] {
         in_a_static<Holder>();
         std::thread{[] { std::exit(0); }}.join();
         return 1;
     }},
    {"exit, in a callback", exit_in_callback},
    {"quick_exit",
     []() -> int {
         in_a_static<Holder>();
         std::quick_exit(0);
     }},
    {"_Exit",
     []() -> int {
         in_a_static<Holder>();
         std::_Exit(0);
     }},
    {"thread",
     [] {
         std::thread{[] { const Holder held; }}.join();
         return 0;
     }},
    {"thread, of thread locals",
     [] {
         std::thread{[] { in_a_thread<Holder>(); }}.join();
         return 0;
     }},
    {"thread, renewer first",
     [] {
         std::thread{[] { in_a_thread<Unkept>(); }}.join();
         return 0;
     }},
    {"pthread_exit",
     [] {
         std::thread{[] {
             in_a_thread<Holder>();
             pthread_exit(nullptr);
         }}.join();
         return 0;
     }},
    {"thread, the guard goes elsewhere",
     [] {
         HiredisConnection redis{url};
         HiredisConnection wire{url};
         Keeper renewer{wire};
         std::optional<Lock> lock;
         std::thread{[&] {
             lock.emplace(redis, "lock:exit", options);
             renewer.keep(*lock);
         }}.join();
         return lock->owns_lock() ? 0 : 1;
     }},
};

} // namespace

int main(int argc, char** argv) {
    if (argc == 1) { // the list
        for (const auto& [name, way] : ways) {
            std::puts(name.c_str());
        }
        return 0;
    }
    if (argc != 3) {
        return 100;
    }
    url = std::string{argv[1]} + "?connect_timeout=20s";
    const auto way = ways.find(argv[2]);
    return way == ways.end() ? 100 : way->second();
}
