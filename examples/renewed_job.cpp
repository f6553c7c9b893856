// SPDX-License-Identifier: MIT

/// A long job that keeps its lease with a renewer, and stops its side effects when it hears that the
/// lease is lost. Three losses, on a real server: somebody deletes the key, the server stands still,
/// the process of the job stands still.
///
/// The job runs in a process of its own: `job` is what a service would write.

#include "support/ask.hpp"
#include "support/await.hpp"
#include "support/checks.hpp"
#include "support/child.hpp"
#include "support/private_server.hpp"
#include "support/program.hpp"
#include "support/timeline.hpp"

#include <leaselock/leaselock.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

using namespace std::chrono_literals;
using example::Doing;
using example::tell_parent;
using leaselock::Answer;
using leaselock::HiredisConnection;
using leaselock::LeaseClock;
using leaselock::LeaseLock;
using std::chrono::milliseconds;

namespace {

const std::string key = "lock:report";
constexpr milliseconds lease = 900ms;

std::int64_t stamp(leaselock::Deadline at) { return at.time_since_epoch().count(); }

// --- the job -----------------------------------------------------------------------------------

/// Passes on what guard and renewer have to say. Called by the renewer's threads too.
class Reporter final : public leaselock::Observer {
public:
    void on_event(const leaselock::Event& event) noexcept override {
        try {
            std::string line{"event "};
            line.append(to_string(event.verb)).append(" ");
            line.append(to_string(event.outcome.answer)).append(" ").append(event.fingerprint);
            if (event.outcome.cause) line.append(" ").append(event.outcome.cause.message());
            tell_parent(line);
        } catch (...) { // an observer must not throw
            std::fputs("no memory for a report\n", stderr);
        }
    }
};

/// One page of the report: what must not happen any more once the lease is lost.
void write_page(int page, leaselock::Deadline checked, leaselock::Deadline deadline) {
    tell_parent("page " + std::to_string(page) + " " + std::to_string(stamp(checked)) + " " +
                std::to_string(stamp(deadline)));
}

void job(std::span<char*> /*arguments*/) {
    const std::string url = example::hear_parent();
    Reporter reporter;
    HiredisConnection redis{url};
    HiredisConnection for_renewal{url}; // the renewer's threads need a connection of their own
    leaselock::Renewer renewer{for_renewal};
    LeaseLock lock{redis, key, {.ttl = lease, .owner = "J", .observer = &reporter}};
    if (!lock) throw std::runtime_error("the lock is held by somebody else");
    renewer.keep(lock);

    // Set at the loss: for what waits or runs long. Its callbacks run on a thread of the renewer, and
    // one that throws ends the process.
    const std::stop_token lost = lock.stop_token();
    const std::stop_callback on_loss{
        lost, []() noexcept { tell_parent("told " + std::to_string(stamp(LeaseClock::now()))); }};
    std::mutex mutex;
    std::condition_variable_any never;
    for (int page = 1; page < 10'000; ++page) {
        const auto checked = LeaseClock::now(); // for the audit alone
        // Asked before every side effect: owns_lock() looks at the clock, and is right at once, even
        // in the first line that runs after a standstill, when no other thread has run yet.
        if (!lock.owns_lock()) break;
        write_page(page, checked, lock.deadline());

        std::unique_lock<std::mutex> pause{mutex}; // the work on the next page; ends at the loss
        never.wait_for(pause, lost, 20ms, [] { return false; });
    }
    tell_parent("stops " + std::string{to_string(lock.loss())});

    // A service would return here. The play goes on until the stop token is set too, which takes a
    // thread of the renewer.
    std::unique_lock<std::mutex> pause{mutex};
    never.wait_for(pause, lost, example::patience, [] { return false; });
} // the guard tries to give back what is no longer its own, and the observer hears it

// --- what is done to it ------------------------------------------------------------------------

/// One performance: the job, what is heard of it, and who holds the key.
class Act {
public:
    explicit Act(const example::PrivateServer& server)
        : url_(server.url()), redis_(url_), job_({"--as-job"}) {
        std::printf("\n     when   who token      what\n");
        job_.tell(url_);
    }

    example::Timeline timeline;

    // as the job reports it; times are those of its clock, which is ours too
    struct Page {
        std::int64_t checked;
        std::int64_t deadline;
    };
    std::vector<Page> pages;
    int renewals = 0;
    int failed_renewals = 0;
    std::optional<std::int64_t> told; ///< when the stop token was set
    std::string loss;                 ///< what `loss()` said at the end
    std::optional<std::int64_t> next_holder_since;
    bool next_holder_still_in = false;

