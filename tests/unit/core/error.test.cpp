// SPDX-License-Identifier: MIT
#include <leaselock/core/error.hpp>

#include <gtest/gtest.h>

#include <array>
#include <ios>
#include <set>
#include <string>
#include <system_error>
#include <type_traits>

namespace {

using leaselock::condition;
using leaselock::errc;

static_assert(std::is_error_condition_enum_v<errc>);
static_assert(std::is_error_condition_enum_v<condition>);
static_assert(!std::is_error_code_enum_v<errc>); // a condition: compared by name, across plugins

constexpr condition all_conditions[] = {
    condition::misuse,    condition::contention, condition::not_owner, condition::unreachable,
    condition::not_ready, condition::stopped,    condition::denied,    condition::unusable};

/// What another shared object with a copy of the library would have.
class Namesake final : public std::error_category {
public:
    explicit Namesake(const char* name) : name_(name) {}
    [[nodiscard]] const char* name() const noexcept override { return name_; }
    [[nodiscard]] std::string message(int) const override { return "namesake"; }

private:
    const char* name_;
};

TEST(Error, EveryCodeHasATextOfItsOwnAndOneGroup) {
    std::set<std::string> texts;
    for (int value = 1; value <= static_cast<int>(errc::server_error); ++value) {
        const std::error_code code = make_error_code(static_cast<errc>(value));
        EXPECT_NE(code.message(), "unknown error") << value;
        EXPECT_TRUE(texts.insert(code.message()).second) << "twice: " << code.message();
        int groups = 0;
        for (const condition group : all_conditions) groups += code == group ? 1 : 0;
        EXPECT_EQ(groups, 1) << code.message();
    }
}

TEST(Error, ACodeEqualsItselfAlone) {
    for (int a = 1; a <= static_cast<int>(errc::server_error); ++a) {
        for (int b = 1; b <= static_cast<int>(errc::server_error); ++b) {
            EXPECT_EQ(make_error_code(static_cast<errc>(a)) == static_cast<errc>(b), a == b);
        }
    }
    EXPECT_FALSE(std::error_code{} == errc::not_held);
}

TEST(Error, NumbersOfOthersAreNotOurs) {
    const int value = static_cast<int>(errc::busy);
    EXPECT_FALSE((std::error_code{value, std::system_category()} == errc::busy));
    EXPECT_FALSE((std::error_code{value, std::generic_category()} == errc::busy));
    const Namesake stranger{"leaselock2"};
    EXPECT_FALSE((std::error_code{value, stranger} == errc::busy));
    EXPECT_FALSE((std::error_code{value, stranger} == condition::contention));
}

TEST(Error, ComparesAcrossCopiesOfTheCategory) {
    const std::string name{"leaselock"}; // at another address too
    const Namesake copy{name.c_str()};
    const std::error_code code{static_cast<int>(errc::busy), copy};
    EXPECT_NE(code, make_error_code(errc::busy)); // two addresses
    EXPECT_TRUE(code == errc::busy);              // one meaning
    EXPECT_TRUE(code == condition::contention);
    EXPECT_FALSE(code == errc::taken);
    EXPECT_FALSE(code == condition::not_owner);
}

TEST(Error, GroupsSayWhatIsToBeDone) {
    EXPECT_EQ(make_error_code(errc::not_held), condition::misuse);
    EXPECT_EQ(make_error_code(errc::busy), condition::contention);
    EXPECT_EQ(make_error_code(errc::gone), condition::not_owner);
    EXPECT_EQ(make_error_code(errc::timed_out), condition::unreachable);
    EXPECT_EQ(make_error_code(errc::loading), condition::not_ready);
    EXPECT_EQ(make_error_code(errc::stopped), condition::stopped);
    EXPECT_EQ(make_error_code(errc::wrong_password), condition::denied);
    EXPECT_EQ(make_error_code(errc::protocol_error), condition::unusable);
}

TEST(Error, NetworkErrorsOfTheSystemAreUnreachable) {
    for (const std::errc e :
         {std::errc::connection_refused, std::errc::connection_reset, std::errc::broken_pipe,
          std::errc::host_unreachable, std::errc::network_unreachable, std::errc::timed_out,
          std::errc::too_many_files_open, std::errc::no_such_file_or_directory}) {
        const std::error_code generic = std::make_error_code(e);
        const std::error_code system{static_cast<int>(e), std::system_category()};
        EXPECT_EQ(generic, condition::unreachable) << generic.message();
        EXPECT_EQ(system, condition::unreachable) << system.message();
        EXPECT_NE(system, condition::not_ready) << system.message();
    }
    EXPECT_NE(std::make_error_code(std::errc::permission_denied), condition::unreachable);
    EXPECT_NE(std::error_code{}, condition::unreachable);
}

TEST(Error, NamesAndMessages) {
    EXPECT_STREQ(leaselock::error_category().name(), "leaselock");
    EXPECT_STREQ(leaselock::condition_category().name(), "leaselock.condition");
    EXPECT_EQ(make_error_code(errc::busy).message(), "held by another");
    EXPECT_EQ(leaselock::error_category().message(0), "unknown error");
    EXPECT_EQ(leaselock::error_category().message(9999), "unknown error");
    std::set<std::string> texts;
    for (const condition group : all_conditions) {
        EXPECT_TRUE(texts.insert(make_error_condition(group).message()).second);
    }
    EXPECT_EQ(leaselock::condition_category().message(99), "unknown condition");
    EXPECT_EQ(make_error_condition(errc::busy).message(), "held by another");
}

TEST(Error, MessagesWithoutAnAllocation) {
    std::array<char, 64> buffer{};
    const auto text = [&](const std::error_code& code) {
        return std::string{leaselock::detail::message_of(code, buffer)};
    };
    EXPECT_EQ(text(make_error_code(errc::busy)), "held by another");
    for (const std::errc e : {std::errc::connection_refused, std::errc::timed_out}) {
        EXPECT_EQ(text(std::make_error_code(e)), std::make_error_code(e).message());
        const std::error_code system{static_cast<int>(e), std::system_category()};
        EXPECT_EQ(text(system), system.message());
    }
    EXPECT_EQ(text(std::make_error_code(std::io_errc::stream)), "");
}

} // namespace
