// SPDX-License-Identifier: MIT

/// A payment that is submitted twice. While the first request is at work, the second hears "in
/// progress" from the lock. Once the lock is gone, a permanent record answers "already done, receipt
/// N": a lock is no such record, for it ends; a unique constraint in the database is.
///
/// Each request is handled by a process of its own; the database and the bank are this one.

#include "support/await.hpp"
#include "support/checks.hpp"
#include "support/child.hpp"
#include "support/private_server.hpp"
#include "support/program.hpp"

#include <leaselock/leaselock.hpp>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using namespace std::chrono_literals;
using leaselock::HiredisConnection;
using leaselock::LeaseLock;

namespace {

/// A stable business id, never something out of the request's body.
std::string lock_key(const std::string& payment) { return "payment:lock:" + payment; }

// --- the service: what handles a request -------------------------------------------------------

/// The way to the database and the bank: a line there, a line back.
std::string ask(const std::string& request) {
    example::tell_parent(request);
    return example::hear_parent();
}

std::string submit(HiredisConnection& redis, const std::string& payment,
                   std::chrono::milliseconds lease) {
    // Done long ago? Nobody needs a lock to read that.
    if (const std::string receipt = ask("find " + payment);
        receipt != "none" && receipt != "open") {
        return "already done, receipt " + receipt;
    }

    LeaseLock lock{redis, lock_key(payment), lease};
    if (!lock) return "in progress"; // busy is an answer: pass it on, do not wait, do not overwrite

    // INSERT INTO payments (id) VALUES (:payment): the unique key lets one of all requests through,
    // whatever has become of the lock meanwhile. It comes before the charge, not behind it.
    if (ask("insert " + payment) != "inserted") {
        const std::string receipt = ask("find " + payment);
        if (receipt != "open") return "already done, receipt " + receipt;
        // Somebody has begun, and its lock is gone: stopped, or dead. Whether the card was charged
        // is the bank's to say, by the same id. Charging once more is no way to find out.
        return "in progress, being looked into";
    }
    const std::string receipt = ask("charge " + payment);
    ask("finish " + payment + " " + receipt);
    return "paid, receipt " + receipt;
}

void handle(std::span<char*> arguments) {
    HiredisConnection redis{example::hear_parent()};
    const std::chrono::milliseconds lease{std::stoi(arguments[1])};
    example::tell_parent("answer " + submit(redis, arguments[0], lease));
}

// --- the database and the bank -----------------------------------------------------------------

class Backend {
public:
    std::string answer(const std::string& request) {
        std::istringstream words{request};
        std::string verb;
        std::string payment;
        std::string receipt;
        words >> verb >> payment >> receipt;
        if (verb == "insert") return payments_.try_emplace(payment).second ? "inserted" : "exists";
        if (verb == "charge") {
            ++charges_[payment];
            return std::to_string(++last_receipt_);
        }
        const auto row = payments_.find(payment);
        if (row == payments_.end()) return "none";
        if (verb == "finish") row->second = receipt;
        return row->second.empty() ? "open" : row->second;
    }
    [[nodiscard]] int charges(const std::string& payment) const {
        const auto found = charges_.find(payment);
        return found == charges_.end() ? 0 : found->second;
    }

private:
    std::map<std::string, std::string> payments_; ///< id, unique; receipt, empty while open
    std::map<std::string, int> charges_;
    int last_receipt_ = 4710;
};

// --- the play ----------------------------------------------------------------------------------

/// One request on its way through the service.
class Request {
public:
    Request(Backend& backend, const std::string& url, std::string name, const std::string& payment,
            std::chrono::milliseconds lease = 30s)
        : backend_(backend), name_(std::move(name)),
          process_({"--as-request", payment, std::to_string(lease.count())}) {
        process_.tell(url);
    }

    /// Lets it go on until it is about to do that.
    void run_up_to(const std::string& verb) {
        while (!said_.starts_with(verb)) step();
        std::printf("   %-8s is about to %s\n", name_.c_str(), said_.c_str());
    }
    /// @return what it answers to the user
    std::string finish() {
        while (!step()) {
        }
        std::printf("   %-8s answers: %s\n", name_.c_str(), answer_->c_str());
        return *answer_;
    }
    /// Serves one of its requests, if there is one. @return whether it has answered
    bool step() {
        if (answer_) return true;
        if (!said_.empty()) process_.tell(backend_.answer(said_));
        said_.clear();
        const auto line = process_.hear();
        if (!line) throw std::runtime_error(name_ + " has ended without an answer");
        if (!line->starts_with("answer ")) {
            said_ = *line;
            return false;
        }
        answer_ = line->substr(7);
        if (!example::ended_well(process_.wait())) throw std::runtime_error(name_ + " has failed");
        return true;
    }
    [[nodiscard]] const std::string& answer() const { return answer_.value(); }
    [[nodiscard]] example::Child& process() { return process_; }

private:
    Backend& backend_;
    std::string name_;
    example::Child process_;
    std::string said_; ///< what it waits for
    std::optional<std::string> answer_;
};

class Play {
public:
    explicit Play(std::string url) : url_(std::move(url)), redis_(url_) {}