    /// Listens, and looks at the key, until it comes to that.
    void until(const std::string& what, const std::function<bool()>& holds,
               bool server_answers = true) {
        example::await(what, [&] {
            listen();
            if (server_answers) look();
            if (job_.end_of_lines() && !holds()) {
                throw std::runtime_error("the job has ended before: " + what);
            }
            return holds();
        });
    }
    void await_work() {
        until("a job at work", [&] { return renewals >= 2 && pages.size() >= 5; });
        timeline.say('J', "",
                     "writes page after page; renewed " + std::to_string(renewals) + " times");
    }
    void await_end() {
        until("the end of the job", [&] { return job_.end_of_lines(); });
    }
    void finish() {
        await_end();
        if (!example::ended_well(job_.wait())) throw std::runtime_error("the job has failed");
        const auto tail = std::chrono::steady_clock::now() + 80ms; // for the eye
        while (std::chrono::steady_clock::now() < tail) look();
        next_holder_still_in = next_ && next_->renew();
        timeline.draw("# writes pages    ~ stands still    ! is told    "
                      "Redis: whose key, ? no answer");
    }

    [[nodiscard]] example::Child& process() { return job_; }
    [[nodiscard]] HiredisConnection& redis() { return redis_; }

    /// Another worker waits for the lock, and gets it when it is free.
    void next_holder_takes_over() {
        next_.emplace(redis_, key, leaselock::Options{.ttl = 60s, .owner = "B", .timeout = 10s},
                      std::defer_lock);
        if (!next_->try_lock_for(example::patience)) {
            throw std::runtime_error("the next holder does not get the lock");
        }
        next_holder_since = stamp(LeaseClock::now());
        timeline.holds('B');
        timeline.turn('B', Doing::working);
        timeline.say('B', "", "waited for the lock, and has it now");
    }

private:
    void listen() {
        job_.receive(2ms);
        while (const auto line = job_.take_line()) hear(*line);
    }

    void hear(const std::string& line) {
        std::istringstream words{line};
        std::string word;
        words >> word;
        if (word == "page") {
            int number = 0;
            Page page{};
            words >> number >> page.checked >> page.deadline;
            pages.push_back(page);
            timeline.turn('J', Doing::working);
        } else if (word == "event") {
            std::string verb;
            std::string answer;
            std::string fingerprint;
            std::string cause;
            words >> verb >> answer >> fingerprint >> std::ws;
            std::getline(words, cause);
            hear_event(verb, answer, fingerprint, cause);
        } else if (word == "told") {
            told.emplace();
            words >> *told;
            timeline.mark('J', '!');
            timeline.say('J', "", "its stop token is set");
        } else if (word == "stops") {
            words >> loss;
            timeline.turn('J', Doing::nothing);
            timeline.say('J', "",
                         "stops after page " + std::to_string(pages.size()) + "; loss() is " +
                             loss);
        }
    }

    void hear_event(const std::string& verb, const std::string& answer,
                    const std::string& fingerprint, const std::string& cause) {
        const bool well = answer == "yes";
        if (verb == "renew" && well) ++renewals;
        if (verb == "renew" && answer != "yes" && answer != "no") ++failed_renewals;
        if (verb == "renew" && well && renewals > 1) return; // they are all the same
        if (verb == "renew" && failed_renewals > 2) return;
        timeline.say('J', fingerprint,
                     verb + " -> " + answer + (cause.empty() ? "" : ", " + cause));
    }

    /// Whose key it is, by the owner label.
    void look() {
        const auto seen = leaselock::inspect(redis_, key, 5s);
        if (!seen.outcome) return;
        const bool held = seen.state == leaselock::Inspection::State::held;
        timeline.holds(held && !seen.owner.empty() ? seen.owner.view().front() : '.');
    }

