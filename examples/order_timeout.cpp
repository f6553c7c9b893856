// SPDX-License-Identifier: MIT

/// The accident that leaselock is about, played twice on a real server: once with the lock as it is
/// often written, SET NX PX and a DEL at the end, and once with leaselock::LeaseLock.
///
/// Three workers want to run the order-timeout job. A takes the lock and stalls past its lease, B
/// takes it, A comes back and releases, C tries while B is inside.
///
/// Then the same for a crowd: processes that go through one list of orders, under guard, renewer and
/// fencing token, while some of them are stopped past their lease or killed.

#include "support/ask.hpp"
#include "support/checks.hpp"
#include "support/child.hpp"
#include "support/crowd.hpp"
#include "support/private_server.hpp"
#include "support/stage.hpp"
#include "support/timeline.hpp"

#include <leaselock/leaselock.hpp>

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using example::ask;
using example::Doing;
using example::in_words;
using leaselock::Answer;
using leaselock::errc;
using leaselock::HiredisConnection;
using leaselock::LeaseLock;
using leaselock::Reply;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds short_lease = 500ms; // A's
constexpr milliseconds long_lease = 10s;    // of B and C, which do not stall
constexpr milliseconds stall = 750ms;

std::string random_hex(int digits) {
    std::random_device source;
    std::string text;
    while (digits-- > 0) text += "0123456789abcdef"[source() % 16];
    return text;
}

// --- the two runs share a stage ----------------------------------------------------------------

/// One performance: the key, the order of events, what was seen.
struct Play {
    std::string url;
    std::string key;
    example::Timeline timeline{};
    example::Stage stage{};

    std::mutex mutex{};
    std::map<std::string, char, std::less<>> holders{}; ///< by fingerprint

    /// `who` has taken the lock with this token.
    void took(char who, std::string_view fingerprint) {
        const std::scoped_lock lock{mutex};
        holders.emplace(fingerprint, who);
    }
    /// Whose token that is; '?' as long as nobody has said so.
    char holder(std::string_view fingerprint) {
        const std::scoped_lock lock{mutex};
        const auto found = holders.find(fingerprint);
        return found == holders.end() ? '?' : found->second;
    }
};

/// The 8 digits of the stored token that may be shown; empty when the key is not there.
std::string stored_fingerprint(HiredisConnection& redis, const std::string& key) {
    return std::string{ask(redis, {"GETRANGE", key, "0", "7"}).text.view()};
}

/// Looks at the key all the time, on a connection of its own.
void watch(Play& play, const std::stop_token& stop) {
    HiredisConnection redis{play.url};
    bool expiry_told = false;
    while (!stop.stop_requested()) {
        const bool a_came_before = play.stage.reached("A is inside");
        const std::string seen = stored_fingerprint(redis, play.key);
        if (!seen.empty()) {
            if (const char who = play.holder(seen); who != '?') play.timeline.holds(who);
        } else {
            play.timeline.holds('.');
            if (a_came_before && !expiry_told && !play.stage.reached("B is inside")) {
                expiry_told = true;
                play.timeline.say(' ', "", "the lease of A runs out in Redis; nobody tells A");
                play.stage.reach("A's lease is over");
            }
        }
        std::this_thread::sleep_for(3ms);
    }
}

/// Runs the workers and the onlooker to their end. @throws what went wrong first
void perform(Play& play, std::initializer_list<std::function<void()>> workers) {
    const auto to_the_end = [&play](const auto& body) {
        try {
            body();
        } catch (const std::exception& error) {
            play.stage.fail(error.what());
        }
    };
    std::printf("\n     when   who token      what\n");
    {
        const auto onlooker = std::make_unique<std::jthread>(
            [&](const std::stop_token& stop) { to_the_end([&] { watch(play, stop); }); });
        std::vector<std::jthread> threads; // joined before the onlooker is told to stop
        for (const auto& worker : workers) {
            threads.emplace_back([&] { to_the_end(worker); });
        }
    }
    if (const std::string why = play.stage.failure(); !why.empty()) throw std::runtime_error(why);
    play.timeline.draw();
}

