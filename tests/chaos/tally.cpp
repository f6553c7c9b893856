// SPDX-License-Identifier: MIT

#include "chaos/tally.hpp"

#include "simulation/clock.hpp"
#include "simulation/history.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace leaselock::chaos {
namespace {

using simulation::Clock;
using simulation::HistoryLine;

class Reader {
public:
    Tally read(std::string_view history) {
        HistoryLine line;
        while (simulation::read_line(history, line)) {
            ++tally_.lines;
            tally_.span = std::max(tally_.span, line.time);
            see(line);
        }
        end();
        return std::move(tally_);
    }

private:
    struct Process {
        Clock clock;
        Time stopped_at = -1;
        Time stopped = 0; ///< in all
    };
    struct Lease {
        std::size_t hold;
        Time deadline; ///< by its process's clock
        bool over = false;
    };
    struct Call {
        std::string guard;
        std::string verb;
        Time at;
        Time limit;
        Time stopped;
    };

    void see(const HistoryLine& line) {
        const std::string_view what = line.what;
        if (line.actor == "store") return see_store(line);
        if (what == "fault") return see_fault(line);
        if (what == "event") return see_event(line);
        if (what == "call") return see_call(line);
        if (what == "return") return see_return(line);
        if (what == "guard") {
            keys_[std::string{line.text("guard")}] = line.text("key");
        } else if (what == "owns") {
            if (line.number("is") == 1) extend(line.text("token"), line.number("deadline"));
        } else if (what == "overlap") {
            tally_.marks.push_back({line.time,
                                    line.time,
                                    "overlap",
                                    place_of(line.actor),
                                    {},
                                    std::string{line.text("key")}});
        } else {
            see_process(line);
        }
    }

    static std::string place_of(std::string_view actor) {
        return std::string{actor.substr(0, actor.find('.'))};
    }
    Process& process_of(std::string_view actor) { return processes_[std::string{actor}]; }
    Time stopped(std::string_view actor, Time now) {
        const Process& process = process_of(actor);
        return process.stopped + (process.stopped_at >= 0 ? now - process.stopped_at : 0);
    }

    void see_process(const HistoryLine& line) {
        Process& process = process_of(line.actor);
        if (line.what == "clock") {
            process.clock = {line.number("offset"), line.number("ppm")};
            ++tally_.processes;
        } else if (line.what == "stop") {
            process.stopped_at = line.time;
        } else if (line.what == "continue" && process.stopped_at >= 0) {
            process.stopped += line.time - process.stopped_at;
            process.stopped_at = -1;
        } else if (line.what == "kill") {
            for (auto& [token, lease] : leases_) {
                const Hold& hold = tally_.holds[lease.hold];
                if (lease.over || hold.actor != line.actor) continue;
                finish(lease, line.time, End::killed);
                if (hold.end == End::killed) orphans_[hold.key] = line.time;
            }
        }
    }

    void see_event(const HistoryLine& line) {
        const std::string_view verb = line.text("verb");
        const std::string answer{line.text("answer")};
        const std::string token{line.text("token")};
        if (verb == "acquire" || verb == "adopt") {
            ++tally_.attempts[answer];
            if (verb == "adopt" && answer == "yes") ++tally_.adoptions;
            if (answer == "yes") grant(line, token);
            if (answer == "unknown") doubts_.emplace(token, "left to its ttl");
        } else if (verb == "renew") {
            ++tally_.renewals[answer];
            if (answer == "yes") extend(token, told(line) + line.number("remaining"));
        } else if (verb == "release" || verb == "clean_up") {
            if (verb == "release") ++tally_.releases[answer];
            const auto doubt = doubts_.find(token);
            if (doubt == doubts_.end()) return;
            if (answer == "yes") doubt->second = "had been set: deleted";
            if (answer == "no") doubt->second = "nothing there to delete";
        } else if (verb == "lose") {
            ++tally_.losses[std::string{line.text("loss")}];
            const auto lease = leases_.find(token);
            if (lease != leases_.end() && line.number("remaining") <= 0) {
                finish(lease->second, line.time, End::lost);
            }
        }
    }
    Time local(const HistoryLine& line) { return process_of(line.actor).clock.at(line.time); }
    Time told(const HistoryLine& line) { return local(line) - line.number("late"); }

