#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/observer.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/core/token.hpp>
#include <leaselock/lock/detail/keeper.hpp>
#include <leaselock/lock/detail/lease_term.hpp>
#include <leaselock/lock/detail/renewal_node.hpp>
#include <leaselock/lock/options.hpp>
#include <leaselock/redis/dialect.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string_view>

#if LEASELOCK_DEFINES
#include <leaselock/core/deadline.hpp>
#include <leaselock/lock/detail/millisecond_text.hpp>
#include <leaselock/redis/key.hpp>

#include <algorithm>
#include <new>
#endif

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

/// Where the signal of a kept lease's loss stands; the renewer's mutex guards it.
enum class Signal : std::uint8_t { none, queued, running };

/// The state of one guard: one block of memory with key, value and fence key behind it, made with
/// the guard and reused by its acquisitions.
///
/// A renewer that keeps the lease holds the record too, and moves of the guard do not concern it.
/// Between the two only the term changes.
class LeaseRecord : public RenewalNode {
public:
    struct LetGo {
        void operator()(LeaseRecord* record) const noexcept { record->let_go(); }
    };
    using Handle = std::unique_ptr<LeaseRecord, LetGo>;

    /// Null when there is no memory.
    static Handle make(Runtime& runtime, std::string_view key, const Options& options) noexcept;

    /// The same guard's next record, where a renewer still holds this one. Null: no memory.
    [[nodiscard]] Handle renewed() const noexcept;

    LeaseRecord(const LeaseRecord&) = delete;
    LeaseRecord& operator=(const LeaseRecord&) = delete;

    [[nodiscard]] Handle share() noexcept {
        references_.fetch_add(1, std::memory_order_relaxed);
        return Handle{this};
    }
    [[nodiscard]] bool shared() const noexcept {
        return references_.load(std::memory_order_acquire) != 1;
    }

    // what the guard was made of

    [[nodiscard]] Runtime& runtime() const noexcept { return runtime_; }
    [[nodiscard]] Flaw flaw() const noexcept { return flaw_; }
    [[nodiscard]] std::chrono::milliseconds timeout() const noexcept {
        return std::chrono::milliseconds{timeout_ms};
    }
    [[nodiscard]] std::chrono::milliseconds wait_floor() const noexcept {
        return std::chrono::milliseconds{wait_floor_ms_};
    }
    [[nodiscard]] std::chrono::milliseconds wait_cap() const noexcept {
        return std::chrono::milliseconds{wait_cap_ms_};
    }
    [[nodiscard]] Dialect& dialect() noexcept { return dialect_; }
    [[nodiscard]] std::string_view key() const noexcept { return {bytes(), key_size_}; }
    [[nodiscard]] std::string_view value() const noexcept {
        return {bytes() + key_size_, value_size_};
    }
    [[nodiscard]] std::string_view owner() const noexcept {
        return value_size_ > Token::size ? value().substr(Token::size + 1) : std::string_view{};
    }
    /// The ttl in milliseconds, as an argument.
    [[nodiscard]] std::string_view ttl_text() const noexcept {
        return {bytes() + key_size_ + value_size_ + fence_size_, ttl_size_};
    }
    /// Empty without fencing.
    [[nodiscard]] std::string_view fence_key() const noexcept {
        return {bytes() + key_size_ + value_size_, fence_size_};
    }
    /// True in a process that was forked off the one that made the guard.
    [[nodiscard]] bool foreign() const noexcept { return process_ != runtime_.process(); }

    // one acquisition

    /// Must not be shared.
    void set_token(const Token& token) noexcept;
    [[nodiscard]] LeaseTerm& term() noexcept { return term_; }
    [[nodiscard]] const LeaseTerm& term() const noexcept { return term_; }

    /// Makes the stop source, unless there is one. @return false when there is no memory
    [[nodiscard]] bool make_stop_source() noexcept;
    [[nodiscard]] std::stop_token stop_token() noexcept;
    void request_stop() noexcept { stop_.request_stop(); }

    /// A token that was stopped from the start. The first call allocates: every guard makes it, so
    /// that none has to when memory is short.
    static std::stop_token stopped_token();

    /// The observer, if there is one, hears what came of a verb that started at `start`.
    void tell(Verb verb, Deadline start, const Outcome& outcome) const noexcept;
    [[nodiscard]] bool observed() const noexcept { return observer_ != nullptr; }
    void tell_loss() const noexcept;

    // of the guard's own thread

    Trace trace = Trace::none;
    bool release_unanswered = false; ///< an earlier release may have deleted the key
    std::uint32_t holders = 0;       ///< see `LeaseView`
    std::uint64_t fencing_token = 0;
    Keeper* keeper = nullptr; ///< the renewer, while it keeps this lease

    // of the renewer, under its mutex

    LeaseRecord* next_signal = nullptr;
    Signal signal = Signal::none;
    bool signal_tells = false; ///< the observer has not heard of the loss
    std::uint8_t lane = 0;     ///< that renews it

private:
    LeaseRecord(Runtime& runtime, const Options& options, Flaw flaw) noexcept;
    ~LeaseRecord() = default;

    static LeaseRecord* make(Runtime& runtime, std::string_view key, std::string_view owner,
                             bool fenced, const Options& options, Flaw flaw) noexcept;
    void let_go() noexcept;

    [[nodiscard]] char* bytes() noexcept { return reinterpret_cast<char*>(this + 1); }
    [[nodiscard]] const char* bytes() const noexcept {
        return reinterpret_cast<const char*>(this + 1);
    }

