#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/observer.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace fuzz {

/// Says what happens, where LEASELOCK_FUZZ_TRACE is set: a finding is a story to be read.
class Trace final : public leaselock::Observer {
public:
    explicit Trace(const leaselock::Runtime& runtime) : runtime_(runtime) {}

    void on_event(const leaselock::Event& event) noexcept override {
        if (!on_) return;
        print(event.verb == leaselock::Verb::lose ? "lost" : "", event.key, event.fingerprint,
              to_string(event.verb), to_string(event.outcome.answer), event.outcome.text.view());
    }
    void step(int what, std::string_view more) const {
        if (on_) print("-- step", more, std::to_string(what));
    }
    [[nodiscard]] bool is_on() const { return on_; }

private:
    template <class... Words>
    void print(const Words&... words) const {
        std::string line =
            std::to_string(runtime_.now().time_since_epoch() / std::chrono::microseconds{1}) +
            " us";
        ((line += ' ', line += words), ...);
        std::fprintf(stderr, "%s\n", line.c_str());
    }

    const leaselock::Runtime& runtime_;
    bool on_ = std::getenv("LEASELOCK_FUZZ_TRACE") != nullptr;
};

} // namespace fuzz
