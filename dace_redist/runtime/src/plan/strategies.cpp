// SPDX-License-Identifier: BSD-3-Clause
#include "plan/strategies.hpp"

#include <algorithm>
#include <functional>
#include <map>

#include "transport/chunk_transport.hpp"
#include "transport/join_transport.hpp"
#include "transport/node_transport.hpp"
#include "transport/put_transport.hpp"
#include "transport/reduce_transport.hpp"

namespace dace_redist {
namespace {

std::vector<Strategy>& table() {
  static std::vector<Strategy> rows{
      // name           within a node    between nodes   short messages between nodes
      {"Datatype", nullptr, make_datatype},
      {"Pack", nullptr, make_packed},
      {"Threaded", nullptr, make_threaded},
      {"Pipelined", nullptr, make_pipelined},
      {"RMA", nullptr, make_put},
      {"Shared", make_node, nullptr},
      {"Hierarchical", make_node, make_pipelined},
      {"Aggregated", make_node, make_pipelined, make_joined},
      {"SumReplicas", make_node, make_reduced, nullptr, true},
  };
  return rows;
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
  for (const Strategy& row : table())
    if (!row.sums) known += (known.empty() ? "" : ", ") + std::string(row.name);
  throw Error(text("unknown strategy \"", name, "\"; there are ", known));
}

void check_nodes(const Strategy& strategy, const Link& link, const Messages& messages) {
  if (!strategy.on_node || strategy.between_nodes) return;
  for (const auto* list : {&messages.sends, &messages.receives})
    for (const PeerMessage& message : *list)
      if (!link.topology.is_partner(message.peer))
        throw Error(text("strategy ", strategy.name, " moves between ranks of one node, but ranks ", link.rank(),
                         " and ", message.peer, " are on different nodes; use Hierarchical"));
}

Messages MessageFilter::of(Messages messages) const {
  if (!self) messages.self = {};
  if (!takes) return messages;
  for (auto* list : {&messages.sends, &messages.receives})
    list->erase(std::remove_if(list->begin(), list->end(), std::not_fn(takes)), list->end());
  return messages;
}

std::vector<Route> make_routes(const Strategy& strategy, const Link& link, const Messages& messages, bool node_memory,
                               bool separable) {
  check_nodes(strategy, link, messages);
  std::vector<Route> routes;
  const auto add = [&](MakeTransport make, const MessageFilter& filter, int tag) {
    Link own = link;
    own.tag += tag;
    own.plan_messages = [plan = link.plan_messages, filter](const auto& sources, const auto& targets) {
      return filter.of(plan(sources, targets));
    };
    routes.push_back({make(own, filter.of(messages)), filter});
  };
  const MakeTransport others = strategy.between_nodes ? strategy.between_nodes : make_pipelined;
  if (!separable) {
    add(others, {}, 0);
    return routes;
  }
  const bool through_node = strategy.on_node && node_memory;
  const auto stays = [&topology = link.topology, through_node](const PeerMessage& message) {
    return through_node && topology.is_partner(message.peer);
  };
  const bool joins = through_node && strategy.short_between_nodes && !link.topology.one_node();
  const Index max_joined = joins ? std::min(link.options.chunk_bytes, max_joined_bytes) : -1;
  const auto is_joined = [=](const PeerMessage& message) { return !stays(message) && message.nbytes <= max_joined; };
  if (!through_node || !link.topology.one_node())
    add(others, {[=](const PeerMessage& message) { return !stays(message) && !is_joined(message); }, !through_node}, 0);
  if (joins) add(strategy.short_between_nodes, {is_joined, false}, 1);
  if (through_node) add(strategy.on_node, {stays, true}, 3);
  return routes;
}

MessageOrder::MessageOrder(const Topology& topology, int ranks, bool by_node) : ranks_(ranks) {
  if (!by_node || topology.one_node()) return;
  std::map<int, Place> next;  // by lowest rank of a node: place of the next rank there
  for (const int node : topology.node_of) {
    Place& place = next.insert({node, {static_cast<Index>(next.size()), 0}}).first->second;
    places_.push_back(place);
    max_node_ranks_ = std::max(max_node_ranks_, ++place.number);
  }
  nodes_ = static_cast<Index>(next.size());
}

Index MessageOrder::step(Index source, Index target) const {
  if (places_.empty()) return (target - source + ranks_) % ranks_;
  const Place &from = places_[static_cast<std::size_t>(source)], &to = places_[static_cast<std::size_t>(target)];
  return (to.node - from.node + nodes_) % nodes_ * max_node_ranks_ +
         (to.number - from.number + max_node_ranks_) % max_node_ranks_;
}

}  // namespace dace_redist
