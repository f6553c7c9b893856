// SPDX-License-Identifier: MIT
#pragma once

#include <leaselock/core/runtime.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

namespace leaselock::test {

/// The machine, for runtimes that differ from it in something.
class ForwardingRuntime : public Runtime {
public:
    [[nodiscard]] Deadline now() const noexcept override { return machine_.now(); }
    void sleep_until(Deadline by) noexcept override { machine_.sleep_until(by); }
    bool wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t old,
                    Deadline by) noexcept override {
        return machine_.wait_until(word, old, by);
    }
    void notify_all(const std::atomic<std::uint32_t>& word) noexcept override {
        machine_.notify_all(word);
    }
    [[nodiscard]] std::error_code fill_random(std::span<std::byte> bytes) noexcept override {
        return machine_.fill_random(bytes);
    }
    [[nodiscard]] ProcessId process() const noexcept override { return machine_.process(); }
    [[nodiscard]] std::error_code start_thread(ThreadHandle& handle, void* (*entry)(void*),
                                               void* argument) noexcept override {
        return machine_.start_thread(handle, entry, argument);
    }
    void join(ThreadHandle handle) noexcept override { machine_.join(handle); }
    void detach(ThreadHandle handle) noexcept override { machine_.detach(handle); }

private:
    Runtime& machine_ = system_runtime();
};

} // namespace leaselock::test
