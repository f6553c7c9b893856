// SPDX-License-Identifier: MIT

#include "simulation/fiber.hpp"

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>

#if defined(__SANITIZE_ADDRESS__)
#define SIMULATION_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMULATION_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SIMULATION_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SIMULATION_TSAN 1
#endif
#endif

#ifdef SIMULATION_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SIMULATION_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace leaselock::simulation {
namespace {

Fiber* running = nullptr;

constexpr std::size_t page = 4096;
constexpr std::size_t stack_size = 64 * page; // frames are large under the sanitizers

/// Stacks are mapped once and used again: a seed needs a dozen, and there are many seeds.
class Stacks {
public:
    void* take() {
        if (!free_.empty()) {
            void* const stack = free_.back();
            free_.pop_back();
            return stack;
        }
        void* const memory = ::mmap(nullptr, page + stack_size, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc{};
        (void)::mprotect(memory, page, PROT_NONE); // an overflow is to be seen
        return static_cast<std::byte*>(memory) + page;
    }
    void give_back(void* stack) { free_.push_back(stack); }

private:
    std::vector<void*> free_;
};

Stacks& stacks() {
    static Stacks all;
    return all;
}

} // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(stacks().take()) {
    // else the standard library leaves out what threads need, such as the end of a stop callback
    __libc_single_threaded = 0;
    (void)::getcontext(&self_);
    self_.uc_stack.ss_sp = stack_;
    self_.uc_stack.ss_size = stack_size;
    self_.uc_link = nullptr;
    ::makecontext(&self_, &Fiber::run, 0);
#ifdef SIMULATION_TSAN
    tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef SIMULATION_TSAN
    __tsan_destroy_fiber(tsan_fiber_);
#endif
    stacks().give_back(stack_);
}

Fiber* Fiber::current() noexcept { return running; }

void Fiber::resume() {
    running = this;
#ifdef SIMULATION_ASAN
    __sanitizer_start_switch_fiber(&resumers_fake_stack_, stack_, stack_size);
#endif
#ifdef SIMULATION_TSAN
    tsan_resumer_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan_fiber_, 0);
#endif
    (void)::swapcontext(&resumer_, &self_);
#ifdef SIMULATION_ASAN
    __sanitizer_finish_switch_fiber(resumers_fake_stack_, nullptr, nullptr);
#endif
    running = nullptr;
}

/// To be called behind every switch to this fiber.
void Fiber::enter() noexcept {
#ifdef SIMULATION_ASAN
    __sanitizer_finish_switch_fiber(own_fake_stack_, &resumers_stack_, &resumers_stack_size_);
#endif
}

void Fiber::leave([[maybe_unused]] bool for_good) noexcept {
#ifdef SIMULATION_ASAN
    __sanitizer_start_switch_fiber(for_good ? nullptr : &own_fake_stack_, resumers_stack_,
                                   resumers_stack_size_);
#endif
#ifdef SIMULATION_TSAN
    __tsan_switch_to_fiber(tsan_resumer_, 0);
#endif
    (void)::swapcontext(&self_, &resumer_);
    enter();
}

void Fiber::suspend() { running->leave(false); }

void Fiber::run() {
    Fiber& self = *running;
    self.enter();
    self.body_();
    self.body_ = nullptr;
    self.ended_ = true;
    self.leave(true);
}

} // namespace leaselock::simulation

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names, see its option --wrap
extern "C" {
pthread_t __real_pthread_self(void) noexcept;
pthread_t __wrap_pthread_self(void) noexcept;

pthread_t __wrap_pthread_self(void) noexcept {
    const auto* const fiber = leaselock::simulation::Fiber::current();
    return fiber != nullptr ? reinterpret_cast<pthread_t>(fiber) : __real_pthread_self();
}
}
// NOLINTEND(bugprone-reserved-identifier)
