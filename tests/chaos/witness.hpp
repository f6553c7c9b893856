#pragma once
// SPDX-License-Identifier: MIT

#include "simulation/history.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace leaselock::chaos {

using simulation::Time;

/// What all processes of a run have in common, in shared memory: who says that he is inside of each
/// critical section, and until when. It knows nothing of locks, servers and histories, and sees an
/// overlap at the moment at which it happens. Lock-free: whoever is killed or stopped leaves nothing
/// locked. Thread-safety: all members.
class Witness {
public:
    static constexpr std::size_t most_keys = 64;

    /// @param path of a file, which is made if it is not there
    explicit Witness(const std::string& path) {
        const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        const bool sized = file >= 0 && ::ftruncate(file, sizeof(Shared)) == 0;
        void* const memory =
            sized ? ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                  : MAP_FAILED;
        if (file >= 0) ::close(file);
        if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + path);
        shared_ = static_cast<Shared*>(memory); // zeros, which is what all of it begins with
    }
    Witness(const Witness&) = delete;
    Witness& operator=(const Witness&) = delete;
    ~Witness() { ::munmap(shared_, sizeof(Shared)); }

    /// `who` says that he owns the key until then.
    /// @param who from 1 to 65,535; another one for every acquisition, as far as possible
    /// @param now the true time @param until in true time
    /// @return whether somebody else said so too, and his time is not over
    bool enter(std::size_t key, std::uint16_t who, Time now, Time until) noexcept {
        const std::uint64_t mine = pack(who, until);
        const std::uint64_t before = shared_->inside.at(key).exchange(mine);
        shared_->visits.fetch_add(1);
        const auto other = static_cast<std::uint16_t>(before >> 48U);
        const bool overlap = other != 0 && other != who && until_of(before) > now;
        if (overlap) shared_->overlaps.fetch_add(1);
        return overlap;
    }
    void leave(std::size_t key, std::uint16_t who) noexcept {
        std::uint64_t seen = shared_->inside.at(key).load();
        while (seen >> 48U == who && !shared_->inside.at(key).compare_exchange_weak(seen, 0)) {
        }
    }
    [[nodiscard]] std::uint64_t overlaps() const noexcept { return shared_->overlaps.load(); }
    [[nodiscard]] std::uint64_t visits() const noexcept { return shared_->visits.load(); }

private:
    using Cell = std::atomic<std::uint64_t>;
    static_assert(Cell::is_always_lock_free);
    struct Shared {
        std::array<Cell, most_keys> inside;
        Cell overlaps;
        Cell visits;
    };

    /// In us, rounded down: 48 bits are nine years.
    static constexpr std::uint64_t pack(std::uint16_t who, Time until) noexcept {
        const auto us = static_cast<std::uint64_t>(until < 0 ? 0 : until / 1000);
        return (std::uint64_t{who} << 48U) | (us & 0xffff'ffff'ffffU);
    }
    static constexpr Time until_of(std::uint64_t cell) noexcept {
        return static_cast<Time>(cell & 0xffff'ffff'ffffU) * 1000;
    }

    Shared* shared_;
};

} // namespace leaselock::chaos
