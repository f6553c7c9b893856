#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/deadline.hpp>
#include <leaselock/core/error.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/cluster_nodes.hpp>
#include <leaselock/hiredis/detail/cluster_round.hpp>
#include <leaselock/hiredis/detail/hop.hpp>
#include <leaselock/hiredis/detail/redirect.hpp>
#include <leaselock/hiredis/detail/slot_refresh.hpp>
#include <leaselock/hiredis/detail/stream.hpp>
#include <leaselock/redis/classify.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/key.hpp>
#include <leaselock/redis/reply.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <system_error>

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {

/// Tells all commands why none of them was sent: by the server's own words, where these prove it.
inline void refuse_all(const Failure& why, std::span<Reply> replies) noexcept {
    const errc named = cause_of(why.text.view());
    const bool own_words = named != errc::server_error && why.cause == named;
    for (Reply& reply : replies) {
        if (own_words) {
            reply.set_text(Reply::error, why.text.view());
        } else {
            reply.set_unsent(why.cause);
            reply.text = why.text;
        }
    }
}

/// A call that one write to one node does not answer: commands for several nodes, redirections, slots
/// whose owner is not known or does not answer.
///
/// It goes in rounds. Each sends what is left, in order, to whom it belongs, and takes the replies;
/// what has proof that it did not run goes into the next one, as `next_hop` says.
class ClusterCall {
public:
    ClusterCall(ClusterNodes& nodes, SlotRefresh& refresh, Runtime& runtime,
                std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept
        : nodes_(nodes), refresh_(refresh), runtime_(runtime), commands_(commands),
          replies_(replies), by_(by), round_(nodes, commands, replies, by) {}

    void run() noexcept {
        if (!begin()) return;
        for (std::size_t i = 0; i < count_; ++i) route(items_[i]);
        send();
        go_on();
    }
    /// All commands have been sent to this node, and the replies are its own.
    void run_from(ClusterNode& node) noexcept {
        if (!begin_items()) return; // for want of memory: the verdicts that there are stand
        for (std::size_t i = 0; i < count_; ++i) items_[i].node = &node;
        go_on();
    }

private:
    using Item = ClusterItem;

    [[nodiscard]] bool begin() noexcept;
    [[nodiscard]] bool begin_items() noexcept;
    [[nodiscard]] bool is_doubtful() const noexcept;
    void route(Item& item) const noexcept {
        const std::string_view key = commands_[item.at].key;
        item.asking = false;
        item.node = key.empty() ? nullptr : nodes_.owner(hash_slot(key));
        // nobody's slot: any node says so, or knows better
        if (item.node == nullptr) item.node = refresh_.home();
    }
    void go_on() noexcept;
    void decide() noexcept;
    void follow(Item& item, const Redirect& to) noexcept;
    [[nodiscard]] bool make_ready() noexcept;
    void keep_together() noexcept;
    [[nodiscard]] bool pause() noexcept;
    /// Whether what is tried again at that time can still be answered. Else the proof that it has not run
    /// would be given away for an *unknown*.
    [[nodiscard]] bool has_time(Deadline at) const noexcept {
        return later(at, answer_time(took_, by_ - start_)) < by_;
    }
    void drop_done() noexcept;
    void send() noexcept;

    ClusterNodes& nodes_;
    SlotRefresh& refresh_;
    Runtime& runtime_;
    std::span<const Command> commands_;
    std::span<Reply> replies_;
    Deadline by_;
    Deadline start_ = runtime_.now();
    LeaseClock::duration took_{}; ///< by the last round
    std::size_t count_ = 0;       ///< commands that are not done
    unsigned pauses_ = 0;
    std::unique_ptr<Item[]> items_;
    std::unique_ptr<Sent[]> sent_;
    ClusterRound round_;
};

/// @return false: all have their verdicts
inline bool ClusterCall::begin() noexcept {
    Failure why{make_error_code(errc::timed_out), {}};
    const Deadline now = runtime_.now();
    if (refresh_.home() == nullptr && (now >= by_ || refresh_.run(by_, why) == Refreshed::failed)) {
        refuse_all(why, replies_);
        return false;
    }
    if (!begin_items()) {
        refuse_all({std::make_error_code(std::errc::not_enough_memory), {}}, replies_);
        return false;
    }
    // a doubt is worth a part of the time, not all of it: the table may be right after all
    if (now < by_ && is_doubtful()) (void)refresh_.run(later(now, (by_ - now) / 4), why);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; ++i) {
        if (shares_slot(commands_[i])) {
            items_[kept++].at = i;
        } else {
            replies_[i].set_unsent(make_error_code(errc::cross_slot));
        }
    }
    count_ = kept;
    return true;
}

inline bool ClusterCall::is_doubtful() const noexcept {
    return std::any_of(commands_.begin(), commands_.end(), [&](const Command& command) {
        const ClusterNode* const node =
            command.key.empty() ? refresh_.home() : nodes_.owner(hash_slot(command.key));
        return node != nullptr && refresh_.is_doubtful(*node);
    });
}

inline bool ClusterCall::begin_items() noexcept {
    const std::size_t count = (std::min)(commands_.size(), replies_.size());
    items_.reset(new (std::nothrow) Item[count]);
    sent_.reset(new (std::nothrow) Sent[count]);
    if (items_ == nullptr || sent_ == nullptr || !round_.reserve(count)) return false;
    for (std::size_t i = 0; i < count; ++i) items_[i].at = i;
    count_ = count;
    return true;
}

inline void ClusterCall::go_on() noexcept {
    for (;;) {
        decide();
        drop_done();
        if (count_ == 0 || runtime_.now() >= by_ || !make_ready()) return;
        send();
    }
}

/// What each reply of a round asks for.
inline void ClusterCall::decide() noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
        Item& item = items_[i];
        const Reply& reply = replies_[item.at];
        const std::string_view key = commands_[item.at].key;
        Sent& sent = sent_[i];
        sent = {key, &reply};
        sent.hop = next_hop(reply, key, item.hops, sent.to);
        if (!reply.answered()) refresh_.doubt(item.node); // silent; another may be in its place
    }
    keep_order({sent_.get(), count_});
    for (std::size_t i = 0; i < count_; ++i) {
        Item& item = items_[i];
        item.hop = sent_[i].hop;
        if (item.hop == Hop::moved || item.hop == Hop::ask) {
            follow(item, sent_[i].to);
        } else if (item.hop == Hop::done && sent_[i].to.kind != Redirect::none &&
                   item.hops == most_hops) {
            replies_[item.at].text.append(" (5 redirections were followed)");
        }
    }
}

