#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/dialect.hpp>
#include <leaselock/redis/reply.hpp>
#include <leaselock/redis/script.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace leaselock {
inline namespace LEASELOCK_ABI {

/// One call of a script, in whichever form the server takes it. It refers to what it was made of.
class ScriptCall {
public:
    ScriptCall() noexcept = default;
    /// @param fence_key the second key, or empty
    ScriptCall(const Script& script, std::string_view key, std::string_view fence_key,
               std::initializer_list<std::string_view> arguments) noexcept
        : script_(&script) {
        argv_[size_++] = {};
        argv_[size_++] = {};
        argv_[size_++] = fence_key.empty() ? "1" : "2";
        argv_[size_++] = key;
        if (!fence_key.empty()) argv_[size_++] = fence_key;
        for (const std::string_view argument : arguments) argv_[size_++] = argument;
    }

    /// The command: EVALSHA, or EVAL where the text is wanted or EVALSHA is known to be forbidden.
    [[nodiscard]] Command command(const Dialect& dialect, bool as_text = false) noexcept {
        with_getex_ = !dialect.lacks_getex();
        by_sha_ = !as_text && !dialect.lacks_evalsha();
        const ScriptText& text = with_getex_ ? script_->getex : script_->get;
        argv_[0] = by_sha_ ? "EVALSHA" : "EVAL";
        argv_[1] = by_sha_ ? text.sha1 : text.text;
        return {std::span{argv_}.first(size_), argv_[3]};
    }

    [[nodiscard]] const Script& script() const noexcept { return *script_; }
    [[nodiscard]] bool with_getex() const noexcept { return with_getex_; } ///< as last sent
    [[nodiscard]] bool by_sha() const noexcept { return by_sha_; }         ///< as last sent

private:
    const Script* script_ = nullptr;
    std::uint8_t size_ = 0;
    bool with_getex_ = true;
    bool by_sha_ = true;
    std::array<std::string_view, 9> argv_{};
};

/// What to do about a script's reply before it can be classified.
enum class ScriptStep : std::uint8_t {
    done,         ///< the reply is final
    send_text,    ///< not cached: EVAL
    drop_getex,   ///< no GETEX here: the GET variant
    drop_evalsha, ///< EVALSHA is forbidden or unknown: EVAL, from now on
};

/// Pure: nothing of the script has run when one of the last three is the answer. A form that has been
/// given up once is not given up again, so that the steps come to an end.
[[nodiscard]] inline ScriptStep next_step(const Reply& reply, const ScriptCall& call) noexcept {
    if (reply.kind != Reply::error) return ScriptStep::done;
    const std::string_view line = reply.text.view();
    const errc cause = cause_of(line);
    if (cause == errc::script_missing && call.by_sha()) return ScriptStep::send_text;
    if (cause == errc::unknown_command && call.with_getex() &&
        line.find("called from") != std::string_view::npos) {
        return ScriptStep::drop_getex;
    }
    const bool forbidden = cause == errc::unknown_command || cause == errc::no_permission;
    if (forbidden && call.by_sha() &&
        (line.find("evalsha") != std::string_view::npos ||
         line.find("EVALSHA") != std::string_view::npos)) {
        return ScriptStep::drop_evalsha;
    }
    return ScriptStep::done;
}

/// `next_step`, noted in the dialect where it holds for all scripts to come.
inline ScriptStep take_step(const Reply& reply, const ScriptCall& call, Dialect& dialect) noexcept {
    const ScriptStep step = next_step(reply, call);
    if (step == ScriptStep::drop_getex) dialect.set_lacks_getex();
    if (step == ScriptStep::drop_evalsha) dialect.set_lacks_evalsha();
    return step;
}

/// Carries a script to its final reply: from `reply`, the answer to its first sending, on, sent again
/// as the server asks for it, within `by`.
template <Connection C>
void finish_script(C& connection, Dialect& dialect, ScriptCall& call, Reply& reply,
                   Deadline by) noexcept {
    // EVALSHA, EVAL, the GET variant of both, and one EVALSHA that turns out to be forbidden
    for (int again = 0; again < 4; ++again) {
        const ScriptStep step = take_step(reply, call, dialect);
        if (step == ScriptStep::done) return;
        const Command command = call.command(dialect, step == ScriptStep::send_text);
        connection.call(std::span{&command, 1}, std::span{&reply, 1}, by);
    }
}

/// Calls a script and takes its final reply.
template <Connection C>
void call_script(C& connection, Dialect& dialect, ScriptCall& call, Reply& reply,
                 Deadline by) noexcept {
    const Command command = call.command(dialect);
    connection.call(std::span{&command, 1}, std::span{&reply, 1}, by);
    finish_script(connection, dialect, call, reply, by);
}

} // namespace LEASELOCK_ABI
} // namespace leaselock