/// What stands for the job: cancelling the orders that were not paid in time.
void work(Play& play, char who, milliseconds span) {
    play.timeline.turn(who, Doing::working);
    std::this_thread::sleep_for(span);
}

/// A swapped-out page, a paused container, a debugger: the thread does not run.
void stall_past_the_lease(Play& play) {
    play.timeline.turn('A', Doing::stalled);
    play.timeline.say('A', "", "stalls in the middle of its work, past its lease");
    play.stage.reach("A stalls");
    std::this_thread::sleep_for(stall);
    play.stage.await("B is inside");
}

// --- 1. as it is often written -----------------------------------------------------------------

class BareLock {
public:
    BareLock(Play& play, HiredisConnection& redis, char who)
        : play_(play), redis_(redis), who_(who) {}

    bool take(milliseconds ttl) {
        const std::string token = random_hex(32);
        const std::string ms = std::to_string(ttl.count());
        const bool taken =
            ask(redis_, {"SET", play_.key, token, "NX", "PX", ms}).kind == Reply::status;
        fingerprint_ = token.substr(0, 8);
        if (taken) play_.took(who_, fingerprint_);
        play_.timeline.say(who_, fingerprint_,
                           "SET " + play_.key + " NX PX " + ms + " -> " + (taken ? "OK" : "nil"));
        return taken;
    }

    /// @return whose lock it was that this deleted
    char release() {
        const char whose =
            play_.holder(stored_fingerprint(redis_, play_.key)); // for the story only
        const auto deleted = ask(redis_, {"DEL", play_.key}).number;
        std::string what = "DEL " + play_.key + " -> " + std::to_string(deleted);
        if (deleted == 1 && whose != who_)
            what += std::string{"    and that was the lock of "} + whose;
        if (deleted == 0) what += "    nothing left to delete";
        play_.timeline.say(who_, fingerprint_, what);
        return deleted == 1 ? whose : '.';
    }

private:
    Play& play_;
    HiredisConnection& redis_;
    char who_;
    std::string fingerprint_;
};

struct BareRun {
    char deleted_by_a = '?';
    char deleted_by_b = '?';
    bool c_got_in = false;
    milliseconds a_beside_b{};
    milliseconds b_beside_c{};
};

BareRun run_bare(Play& play) {
    BareRun seen;
    const auto a = [&] {
        HiredisConnection redis{play.url};
        BareLock lock{play, redis, 'A'};
        if (!lock.take(short_lease)) throw std::runtime_error("the key is held by somebody else");
        work(play, 'A', 20ms);
        play.stage.reach("A is inside");
        stall_past_the_lease(play);
        play.timeline.say('A', "", "comes back and goes on, as if nothing had happened");
        work(play, 'A', 60ms);
        play.timeline.turn('A', Doing::nothing);
        seen.deleted_by_a = lock.release();
        play.stage.reach("A has released");
    };
    const auto b = [&] {
        HiredisConnection redis{play.url};
        BareLock lock{play, redis, 'B'};
        play.stage.await("A stalls");
        if (!lock.take(long_lease)) {
            play.stage.await("A's lease is over");
            if (!lock.take(long_lease)) throw std::runtime_error("B does not get the lock");
        }
        play.stage.reach("B is inside");
        work(play, 'B', 0ms);
        play.stage.await("C has tried");
        work(play, 'B', 120ms);
        play.timeline.turn('B', Doing::nothing);
        seen.deleted_by_b = lock.release();
        play.stage.reach("B has released");
    };
    const auto c = [&] {
        HiredisConnection redis{play.url};
        BareLock lock{play, redis, 'C'};
        play.stage.await("A has released");
        seen.c_got_in = lock.take(long_lease);
        if (!seen.c_got_in) throw std::runtime_error("C does not get in: no accident today");
        work(play, 'C', 0ms);
        play.stage.reach("C has tried");
        play.stage.await("B has released");
        work(play, 'C', 60ms);
        play.timeline.turn('C', Doing::nothing);
        lock.release();
    };
    perform(play, {a, b, c});
    seen.a_beside_b = play.timeline.overlap('A', 'B');
    seen.b_beside_c = play.timeline.overlap('B', 'C');
    return seen;
}

