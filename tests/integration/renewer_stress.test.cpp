// SPDX-License-Identifier: MIT
// Many kept guards on many threads, with everything that may happen to a guard happening at random.
// The sanitizers judge, and one rule: behind its destructor a guard's callbacks are silent.
#include "kept_story.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

using namespace leaselock;
using namespace leaselock::test;
using namespace std::chrono_literals;

namespace {

/// A connection that threads share: a guard may be destroyed by a thread of its renewer's.
class SharedWay {
public:
    static constexpr bool is_shareable = true;

    explicit SharedWay(const std::string& url) : way_{url} {}
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept {
        const std::lock_guard guard{mutex_};
        way_.call(commands, replies, by);
    }

private:
    std::mutex mutex_;
    HiredisConnection way_;
};

/// As one to several servers, among which the keys move about all the time: a renewer has many lanes,
/// and its leases go from one to another.
class RoutedWay : public SharedWay {
public:
    using SharedWay::SharedWay;
    std::uint32_t lane(std::string_view key) noexcept {
        const std::size_t asked = asked_.fetch_add(1, std::memory_order_relaxed);
        return static_cast<std::uint32_t>(std::hash<std::string_view>{}(key) % 5 + asked / 100);
    }

private:
    std::atomic<std::size_t> asked_{0};
};

static_assert(!RoutedConnection<SharedWay> && RoutedConnection<RoutedWay>);

struct Tally {
    std::atomic<std::size_t> kept{0};
    std::atomic<std::size_t> called{0};
    std::atomic<std::size_t> called_late{0}; ///< behind the destructor of its guard
    std::atomic<std::size_t> called_twice{0};
    std::atomic<std::size_t> destroyed_in_callback{0};
    std::atomic<std::size_t> renewers{0};
};

/// A guard, and the callback of its loss. The callback stays registered when the guard has gone.
template <class Way>
class Holder {
public:
    Holder(Way& way, const std::string& name, Tally& tally, bool destroys)
        : tally_{tally}, destroys_{destroys}, lock_{std::make_unique<LeaseLock<Way>>(
                                                  way, name, Options{.ttl = 400ms, .timeout = 20s},
                                                  std::defer_lock)} {}

    bool acquire(Renewer<Way>& renewer) {
        if (!lock_->try_acquire() || !renewer.try_keep(*lock_)) {
            return false;
        }
        ++tally_.kept;
        callback_.emplace(lock_->stop_token(), Call{*this, lease_});
        return true;
    }

    /// For the owner: does something with the guard unless its callback has destroyed it.
    template <class Use>
    void use(Use&& what) {
        const std::lock_guard guard{mutex_};
        if (lock_ != nullptr) {
            what(*lock_);
        }
    }
    /// Two guards change places. One whose callback destroys it has to be found there, and changes
    /// back.
    static void swap(Holder& a, Holder& b) {
        const std::scoped_lock both{a.mutex_, b.mutex_};
        if (a.lock_ == nullptr || b.lock_ == nullptr) {
            return;
        }
        a.lock_->swap(*b.lock_);
        if (a.destroys_ || b.destroys_) {
            std::swap(*a.lock_, *b.lock_);
        } else {
            std::swap(a.lease_, b.lease_);
        }
    }
    void move_guard() {
        const std::lock_guard guard{mutex_};
        if (lock_ != nullptr) {
            lock_ = std::make_unique<LeaseLock<Way>>(std::move(*lock_));
        }
    }
    [[nodiscard]] bool in_callback() const { return in_callback_; }
    void destroy() {
        const std::lock_guard guard{mutex_};
        if (lock_ != nullptr) {
            lock_.reset();
            lease_->gone = true;
        }
    }

private:
    /// Goes along when guards change places.
    struct OneLease {
        std::atomic<bool> gone{false}; ///< the destructor of its guard has returned
        std::atomic<bool> called{false};
    };
    struct Call {
        Holder& holder;
        std::shared_ptr<OneLease> lease;
        void operator()() const { holder.on_loss(*lease); }
    };

    void on_loss(OneLease& lease) {
        const std::size_t number = ++tally_.called;
        tally_.called_twice += lease.called.exchange(true) ? 1U : 0U;
        tally_.called_late += lease.gone ? 1U : 0U;
        if (number % 4 == 0) { // a destructor may begin meanwhile, and has to wait
            in_callback_ = true;
            std::this_thread::sleep_for(2ms);
            in_callback_ = false;
        }
        tally_.called_late += lease.gone ? 1U : 0U;
        if (!destroys_) {
            return;
        }
        // the owner may be inside a verb that waits for this very callback
        if (const std::unique_lock guard{mutex_, std::try_to_lock}; guard && lock_ != nullptr) {
            lock_.reset();
            lease.gone = true;
            ++tally_.destroyed_in_callback;
        }
    }

    Tally& tally_;
    const bool destroys_;
    std::mutex mutex_;
    std::unique_ptr<LeaseLock<Way>> lock_;
    std::atomic<bool> in_callback_{false};
    std::shared_ptr<OneLease> lease_ = std::make_shared<OneLease>();
    std::optional<std::stop_callback<Call>> callback_;
};

/// One thread, its guards, and a renewer that it replaces now and then.
template <class Way>
class Worker {
public:
    Worker(const std::string& url, int who, std::size_t guards, Tally& tally,
           const std::atomic<bool>& over)
        : way_{url}, wire_{url}, who_{who}, tally_{tally}, over_{over},
          holders_(guards), dice_{static_cast<std::uint32_t>(who)} {}

