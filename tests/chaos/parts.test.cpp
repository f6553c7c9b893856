// SPDX-License-Identifier: MIT

#include "chaos/job.hpp"
#include "chaos/scribe.hpp"
#include "chaos/store.hpp"
#include "chaos/witness.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

// What workers share, and what they are told.

namespace leaselock::chaos {
namespace {

class Folder {
public:
    Folder() {
        std::string pattern = std::filesystem::temp_directory_path() / "leaselock-chaos-XXXXXX";
        if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder");
        path_ = pattern;
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path_); }
    [[nodiscard]] std::string file(const char* name) const { return path_ / name; }

private:
    std::filesystem::path path_;
};

std::string text_of(const std::string& path) {
    std::ifstream file{path};
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

TEST(Witness, SeesTwoInside) {
    const Folder folder;
    Witness mine{folder.file("w")};
    Witness theirs{folder.file("w")}; // another process's
    EXPECT_FALSE(mine.enter(3, 1, 1000, 900'000));
    EXPECT_FALSE(mine.enter(3, 1, 2000, 900'000));
    EXPECT_FALSE(theirs.enter(4, 2, 3000, 900'000));
    EXPECT_TRUE(theirs.enter(3, 2, 4000, 900'000));
    EXPECT_TRUE(mine.enter(3, 1, 5000, 900'000));
    EXPECT_EQ(mine.overlaps(), 2U);
    EXPECT_EQ(theirs.visits(), 5U);
}

TEST(Witness, SeesNobodyWhoHasLeftOrWhoseTimeIsOver) {
    const Folder folder;
    Witness witness{folder.file("w")};
    EXPECT_FALSE(witness.enter(0, 1, 1000, 900'000));
    witness.leave(0, 2); // is not inside
    EXPECT_TRUE(witness.enter(0, 2, 2000, 900'000));
    witness.leave(0, 2);
    EXPECT_FALSE(witness.enter(0, 3, 3000, 500'000));
    EXPECT_FALSE(witness.enter(0, 4, 500'000, 900'000));
    EXPECT_EQ(witness.overlaps(), 1U);
}

// Two tokens of a long run may well begin with the same eight digits: seen once in ten minutes.
TEST(Scribe, TellsTokensOfTwoProcessesApart) {
    const Folder folder;
    const Scribe one{folder.file("a"), "w1.3", 0};
    const Scribe other{folder.file("b"), "w0.9", 0};
    EXPECT_EQ(one.token("39eff600"), "39eff600@w1.3");
    EXPECT_NE(one.token("39eff600"), other.token("39eff600"));
    EXPECT_EQ(one.token(""), "");
}

TEST(Store, RefusesWhatIsStaleAndWritesItDown) {
    const Folder folder;
    const Scribe scribe{folder.file("h"), "world", 0};
    const Store store{folder.file("s"), scribe};
    StoreClient one{folder.file("s")};
    StoreClient other{folder.file("s")};
    EXPECT_TRUE(one.ask("register", "k", "A", 70));
    EXPECT_TRUE(one.ask("write", "k", "A", 70));
    EXPECT_TRUE(other.ask("register", "k", "B", 80));
    EXPECT_FALSE(one.ask("write", "k", "A", 70));
    EXPECT_TRUE(one.ask("write", "other", "A", 70));
    const std::string history = text_of(folder.file("h"));
    EXPECT_NE(history.find("store write key=k token=A fence=70 ok=0\n"), std::string::npos);
    EXPECT_NE(history.find("store register key=k token=B fence=80 ok=1\n"), std::string::npos);
}

TEST(Store, PassesOnLeases) {
    const Folder folder;
    const Scribe scribe{folder.file("h"), "world", 0};
    const Store store{folder.file("s"), scribe};
    StoreClient client{folder.file("s")};
    EXPECT_FALSE(client.fetch());
    client.post(Lease{"s0:k1", "cafe:label", std::chrono::milliseconds{400}});
    const auto lease = client.fetch();
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->key(), "s0:k1");
    EXPECT_EQ(lease->value(), "cafe:label");
    EXPECT_EQ(lease->ttl(), std::chrono::milliseconds{400});
    EXPECT_FALSE(client.fetch());
}

TEST(Job, SurvivesTheCommandLine) {
    Job job;
    job.actor = "w1.3";
    job.serial = 9;
    job.seed = 7;
    job.epoch = 123;
    job.ppm = -200'000;
    job.urls = {"redis://127.0.0.1:1", "redis://127.0.0.1:2"};
    job.keys = 3;
    job.history = "/h";
    job.witness = "/w";
    job.store = "/s";
    job.shares = true;
    job.probe = 5;
    EXPECT_EQ(Job::from_words(job.to_words()).to_words(), job.to_words());
    EXPECT_THROW((void)Job::from_words({"colour=red"}), std::runtime_error);
    EXPECT_THROW((void)Job::from_words({"actor"}), std::runtime_error);
}

} // namespace
} // namespace leaselock::chaos