    std::string url_;
    HiredisConnection redis_;
    std::optional<LeaseLock<HiredisConnection>> next_;
    example::Child job_;
};

// --- what is to be learned from it -------------------------------------------------------------

/// How late a signal may be before we call it late: threads have to be scheduled, on slow machines too.
constexpr std::chrono::nanoseconds slack = 2s;

std::string in_ms(std::int64_t ns) { return std::to_string(ns / 1'000'000) + " ms"; }

/// @param losses what `loss()` may be  @param after what the signal is measured from, with its stamp
bool audit(const Act& act, std::initializer_list<std::string_view> losses, const std::string& after,
           std::int64_t from, std::chrono::nanoseconds limit) {
    std::printf("\nChecked:\n");
    example::Checks checks;
    const bool explained = std::find(losses.begin(), losses.end(), act.loss) != losses.end();
    checks.expect(explained, "the job knows why: loss() is " + act.loss);
    checks.expect(act.told.has_value(), "its stop token was set");
    if (!act.told) return false;
    const std::int64_t late = *act.told - from;
    checks.expect(late >= 0 && late <= (limit + slack).count(), in_ms(late) + " after " + after);

    int in_time = 0;
    int after_told = 0;
    int after_deadline = 0;
    int beside_next = 0;
    for (const Act::Page& page : act.pages) {
        const bool told = page.checked > *act.told;
        const bool overdue = page.deadline != 0 && page.checked >= page.deadline;
        const bool beside = act.next_holder_since && page.checked > *act.next_holder_since;
        after_told += told ? 1 : 0;
        after_deadline += overdue ? 1 : 0;
        beside_next += beside ? 1 : 0;
        in_time += told || overdue || beside ? 0 : 1;
    }
    const auto pages = [](int count) { return std::to_string(count) + " pages "; };
    checks.expect(in_time > 0, pages(in_time) + "written while it held the lock");
    checks.expect(after_deadline == 0, pages(after_deadline) + "behind the deadline of its lease");
    checks.expect(after_told == 0, pages(after_told) + "after it was told");
    if (act.next_holder_since) {
        checks.expect(beside_next == 0,
                      pages(beside_next) + "while B, the next holder, was inside");
        checks.expect(act.next_holder_still_in, "the late release of the job left B's lock alone");
    }
    return checks.all_fine();
}

bool delete_the_key(const example::PrivateServer& server) {
    std::printf("\n== 1. Somebody deletes the key\n");
    Act act{server};
    act.await_work();
    const std::int64_t deleted = stamp(LeaseClock::now());
    (void)example::ask(act.redis(), {"DEL", key});
    act.timeline.say(' ', "", "DEL " + key + ", by hand; nobody tells the job");
    act.finish();
    // nobody can know before the next renewal, which comes within a third of the ttl
    return audit(act, {"gone", "expired"}, "the deletion, with the next renewal (every 300 ms)",
                 deleted, lease / 3 + lease / 6);
}

bool stop_the_server(const example::PrivateServer& server) {
    std::printf("\n== 2. The server stands still\n");
    Act act{server};
    act.await_work();
    kill(server.pid(), SIGSTOP);
    act.timeline.holds('?');
    act.timeline.say(' ', "", "the server is stopped (SIGSTOP): it answers nothing any more");
    act.until(
        "the end of the lease", [&] { return !act.loss.empty(); }, false);
    kill(server.pid(), SIGCONT);
    act.timeline.say(' ', "", "the server goes on (SIGCONT), with what it was sent meanwhile");
    act.await_end();
    act.next_holder_takes_over();
    act.finish();
    return audit(act, {"expired"}, "the deadline that was confirmed last, with no answer needed",
                 act.pages.back().deadline, 0ms);
}

bool stop_the_process(const example::PrivateServer& server) {
    std::printf("\n== 3. The process of the job stands still\n");
    Act act{server};
    act.await_work();
    act.process().stop();
    act.timeline.turn('J', Doing::stalled);
    act.timeline.say(' ', "", "the job is stopped (SIGSTOP): no thread of it runs, nothing renews");
    act.next_holder_takes_over();
    const std::int64_t continued = stamp(LeaseClock::now());
    act.process().go_on();
    act.timeline.say(' ', "", "the job goes on (SIGCONT)");
    act.finish();
    // which of the two depends on which of its threads runs first
    return audit(act, {"expired", "taken"}, "it went on; B is inside, and nobody had told it",
                 continued, 0ms);
}

bool play() {
    std::printf(
        "A job writes a report, one page every 20 ms, under a lease of %lld ms that a renewer\n"
        "extends every %lld ms. Three times it loses the lease, and has to stop writing.\n",
        static_cast<long long>(lease.count()), static_cast<long long>(lease.count() / 3));
    const example::PrivateServer server;
    std::printf("Server: %s, private, pid %d.\n", server.program().c_str(),
                static_cast<int>(server.pid()));
    bool fine = delete_the_key(server);
    fine = stop_the_server(server) && fine;
    fine = stop_the_process(server) && fine;
    if (!fine) return false;
    std::printf(
        "\nWhat to take home:\n"
        "   - ask owns_lock() before each side effect: it looks at the clock and at nothing else;\n"
        "   - hand the stop token to whatever waits or runs long: it is set at the loss;\n"
        "   - between a check and the write behind it a process can still be stopped:\n"
        "     for that there is the fencing token, see fenced_write.cpp.\n");
    return true;
}

constexpr std::string_view usage =
    "usage: renewed_job\n"
    "\n"
    "Plays three losses of a renewed lease on a private server, in about four seconds.\n"
    "REDIS_SERVER=/path/to/server names its binary; else redis-server or valkey-server from the "
    "PATH.\n"
    "Exit code: 0 all as it should be, 1 a side effect after the loss or a late signal, 2 wrong "
    "usage,\n"
    "3 it could not be played.\n";

} // namespace

int main(int argc, char** argv) {
    return example::run(
        {.name = "renewed_job", .usage = usage, .role = "--as-job", .as_child = job, .play = play},
        argc, argv);
}
