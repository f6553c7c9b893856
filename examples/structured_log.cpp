// SPDX-License-Identifier: MIT

/// An observer that writes one log line an outcome and counts outcomes for Prometheus. Copy what you
/// need. It runs on the in-memory Redis, so that every kind of answer can be had on demand.
///
/// Verb and answer together tell what a line is about. The same "not yours" reads quite differently:
///
///   verb=acquire answer=no   busy: somebody else's job. Normal
///   verb=wait answer=no      busy to the end of the wait. Normal, if that is what the caller wants
///   verb=renew answer=no     the lease is lost in the middle of the work
///   verb=renew answer=...    unknown, unsent, refused: a try that failed. The lease runs on
///   verb=lose answer=no      a lease has ended that was not given back; once for each, with the reason
///   verb=release answer=no   the work outlived its lease: look at what it wrote

#include <leaselock/core/fixed_text.hpp>
#include <leaselock/core/observer.hpp>
#include <leaselock/lock/lease.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/renewer.hpp>
#include <leaselock/testing/manual_runtime.hpp>
#include <leaselock/testing/memory_connection.hpp>
#include <leaselock/testing/memory_redis.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

using namespace std::chrono_literals;
using leaselock::Answer;
using leaselock::Event;
using leaselock::Verb;

namespace {

// --- the log line ------------------------------------------------------------------------------

/// logfmt: name=value, or name="value" where the value needs it. Keys and labels may hold any bytes.
class Line {
public:
    Line& field(std::string_view name, std::string_view value) noexcept {
        if (!text_.empty()) text_.append(" ");
        text_.append(name).append("=");
        const bool plain = value.find_first_of(" \"=\\") == std::string_view::npos;
        if (!plain || value.empty()) text_.append("\"");
        for (const char c : value) {
            const bool printable = c >= ' ' && c != 127;
            if (c == '"' || c == '\\') text_.append("\\");
            text_.append(printable ? std::string_view{&c, 1} : std::string_view{"?"});
        }
        if (!plain || value.empty()) text_.append("\"");
        return *this;
    }
    Line& field(std::string_view name, std::int64_t value) noexcept {
        std::array<char, 24> digits{};
        const int size =
            std::snprintf(digits.data(), digits.size(), "%lld", static_cast<long long>(value));
        return field(name, {digits.data(), static_cast<std::size_t>(size)});
    }
    void print() noexcept {
        std::printf("%.*s\n", static_cast<int>(text_.size()), text_.view().data());
    }

private:
    leaselock::FixedText<2048> text_; // an observer must not throw: no heap
};

/// What deserves attention: whatever is neither yes nor busy.
bool is_worth_a_warning(const Event& event) noexcept {
    if (event.outcome.answer == Answer::yes) return false;
    return event.outcome.cause != leaselock::errc::busy;
}

void log(const Event& event) noexcept {
    Line line;
    line.field("level", is_worth_a_warning(event) ? "warn" : "info")
        .field("verb", to_string(event.verb))
        .field("answer", to_string(event.outcome.answer))
        .field("key", event.key);
    if (event.outcome.cause) {
        // message() makes a std::string: where memory may run out, log value() instead
        line.field("cause", event.outcome.cause.message());
    }
    if (!event.outcome.text.empty()) line.field("text", event.outcome.text.view());
    line.field("elapsed_us", event.elapsed / 1us).field("remaining_ms", event.remaining / 1ms);
    if (!event.owner.empty()) line.field("owner", event.owner);
    line.field("token", event.fingerprint).print();
}

// --- the counters ------------------------------------------------------------------------------

class Counters {
public:
    void count(const Event& event) noexcept {
        const auto verb = static_cast<std::size_t>(event.verb);
        if (verb >= of_verb_.size()) return; // one that a later version has added
        Series& series = of_verb_[verb];
        ++series.outcomes[static_cast<std::size_t>(event.outcome.answer)];
        series.nanoseconds += static_cast<std::uint64_t>(event.elapsed.count());
    }

    [[nodiscard]] std::uint64_t outcomes(Verb verb, Answer answer) const noexcept {
        return of_verb_[static_cast<std::size_t>(verb)].outcomes[static_cast<std::size_t>(answer)];
    }

