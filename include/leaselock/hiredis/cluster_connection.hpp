#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>
#include <leaselock/core/lease_clock.hpp>
#include <leaselock/core/outcome.hpp>
#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/lookup_function.hpp>
#include <leaselock/hiredis/endpoint.hpp>
#include <leaselock/hiredis/multiplexed_connection.hpp>
#include <leaselock/redis/command.hpp>
#include <leaselock/redis/connection.hpp>
#include <leaselock/redis/dialect.hpp>
#include <leaselock/redis/reply.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#if LEASELOCK_DEFINES
#include <leaselock/core/error.hpp>
#include <leaselock/hiredis/detail/address.hpp>
#include <leaselock/hiredis/detail/cluster_call.hpp>
#include <leaselock/hiredis/detail/cluster_nodes.hpp>
#include <leaselock/hiredis/detail/cluster_seeds.hpp>
#include <leaselock/hiredis/detail/hop.hpp>
#include <leaselock/hiredis/detail/slot_refresh.hpp>
#include <leaselock/redis/key.hpp>

#include <algorithm>
#include <utility>
#endif

namespace leaselock {
inline namespace LEASELOCK_ABI {
namespace detail {
struct Cluster;
struct ClusterNode;
} // namespace detail

/// One connection to a Redis Cluster, whatever number of nodes it has.
///
/// Each command goes to the node that has its key's slot, each over a `MultiplexedConnection` of its own.
/// Which slot is whose the cluster itself says (CLUSTER SLOTS): the first time a table is needed, and
/// again, at most ten times a second, when the table turns out to be old or a node does not answer.
///
/// All inside the call's own deadline and with the very bytes that it was given, so with the same token:
/// - MOVED and ASK are followed, up to five times for a command; the sixth is its reply;
/// - TRYAGAIN, CLUSTERDOWN, LOADING, READONLY, MASTERDOWN, and a node that cannot be reached, are tried
///   again after a short pause, as long as any node of the cluster can be reached at all;
/// - what is *unknown* is never sent again.
/// A batch is split by node and answered in order; the commands of one key keep their order.
///
/// It is as strong as the cluster: a failover forgets what the new master had not received.
///
/// *unsent* besides what `MultiplexedConnection` says: `errc::cross_slot` for a script whose keys do not
/// share a slot, before anything of it is sent. *refused*: `errc::no_cluster` for a server without cluster
/// mode.
///
/// In a forked child every call answers unsent, `errc::other_process`: make a new connection there.
///
/// Memory: 40 KiB, and what the nodes' connections take; they are kept until the end, and 1,024 are the
/// most that a cluster may name in that time.
/// Thread-safety: any number of threads. It does not move. Source: design, "The connection", and
/// redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec
class ClusterConnection {
public:
    static constexpr bool is_shareable = true;

#if LEASELOCK_EXCEPTIONS
    /// @param seed a node of the cluster, as `Endpoint::parse` reads it: user, password, TLS and time limits
    ///        hold for all nodes
    /// @throws Error for a malformed URL, or one that no cluster can have; it connects to nothing yet
    template <std::convertible_to<std::string_view> Url>
    explicit ClusterConnection(
        const Url& seed, Runtime& runtime = system_runtime(),
        std::chrono::milliseconds silence = MultiplexedConnection::default_silence)
        : ClusterConnection(std::vector<std::string_view>{seed}, runtime, silence) {}

    /// @param seeds several nodes, of which one that answers is enough; alike in all but host and port
    explicit ClusterConnection(
        const std::vector<std::string_view>& seeds, Runtime& runtime = system_runtime(),
        std::chrono::milliseconds silence = MultiplexedConnection::default_silence);
#endif

    /// @param seed as above; if it will not do, every call answers unsent and says why
    explicit ClusterConnection(
        const Endpoint& seed, Runtime& runtime = system_runtime(),
        std::chrono::milliseconds silence = MultiplexedConnection::default_silence);

    /// @param seeds several, alike in all but host and port
    /// @param runtime outlives the connection
    /// @param silence of each node's stream, as of a `MultiplexedConnection`
    /// @param lookup for tests of this library
    explicit ClusterConnection(
        std::span<const Endpoint> seeds, Runtime& runtime = system_runtime(),
        std::chrono::milliseconds silence = MultiplexedConnection::default_silence,
        detail::LookupFunction lookup = detail::system_lookup);

    ClusterConnection(const ClusterConnection&) = delete;
    ClusterConnection& operator=(const ClusterConnection&) = delete;
    /// No call may be under way.
    ~ClusterConnection();

    /// See `Connection`.
    void call(std::span<const Command> commands, std::span<Reply> replies, Deadline by) noexcept;

    /// See `RoutedConnection`: the number of the node that has the key, as far as is known.
    [[nodiscard]] std::uint32_t lane(std::string_view key) const noexcept;

    /// What the nodes cannot do, as if they were all alike; forgotten whenever the cluster was asked who
    /// has which slot.
    [[nodiscard]] Dialect& dialect() noexcept { return dialect_; }

    friend Runtime& runtime_of(ClusterConnection& connection) noexcept {
        return connection.runtime_;
    }

private:
    ClusterConnection(std::vector<Endpoint>&& seeds, Runtime& runtime,
                      std::chrono::milliseconds silence, detail::LookupFunction lookup);

    [[nodiscard]] detail::ClusterNode* only_node(std::span<const Command> commands) const noexcept;

    Runtime& runtime_;
    ProcessId process_;
    Dialect dialect_;
    std::unique_ptr<detail::Cluster> cluster_;
    Outcome flaw_;
};

static_assert(RoutedConnection<ClusterConnection>);

#if LEASELOCK_DEFINES
/// What is known of a cluster. It stays where it is: the parts refer to each other.
struct detail::Cluster {
    Cluster(std::vector<Endpoint>&& some, Dialect& dialect, Runtime& runtime,
            std::chrono::milliseconds silence, LookupFunction lookup)
        : seeds(std::move(some)),
          nodes(seeds.empty() ? Endpoint{} : seeds.front(), runtime, silence, lookup),
          refresh(nodes, seeds, dialect, runtime, lookup) {}

    std::vector<Endpoint> seeds;
    ClusterNodes nodes;
    SlotRefresh refresh;
};

#if LEASELOCK_EXCEPTIONS
LEASELOCK_INLINE ClusterConnection::ClusterConnection(const std::vector<std::string_view>& seeds,
                                                      Runtime& runtime,
                                                      std::chrono::milliseconds silence)
    : ClusterConnection(detail::read_urls(seeds), runtime, silence, detail::system_lookup) {
    if (!flaw_) throw Error{flaw_, "read", "the URLs of the cluster"};
}
#endif
LEASELOCK_INLINE ClusterConnection::ClusterConnection(const Endpoint& seed, Runtime& runtime,
                                                      std::chrono::milliseconds silence)
    : ClusterConnection(std::span{&seed, 1}, runtime, silence) {}
LEASELOCK_INLINE ClusterConnection::ClusterConnection(std::span<const Endpoint> seeds,
                                                      Runtime& runtime,
                                                      std::chrono::milliseconds silence,
                                                      detail::LookupFunction lookup)
    : ClusterConnection(std::vector<Endpoint>(seeds.begin(), seeds.end()), runtime, silence,
                        lookup) {}
LEASELOCK_INLINE ClusterConnection::ClusterConnection(std::vector<Endpoint>&& seeds,
                                                      Runtime& runtime,
                                                      std::chrono::milliseconds silence,
                                                      detail::LookupFunction lookup)
    : runtime_(runtime), process_(runtime.process()),
      cluster_(
          std::make_unique<detail::Cluster>(std::move(seeds), dialect_, runtime, silence, lookup)),
      flaw_(detail::check_seeds(cluster_->seeds)) {}

LEASELOCK_INLINE ClusterConnection::~ClusterConnection() {
    if (runtime_.process() != process_) cluster_->refresh.abandon_in_child();
}

LEASELOCK_INLINE std::uint32_t ClusterConnection::lane(std::string_view key) const noexcept {
    const detail::ClusterNode* const node = cluster_->nodes.owner(hash_slot(key));
    return node == nullptr ? 0 : node->index;
}

/// The node that all the commands are for, and of which there is no doubt; null if there is none.
LEASELOCK_INLINE detail::ClusterNode*
ClusterConnection::only_node(std::span<const Command> commands) const noexcept {
    detail::ClusterNode* node = nullptr;
    std::string_view last;
    for (const Command& command : commands) {
        if (!detail::shares_slot(command)) return nullptr;
        if (command.key.empty() || command.key == last) continue;
        last = command.key;
        detail::ClusterNode* const owner = cluster_->nodes.owner(hash_slot(last));
        if (owner == nullptr || (node != nullptr && owner != node)) return nullptr;
        node = owner;
    }
    if (node == nullptr) node = cluster_->refresh.home();
    return node == nullptr || cluster_->refresh.is_doubtful(*node) ? nullptr : node;
}

LEASELOCK_INLINE void ClusterConnection::call(std::span<const Command> commands,
                                              std::span<Reply> replies, Deadline by) noexcept {
    if (runtime_.process() !=
        process_) { // what a thread that is not here was changing is left alone
        for (Reply& reply : replies) reply.set_unsent(make_error_code(errc::other_process));
        return;
    }
    if (commands.empty()) return;
    if (!flaw_) return detail::refuse_all({flaw_.cause, flaw_.text}, replies);

    detail::ClusterNode* const node = only_node(commands);
    MultiplexedConnection* const connection =
        node == nullptr ? nullptr : cluster_->nodes.connection(*node, false);
    if (connection != nullptr) {
        connection->call(commands, replies, by);
        const bool answered = std::all_of(replies.begin(), replies.end(), [](const Reply& reply) {
            return detail::is_final(reply) && reply.kind != Reply::unknown;
        });
        if (answered) return; // nearly always
    }
    detail::ClusterCall call{cluster_->nodes, cluster_->refresh, runtime_, commands, replies, by};
    if (connection != nullptr) {
        call.run_from(*node);
    } else {
        call.run();
    }
}
#endif

} // namespace LEASELOCK_ABI
} // namespace leaselock
