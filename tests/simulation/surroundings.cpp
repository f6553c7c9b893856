// SPDX-License-Identifier: MIT

#include "simulation/surroundings.hpp"

#include "simulation/random.hpp"
#include "simulation/told_event.hpp"
#include "simulation/world.hpp"

#include <leaselock/core/observer.hpp>

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

namespace leaselock::simulation {

bool Store::ask(std::string_view what, std::string_view key, std::string_view token,
                std::uint64_t fence, Random& random) {
    if (world_.process().killed) return false;
    struct Request {
        std::string what, key, token;
        std::uint64_t fence;
        bool done = false;
        std::atomic<std::uint32_t> answered{0};
    };
    const auto request = std::make_shared<Request>();
    request->what = what;
    request->key = key;
    request->token = token;
    request->fence = fence;
    world_.at(world_.now() + random.between(10 * us, 20 * ms), [this, request] {
        std::uint64_t& highest = highest_[request->key];
        request->done = request->fence >= highest;
        if (request->done) highest = request->fence;
        world_.line("store", request->what)
            .put("key", request->key)
            .put("token", request->token)
            .put_unsigned("fence", request->fence)
            .put("ok", request->done ? 1 : 0);
        request->answered.store(1);
        world_.notify_all(request->answered);
    });
    (void)world_.wait_until(request->answered, 0, std::numeric_limits<Time>::max());
    return request->done;
}

void Recorder::on_event(const Event& event) noexcept {
    auto line = world_.line("event");
    put_event(line, guard_, event.fingerprint, event);
}

} // namespace leaselock::simulation
