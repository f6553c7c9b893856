#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/fixed_text.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// The five answers, never merged. Source: design, "What is promised" (candour).
enum class Answer : std::uint8_t {
    yes,     ///< the server did it
    no,      ///< the server did not, for the state of the key
    refused, ///< it surely did not happen: an error reply proves it, or the confirmed deletion
    unsent,  ///< nothing was handed to the network
    unknown, ///< it may have happened, or may still
};

[[nodiscard]] constexpr std::string_view to_string(Answer answer) noexcept {
    switch (answer) {
    case Answer::yes: return "yes";
    case Answer::no: return "no";
    case Answer::refused: return "refused";
    case Answer::unsent: return "unsent";
    case Answer::unknown: return "unknown";
    }
    return "?";
}

/// How a lease ended. Source: design, "Losing a lease".
enum class Loss : std::uint8_t {
    none,     ///< it has not, or was given back by `unlock`
    taken,    ///< Redis holds another's value
    gone,     ///< Redis holds no value
    expired,  ///< the deadline passed without a confirmed renewal
    max_hold, ///< the renewer stopped at the longest hold that was asked for
    unkept,   ///< the renewer went first
};

[[nodiscard]] constexpr std::string_view to_string(Loss loss) noexcept {
    switch (loss) {
    case Loss::none: return "none";
    case Loss::taken: return "taken";
    case Loss::gone: return "gone";
    case Loss::expired: return "expired";
    case Loss::max_hold: return "max_hold";
    case Loss::unkept: return "unkept";
    }
    return "?";
}

/// The loss as the cause of an event.
[[nodiscard]] constexpr errc cause_of(Loss loss) noexcept {
    switch (loss) {
    case Loss::taken: return errc::taken;
    case Loss::gone: return errc::gone;
    case Loss::max_hold: return errc::held_too_long;
    case Loss::unkept: return errc::unkept;
    case Loss::none:
    case Loss::expired: break;
    }
    return errc::expired;
}

/// Room for the longest error line that matters: a MOVED with a 253-byte host name.
using ServerText = FixedText<280>;

/// What a verb has to say: the answer, its cause, and the words of whoever refused.
struct Outcome {
    Answer answer = Answer::unsent;
    std::uint8_t confirmed = 0; ///< of a quorum: how many nodes had said yes …
    std::uint8_t nodes = 0;     ///< … of how many; 0 otherwise
    std::error_code cause{};    ///< none when the answer is yes
    /// The server's error line; for a bad argument, which one and its limit; of a quorum, what each
    /// node that did not say yes said.
    ServerText text{};

    Outcome() noexcept = default;
    Outcome(Answer a, std::error_code c = {}, std::string_view t = {}) noexcept
        : answer(a), cause(c), text(t) {}
    Outcome(Answer a, errc c, std::string_view t = {}) noexcept
        : Outcome(a, make_error_code(c), t) {}

    /// True for yes alone.
    explicit operator bool() const noexcept { return answer == Answer::yes; }
};

#if LEASELOCK_EXCEPTIONS
/// Thrown by the throwing forms for every answer that is neither yes nor "busy".
class Error : public std::system_error {
public:
    Error(const Outcome& outcome, std::string_view verb, std::string_view key);

    [[nodiscard]] Answer answer() const noexcept { return outcome_.answer; }
    [[nodiscard]] const Outcome& outcome() const noexcept { return outcome_; }

private:
    Outcome outcome_;
};

namespace detail {
[[noreturn]] void throw_error(const Outcome& outcome, std::string_view verb, std::string_view key);
} // namespace detail

#if LEASELOCK_DEFINES
namespace detail {

inline std::string describe(const Outcome& outcome, std::string_view verb, std::string_view key) {
    std::string what{"leaselock: "};
    what.append(verb).append(" '").append(key.substr(0, 64));
    what.append(key.size() > 64 ? "...': " : "': ").append(to_string(outcome.answer));
    if (!outcome.text.empty()) what.append(": ").append(outcome.text.view());
    return what;
}

LEASELOCK_INLINE void throw_error(const Outcome& outcome, std::string_view verb,
                                  std::string_view key) {
    throw Error{outcome, verb, key};
}

} // namespace detail

LEASELOCK_INLINE Error::Error(const Outcome& outcome, std::string_view verb, std::string_view key)
    : std::system_error(outcome.cause, detail::describe(outcome, verb, key)), outcome_(outcome) {}
#endif
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
