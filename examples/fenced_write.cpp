// SPDX-License-Identifier: MIT

/// What no lock can prevent, and what a fencing token does about it: a holder is stopped right behind
/// its check, for longer than its lease, and its next line is the write.
///
/// Played twice on a real server, with a store that asks no questions and with one that compares
/// tokens. The holders are processes of their own; the store is this one.

#include "support/await.hpp"
#include "support/checks.hpp"
#include "support/child.hpp"
#include "support/private_server.hpp"
#include "support/program.hpp"
#include "support/timeline.hpp"

#include <leaselock/leaselock.hpp>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

using namespace std::chrono_literals;
using example::Doing;
using leaselock::HiredisConnection;
using leaselock::LeaseLock;

namespace {

const std::string key = "lock:report";

// --- the store ---------------------------------------------------------------------------------

/// A document, and the highest fencing token it has heard of. With a database it is two statements:
///
///     UPDATE report SET fence = :token WHERE id = :id AND fence <= :token    -- begin
///     UPDATE report SET body = :body WHERE id = :id AND fence = :token       -- write
class Store {
public:
    explicit Store(bool fenced) : fenced_(fenced) {}

    /// Registers a token, before its holder reads anything: from then on all smaller ones are refused.
    bool begin(std::uint64_t token) {
        if (token < highest_) return false;
        highest_ = token;
        return true;
    }
    bool write(std::uint64_t token, const std::string& body) {
        if (fenced_ && token != highest_) return false;
        body_ = body;
        return true;
    }
    [[nodiscard]] const std::string& body() const { return body_; }

private:
    bool fenced_;
    std::uint64_t highest_ = 0;
    std::string body_;
};

// --- a holder, in a process of its own ---------------------------------------------------------

/// The way to the store: a line there, a line back.
bool ask_store(const std::string& request) {
    example::tell_parent(request);
    return example::hear_parent() == "yes";
}

void hold_and_write(std::span<char*> arguments) {
    const std::string who = arguments.front();
    const bool is_stopped = who == "A";
    HiredisConnection redis{example::hear_parent()};
    LeaseLock lock{redis,
                   key,
                   {.ttl = is_stopped ? 700ms : 60s, .fencing = true, .owner = who, .timeout = 10s},
                   std::defer_lock};
    while (lock.try_lock_for(example::patience)) {
        const std::uint64_t token = lock.fencing_token();
        if (!ask_store("begin " + std::to_string(token))) return;

        if (!lock.owns_lock()) continue;     // lost already, on a slow machine: once more
        if (is_stopped) std::raise(SIGSTOP); // a frozen container, a swapped-out page, a debugger
        ask_store("write " + std::to_string(token) + " the report of " + who);
        return;
    }
    throw std::runtime_error(who + " does not get the lock");
}

// --- the play ----------------------------------------------------------------------------------

struct Run {
    std::uint64_t token_of_a = 0;
    std::uint64_t token_of_b = 0;
    bool a_was_stored = false;
    bool b_was_stored = false;
    std::string body;
};

class Play {
public:
    Play(const std::string& url, bool fenced) : url_(url), store_(fenced) {}

