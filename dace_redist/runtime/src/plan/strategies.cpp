// SPDX-License-Identifier: BSD-3-Clause
#include "plan/strategies.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

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
      {"SumReplicas", make_node, make_reduced},
  };
  return rows;
}

/// Moves the messages that `takes` accepts to a list of their own; the self copy stays.
template <class Takes>
Messages split(Messages& messages, const Takes& takes) {
  Messages taken;
  const auto split_side = [&](std::vector<PeerMessage>& from, std::vector<PeerMessage>& to) {
    const auto kept = [&](const PeerMessage& message) { return !takes(message); };
    const auto middle = std::stable_partition(from.begin(), from.end(), kept);
    to.assign(std::make_move_iterator(middle), std::make_move_iterator(from.end()));
    from.erase(middle, from.end());
  };
  split_side(messages.sends, taken.sends);
  split_side(messages.receives, taken.receives);
  return taken;
}

/// A transport that moves only some of the messages of its exchange.
class SelectedMessages final : public Transport {
 public:
  SelectedMessages(std::unique_ptr<Transport> transport, std::function<Messages(Messages)> select)
      : transport_(std::move(transport)), select_(std::move(select)) {}

  void connect() override { transport_->connect(); }
  void replan(Messages messages) override { transport_->replan(select_(std::move(messages))); }
  void begin(const Arrays& arrays, Pace pace) override { transport_->begin(arrays, pace); }
  bool progress() override { return transport_->progress(); }
  bool done() const override { return transport_->done(); }
  bool runs_without_mpi() const override { return transport_->runs_without_mpi(); }
  void wake_partners() override { transport_->wake_partners(); }

 private:
  std::unique_ptr<Transport> transport_;
  std::function<Messages(Messages)> select_;
};

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
  std::string known;
  for (const Strategy& row : table()) {
    if (name == row.name) return row;
    if (std::string(row.name) != "SumReplicas") known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
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

std::vector<std::unique_ptr<Transport>> make_transports(const Strategy& strategy, const Link& link, Messages messages,
                                                        bool node_memory, bool separable) {
  const Topology topology = link.topology;
  const auto on_node = [topology](const PeerMessage& message) { return topology.is_partner(message.peer); };
  const auto is_short = [max = std::min(link.options.chunk_bytes, max_joined_bytes)](const PeerMessage& message) {
    return message.nbytes <= max;
  };
  const bool through_node = strategy.on_node && node_memory;
  check_nodes(strategy, link, messages);
  std::vector<std::unique_ptr<Transport>> transports;
  const MakeTransport others = strategy.between_nodes ? strategy.between_nodes : make_pipelined;
  if (!separable) {
    transports.push_back(others(link, std::move(messages)));
    return transports;
  }
  // Which part of the messages a transport takes, when the plan is made and for other local arrays.
  const auto add = [&](MakeTransport make, const std::function<Messages(Messages)>& select, Index tag) {
    Link own = link;
    own.tag += static_cast<int>(tag);
    own.plan_messages = [plan = link.plan_messages, select](const auto& sources, const auto& targets) {
      return select(plan(sources, targets));
    };
    transports.push_back(std::make_unique<SelectedMessages>(make(own, select(messages)), select));
  };
  const bool joins = through_node && strategy.short_between_nodes && !topology.one_node();
  if (!through_node || !topology.one_node())
    add(
        others,
        [=](Messages all) {
          if (through_node) {
            split(all, on_node);
            all.self = {};
          }
          if (joins) split(all, is_short);
          return all;
        },
        0);
  if (joins)
    add(
        strategy.short_between_nodes,
        [=](Messages all) {
          split(all, on_node);
          Messages shorts = split(all, is_short);
          return shorts;
        },
        1);
  if (through_node)
    add(
        strategy.on_node,
        [=](Messages all) {
          Messages here = split(all, on_node);
          here.self = std::move(all.self);
          return here;
        },
        3);
  return transports;
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
