// SPDX-License-Identifier: MIT
#pragma once

#include <csignal>

#include <pthread.h>

namespace leaselock::test {

/// Blocks every signal in this thread. A thread started meanwhile inherits the mask, so that a
/// signal storm hits the code under test and not the helpers.
class SignalsBlocked {
public:
    SignalsBlocked() noexcept {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_{};
};

} // namespace leaselock::test
