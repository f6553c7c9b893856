// SPDX-License-Identifier: MIT
#pragma once

#include "child.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

namespace example {

/// Worker processes that go through the same orders, the store that they write to, and somebody who
/// stops and kills them. The store is this process: outside of all workers.
///
/// A worker talks to it in lines, and gets one line back for each:
///
///     open                   -> the orders that are still to be done, by their numbers
///     begin ORDER TOKEN AT   -> open, done, or refused: registers the fencing token, then reads
///     check ORDER TOKEN AT   -> go: AT that time, of the steady clock of all processes, the worker's
///                               guard said that it owns the lock
///     write ORDER TOKEN      -> stored or refused
///     lost                   -> go: its guard told it in time
struct CrowdOptions {
    int workers = 4;
    int orders = 40;
    std::uint64_t seed = 1;
    std::chrono::milliseconds lease{500};
};

/// An order as the store has it, and what the audit has to know of it.
struct Order {
    std::uint64_t highest_token = 0; ///< registered
    int done = 0;                    ///< how often a write was stored; one is right

    /// From when until when a guard has surely owned the lock, by its own word.
    struct Held {
        std::uint64_t token;
        std::int64_t from;
        std::int64_t to;
    };
    std::vector<Held> held{};
};

struct CrowdTally {
    int killed = 0;
    int stopped = 0;
    // what the stopped did when they went on
    int noticed = 0;        ///< heard from their guard that it was too late
    int refused = 0;        ///< wrote, and were refused
    int late_but_first = 0; ///< wrote, before anybody else had come
    // of all
    int stale_writes_stored = 0; ///< that should have been refused
};

class Crowd {
public:
    using Hire = std::function<std::unique_ptr<Child>(int number)>;

    Crowd(CrowdOptions options, Hire hire)
        : options_(options), hire_(std::move(hire)),
          orders_(static_cast<std::size_t>(options.orders)) {}

    /// @return whether all was as it should be
    bool run();

private:
    using Clock = std::chrono::steady_clock;

    /// What is done to a holder, and when.
    enum class Fate {
        none,
        stopped_at_work,
        stopped_behind_check,
        killed_at_work,
        killed_at_write
    };

    struct Worker {
        int number;
        std::unique_ptr<Child> process;
        bool is_stopped = false;
        bool is_killed = false;
        bool was_late = false; ///< was stopped with a lease, and has not been heard of since
        std::size_t order = 0; ///< that it was stopped with
        std::uint64_t token = 0;
        Clock::time_point since{};
    };

    void listen();
    void answer(Worker& worker, const std::string& request);
    std::string begin(Worker& worker, std::size_t order, std::uint64_t token, std::int64_t at);
    std::string write(Worker& worker, std::size_t order, std::uint64_t token);
    void owned(std::size_t order, std::uint64_t token, std::int64_t at);
    void stop(Worker& worker, std::size_t order, std::uint64_t token);
    void kill(Worker& worker);
    void wake_the_overtaken();
    void bury_the_dead();
    void tell_progress();

    /// The same for the same seed, whatever the timing: a matter of the order and of who holds it
    /// for the how manieth time.
    [[nodiscard]] Fate fate(std::size_t order, std::uint64_t token) const;
    [[nodiscard]] int done() const;
    [[nodiscard]] int overlaps() const;
    [[nodiscard]] bool audit() const;