inline void ClusterCall::follow(Item& item, const Redirect& to) noexcept {
    const std::string_view host = to.host.empty() ? item.node->address.host.view() : to.host;
    ClusterNode* const target = nodes_.find(host, to.port);
    if (target == nullptr) {
        item.hop = Hop::done; // the reply tells where it should have gone
        return;
    }
    ++item.hops;
    item.node = target;
    item.asking = to.kind == Redirect::ask;
    if (item.asking) return;
    nodes_.set_owner(to.slot, *target);
    refresh_.doubt(nullptr); // it may not be the only slot that has moved
}

inline void ClusterCall::drop_done() noexcept {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; ++i) {
        if (items_[i].hop != Hop::done) items_[kept++] = items_[i];
    }
    count_ = kept;
}

/// Asks the cluster and pauses, where that is needed. @return false when there is no more to be done
inline bool ClusterCall::make_ready() noexcept {
    bool look_up = false;
    bool wait = false;
    for (std::size_t i = 0; i < count_; ++i) {
        look_up = look_up || items_[i].hop == Hop::look_up;
        wait = wait || items_[i].hop == Hop::stay;
    }
    if (look_up) {
        Failure ignored; // the node's own verdict tells more
        const bool lost = refresh_.run(by_, ignored) == Refreshed::failed;
        for (std::size_t i = 0; i < count_; ++i) {
            Item& item = items_[i];
            if (item.hop != Hop::look_up) continue;
            const ClusterNode* const before = item.node;
            route(item);
            wait = wait || item.node == before;
            if (lost) item.hop = Hop::done; // nobody is there who could know better
        }
        drop_done();
    }
    keep_together();
    return count_ != 0 && (!look_up || has_time(runtime_.now())) && (!wait || pause());
}

/// The commands of one key go where the first of them goes, so that they keep their order.
inline void ClusterCall::keep_together() noexcept {
    for (std::size_t i = 1; i < count_; ++i) {
        const std::string_view key = commands_[items_[i].at].key;
        for (std::size_t k = 0; k < i && !key.empty(); ++k) {
            if (commands_[items_[k].at].key != key) continue;
            items_[i].node = items_[k].node;
            items_[i].asking = items_[k].asking;
            break;
        }
    }
}

inline bool ClusterCall::pause() noexcept {
    std::uint64_t random = 0;
    (void)runtime_.fill_random(std::as_writable_bytes(std::span{&random, 1}));
    const Deadline until = later(runtime_.now(), retry_pause(pauses_++, random));
    if (!has_time(until)) return false;
    runtime_.sleep_until(until);
    return true;
}

inline void ClusterCall::send() noexcept {
    const Deadline start = runtime_.now();
    round_.run({items_.get(), count_});
    took_ = runtime_.now() - start;
}

} // namespace detail
} // namespace LEASELOCK_ABI
} // namespace leaselock