    /// The text that Prometheus scrapes.
    void print() const {
        std::printf("# HELP leaselock_outcomes_total Answers that lock verbs got.\n"
                    "# TYPE leaselock_outcomes_total counter\n");
        for (const Verb verb : verbs) {
            for (const Answer answer : answers) {
                if (outcomes(verb, answer) == 0) continue;
                std::printf("leaselock_outcomes_total{verb=\"%s\",answer=\"%s\"} %llu\n",
                            std::string{to_string(verb)}.c_str(),
                            std::string{to_string(answer)}.c_str(),
                            static_cast<unsigned long long>(outcomes(verb, answer)));
            }
        }
        std::printf("# HELP leaselock_seconds_total Time spent until those answers.\n"
                    "# TYPE leaselock_seconds_total counter\n");
        for (const Verb verb : verbs) {
            const std::uint64_t ns = of_verb_[static_cast<std::size_t>(verb)].nanoseconds;
            std::printf("leaselock_seconds_total{verb=\"%s\"} %.6f\n",
                        std::string{to_string(verb)}.c_str(), static_cast<double>(ns) / 1e9);
        }
    }

private:
    static constexpr std::array verbs{Verb::acquire, Verb::renew, Verb::release, Verb::clean_up,
                                      Verb::wait,    Verb::adopt, Verb::lose};
    static constexpr std::array answers{Answer::yes, Answer::no, Answer::refused, Answer::unsent,
                                        Answer::unknown};
    struct Series {
        std::array<std::atomic<std::uint64_t>, answers.size()> outcomes{};
        std::atomic<std::uint64_t> nanoseconds{0};
    };
    std::array<Series, verbs.size()> of_verb_{};
};

// --- both --------------------------------------------------------------------------------------

/// Called by whatever thread has an outcome: a renewer's too.
class Watch final : public leaselock::Observer {
public:
    void on_event(const Event& event) noexcept override {
        log(event);
        counters.count(event);
    }
    Counters counters;
};

/// A day in the life of a few locks.
void work_with(Watch& watch) {
    using leaselock::testing::Fault;
    leaselock::testing::ManualRuntime runtime;
    leaselock::testing::MemoryRedis server{runtime};
    leaselock::testing::MemoryConnection redis{server};
    redis.set_delay(200us, 200us);
    const leaselock::Options options{.ttl = 10s, .owner = "worker-7", .observer = &watch};

    {
        leaselock::LeaseLock lock{redis, "lock:order-timeout", options};         // acquire: yes
        const leaselock::LeaseLock second{redis, "lock:order-timeout", options}; // no: busy
        (void)lock.renew();                                                      // yes
    }                                                                            // release: yes
    {
        leaselock::LeaseLock lock{redis, "lock:report", options};
        server.set("lock:report", "the token of somebody else", 10s);
        (void)lock.renew(); // no: lost
    }
    {
        leaselock::LeaseLock lock{redis, "lock:import", options};
        runtime.advance(12s);
        server.set("lock:import", "the token of the next holder", 10s);
    } // release: no
    {
        leaselock::LeaseLock lock{redis, "lock:mail", options, std::defer_lock};
        redis.on("SET", {Fault::lost_reply});
        (void)lock.try_acquire(); // unknown; and its clean-up
        redis.on("SET", {Fault::error, "OOM command not allowed when used memory > 'maxmemory'."});
        (void)lock.try_acquire(); // refused
        redis.go_down();
        (void)lock.try_acquire(); // unsent
        redis.come_up();
    }
    {
        server.set("lock:invoice", "the token of somebody else", 25ms);
        leaselock::LeaseLock lock{redis, "lock:invoice", options, std::defer_lock};
        (void)lock.try_acquire_for(1s); // acquire: no, until it is yes; wait: yes
        const leaselock::Lease lease = lock.detach();
        const leaselock::LeaseLock next{redis, lease, std::adopt_lock, options};     // adopt: yes
        const leaselock::LeaseLock too_late{redis, lease, std::adopt_lock, options}; // adopt: no
    }
    {
        leaselock::Renewer renewer{redis};
        leaselock::LeaseLock lock{redis, "lock:export", options};
        (void)renewer.try_keep(lock);
        runtime.advance(1s);                 // renew: yes
        redis.always({Fault::lost_request}); // the network is cut
        runtime.advance(10s);                // renew: unknown, again and again; lose
        redis.come_up();
    } // release: no
}

} // namespace

int main() {
    Watch watch;
    work_with(watch);
    std::printf("\n");
    watch.counters.print();

    struct Expected {
        Verb verb;
        Answer answer;
        std::uint64_t times; ///< 0: at least twice
    };
    bool complete = true;
    for (const auto& [verb, answer, times] : {
             Expected{Verb::acquire, Answer::yes, 5},
             Expected{Verb::renew, Answer::yes, 2},
             Expected{Verb::renew, Answer::no, 1},
             Expected{Verb::renew, Answer::unknown, 0},
             Expected{Verb::release, Answer::yes, 2},
             Expected{Verb::release, Answer::no, 2},
             Expected{Verb::clean_up, Answer::yes, 1},
             Expected{Verb::wait, Answer::yes, 1},
             Expected{Verb::adopt, Answer::yes, 1},
             Expected{Verb::adopt, Answer::no, 1},
             Expected{Verb::lose, Answer::no, 3},
         }) {
        const std::uint64_t counted = watch.counters.outcomes(verb, answer);
        if (times == 0 ? counted >= 2 : counted == times) continue;
        std::fprintf(stderr, "structured_log: unexpected count of verb=%s answer=%s: %llu\n",
                     std::string{to_string(verb)}.c_str(), std::string{to_string(answer)}.c_str(),
                     static_cast<unsigned long long>(counted));
        complete = false;
    }
    return complete ? 0 : 1;
}