    CrowdOptions options_;
    Hire hire_;
    std::vector<Order> orders_;
    std::vector<Worker> workers_;
    CrowdTally tally_;
    Clock::time_point start_ = Clock::now();
    Clock::time_point last_progress_ = start_;
    int told_ = 0;
    std::array<int, 4> told_figures_{};
};

// --- the orders ----------------------------------------------------------------------------------

inline std::string Crowd::begin(Worker& worker, std::size_t order, std::uint64_t token,
                                std::int64_t at) {
    Order& row = orders_[order];
    if (token < row.highest_token) return "refused";
    row.highest_token = token;
    owned(order, token, at);
    if (row.done != 0) return "done";
    const Fate its = fate(order, token);
    if (its == Fate::stopped_at_work) stop(worker, order, token);
    if (its == Fate::killed_at_work) kill(worker);
    return "open";
}

inline std::string Crowd::write(Worker& worker, std::size_t order, std::uint64_t token) {
    Order& row = orders_[order];
    if (token != row.highest_token) {
        ++tally_.refused;
        return "refused";
    }
    tally_.late_but_first += worker.was_late ? 1 : 0;
    // the rule above once more, from what the holders themselves have said
    const bool stale = std::any_of(row.held.begin(), row.held.end(),
                                   [&](const Order::Held& other) { return other.token > token; });
    tally_.stale_writes_stored += stale ? 1 : 0;
    ++row.done;
    last_progress_ = Clock::now();
    if (fate(order, token) == Fate::killed_at_write) kill(worker);
    return "stored";
}

inline void Crowd::owned(std::size_t order, std::uint64_t token, std::int64_t at) {
    std::vector<Order::Held>& held = orders_[order].held;
    const auto found = std::find_if(held.begin(), held.end(),
                                    [&](const Order::Held& known) { return known.token == token; });
    if (found == held.end()) {
        held.push_back({token, at, at});
    } else {
        found->to = std::max(found->to, at);
    }
}

inline void Crowd::answer(Worker& worker, const std::string& request) {
    std::istringstream words{request};
    std::string verb;
    std::size_t number = 0;
    std::uint64_t token = 0;
    std::int64_t at = 0;
    words >> verb >> number >> token >> at;
    std::string reply = "go";
    if (verb == "open") {
        reply.clear();
        for (std::size_t i = 0; i < orders_.size(); ++i) {
            if (orders_[i].done == 0) reply += std::to_string(i + 1) + " ";
        }
    } else if (verb == "lost") {
        tally_.noticed += worker.was_late ? 1 : 0;
        worker.was_late = false;
    } else if (number < 1 || number > orders_.size()) {
        throw std::runtime_error("a worker asks for what there is not: " + request);
    } else if (verb == "begin") {
        reply = begin(worker, number - 1, token, at);
    } else if (verb == "check") {
        owned(number - 1, token, at);
        if (fate(number - 1, token) == Fate::stopped_behind_check && !worker.was_late) {
            stop(worker, number - 1, token);
        }
    } else if (verb == "write") {
        reply = write(worker, number - 1, token);
        worker.was_late = false;
    }
    worker.process->tell(reply);
}

// --- what is done to the workers -----------------------------------------------------------------

inline Crowd::Fate Crowd::fate(std::size_t order, std::uint64_t token) const {
    const std::vector<Order::Held>& held = orders_[order].held;
    const auto earlier = std::count_if(
        held.begin(), held.end(), [&](const Order::Held& other) { return other.token < token; });
    if (earlier > 1) return Fate::none; // enough is enough
    std::seed_seq sequence{options_.seed, static_cast<std::uint64_t>(order),
                           static_cast<std::uint64_t>(earlier)};
    const auto dice = std::mt19937{sequence}() % 100;
    if (dice < 10) return Fate::stopped_at_work;
    if (dice < 25) return Fate::stopped_behind_check;
    if (dice < 32) return Fate::killed_at_work;
    if (dice < 38) return Fate::killed_at_write;
    return Fate::none;
}

inline void Crowd::stop(Worker& worker, std::size_t order, std::uint64_t token) {
    const auto running = std::count_if(workers_.begin(), workers_.end(),
                                       [](const Worker& other) { return !other.is_stopped; });
    if (running == 1 && workers_.size() > 1) return; // somebody has to take the others' orders
    worker.process->stop();
    worker.is_stopped = true;
    worker.was_late = true;
    worker.order = order;
    worker.token = token;
    worker.since = Clock::now();
    ++tally_.stopped;
}

inline void Crowd::kill(Worker& worker) {
    worker.process->kill();
    worker.is_killed = true;
    ++tally_.killed;
}

/// A stopped holder goes on when somebody else has taken its order; when nobody is left to do that,
/// some time behind its lease.
inline void Crowd::wake_the_overtaken() {
    const bool somebody_runs = std::any_of(workers_.begin(), workers_.end(),
                                           [](const Worker& worker) { return !worker.is_stopped; });
    for (Worker& worker : workers_) {
        if (!worker.is_stopped) continue;
        const bool overtaken = orders_[worker.order].highest_token > worker.token;
        const bool over = Clock::now() - worker.since > 2 * options_.lease;
        if (!overtaken && (somebody_runs || !over)) continue;
        worker.process->go_on();
        worker.is_stopped = false;
    }
}

inline void Crowd::bury_the_dead() {
    for (std::size_t i = 0; i < workers_.size(); ++i) {
        Worker& worker = workers_[i];
        if (!worker.process->end_of_lines()) continue;
        const int status = worker.process->wait();
        if (worker.is_killed) {
            worker = {worker.number, hire_(worker.number)};
        } else if (ended_well(status)) {
            workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(i--));
        } else {
            throw std::runtime_error("worker " + std::to_string(worker.number) + " has failed");
        }
    }
}

