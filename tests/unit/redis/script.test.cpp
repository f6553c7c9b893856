// SPDX-License-Identifier: MIT
#include <leaselock/redis/script.hpp>

#include "unit/support/sha1.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

using leaselock::Script;
using leaselock::test::sha1;
namespace scripts = leaselock::scripts;

constexpr const Script* all[] = {
    &scripts::compare_and_delete, &scripts::compare_and_delete_anywhere,
    &scripts::compare_and_expire, &scripts::compare_and_adopt, &scripts::compare_and_fence};

std::string replaced(std::string text, std::string_view from, std::string_view to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    return text;
}

TEST(Sha1, AgreesWithTheStandard) { // the yardstick itself: FIPS 180 and RFC 3174
    EXPECT_EQ(sha1(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    EXPECT_EQ(sha1("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
    EXPECT_EQ(sha1("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    EXPECT_EQ(sha1(std::string(1'000'000, 'a')), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

TEST(Script, LiteralsAreTheSha1OfTheTexts) {
    for (const Script* script : all) {
        EXPECT_EQ(sha1(script->getex.text), script->getex.sha1);
        EXPECT_EQ(sha1(script->get.text), script->get.sha1);
    }
}

TEST(Script, GetVariantsDifferInTheFirstReadAlone) {
    for (const Script* script : {&scripts::compare_and_delete, &scripts::compare_and_expire,
                                 &scripts::compare_and_adopt}) {
        EXPECT_EQ(replaced(std::string{script->getex.text}, "'getex'", "'get'"), script->get.text);
    }
}

/// Before 6.2 there is no PXAT, so that the ttl counts from the server's clock; and before 5.0 a
/// script that reads the time has to ask for effects to be replicated.
TEST(Script, TheFencesGetVariantCountsItsTtlFromNow) {
    std::string text{scripts::compare_and_fence.getex.text};
    text = replaced(text, "'getex'", "'get'");
    text = replaced(text, "local n=t[1]*1000000+t[2]", "local w=t[1]*1000000+t[2]\nlocal n=w");
    text = replaced(text, "'PXAT'", "'PX'");
    text = replaced(text, "math.floor(n/1000)", "math.floor((n-w)/1000)");
    text = "if redis.replicate_commands then redis.replicate_commands() end\n" + text;
    EXPECT_EQ(text, scripts::compare_and_fence.get.text);
}

TEST(Script, PermissionsNameEveryCommandThatIsCalled) {
    for (const Script* script : all) {
        const std::string_view text = script->getex.text;
        std::istringstream words{std::string{script->permissions}};
        std::vector<std::string> named{std::istream_iterator<std::string>{words}, {}};
        constexpr std::string_view call = "call('"; // redis.call, redis.pcall
        std::size_t calls = 0;
        for (std::size_t at = text.find(call); at != std::string_view::npos;
             at = text.find(call, at + 1)) {
            const std::size_t name = at + call.size();
            const std::string command{text.substr(name, text.find('\'', name) - name)};
            EXPECT_NE(std::find(named.begin(), named.end(), "+" + command), named.end()) << command;
            ++calls;
        }
        EXPECT_GE(calls, named.size()) << "named without need: " << script->permissions;
    }
}

} // namespace