// --- 2. with the guard -------------------------------------------------------------------------

/// Puts every answer that a guard gets onto the timeline.
class Narrator final : public leaselock::Observer {
public:
    Narrator(Play& play, char who) : play_(play), who_(who) {}

    void on_event(const leaselock::Event& event) noexcept override {
        try {
            std::string what{to_string(event.verb)};
            what.append(" ").append(event.key).append(" -> ").append(
                to_string(event.outcome.answer));
            if (event.outcome.cause) what += ", " + event.outcome.cause.message();
            if (event.outcome && event.verb == leaselock::Verb::acquire) {
                const auto left = std::chrono::floor<milliseconds>(event.remaining);
                what += ", to be relied on for " + std::to_string(left.count()) + " ms";
                play_.took(who_, event.fingerprint);
            }
            play_.timeline.say(who_, event.fingerprint, what);
        } catch (...) { // an observer must not throw
            std::fputs("no memory for the timeline\n", stderr);
        }
    }

private:
    Play& play_;
    char who_;
};

struct GuardedRun {
    bool a_owned_on_return = true;
    leaselock::Loss a_loss{};
    leaselock::Outcome a_release;
    std::string b_token_before; // fingerprints
    std::string b_token_after;
    leaselock::Outcome c_first_try;
    bool c_got_in_at_last = false;
    leaselock::Outcome b_release;
    leaselock::Outcome c_release;
    milliseconds overlap{};
};

GuardedRun run_guarded(Play& play) {
    GuardedRun seen;
    const auto a = [&] {
        HiredisConnection redis{play.url};
        Narrator narrator{play, 'A'};
        LeaseLock lock{redis, play.key, {.ttl = short_lease, .owner = "A", .observer = &narrator}};
        if (!lock) throw std::runtime_error("the key is held by somebody else");
        work(play, 'A', 20ms);
        play.stage.reach("A is inside");
        stall_past_the_lease(play);
        seen.a_owned_on_return = lock.owns_lock();
        seen.a_loss = lock.loss();
        play.timeline.say('A', "",
                          "comes back and asks its guard: owns_lock() is " +
                              std::string{seen.a_owned_on_return ? "true" : "false"} +
                              ", loss() is " + std::string{to_string(seen.a_loss)});
        if (seen.a_owned_on_return) work(play, 'A', 60ms);
        play.timeline.turn('A', Doing::nothing);

        seen.b_token_before = stored_fingerprint(redis, play.key);
        seen.a_release = lock.unlock(); // the destructor would do the same
        seen.b_token_after = stored_fingerprint(redis, play.key);
        play.stage.reach("A has released");
    };
    const auto b = [&] {
        HiredisConnection redis{play.url};
        Narrator narrator{play, 'B'};
        LeaseLock lock{redis,
                       play.key,
                       {.ttl = long_lease, .owner = "B", .observer = &narrator},
                       std::defer_lock};
        play.stage.await("A stalls");
        if (!lock.try_lock()) {
            play.stage.await("A's lease is over");
            if (!lock.try_lock()) throw std::runtime_error("B does not get the lock");
        }
        play.stage.reach("B is inside");
        work(play, 'B', 0ms);
        play.stage.await("C has tried");
        work(play, 'B', 120ms);
        play.timeline.turn('B', Doing::nothing);
        seen.b_release = lock.unlock();
        play.stage.reach("B has released");
    };
    const auto c = [&] {
        HiredisConnection redis{play.url};
        Narrator narrator{play, 'C'};
        LeaseLock lock{redis,
                       play.key,
                       {.ttl = long_lease, .owner = "C", .observer = &narrator},
                       std::defer_lock};
        play.stage.await("A has released");
        seen.c_first_try = lock.try_acquire();
        if (lock) work(play, 'C', 0ms);
        play.stage.reach("C has tried");
        play.stage.await("B has released");
        seen.c_got_in_at_last = lock || lock.try_acquire();
        if (!seen.c_got_in_at_last) return;
        work(play, 'C', 60ms);
        play.timeline.turn('C', Doing::nothing);
        seen.c_release = lock.unlock();
    };
    perform(play, {a, b, c});
    seen.overlap = play.timeline.overlap('A', 'B') + play.timeline.overlap('B', 'C') +
                   play.timeline.overlap('A', 'C');
    return seen;
}

