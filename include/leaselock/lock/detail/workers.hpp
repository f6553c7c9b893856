#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/runtime.hpp>

#include <cstddef>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// The threads of an owner that lives until the last of them has ended. Each runs one of its members,
/// with its mutex held.
template <class Owner>
class Workers {
public:
    using Guarded = std::unique_lock<std::mutex>;
    struct Worker;
    using Loop = void (Owner::*)(const Worker&, Guarded&) noexcept;

    struct Worker {
        Owner* owner;
        Loop loop;
        std::size_t part = 0; ///< of the owner, that its loop is about
        ThreadHandle handle{};
        std::thread::id thread{};
        bool alone = false; ///< nobody joins it: it ends, and deletes this, by itself
        Worker* next = nullptr;
    };

    explicit Workers(Runtime& runtime) noexcept : runtime_(runtime) {}

    /// To be called with the owner's mutex held: the thread waits for it before it looks at anything.
    [[nodiscard]] std::error_code start(Owner& owner, Loop loop, std::size_t part) noexcept {
        auto* const worker = new (std::nothrow) Worker{&owner, loop, part};
        if (worker == nullptr) return std::make_error_code(std::errc::not_enough_memory);
        if (const auto error = runtime_.start_thread(worker->handle, &Workers::run, worker)) {
            delete worker;
            return error;
        }
        worker->next = first_;
        first_ = worker;
        return {};
    }

    /// Waits for all threads to end, but for the one that calls, which ends by itself.
    void join(Guarded& lock) noexcept {
        while (Worker* const worker = first_) {
            first_ = worker->next;
            worker->alone = worker->thread == std::this_thread::get_id();
            lock.unlock();
            if (worker->alone) {
                runtime_.detach(worker->handle);
            } else {
                runtime_.join(worker->handle);
                delete worker;
            }
            lock.lock();
        }
    }

    /// For a thread that is not needed any more: nobody joins it, it ends by itself.
    void leave(const Worker& self) noexcept {
        Worker** at = &first_;
        while (*at != &self) at = &(*at)->next;
        (*at)->alone = true;
        runtime_.detach((*at)->handle);
        *at = (*at)->next;
    }

private:
    static void* run(void* argument) noexcept {
        auto& self = *static_cast<Worker*>(argument);
        Owner* const owner = self.owner;
        {
            Guarded lock{owner->mutex_};
            self.thread = std::this_thread::get_id();
            (owner->*self.loop)(self, lock);
            if (self.alone) delete &self;
        }
        owner->release();
        return nullptr;
    }

    Runtime& runtime_;
    Worker* first_ = nullptr;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