inline void Crowd::listen() {
    std::vector<pollfd> sockets;
    for (const Worker& worker : workers_) sockets.push_back({worker.process->socket(), POLLIN, 0});
    if (poll(sockets.data(), sockets.size(), 20) <= 0) return;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
        if (sockets[i].revents == 0) continue;
        Worker& worker = workers_[i];
        worker.process->receive();
        while (const auto request = worker.process->take_line()) {
            if (!worker.is_killed) answer(worker, *request);
        }
    }
}

// --- from beginning to end -----------------------------------------------------------------------

inline bool Crowd::run() {
    std::printf("\n     when   orders done   holders stopped   killed   late writes refused\n");
    for (int number = 1; number <= options_.workers; ++number) {
        workers_.push_back({number, hire_(number)});
    }
    while (!workers_.empty()) {
        listen();
        wake_the_overtaken();
        bury_the_dead();
        tell_progress();
        if (Clock::now() - last_progress_ > patience) {
            std::printf("\nNo order was done for %lld s: given up.\n",
                        static_cast<long long>(patience.count()));
            break;
        }
    }
    return audit();
}

inline int Crowd::done() const {
    return static_cast<int>(std::count_if(orders_.begin(), orders_.end(),
                                          [](const Order& order) { return order.done != 0; }));
}

/// A line for every tenth of the orders, and for the end.
inline void Crowd::tell_progress() {
    const int count = done();
    const int tenth = count * 10 / options_.orders;
    if (tenth == told_ && !workers_.empty()) return;
    told_ = tenth;
    const std::array<int, 4> figures{count, tally_.stopped, tally_.killed, tally_.refused};
    if (figures == told_figures_) return;
    told_figures_ = figures;
    const auto now =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start_).count();
    std::printf("%6lld ms   %5d/%-5d   %15d   %6d   %19d\n", static_cast<long long>(now), count,
                options_.orders, tally_.stopped, tally_.killed, tally_.refused);
    std::fflush(stdout);
}

/// Pairs of holders of one order that have both owned it, by their own word, at one time.
inline int Crowd::overlaps() const {
    int count = 0;
    for (const Order& order : orders_) {
        for (std::size_t i = 0; i < order.held.size(); ++i) {
            for (std::size_t k = i + 1; k < order.held.size(); ++k) {
                const Order::Held& a = order.held[i];
                const Order::Held& b = order.held[k];
                count += a.from <= b.to && b.from <= a.to ? 1 : 0;
            }
        }
    }
    return count;
}

inline bool Crowd::audit() const {
    const auto twice = static_cast<int>(std::count_if(
        orders_.begin(), orders_.end(), [](const Order& order) { return order.done > 1; }));
    const int not_done = options_.orders - done();
    const int together = overlaps();
    const auto row = [](const char* what, int number) {
        std::printf("   %-52s %6d\n", what, number);
    };
    const auto must_be_none = [](const char* what, int number) {
        std::printf("   %-6s %-45s %6d\n", number == 0 ? "ok" : "WRONG", what, number);
        return number == 0;
    };
    std::printf("\n");
    row("orders done", done());
    row("holders killed (kill -9), and replaced", tally_.killed);
    row("holders stopped past their lease (SIGSTOP, SIGCONT)", tally_.stopped);
    row("  that heard so from their guard, and let go", tally_.noticed);
    row("  whose late write was refused by the store", tally_.refused);
    if (tally_.late_but_first != 0) {
        row("  whose late write came before any newer holder", tally_.late_but_first);
    }
    std::printf("\nChecked:\n");
    bool fine = must_be_none("orders not done", not_done);
    fine = must_be_none("orders done twice", twice) && fine;
    fine =
        must_be_none("stale writes that the store let through", tally_.stale_writes_stored) && fine;
    fine = must_be_none("two owners of one order at a time", together) && fine;
    return fine;
}

} // namespace example