// --- what is to be learned from it -------------------------------------------------------------

bool tell_bare(const BareRun& run) {
    std::printf(
        "\nWhat went wrong:\n"
        "   - A's lease ran out during the stall and B took the lock. A could not know, and\n"
        "     worked on beside B: %lld ms of overlap.\n"
        "   - A's DEL did not ask whose lock it deletes: it deleted the lock of %c.\n"
        "   - So C got in while B was still inside: %lld ms of overlap.\n"
        "   - B's DEL then deleted the lock of %c. One stall, and nobody is alone any more.\n",
        static_cast<long long>(run.a_beside_b.count()), run.deleted_by_a,
        static_cast<long long>(run.b_beside_c.count()), run.deleted_by_b);
    return run.deleted_by_a == 'B' && run.c_got_in && run.b_beside_c > 0ms;
}

bool tell_guarded(const GuardedRun& run) {
    std::printf("\nChecked:\n");
    example::Checks checks;
    checks.expect(!run.a_owned_on_return && run.a_loss == leaselock::Loss::expired,
                  "back from its stall, A was told that its lease had expired");
    checks.expect(run.a_release.answer == Answer::no && run.a_release.cause == errc::taken,
                  "A's release answered: " + in_words(run.a_release));
    checks.expect(!run.b_token_before.empty() && run.b_token_before == run.b_token_after,
                  "B's lock was not touched by it: token " + run.b_token_before + " before, " +
                      run.b_token_after + " after");
    checks.expect(run.c_first_try.answer == Answer::no && run.c_first_try.cause == errc::busy,
                  "C's try while B was inside answered: " + in_words(run.c_first_try));
    checks.expect(run.c_got_in_at_last, "C got the lock once B was done");
    checks.expect(run.b_release && run.c_release,
                  "the releases of B and C answered: " + in_words(run.b_release) + "; " +
                      in_words(run.c_release));
    checks.expect(run.overlap == 0ms,
                  "two workers at work at once: " + std::to_string(run.overlap.count()) + " ms");
    if (!checks.all_fine()) {
        std::printf("\nIt did not go well: this is a defect of leaselock. Please report it.\n");
        return false;
    }
    std::printf(
        "\nWhy it went well this time:\n"
        "   - A's guard keeps a deadline of its own, counted from before the SET was sent.\n"
        "     It said \"not yours any more\" without asking anybody, and A left its hands off.\n"
        "   - A's release is a compare-and-delete inside Redis: it deletes A's token or nothing.\n"
        "   - So B's lock stood, and C heard \"busy\" until B was done.\n");
    return true;
}

// --- 3. a crowd --------------------------------------------------------------------------------

/// The way to the store, as a worker has it: a line there, a line back. See support/crowd.hpp.
std::string ask_store(const char* verb, int order = 0, std::uint64_t token = 0,
                      leaselock::Deadline at = {}) {
    example::tell_parent(std::string{verb} + " " + std::to_string(order) + " " +
                         std::to_string(token) + " " +
                         std::to_string(at.time_since_epoch().count()));
    return example::hear_parent();
}

/// Does one order, if nobody else is at it. This is what a service would write, but for the times,
/// which are for the audit.
bool do_order(int order, LeaseLock<HiredisConnection>& lock,
              leaselock::Renewer<HiredisConnection>& renewer, milliseconds wait) {
    if (!lock.try_acquire_for(wait)) return false; // busy, or Redis did not answer: later
    (void)renewer.try_keep(
        lock); // without a renewer the lease ends at its deadline, and that shows
    const std::uint64_t token = lock.fencing_token();

    // Register the token, then read: what is read then, no older holder can change any more.
    leaselock::Deadline now = leaselock::LeaseClock::now();
    if (!lock.owns_lock() || ask_store("begin", order, token, now) != "open") return false;

    for (int step = 0; step < 3; ++step) { // cancelling it: the stock, the voucher, the mail
        if (!lock.owns_lock()) {
            ask_store("lost");
            return false;
        }
        std::this_thread::sleep_for(5ms);
    }
    now = leaselock::LeaseClock::now();
    if (!lock.owns_lock()) {
        ask_store("lost");
        return false;
    }
    ask_store("check", order, token, now); // some are stopped here, right behind their check
    return ask_store("write", order, token) == "stored";
} // the caller's guard gives the lock back

