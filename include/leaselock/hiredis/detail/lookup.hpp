#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/hiredis/detail/address.hpp>
#include <leaselock/hiredis/detail/host.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/hiredis/resolver.hpp>

#include <csignal>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// Where a name, or a resolver, leads.
struct Whereabouts {
    Outcome outcome{Answer::unsent}; ///< yes, or why there are no addresses
    ServerAddress server;
    AddressList addresses;
};

/// A lookup on a thread of its own, so that a deadline can leave it behind: no name service takes a
/// deadline, nor can a thread inside one be stopped.
///
/// The lookup belongs to the thread and to this handle; the last of them frees it. Who waits polls
/// `descriptor()`. The thread takes no signals, and is detached: nobody could join it in time.
class Lookup {
public:
    Lookup() noexcept = default;
    Lookup(const Lookup&) = delete;
    Lookup& operator=(const Lookup&) = delete;
    ~Lookup() { abandon(); }

    /// Starts a lookup in place of any other.
    /// @param resolver asked first, instead of `server`, if not null; kept as long as that takes
    [[nodiscard]] std::error_code start(const ServerAddress& server,
                                        std::shared_ptr<Resolver> resolver,
                                        LookupFunction function) noexcept {
        abandon();
        auto* fresh = new (std::nothrow) Shared;
        if (fresh == nullptr) return std::make_error_code(std::errc::not_enough_memory);
        fresh->found.server = server;
        fresh->resolver = std::move(resolver);
        fresh->function = function;
        std::error_code error;
        if (::pipe2(fresh->pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
            error = {errno, std::system_category()};
        } else {
            error = start_detached(fresh);
        }
        if (error) {
            delete fresh;
            return error;
        }
        shared_ = fresh;
        return {};
    }

    [[nodiscard]] bool under_way() const noexcept {
        return shared_ != nullptr && !shared_->done.load(std::memory_order_acquire);
    }
    [[nodiscard]] int descriptor() const noexcept { return shared_->pipe[0]; }

    /// Takes the result of a lookup that is no longer under way.
    [[nodiscard]] Whereabouts take() noexcept {
        Whereabouts found = shared_->found;
        abandon();
        return found;
    }

    void abandon() noexcept {
        if (shared_ != nullptr) release(std::exchange(shared_, nullptr));
    }

    /// In a forked child there is no such thread: what it owned is freed for it.
    void abandon_in_child() noexcept { delete std::exchange(shared_, nullptr); }

private:
    struct Shared {
        Shared() noexcept = default;
        Shared(const Shared&) = delete;
        Shared& operator=(const Shared&) = delete;
        ~Shared() {
            for (const int end : pipe) {
                if (end >= 0) (void)::close(end);
            }
        }

        std::atomic<int> owners{2};
        std::atomic<bool> done{false};
        std::array<int, 2> pipe{-1, -1};
        std::shared_ptr<Resolver> resolver;
        LookupFunction function = nullptr;
        Whereabouts found;
    };

    static void release(Shared* shared) noexcept {
        if (shared->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete shared;
    }

    static void find(const Shared& shared, Whereabouts& found) noexcept {
        if (shared.resolver != nullptr) {
            found.outcome = shared.resolver->resolve(found.server);
            if (!found.outcome) return;
            if (!is_address(found.server)) {
                found.outcome = {Answer::unsent, errc::no_address, "no host, or no port"};
                found.server = {};
                return;
            }
        }
        std::array<char, decltype(ServerAddress::host)::capacity() + 1> host{};
        const std::string_view name = found.server.host.view();
        name.copy(host.data(), name.size());
        const int code = shared.function(host.data(), found.server.port, found.addresses);
        if (code == 0 && !found.addresses.empty()) {
            found.outcome = {Answer::yes};
            return;
        }
        const char* const why = code == 0 ? "no address" : ::gai_strerror(code);
        found.outcome = {Answer::unsent, errc::no_address, why};
    }

    static void* run(void* argument) noexcept {
        auto* const shared = static_cast<Shared*>(argument);
        find(*shared, shared->found);
        shared->done.store(true, std::memory_order_release);
        // no SIGPIPE: the reading end is open as long as `shared` lives
        (void)!::write(shared->pipe[1], "", 1);
        release(shared);
        return nullptr;
    }

    static std::error_code start_detached(Shared* shared) noexcept {
        pthread_attr_t attributes;
        int error = ::pthread_attr_init(&attributes);
        if (error != 0) return {error, std::system_category()};
        (void)::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        sigset_t all;
        sigset_t before;
        (void)::sigfillset(&all);
        (void)::pthread_sigmask(SIG_SETMASK, &all, &before);
        pthread_t thread{};
        error = ::pthread_create(&thread, &attributes, run, shared);
        (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        (void)::pthread_attr_destroy(&attributes);
        return {error, std::system_category()};
    }

    Shared* shared_ = nullptr;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