    void twice_in_a_row() {
        std::printf("\n== 1. Submitted twice, and once more when all is over\n\n");
        Request first{backend_, url_, "first", "order-1001"};
        first.run_up_to("charge");
        Request second{backend_, url_, "second", "order-1001"};
        in_progress_ = second.finish();
        paid_ = first.finish();
        await_free("order-1001");
        std::printf("            the lock is gone\n");
        Request third{backend_, url_, "third", "order-1001"};
        already_done_ = third.finish();
    }

    void behind_the_lease() {
        std::printf("\n== 2. The first request is stopped, past its lease, before it charges\n\n");
        Request first{backend_, url_, "first", "order-1002", 1s};
        first.run_up_to("charge");
        first.process().stop();
        std::printf("   first    is stopped (SIGSTOP)\n");
        await_free("order-1002");
        std::printf("            its lease has run out: the lock is free\n");
        Request second{backend_, url_, "second", "order-1002"};
        looked_into_ = second.finish();
        first.process().go_on();
        std::printf("   first    goes on (SIGCONT)\n");
        paid_late_ = first.finish();
        Request third{backend_, url_, "third", "order-1002"};
        already_done_late_ = third.finish();
    }

    void all_at_once() {
        std::printf("\n== 3. Ten impatient clicks, at the same time\n\n");
        std::vector<std::unique_ptr<Request>> clicks;
        while (clicks.size() < 10) {
            clicks.push_back(std::make_unique<Request>(backend_, url_, "click", "order-1003"));
        }
        // a line of each in turn, so that they run beside one another
        for (bool all = false; !all;) {
            all = true;
            for (const auto& click : clicks) all = click->step() && all;
        }
        std::map<std::string, int> answers;
        for (const auto& click : clicks) ++answers[click->answer()];
        for (const auto& [answer, count] : answers) {
            std::printf("   %2d x    %s\n", count, answer.c_str());
            if (answer.starts_with("paid")) clicks_paid_ += count;
        }
    }

    [[nodiscard]] bool audit() const {
        std::printf("\nChecked:\n");
        example::Checks checks;
        const auto same_receipt = [](const std::string& paid, const std::string& again) {
            return paid.starts_with("paid, ") && again == "already done, " + paid.substr(6);
        };
        checks.expect(in_progress_ == "in progress",
                      "1: the second heard \"in progress\" while the "
                      "first was at work");
        checks.expect(same_receipt(paid_, already_done_),
                      "1: the third heard \"already done\", with the receipt of the first");
        checks.expect(looked_into_ == "in progress, being looked into",
                      "2: the second had the lock, and charged nothing all the same");
        checks.expect(same_receipt(paid_late_, already_done_late_),
                      "2: the third heard \"already done\", with the receipt of the first");
        checks.expect(clicks_paid_ == 1, "3: one click of ten has paid");
        for (const char* payment : {"order-1001", "order-1002", "order-1003"}) {
            const int charges = backend_.charges(payment);
            checks.expect(charges == 1,
                          std::string{payment} + " was charged " +
                              (charges == 1 ? "once" : std::to_string(charges) + " times"));
        }
        return checks.all_fine();
    }

private:
    void await_free(const std::string& payment) {
        example::await("a free lock", [&] {
            const auto seen = leaselock::inspect(redis_, lock_key(payment), 5s);
            return seen.state == leaselock::Inspection::State::free;
        });
    }

    std::string url_;
    HiredisConnection redis_;
    Backend backend_;
    std::string in_progress_, paid_, already_done_;
    std::string looked_into_, paid_late_, already_done_late_;
    int clicks_paid_ = 0;
};

bool play() {
    std::printf(
        "A user pays, and clicks again. The lock says \"in progress\"; a unique record in the "
        "database\nsays \"already done\", and keeps the card from being charged twice.\n");
    const example::PrivateServer server;
    std::printf("Server: %s, private, pid %d.\n", server.program().c_str(),
                static_cast<int>(server.pid()));
    Play play{server.url()};
    play.twice_in_a_row();
    play.behind_the_lease();
    play.all_at_once();
    return play.audit();
}

constexpr std::string_view usage =
    "usage: idempotent_submit\n"
    "\n"
    "A payment that is submitted more than once, on a private server; about two seconds.\n"
    "REDIS_SERVER=/path/to/server names its binary; else redis-server or valkey-server from the "
    "PATH.\n"
    "Exit code: 0 all as it should be, 1 charged twice or a wrong answer, 2 wrong usage,\n"
    "3 it could not be played.\n";

} // namespace

int main(int argc, char** argv) {
    return example::run({.name = "idempotent_submit",
                         .usage = usage,
                         .role = "--as-request",
                         .as_child = handle,
                         .play = play},
                        argc, argv);
}