/// A process of the crowd. @param arguments its name, the lease in ms, what the keys begin with
void work_through_orders(std::span<char*> arguments) {
    const std::string prefix = arguments[2];
    const std::string url = example::hear_parent();
    HiredisConnection redis{url};
    HiredisConnection for_renewal{url};
    leaselock::Renewer renewer{for_renewal};
    const leaselock::Options options{.ttl = milliseconds{std::stoi(arguments[1])},
                                     .fencing = true,
                                     .owner = arguments[0],
                                     .timeout = 10s};
    bool idle = false;
    while (true) {
        std::istringstream open{ask_store("open")};
        int order = 0;
        int seen = 0;
        bool done_one = false;
        while (open >> order) {
            ++seen;
            LeaseLock lock{redis, prefix + ":" + std::to_string(order), options, std::defer_lock};
            // Where all that is left is busy, wait for one; else go on to the next.
            done_one = do_order(order, lock, renewer, idle ? options.ttl : 0ms) || done_one;
        }
        if (seen == 0) return;
        idle = !done_one;
    }
}

bool play_crowd(const char* heading, const std::string& url, const std::string& prefix,
                const example::CrowdOptions& options) {
    std::printf(
        "\n== %s: %d processes, %d orders, and somebody who stops and kills them (seed %llu)\n"
        "\nEach order has its lock, of %lld ms, kept by a renewer, with a fencing token that the "
        "store checks.\nHolders are stopped at work, or right behind their check, until another "
        "has "
        "taken their order;\nothers are killed, and replaced.\n",
        heading, options.workers, options.orders, static_cast<unsigned long long>(options.seed),
        static_cast<long long>(options.lease.count()));
    std::fflush(stdout);
    const std::string lease = std::to_string(options.lease.count());
    const auto hire = [&](int number) {
        auto worker = std::make_unique<example::Child>(std::vector<std::string>{
            "--as-worker", "worker-" + std::to_string(number), lease, prefix});
        worker->tell(url);
        return worker;
    };
    if (!example::Crowd{options, hire}.run()) {
        std::printf("\nIt did not go well: this is a defect of leaselock. Please report it.\n");
        return false;
    }
    std::printf("\nEvery order was done once, however its holders came to be late.\n");
    return true;
}

// --- all of it ---------------------------------------------------------------------------------

bool play_both(const std::string& url, const std::string& key) {
    std::printf(
        "\n== 1. As it is often written: SET key token NX PX %lld, and DEL key at the end\n",
        static_cast<long long>(short_lease.count()));
    Play first{url, key};
    const bool accident = tell_bare(run_bare(first));

    std::printf("\n== 2. The same with leaselock::LeaseLock\n");
    Play second{url, key};
    const bool fine = tell_guarded(run_guarded(second));

    std::printf(
        "\nWhat no lock can do: stop a worker that stalls right behind its check. Against its "
        "late\n"
        "write helps the fencing token, which the store compares: see fenced_write.cpp, and "
        "README.md, \"Fencing\".\n");
    if (!accident) std::printf("\nThe accident of part 1 did not happen as told: look above.\n");
    return accident && fine;
}

// --- the command line --------------------------------------------------------------------------

constexpr std::string_view usage =
    "usage: order_timeout [--workers N] [--orders M] [--seed S] [--url URL]\n"
    "\n"
    "Plays the accident of the expired lock twice on a real server: with SET NX PX and a bare "
    "DEL,\n"
    "and with leaselock::LeaseLock. Then a crowd of 4 processes goes through 40 orders, under "
    "guard,\n"
    "renewer and fencing token, while holders are stopped past their lease or killed.\n"
    "\n"
    "  --workers N  the crowd alone, of so many processes: 1 to 100\n"
    "  --orders M   the crowd alone, through so many orders: 1 to 100000\n"
    "  --seed S     another choice of whom to stop and to kill; default 1\n"
    "  --url URL    use this server, e.g. redis://user:password@host:6379/0, and on it keys with "
    "a\n"
    "               random name; default: a private server is started, and stopped at the end\n"
    "  --help       this text\n"
    "\n"
    "REDIS_SERVER=/path/to/server names the binary of the private server; else redis-server or\n"
    "valkey-server from the PATH.\n"
    "Exit code: 0 all as it should be; 1 an overlap or a wrong answer, an order done twice or not "
    "at\n"
    "all, or a write that the store should have refused; 2 wrong usage; 3 it could not be "
    "played.\n";