    void run() {
        while (!over_) {
            if (renewer_ == nullptr || roll(500) == 0) {
                renewer_.reset(); // its leases hear of that
                renewer_ = std::make_unique<Renewer<Way>>(wire_);
                ++tally_.renewers;
            }
            step(roll(holders_.size()));
            if (roll(2) == 0) {
                destroy_in_callback();
            }
        }
        if (roll(2) == 0) {
            renewer_.reset();
        }
        holders_.clear();
        renewer_.reset();
    }

private:
    [[nodiscard]] std::size_t roll(std::size_t sides) { return dice_() % sides; }

    void destroy_in_callback() {
        for (const auto& holder : holders_) {
            if (holder != nullptr && holder->in_callback()) {
                return holder->destroy();
            }
        }
    }
    void step(std::size_t at) {
        std::unique_ptr<Holder<Way>>& holder = holders_[at];
        if (holder == nullptr) {
            const std::string name = "lock:" + std::to_string(who_) + ":" + std::to_string(at);
            holder = std::make_unique<Holder<Way>>(way_, name, tally_, roll(3) == 0);
            if (!holder->acquire(*renewer_)) {
                holder.reset();
            }
            return;
        }
        switch (roll(12)) {
        case 0: holder->move_guard(); break;
        case 1: {
            auto& other = holders_[roll(holders_.size())];
            if (other != nullptr && &other != &holder) {
                Holder<Way>::swap(*holder, *other);
            }
            break;
        }
        case 2: holder->use([](LeaseLock<Way>& lock) { lock.unlock(); }); break;
        case 3: holder->use([](LeaseLock<Way>& lock) { static_cast<void>(lock.renew()); }); break;
        case 4: holder->use([](LeaseLock<Way>& lock) { static_cast<void>(lock.detach()); }); break;
        case 5: holder->destroy(); break;
        case 6: holder.reset(); break; // the callback first
        default:
            holder->use([](LeaseLock<Way>& lock) {
                static_cast<void>(lock.owns_lock());
                static_cast<void>(lock.loss());
                static_cast<void>(lock.stop_token().stop_requested());
            });
            std::this_thread::sleep_for(100us);
        }
    }

    Way way_;
    Way wire_;
    int who_;
    Tally& tally_;
    const std::atomic<bool>& over_;
    std::unique_ptr<Renewer<Way>> renewer_;
    std::vector<std::unique_ptr<Holder<Way>>> holders_;
    std::minstd_rand dice_;
};

template <class Way>
void live_through_everything() {
    constexpr int workers = 4;
    constexpr std::size_t guards = 50;
    RedisServer server;
    auto outside = server.client();
    // the main thread's own, for its children to look at
    Way way{patient_url(server)};
    Way wire{patient_url(server)};
    auto renewer = std::make_unique<Renewer<Way>>(wire);
    std::vector<LeaseLock<Way>> own;
    for (int i = 0; i < 8; ++i) {
        own.emplace_back(way, "lock:own:" + std::to_string(i), Options{.ttl = 60s, .timeout = 20s},
                         std::defer_lock);
        REQUIRE(own.back().try_acquire());
        renewer->keep(own.back());
    }

    Tally tally;
    std::atomic<bool> over{false};
    std::size_t forks = 0;
    std::size_t inert = 0;
    std::size_t deleted = 0;
    {
        std::vector<std::unique_ptr<Worker<Way>>> crew;
        std::vector<std::unique_ptr<Beside>> threads;
        for (int who = 0; who < workers; ++who) {
            crew.push_back(
                std::make_unique<Worker<Way>>(patient_url(server), who, guards, tally, over));
            threads.push_back(
                std::make_unique<Beside>([worker = crew.back().get()] { worker->run(); }));
        }
        std::minstd_rand dice{99};
        const Stopwatch watch;
        while (watch.elapsed() < 4s) {
            for (int i = 0; i < 8; ++i) {
                const auto name = "lock:" + std::to_string(dice() % workers) + ":" +
                                  std::to_string(dice() % guards);
                deleted += outside.integer({"DEL", name}) == 1 ? 1U : 0U;
            }
            if (dice() % 16 == 0) {
                ++forks;
                ChildProcess child{[&] {
                    for (LeaseLock<Way>& lock : own) {
                        if (lock.owns_lock() || !lock.stop_token().stop_requested() ||
                            lock.unlock().cause != errc::other_process) {
                            return 1;
                        }
                    }
                    own.clear();
                    renewer.reset();
                    return 0;
                }};
                inert += child.wait(20s) == ProcessEnd{0, 0} ? 1U : 0U;
            }
            std::this_thread::sleep_for(2ms);
        }
        over = true;
        threads.clear(); // joins
    }
    INFO(tally.kept << " kept, " << deleted << " deleted, " << tally.called << " called, "
                    << tally.destroyed_in_callback << " destroyed inside, " << tally.renewers
                    << " renewers, " << forks << " forks");
    CHECK(tally.called_late == 0);
    CHECK(tally.called_twice == 0);
    CHECK(inert == forks);
    CHECK(tally.kept > guards);
    CHECK(tally.called > 0);
    CHECK(tally.destroyed_in_callback > 0);
    CHECK(tally.renewers >= workers);
    CHECK(deleted > 0);
    CHECK(forks > 0);
    for (LeaseLock<Way>& lock : own) {
        CHECK(lock.owns_lock());
        CHECK(said(lock.unlock()) == said(Answer::yes));
    }
}

} // namespace

TEST_CASE("Two hundred kept guards live through everything at once") {
    live_through_everything<SharedWay>();
}

TEST_CASE("Two hundred kept guards live through everything while their keys move about") {
    live_through_everything<RoutedWay>();
}
