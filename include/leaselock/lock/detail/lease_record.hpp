#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/core/token.hpp>
#include <leaselock/lock/options.hpp>
#include <leaselock/redis/key.hpp>
#include <leaselock/redis/script_call.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stop_token>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// What may be in Redis of a guard's last token.
enum class Trace : std::uint8_t {
    none,     ///< nothing, by a definite answer
    lease,    ///< the key, taken by an acquisition that was answered with yes
    ghost,    ///< what an acquire without an answer may have left, or may still leave
    released, ///< the key, behind a release without a definite answer
};

/// The state of one guard: one block of memory with key, value and fence key behind it, made with
/// the guard and reused by its acquisitions.
///
/// Only `term_` is touched by more than one thread: it is the deadline and the loss in one atomic,
/// so that an extension and a loss can never both win.
class LeaseRecord {
public:
    /// Null when there is no memory.
    static LeaseRecord* make(Runtime& runtime, std::string_view key,
                             const Options& options) noexcept {
        const Flaw flaw = find_flaw(key, options);
        if (flaw != Flaw::none) key = key.substr(0, max_key_size); // for messages only
        const std::string_view owner = flaw == Flaw::none ? options.owner : std::string_view{};
        const HelperKey fence{key, helper_suffix::fence};
        const bool fenced = options.fencing && flaw == Flaw::none;
        const std::size_t value_size = Token::size + (owner.empty() ? 0 : 1 + owner.size());
        const std::size_t fence_size = fenced ? fence.size() : 0;

        void* const memory = ::operator new(
            sizeof(LeaseRecord) + key.size() + value_size + fence_size, std::nothrow);
        if (memory == nullptr) return nullptr;
        auto* const record = ::new (memory) LeaseRecord(runtime, options, flaw);
        record->key_size_ = static_cast<std::uint16_t>(key.size());
        record->value_size_ = static_cast<std::uint16_t>(value_size);
        record->fence_size_ = static_cast<std::uint16_t>(fence_size);
        char* out = std::copy(key.begin(), key.end(), record->bytes());
        out = std::fill_n(out, Token::size, '0');
        if (!owner.empty()) {
            *out++ = ':';
            out = std::copy(owner.begin(), owner.end(), out);
        }
        if (fenced) fence.write(out);
        return record;
    }

    struct Free {
        void operator()(LeaseRecord* record) const noexcept {
            record->~LeaseRecord();
            ::operator delete(record);
        }
    };

    LeaseRecord(const LeaseRecord&) = delete;
    LeaseRecord& operator=(const LeaseRecord&) = delete;

    // what the guard was made of

    [[nodiscard]] Runtime& runtime() const noexcept { return runtime_; }
    [[nodiscard]] Observer* observer() const noexcept { return observer_; }
    [[nodiscard]] Flaw flaw() const noexcept { return flaw_; }
    [[nodiscard]] std::chrono::milliseconds ttl() const noexcept { return ttl_; }
    [[nodiscard]] std::chrono::nanoseconds margin() const noexcept { return margin_; }
    [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }
    [[nodiscard]] Dialect& dialect() noexcept { return dialect_; }
    [[nodiscard]] std::string_view key() const noexcept { return {bytes(), key_size_}; }
    [[nodiscard]] std::string_view value() const noexcept {
        return {bytes() + key_size_, value_size_};
    }
    [[nodiscard]] std::string_view owner() const noexcept {
        return value_size_ > Token::size ? value().substr(Token::size + 1) : std::string_view{};
    }
    /// Empty without fencing.
    [[nodiscard]] std::string_view fence_key() const noexcept {
        return {bytes() + key_size_ + value_size_, fence_size_};
    }

    /// True in a process that was forked off the one that made the guard.
    [[nodiscard]] bool foreign() const noexcept { return process_ != runtime_.process(); }

    // one acquisition

    void set_token(const Token& token) noexcept {
        std::copy_n(token.view().begin(), Token::size, bytes() + key_size_);
        term_.store(0, std::memory_order_relaxed);
        stop_ = std::stop_source{std::nostopstate};
        fencing_token = 0;
        release_unanswered = false;
    }

    void begin(Deadline deadline) noexcept {
        term_.store(deadline.time_since_epoch().count(), std::memory_order_release);
    }

