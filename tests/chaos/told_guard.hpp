#pragma once
// SPDX-License-Identifier: MIT

#include "chaos/told.hpp"

#include <leaselock/core/outcome.hpp>
#include <leaselock/lock/lease_lock.hpp>
#include <leaselock/lock/options.hpp>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace leaselock::chaos {

/// A guard of whose calls and answers every one is written down. One thread.
template <class C>
class ToldGuard {
public:
    ToldGuard(const Scribe& scribe, Ids& ids, C& redis, std::string key, Options options)
        : scribe_(scribe), ids_(ids),
          name_(scribe.actor() + "g" + std::to_string(ids.next() & 0xff'ffff'ffffU)),
          key_(std::move(key)), options_(options), recorder_(scribe, name_) {
        options_.observer = &recorder_;
        scribe_.line("guard", [&](History::Line& line) {
            line.put("guard", name_)
                .put("key", key_)
                .put("ttl", options_.ttl.count())
                .put("margin", leaselock::detail::margin_of(options_).count())
                .put("fenced", std::int64_t{options_.fencing ? 1 : 0})
                .put("nodes", std::int64_t{1})
                .put("cap", options_.wait_cap.count());
        });
        lock_.emplace(redis, key_, options_, std::defer_lock);
    }
    ToldGuard(const ToldGuard&) = delete;
    ToldGuard& operator=(const ToldGuard&) = delete;

    /// Runs a verb, and writes down that it was called, and what it returned.
    /// @param must it has to say yes
    template <class Verb>
    Outcome call(std::string_view verb, Time limit, const Verb& run, bool must = false) {
        const std::uint64_t id = ids_.next();
        scribe_.line("call", [&](History::Line& line) {
            line.put_unsigned("call", id).put("guard", name_).put("verb", verb);
            line.put("limit", limit).put("must", must ? "yes" : "");
        });
        const Outcome outcome = run();
        scribe_.line("return", [&](History::Line& line) {
            line.put_unsigned("call", id).put("answer", to_string(outcome.answer));
            line.put("cause", outcome.cause ? outcome.cause.message() : std::string{});
            if (!lock_) return;
            line.put("token", scribe_.token(lock_->fingerprint()));
            line.put_unsigned("fence", lock_->fencing_token());
        });
        return outcome;
    }

    /// What it says. A renewer may be extending the lease, or losing it, and this thread may be stopped
    /// anywhere: what is written down held at the time of its line.
    bool owns() {
        for (;;) {
            const Deadline deadline = lock_->deadline();
            const Time before = scribe_.now();
            const bool is = lock_->owns_lock();
            if (is && lock_->deadline() != deadline) continue;
            tell_owns(is ? before : scribe_.now(), is, is ? deadline : Deadline{});
            return is;
        }
    }

    /// What its destructor does.
    void end(Time limit) {
        (void)call("end", limit, [&] {
            lock_.reset();
            return Outcome{Answer::yes};
        });
    }

    [[nodiscard]] LeaseLock<C>& lock() noexcept { return *lock_; }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] const std::string& key() const noexcept { return key_; }
    [[nodiscard]] const Options& options() const noexcept { return options_; }

private:
    void tell_owns(Time at, bool is, Deadline deadline) const {
        scribe_.line(at, "owns", [&](History::Line& line) {
            line.put("guard", name_)
                .put("token", scribe_.token(lock_->fingerprint()))
                .put("is", std::int64_t{is ? 1 : 0})
                .put("deadline",
                     is ? deadline.time_since_epoch().count() - scribe_.epoch() : Time{0})
                .put("loss", to_string(lock_->loss()));
        });
    }

    const Scribe& scribe_;
    Ids& ids_;
    std::string name_;
    std::string key_;
    Options options_;
    Recorder recorder_;
    std::optional<LeaseLock<C>> lock_;
};

} // namespace leaselock::chaos
