// SPDX-License-Identifier: MIT
//
// The reply to CLUSTER SLOTS, and the table that comes of it: believed where a second, naive reading
// believes it, and then each slot has the owner that the reply gives it, or none. The input is two replies,
// one behind the other, so that the second has to take back what the first has said.
//
// The first two bytes tell where the second reply begins.

#include "fuzz/naive.hpp"
#include "fuzz/reply_tree.hpp"

#include <leaselock/core/runtime.hpp>
#include <leaselock/hiredis/detail/cluster_nodes.hpp>
#include <leaselock/hiredis/detail/slot_table.hpp>
#include <leaselock/hiredis/endpoint.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using fuzz::check;
using leaselock::detail::ClusterNode;
using leaselock::detail::ClusterNodes;

struct Owner {
    std::string host;
    long long port = 0;
};
struct Table {
    std::vector<Owner> owners = std::vector<Owner>(1); ///< the first stands for none
    std::vector<std::size_t> owner_of = std::vector<std::size_t>(16'384);
};

constexpr std::string_view own_host = "seed.example";
constexpr std::uint16_t own_port = 7000;

const redisReply* part(const redisReply& reply, std::size_t i) {
    return reply.type == REDIS_REPLY_ARRAY && i < reply.elements ? reply.element[i] : nullptr;
}
long long integer(const redisReply* reply) {
    return reply != nullptr && reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;
}

bool read_entry(const redisReply& entry, Table& table) {
    const long long first = integer(part(entry, 0));
    const long long last = integer(part(entry, 1));
    const redisReply* const node = part(entry, 2);
    if (first < 0 || last < first || last > 16'383 || node == nullptr) return false;
    const redisReply* const name = part(*node, 0);
    const long long port = integer(part(*node, 1));
    if (name == nullptr || port < 1 || port > 65'535) return false;
    if (name->type != REDIS_REPLY_STRING && name->type != REDIS_REPLY_NIL) return false;
    std::string host{name->type == REDIS_REPLY_STRING ? fuzz::text_of(*name) : "?"};
    if (!fuzz::is_node_host(host)) return false;
    if (host.empty() || host == "?") host = own_host;
    table.owners.push_back({host, port});
    for (auto slot = static_cast<std::size_t>(first); slot <= static_cast<std::size_t>(last);
         ++slot) {
        if (table.owner_of[slot] != 0) return false;
        table.owner_of[slot] = table.owners.size() - 1;
    }
    return true;
}

/// The table by the second reading, or none where the reply is not to be believed.
std::optional<Table> read_slots(const redisReply& reply) {
    if (reply.type != REDIS_REPLY_ARRAY) return {};
    Table table;
    for (std::size_t i = 0; i < reply.elements; ++i) {
        if (reply.element[i] == nullptr || !read_entry(*reply.element[i], table)) return {};
    }
    return table;
}

bool is_of(const ClusterNode& node, const Owner& owner) {
    return node.address.host.view() == owner.host && node.address.port == owner.port;
}

void check_owners(const ClusterNodes& nodes, const Table& expected) {
    const ClusterNode* last_node = nullptr; // neighbours mostly have the same
    std::size_t last_owner = 0;
    for (std::uint16_t slot = 0; slot < 16'384; ++slot) {
        const ClusterNode* const node = nodes.owner(slot);
        const std::size_t owner = expected.owner_of[slot];
        if (slot != 0 && node == last_node && owner == last_owner) continue;
        check((node != nullptr) == (owner != 0), "served slots have an owner");
        check(node == nullptr || is_of(*node, expected.owners[owner]),
              "it is the owner that the reply gives");
        last_node = node;
        last_owner = owner;
    }
}

void check_home(const ClusterNode& home, const Table& table) {
    const auto same = [&](const Owner& owner) { return is_of(home, owner); };
    check(table.owners.size() == 1
              ? is_of(home, {std::string{own_host}, own_port})
              : std::any_of(table.owners.begin() + 1, table.owners.end(), same),
          "home has slots, if any node has");
}

/// @return the table as it is from then on
Table take(ClusterNodes& nodes, std::string_view bytes, std::uint32_t number, Table before) {
    const auto tree = fuzz::read_tree(bytes);
    if (tree == nullptr) return before;
    std::optional<Table> table = read_slots(*tree);
    check(leaselock::detail::check_slots(*tree).empty() == table.has_value(),
          "believed by both readings, or by none");
    if (!table) return before;
    leaselock::Endpoint from;
    from.host = own_host;
    from.port = own_port;
    const ClusterNode* const home = leaselock::detail::take_slots(nodes, *tree, from, number);
    check(home != nullptr, "there is room for the nodes of so short a reply");
    check_home(*home, *table);
    return *table;
}

int no_lookup(const char* /*host*/, std::uint16_t /*port*/,
              leaselock::detail::AddressList& /*all*/) noexcept {
    return 0;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Choices choices{fuzz::as_text(data, std::min<std::size_t>(size, 2048))};
    const std::size_t second = choices.word();
    const std::string_view bytes = choices.rest();
    ClusterNodes nodes{{}, leaselock::system_runtime(), std::chrono::seconds{1}, no_lookup};
    Table table = take(nodes, bytes.substr(0, second), 1, {});
    check_owners(nodes, table);
    if (second < bytes.size()) {
        table = take(nodes, bytes.substr(second), 2, std::move(table));
        check_owners(nodes, table);
    }
    return 0;
}
