#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

class LeaseRecord;

/// A renewer, as a guard sees it. Shared by the renewer, its threads and the guards it keeps, and
/// alive until the last of them lets go.
class Keeper {
public:
    Keeper() = default;
    Keeper(const Keeper&) = delete;
    Keeper& operator=(const Keeper&) = delete;

    /// Lets a lease go: no renewal is sent for it from now on, though one may be on its way. If its
    /// loss is being signalled by another thread, waits for that; if it is still to be signalled,
    /// does so itself. Behind it none of its callbacks is run any more, nor its observer by the renewer.
    /// Called from inside a callback it does not wait, for two that waited for each other would do so
    /// for ever.
    virtual void forget(LeaseRecord& record) noexcept = 0;
    /// Its holder has found out, and told, that the lease is lost: it is to be signalled now.
    virtual void lost(LeaseRecord& record) noexcept = 0;
    virtual void retain() noexcept = 0;
    virtual void release() noexcept = 0;

protected:
    ~Keeper() = default;
};

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