    Run run() {
        std::printf("\n     when   who            what\n");
        example::Child a{{"--as-holder", "A"}};
        a.tell(url_);
        serve_until_it_stops(a, 'A');
        timeline_.turn('A', Doing::stalled);
        timeline_.say('A', "", "asks owns_lock(): true. Is stopped before its next line (SIGSTOP)");

        example::Child b{{"--as-holder", "B"}};
        b.tell(url_);
        timeline_.say('B', "", "waits for the lock");
        serve_until_it_ends(b, 'B');

        timeline_.say('A', "", "goes on (SIGCONT); its next line is the write");
        timeline_.turn('A', Doing::working);
        a.go_on();
        serve_until_it_ends(a, 'A');

        timeline_.draw("# inside    ~ inside, stopped    Redis: whose token the key holds    "
                       "Store: whose text\n"
                       "           w writes    x is refused");
        std::printf("\n   In the store is \"%s\".\n", store_.body().c_str());
        seen_.body = store_.body();
        return seen_;
    }

private:
    void answer(example::Child& holder, char who, const std::string& request) {
        std::istringstream words{request};
        std::string verb;
        std::uint64_t token = 0;
        std::string text;
        words >> verb >> token >> std::ws;
        std::getline(words, text);
        const bool yes = verb == "begin" ? begin(who, token) : write(who, token, text);
        holder.tell(yes ? "yes" : "no");
    }
    void serve_until_it_stops(example::Child& holder, char who) {
        example::await("a holder that is stopped", [&] {
            holder.receive(1ms);
            while (const auto request = holder.take_line()) answer(holder, who, *request);
            return holder.stands_still();
        });
    }
    void serve_until_it_ends(example::Child& holder, char who) {
        while (const auto request = holder.hear()) answer(holder, who, *request);
        timeline_.turn(who, Doing::nothing);
        if (!example::ended_well(holder.wait())) {
            throw std::runtime_error(std::string{who} + " has failed");
        }
    }
    bool begin(char who, std::uint64_t token) {
        (who == 'A' ? seen_.token_of_a : seen_.token_of_b) = token;
        const bool registered = store_.begin(token);
        timeline_.holds(who);
        timeline_.turn(who, Doing::working);
        timeline_.say(who, "", "has the lock, fencing token " + std::to_string(token));
        if (who == 'B') for_the_eye();
        return registered;
    }
    bool write(char who, std::uint64_t token, const std::string& text) {
        const bool stored = store_.write(token, text);
        (who == 'A' ? seen_.a_was_stored : seen_.b_was_stored) = stored;
        timeline_.mark(who, stored ? 'w' : 'x');
        if (stored) timeline_.belongs("Store", who);
        timeline_.say(who, "",
                      "writes \"" + text + "\" with that token: " +
                          (stored ? "stored" : "REFUSED, the store knows a greater one"));
        for_the_eye();
        return stored;
    }
    /// Otherwise there would be nothing to see of B in the drawing.
    static void for_the_eye() { std::this_thread::sleep_for(100ms); }

    std::string url_;
    Store store_;
    example::Timeline timeline_;
    Run seen_;
};

bool play() {
    std::printf("A and B write a report, one at a time. A is stopped between its check and its "
                "write, past its lease.\n");
    const example::PrivateServer server;
    std::printf("Server: %s, private, pid %d.\n", server.program().c_str(),
                static_cast<int>(server.pid()));

    std::printf("\n== 1. A store that does not look at the token\n");
    const Run bare = Play{server.url(), false}.run();
    const bool accident = bare.a_was_stored && bare.body == "the report of A";
    if (accident) {
        std::printf("   A's stale write has landed on top of B's, which was newer. A did nothing "
                    "wrong, and no lock\n   can help: the lease ended between two lines of A.\n");
    }

    std::printf("\n== 2. A store that registers each token, and refuses smaller ones\n");
    const Run fenced = Play{server.url(), true}.run();
    std::printf("\nChecked:\n");
    example::Checks checks;
    checks.expect(fenced.token_of_a < fenced.token_of_b,
                  "B, who came later, has the greater token: by " +
                      std::to_string(fenced.token_of_b - fenced.token_of_a));
    checks.expect(fenced.b_was_stored, "B's write was stored");
    checks.expect(!fenced.a_was_stored, "A's late write was refused");
    checks.expect(fenced.body == "the report of B", "the report is B's");
    if (!accident) std::printf("\nThe accident of part 1 did not happen as told: look above.\n");
    return accident && checks.all_fine();
}

constexpr std::string_view usage =
    "usage: fenced_write\n"
    "\n"
    "A late write, with and without a fencing token, on a private server; about two seconds.\n"
    "REDIS_SERVER=/path/to/server names its binary; else redis-server or valkey-server from the "
    "PATH.\n"
    "Exit code: 0 all as it should be, 1 the store accepted a stale write, 2 wrong usage,\n"
    "3 it could not be played.\n";

} // namespace

int main(int argc, char** argv) {
    return example::run({.name = "fenced_write",
                         .usage = usage,
                         .role = "--as-holder",
                         .as_child = hold_and_write,
                         .play = play},
                        argc, argv);
}
