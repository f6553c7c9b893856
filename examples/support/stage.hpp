// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

namespace example {

/// Puts the actors of a story in order: each waits for the steps that must come before its own, so
/// that the story does not depend on how fast the machine is. For any number of threads.
class Stage {
public:
    void reach(const std::string& step) {
        {
            const std::scoped_lock lock{mutex_};
            reached_.insert(step);
        }
        changed_.notify_all();
    }

    [[nodiscard]] bool reached(const std::string& step) const {
        const std::scoped_lock lock{mutex_};
        return reached_.contains(step);
    }

    /// @throws std::runtime_error when another actor has failed, or the step does not come
    void await(const std::string& step) const {
        std::unique_lock lock{mutex_};
        const bool came = changed_.wait_for(lock, std::chrono::seconds{20}, [&] {
            return reached_.contains(step) || !failure_.empty();
        });
        if (!failure_.empty()) throw std::runtime_error("abandoned: " + failure_);
        if (!came) throw std::runtime_error("waited 20 s in vain for: " + step);
    }

    /// Ends the story for everybody; the first reason counts.
    void fail(std::string why) {
        {
            const std::scoped_lock lock{mutex_};
            if (failure_.empty()) failure_ = std::move(why);
        }
        changed_.notify_all();
    }

    /// What went wrong; empty when nothing did.
    [[nodiscard]] std::string failure() const {
        const std::scoped_lock lock{mutex_};
        return failure_;
    }

private:
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::set<std::string> reached_;
    std::string failure_;
};

} // namespace example