struct Arguments {
    std::optional<std::string> url{};
    bool story = true;
    example::CrowdOptions crowd{};
    bool help = false;
};

/// @throws std::invalid_argument
template <class Number>
Number parse_number(std::string_view option, std::string_view text, Number least, Number most) {
    Number number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size() || number < least ||
        number > most) {
        throw std::invalid_argument(std::string{option} + " needs a number from " +
                                    std::to_string(least) + " to " + std::to_string(most));
    }
    return number;
}

/// @throws std::invalid_argument
Arguments parse(std::span<char*> words) {
    Arguments arguments;
    for (std::size_t i = 1; i < words.size(); ++i) {
        const std::string_view word{words[i]};
        const auto value = [&] {
            if (++i == words.size())
                throw std::invalid_argument(std::string{word} + " needs a value");
            return std::string_view{words[i]};
        };
        if (word == "--help") {
            arguments.help = true;
        } else if (word == "--url") {
            arguments.url = value();
        } else if (word == "--workers") {
            arguments.crowd.workers = parse_number(word, value(), 1, 100);
            arguments.story = false;
        } else if (word == "--orders") {
            arguments.crowd.orders = parse_number(word, value(), 1, 100'000);
            arguments.story = false;
        } else if (word == "--seed") {
            arguments.crowd.seed = parse_number<std::uint64_t>(
                word, value(), 0, std::numeric_limits<std::uint64_t>::max());
        } else {
            throw std::invalid_argument("unknown option: " + std::string{word});
        }
    }
    return arguments;
}

bool play(const Arguments& arguments, const std::string& url, const std::string& suffix) {
    bool fine = true;
    if (arguments.story) {
        std::printf("The job that cancels unpaid orders runs on three hosts, A, B and C. One at a "
                    "time, please.\n"
                    "A takes the lock for %lld ms, and stalls for %lld ms.\n",
                    static_cast<long long>(short_lease.count()),
                    static_cast<long long>(stall.count()));
        fine = play_both(url, "lock:order-timeout" + suffix);
    }
    return play_crowd(arguments.story ? "3. A crowd" : "A crowd", url, "order:lock" + suffix,
                      arguments.crowd) &&
           fine;
}

int run(const Arguments& arguments) {
    if (arguments.url) {
        HiredisConnection redis{*arguments.url};
        (void)ask(redis, {"PING"}); // if there is trouble, then before the curtain goes up
        // Part 1 deletes without asking, so on a server that others use it keeps to keys of its own.
        return play(arguments, *arguments.url, "-example-" + random_hex(8)) ? 0 : 1;
    }
    const example::PrivateServer server;
    std::printf("Server: %s, private, at %s, pid %d.\n", server.program().c_str(),
                server.url().c_str(), static_cast<int>(server.pid()));
    std::fflush(stdout);
    return play(arguments, server.url(), "") ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    const std::span words{argv, static_cast<std::size_t>(argc)};
    try {
        if (words.size() > 1 && std::string_view{words[1]} == "--as-worker") {
            work_through_orders(words.subspan(2));
            return 0;
        }
        const Arguments arguments = parse(words);
        if (arguments.help) {
            std::fputs(usage.data(), stdout);
            return 0;
        }
        return run(arguments);
    } catch (const std::invalid_argument& error) {
        std::fprintf(stderr, "order_timeout: %s\n\n%s", error.what(), usage.data());
        return 2;
    } catch (const std::exception& error) {
        std::fflush(stdout);
        std::fprintf(stderr, "\norder_timeout: could not be played: %s\n", error.what());
        return 3;
    }
}