    /// When the lease ends, or the clock's epoch when none is held at `now`. Whoever finds the
    /// deadline passed ends the lease for good.
    [[nodiscard]] Deadline deadline(Deadline now) noexcept {
        std::int64_t term = term_.load(std::memory_order_acquire);
        while (term > 0) {
            const Deadline end{LeaseClock::duration{term}};
            if (now < end) return end;
            if (term_.compare_exchange_weak(term, lost(Loss::expired))) stop_.request_stop();
        }
        return {};
    }

    /// Moves the deadline, unless the lease has ended by `now`; never to an earlier point.
    /// @return whether the lease is still held
    bool extend(Deadline now, Deadline end) noexcept {
        std::int64_t term = term_.load(std::memory_order_acquire);
        const std::int64_t wanted = end.time_since_epoch().count();
        while (deadline(now) != Deadline{}) {
            term = term_.load(std::memory_order_acquire);
            if (term <= 0) break;
            if (term >= wanted || term_.compare_exchange_weak(term, wanted)) return true;
        }
        return false;
    }

    /// Ends a lease that is held, and tells its holder.
    void lose(Loss why) noexcept {
        std::int64_t term = term_.load(std::memory_order_acquire);
        while (term > 0) {
            if (term_.compare_exchange_weak(term, lost(why))) {
                stop_.request_stop();
                return;
            }
        }
    }

    /// Ends a lease that is given back; a loss stays a loss.
    void give_back() noexcept {
        std::int64_t term = term_.load(std::memory_order_acquire);
        while (term > 0 && !term_.compare_exchange_weak(term, 0)) {}
    }

    [[nodiscard]] Loss loss() const noexcept {
        const std::int64_t term = term_.load(std::memory_order_acquire);
        return term < 0 ? static_cast<Loss>(-term) : Loss::none;
    }

    /// Made when first asked for. If there is no memory for it, the token is stopped already.
    [[nodiscard]] std::stop_token stop_token() noexcept {
        if (stop_.stop_possible()) return stop_.get_token();
        const bool ended = term_.load(std::memory_order_acquire) <= 0;
        if (ended) return stopped_token();
#if LEASELOCK_EXCEPTIONS
        try {
            stop_ = std::stop_source{};
        } catch (...) {
            return stopped_token();
        }
#else
        stop_ = std::stop_source{};
#endif
        return stop_.get_token();
    }

    /// A token that was stopped from the start. The first call allocates: every guard makes it, so
    /// that none has to when memory is short.
    static std::stop_token stopped_token() {
        static const std::stop_token token = [] {
            std::stop_source source;
            source.request_stop();
            return source.get_token();
        }();
        return token;
    }

    // of the guard's own thread

    Trace trace = Trace::none;
    bool release_unanswered = false; ///< an earlier release may have deleted the key
    std::uint64_t fencing_token = 0;

private:
    LeaseRecord(Runtime& runtime, const Options& options, Flaw flaw) noexcept
        : runtime_(runtime), observer_(options.observer), process_(runtime.process()),
          ttl_(options.ttl), margin_(margin_of(options)), timeout_(std::min(options.timeout, max_ttl)), flaw_(flaw) {}
    ~LeaseRecord() = default;

    static constexpr std::int64_t lost(Loss why) noexcept {
        return -static_cast<std::int64_t>(why);
    }

    [[nodiscard]] char* bytes() noexcept { return reinterpret_cast<char*>(this + 1); }
    [[nodiscard]] const char* bytes() const noexcept {
        return reinterpret_cast<const char*>(this + 1);
    }

    /// Above zero: the deadline in ns of the lease clock. Zero: no lease. Below: minus its Loss.
    std::atomic<std::int64_t> term_{0};
    Runtime& runtime_;
    Observer* observer_;
    ProcessId process_;
    std::chrono::milliseconds ttl_;
    std::chrono::nanoseconds margin_;
    std::chrono::milliseconds timeout_;
    std::stop_source stop_{std::nostopstate};
    Flaw flaw_;
    Dialect dialect_; ///< used where the connection has none of its own
    std::uint16_t key_size_ = 0;
    std::uint16_t value_size_ = 0;
    std::uint16_t fence_size_ = 0;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
