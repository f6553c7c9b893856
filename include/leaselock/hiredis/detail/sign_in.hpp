#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/hiredis/detail/exchange.hpp>
#include <leaselock/hiredis/detail/stream.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/reply.hpp>

#include <poll.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// What a fresh stream has to hear before anything else may go out on it, in one write: who we are,
/// which db, and whether it is a master that answers.
class SignIn {
public:
    /// @return false for want of memory
    [[nodiscard]] bool begin(const Endpoint& endpoint, Stream& stream) noexcept {
        count_ = 0;
        refused_ = false;
        password_ = endpoint.password;
        failure_ = {};
        const std::array<std::string_view, 3> auth_user{"AUTH", endpoint.user, endpoint.password};
        const std::array<std::string_view, 2> auth{"AUTH", endpoint.password};
        const std::array<std::string_view, 3> name{"CLIENT", "SETNAME", endpoint.client_name};
        std::array<char, 12> digits{};
        const char* const end =
            std::to_chars(digits.data(), digits.data() + digits.size(), endpoint.db).ptr;
        const std::array<std::string_view, 2> select{
            "SELECT", {digits.data(), static_cast<std::size_t>(end - digits.data())}};
        const std::array<std::string_view, 2> info{"INFO", "replication"};
        const std::array<std::string_view, 1> ping{"PING"};

        std::array<Command, most> commands{};
        const auto add = [&](Step step, std::span<const std::string_view> argv) {
            steps_[count_] = step;
            commands[count_++].argv = argv;
        };
        if (endpoint.needs_auth()) {
            if (endpoint.user.empty()) {
                add(Step::demand, auth);
            } else {
                add(Step::demand, auth_user);
            }
        }
        if (!endpoint.client_name.empty()) add(Step::wish, name);
        if (endpoint.db != 0) add(Step::demand, select);
        if (endpoint.must_be_master) add(Step::role, info);
        // else the first command would not know whether it has been looked at
        if (count_ == 0 && stream.secure && stream.secure->may_yet_be_refused()) {
            add(Step::sign_of_life, ping);
        }
        if (!stream.decoder.open() || !exchange_.prepare(std::span{commands}.first(count_))) {
            return false;
        }
        if (count_ != 0) exchange_.send(stream);
        return true;
    }

    /// Goes on as far as possible.
    [[nodiscard]] Progress advance(Stream& stream) noexcept {
        if (count_ == 0) return Progress::done;
        const Progress progress = exchange_.advance(stream, replies_);
        // The first answer that will not do ends it: behind it there may be the end of the stream, or
        // silence.
        for (std::size_t i = 0; i < exchange_.answered(); ++i) {
            if (!accept(replies_[i], steps_[i])) return Progress::failed;
        }
        if (progress == Progress::failed) failure_ = exchange_.failure();
        if (progress == Progress::done && !stream.is_open()) {
            return fail(errc::protocol_error, "a reply too many");
        }
        return progress;
    }

    [[nodiscard]] pollfd interest(const Stream& stream) const noexcept {
        return exchange_.interest(stream);
    }
    [[nodiscard]] const Failure& failure() const noexcept { return failure_; }
    /// Whether the failure's text is the error by which the server refused.
    [[nodiscard]] bool refused_by_server() const noexcept { return refused_; }
    void abandon() noexcept { exchange_.abandon(); }

private:
    enum class Step : std::uint8_t {
        demand, ///< OK, or there is no stream
        wish,   ///< a server that knows no client names, or lets this user set none, will do too
        role,   ///< INFO replication of a master
        sign_of_life, ///< any reply to PING: a server that lets us in, if to nothing but its errors
    };
    static constexpr std::size_t most = 4;

    [[nodiscard]] Progress fail(errc cause, std::string_view text) noexcept {
        failure_ = {make_error_code(cause), text};
        return Progress::failed;
    }

    [[nodiscard]] bool accept(const Reply& reply, Step step) noexcept {
        if (step == Step::sign_of_life && reply.kind != Reply::error) return true;
        if (step == Step::role && reply.kind == Reply::string) {
            // line 2 of at most 280 bytes; source: redis.io/docs/latest/commands/info
            if (reply.text.view().find("\nrole:master\r") != std::string_view::npos) return true;
            (void)fail(errc::not_master, "the server found is no master");
            return false;
        }
        if (step != Step::role && reply.kind == Reply::status && reply.text.view() == "OK") {
            return true;
        }
        if (reply.kind != Reply::error) {
            (void)fail(errc::protocol_error, "no Redis");
            return false;
        }
        const errc cause = cause_of(reply.text.view());
        if (step == Step::wish &&
            (cause == errc::no_permission || cause == errc::unknown_command)) {
            return true;
        }
        if (step == Step::sign_of_life && cause != errc::too_many_clients) return true;
        failure_ = {make_error_code(cause), without_password(reply.text.view())};
        refused_ = true;
        return false;
    }

    /// A server that repeats what it does not understand may repeat the password.
    [[nodiscard]] std::string_view without_password(std::string_view line) const noexcept {
        return password_.empty() ? line : line.substr(0, line.find(password_));
    }

    Exchange exchange_;
    std::string_view password_; ///< the endpoint's
    std::array<Reply, most> replies_{};
    std::array<Step, most> steps_{};
    std::size_t count_ = 0;
    bool refused_ = false;
    Failure failure_;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