    void grant(const HistoryLine& line, const std::string& token) {
        const std::string guard{line.text("guard")};
        Hold hold{place_of(line.actor), std::string{line.actor}, keys_[guard], line.time};
        if (const auto orphan = orphans_.find(hold.key); orphan != orphans_.end()) {
            tally_.after_kills.push_back(line.time - orphan->second);
            orphans_.erase(orphan);
        }
        leases_[token] = {tally_.holds.size(), told(line) + line.number("remaining")};
        tokens_[guard] = token;
        tally_.holds.push_back(std::move(hold));
    }
    void extend(std::string_view token, Time deadline) {
        const auto lease = leases_.find(std::string{token});
        if (lease == leases_.end()) return;
        lease->second.deadline = std::max(lease->second.deadline, deadline);
    }
    /// At the deadline, if that came first.
    void finish(Lease& lease, Time at, End end) {
        if (std::exchange(lease.over, true)) return;
        Hold& hold = tally_.holds[lease.hold];
        const Time deadline = process_of(hold.actor).clock.when(lease.deadline);
        hold.until = std::max(hold.from, std::min(at, deadline));
        hold.end = end != End::lost && deadline <= at ? End::ran_out : end;
    }

    void see_call(const HistoryLine& line) {
        const std::string guard{line.text("guard")};
        const std::string_view verb = line.text("verb");
        calls_[line.number("call")] = {guard, std::string{verb}, local(line), line.number("limit"),
                                       stopped(line.actor, line.time)};
        if (verb != "unlock" && verb != "detach" && verb != "end") return;
        const auto token = tokens_.find(guard);
        if (token == tokens_.end()) return;
        finish(leases_[token->second], line.time, End::given_back);
        leases_.erase(token->second);
        tokens_.erase(token);
    }
    void see_return(const HistoryLine& line) {
        const auto found = calls_.find(line.number("call"));
        if (found == calls_.end()) return;
        const Call call = found->second;
        calls_.erase(found);
        // by the clock of whoever called, which may be slow
        const Time took = local(line) - call.at - (stopped(line.actor, line.time) - call.stopped);
        if (call.verb == "wait" && line.text("answer") == "yes") tally_.waits.push_back(took);
        if (call.limit == 0 || took - call.limit <= tally_.longest_over) return;
        tally_.longest_over = took - call.limit;
        tally_.longest_call = call.verb + " of " + call.guard;
    }

    void see_store(const HistoryLine& line) {
        const bool done = line.number("ok") == 1;
        if (done)
            ++(line.what == "register" ? tally_.registered : tally_.written);
        else
            ++tally_.refused;
        if (done) return;
        const auto lease = leases_.find(std::string{line.text("token")});
        const std::string worker =
            lease == leases_.end() ? "" : tally_.holds[lease->second.hold].worker;
        tally_.marks.push_back(
            {line.time, line.time, "refused", worker, "", std::string{line.text("key")}});
    }
    void see_fault(const HistoryLine& line) {
        ++tally_.torments[std::string{line.text("kind")}];
        tally_.marks.push_back({line.time, line.time + line.number("span"),
                                std::string{line.text("kind")}, std::string{line.text("worker")},
                                std::string{line.text("server")}});
    }

    void end() {
        for (auto& [token, lease] : leases_) finish(lease, tally_.span, End::open);
        for (const auto& [token, what] : doubts_) ++tally_.doubts[what];
        std::sort(tally_.waits.begin(), tally_.waits.end());
        std::sort(tally_.after_kills.begin(), tally_.after_kills.end());
    }

    Tally tally_;
    std::unordered_map<std::string, Process> processes_;
    std::unordered_map<std::string, std::string> keys_;   ///< by guard
    std::unordered_map<std::string, std::string> tokens_; ///< of the lease, by guard
    std::unordered_map<std::string, Lease> leases_;       ///< by token
    std::unordered_map<std::string, std::string> doubts_; ///< by token
    std::unordered_map<std::string, Time> orphans_;       ///< by key
    std::unordered_map<std::int64_t, Call> calls_;
};

} // namespace

Tally tally(std::string_view history) { return Reader{}.read(history); }

} // namespace leaselock::chaos