    // The small ones first: they fill the line that the members above begin.
    Dialect dialect_; ///< used where the connection has none of its own
    std::atomic<std::uint32_t> references_{1};
    std::int32_t wait_floor_ms_;
    std::int32_t wait_cap_ms_;
    std::uint16_t key_size_ = 0;
    std::uint16_t value_size_ = 0;
    std::uint16_t fence_size_ = 0;
    std::uint8_t ttl_size_ = 0;
    Flaw flaw_;
    LeaseTerm term_;
    Runtime& runtime_;
    Observer* observer_;
    ProcessId process_;
    std::stop_source stop_{std::nostopstate};
};

#if LEASELOCK_DEFINES
/// As a number of milliseconds that is in range.
constexpr std::int32_t clip(std::chrono::milliseconds span) noexcept {
    const std::chrono::milliseconds none{0};
    return static_cast<std::int32_t>(std::clamp(span, none, max_ttl).count());
}

LEASELOCK_INLINE LeaseRecord::Handle LeaseRecord::make(Runtime& runtime, std::string_view key,
                                                       const Options& options) noexcept {
    const Flaw flaw = find_flaw(key, options);
    if (flaw != Flaw::none) key = key.substr(0, max_key_size); // for messages only
    const std::string_view owner = flaw == Flaw::none ? options.owner : std::string_view{};
    const bool fenced = options.fencing && flaw == Flaw::none;
    return Handle{make(runtime, key, owner, fenced, options, flaw)};
}

LEASELOCK_INLINE LeaseRecord::Handle LeaseRecord::renewed() const noexcept {
    Options options;
    options.ttl = ttl;
    options.timeout = timeout();
    options.observer = observer_;
    options.wait_floor = wait_floor();
    options.wait_cap = wait_cap();
    LeaseRecord* const next = make(runtime_, key(), owner(), !fence_key().empty(), options, flaw_);
    if (next != nullptr) next->margin = margin;
    return Handle{next};
}

LEASELOCK_INLINE void LeaseRecord::set_token(const Token& token) noexcept {
    std::copy_n(token.view().begin(), Token::size, bytes() + key_size_);
    term_.reset();
    stop_ = std::stop_source{std::nostopstate};
    fencing_token = 0;
    release_unanswered = false;
    holders = 0;
}

LEASELOCK_INLINE bool LeaseRecord::make_stop_source() noexcept {
    if (stop_.stop_possible()) return true;
#if LEASELOCK_EXCEPTIONS
    try {
        stop_ = std::stop_source{};
    } catch (const std::bad_alloc&) {
        return false;
    }
#else
    stop_ = std::stop_source{};
#endif
    return true;
}

LEASELOCK_INLINE std::stop_token LeaseRecord::stop_token() noexcept {
    // without a lease: stopped already, also where the renewer has yet to say so
    const bool held = term_.deadline() != Deadline{};
    return held && make_stop_source() ? stop_.get_token() : stopped_token();
}

LEASELOCK_INLINE std::stop_token LeaseRecord::stopped_token() {
    static const std::stop_token token = [] {
        std::stop_source source;
        source.request_stop();
        return source.get_token();
    }();
    return token;
}

LEASELOCK_INLINE void LeaseRecord::tell(Verb verb, Deadline start,
                                        const Outcome& outcome) const noexcept {
    if (observer_ == nullptr) return;
    const Deadline now = runtime_.now();
    const Deadline end = term_.deadline();
    observer_->on_event({verb, key(), outcome, now - start,
                         end > now ? end - now : LeaseClock::duration{}, owner(),
                         fingerprint_of(value())});
}

LEASELOCK_INLINE void LeaseRecord::tell_loss() const noexcept {
    if (observer_ == nullptr) return;
    tell(Verb::lose, runtime_.now(), {Answer::no, cause_of(term_.loss())});
}

LEASELOCK_INLINE LeaseRecord::LeaseRecord(Runtime& runtime, const Options& options,
                                          Flaw flaw) noexcept
    : wait_floor_ms_(clip(options.wait_floor)), wait_cap_ms_(clip(options.wait_cap)), flaw_(flaw),
      runtime_(runtime), observer_(options.observer), process_(runtime.process()) {}

LEASELOCK_INLINE LeaseRecord* LeaseRecord::make(Runtime& runtime, std::string_view key,
                                                std::string_view owner, bool fenced,
                                                const Options& options, Flaw flaw) noexcept {
    const HelperKey fence{key, helper_suffix::fence};
    const std::size_t value_size = Token::size + (owner.empty() ? 0 : 1 + owner.size());
    const std::size_t fence_size = fenced ? fence.size() : 0;
    const MillisecondText ttl_text{options.ttl};
    void* const memory = ::operator new(sizeof(LeaseRecord) + key.size() + value_size + fence_size +
                                            ttl_text.view().size(),
                                        std::nothrow);
    if (memory == nullptr) return nullptr;
    auto* const record = ::new (memory) LeaseRecord(runtime, options, flaw);
    record->ttl = options.ttl;
    record->margin = margin_of(options);
    record->timeout_ms = clip(options.timeout);
    record->key_size_ = static_cast<std::uint16_t>(key.size());
    record->value_size_ = static_cast<std::uint16_t>(value_size);
    record->fence_size_ = static_cast<std::uint16_t>(fence_size);
    record->ttl_size_ = static_cast<std::uint8_t>(ttl_text.view().size());
    char* out = std::copy(key.begin(), key.end(), record->bytes());
    out = std::fill_n(out, Token::size, '0');
    if (!owner.empty()) {
        *out++ = ':';
        out = std::copy(owner.begin(), owner.end(), out);
    }
    if (fenced) fence.write(out);
    out += fence_size;
    std::copy(ttl_text.view().begin(), ttl_text.view().end(), out);
    return record;
}

LEASELOCK_INLINE void LeaseRecord::let_go() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    this->~LeaseRecord();
    ::operator delete(this);
}
#endif

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
