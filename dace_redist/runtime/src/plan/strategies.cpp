// SPDX-License-Identifier: BSD-3-Clause
#include "plan/strategies.hpp"

#include <algorithm>
#include <iterator>

#include "transport/transports.hpp"

namespace dace_redist {
namespace {

std::vector<Strategy>& table() {
  static std::vector<Strategy> rows{
      // name           within a node    between nodes   short messages between nodes
      // clang-format off
      {"Datatype", nullptr, make_datatype},
      {"Pack", nullptr, make_packed},
      {"Threaded", nullptr, make_threaded},
      {"Pipelined", nullptr, make_pipelined},
      {"RMA", nullptr, make_put},
      {"Hierarchical", make_node, make_pipelined, make_joined},
      // clang-format on
  };
  return rows;
}

MessageFilter short_messages(const Link& link) {
  const Index joined = link.options.join_bytes < 0 ? max_often_joined_bytes : link.options.join_bytes;
  return [&topology = link.topology, most = std::min(link.options.chunk_bytes, joined)](const PeerMessage& message) {
    return !topology.is_partner(message.peer) && message.nbytes <= most;
  };
}

}  // namespace

void add_strategy(const Strategy& strategy) {
  for (Strategy& row : table())
    if (std::string(row.name) == strategy.name) {
      row = strategy;
      return;
    }
  table().push_back(strategy);
}

const Strategy& find_strategy(const std::string& name) {
  for (const Strategy& row : table())
    if (name == row.name) return row;  // allocates nothing: ranks may wait in MPI for this one
  std::string known;
  for (const Strategy& row : table()) known += (known.empty() ? "" : ", ") + std::string(row.name);
  throw Error(text("unknown strategy \"", name, "\"; there are ", known));
}

Messages part_of(const Messages& messages, const MessageFilter& takes) {
  Messages part;
  if (takes(messages.self)) part.self = messages.self;
  std::copy_if(messages.sends.begin(), messages.sends.end(), std::back_inserter(part.sends), takes);
  std::copy_if(messages.receives.begin(), messages.receives.end(), std::back_inserter(part.receives), takes);
  return part;
}

bool has_many_short(const Strategy& strategy, const Link& link, const Messages& messages) {
  if (!strategy.short_between_nodes || link.topology.one_node()) return false;
  const MessageFilter is_short = short_messages(link);
  const auto count = [&](const std::vector<PeerMessage>& list) {
    return static_cast<std::size_t>(std::count_if(list.begin(), list.end(), is_short));
  };
  return std::max(count(messages.sends), count(messages.receives)) >= min_often_joined;
}

std::vector<Route> make_routes(const Strategy& strategy, const Link& link, const Messages& messages, bool node_memory,
                               bool joins_short) {
  std::vector<Route> routes;
  const auto add = [&](MakeTransport make, int tag, const MessageFilter& takes) {
    Link own = link;
    own.tag += tag;
    own.plan_messages = [plan = link.plan_messages, takes](const auto& sources, const auto& targets) {
      return part_of(plan(sources, targets), takes);
    };
    routes.push_back({make(own, part_of(messages, takes)), takes});
  };
  const bool through_node = strategy.on_node && node_memory;
  if (!through_node) {
    add(strategy.between_nodes, 0, everything);
    return routes;
  }
  const auto within_node = [&topology = link.topology](const PeerMessage& message) {
    return topology.is_partner(message.peer);
  };
  if (!link.topology.one_node()) {
    const bool joined = joins_short && strategy.short_between_nodes;
    const MessageFilter is_short = joined ? short_messages(link) : std::not_fn(everything);
    add(strategy.between_nodes, 0,
        [=](const PeerMessage& message) { return !within_node(message) && !is_short(message); });
    if (joined) add(strategy.short_between_nodes, 1, is_short);
  }
  add(strategy.on_node, 3, within_node);
  return routes;
}

}  // namespace dace_redist
