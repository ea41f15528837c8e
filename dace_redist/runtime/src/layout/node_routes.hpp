// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The ranks that move a pair of cells between nodes, each element once into each node, and within them.
/// Start reading at: NodeRoutes.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "layout/replica_routes.hpp"

namespace dace_redist {

/// The ranks of a node that hold a cell.
struct NodeHolders {
  int node = 0;
  std::vector<Index> ranks;

  bool has(Index rank) const { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }
  Index at(Index turn) const { return ranks[static_cast<std::size_t>(turn) % ranks.size()]; }
};

/// The first of ascending nodes whose number is at least `node`.
template <class Nodes>
auto first_node(Nodes& nodes, int node) {
  return std::lower_bound(nodes.begin(), nodes.end(), node,
                          [](const NodeHolders& one, int wanted) { return one.node < wanted; });
}

/// The ranks that hold a cell, by replica and by node.
struct Holders {
  AxisArray cell{};
  NodeHolders all;
  std::vector<NodeHolders> nodes;  // ascending

  const NodeHolders* on(int node) const {
    const auto found = first_node(nodes, node);
    return found != nodes.end() && found->node == node ? &*found : nullptr;
  }
};

/// The routes of the kinds of ReplicaPolicy that know of nodes, as seen by a rank that sends or that receives. Pairs of
/// cells take turns among the ranks of a node; where these are more than the pairs, each pair is cut into pieces, so
/// many that each rank has one.
///
/// Of each piece, one of the ranks that hold the target cell is the owner, and one on each node the forwarder: on the
/// owner's node the owner. One of the ranks of each node that hold partial results is the leader: the owner if it holds
/// some.
class NodeRoutes {
 public:
  NodeRoutes(const ScheduleArguments& arguments, bool sends)
      : source_(arguments.source),
        target_(arguments.target),
        nodes_(*arguments.nodes),
        policy_(arguments.policy),
        shares_(!policy_.sums && shares_between_nodes(source_, target_, nodes_)),
        sends_(sends),
        rank_(arguments.rank) {
    find_turns(arguments.map.groups());
    std::vector<Index> ranks(nodes_.size());  // of each node
    for (const int node : nodes_) ++ranks[static_cast<std::size_t>(node)];
    const Index max_ranks = *std::max_element(ranks.begin(), ranks.end());
    const Index receivers = shares_ || policy_.sums ? target_.replicas() : std::min(max_ranks, target_.replicas());
    pieces_ = ceil_div(receivers, product(source_turns_));
    if (policy_.sums)
      pieces_ = std::max(pieces_, ceil_div(std::min(max_ranks, source_.replicas()), product(target_turns_)));
  }

  /// The number of pieces of a pair of cells that share so many elements.
  Index pieces(Index count) const {
    constexpr Index min_elements = 1024;
    return std::clamp<Index>(count / min_elements, 1, pieces_);
  }

  /// Adds the ranks that a piece is sent to, or received from.
  void find_peers(const Cell& source, const Cell& target, ReplicaPeer piece, std::vector<ReplicaPeer>& peers) {
    const bool other_source = find_holders(source_, source, sources_);
    if (find_holders(target_, target, targets_) || other_source) find_owners();
    turn_ = (turn(source_, source, source_turns_) + turn(target_, target, target_turns_)) * piece.pieces + piece.piece;
    const auto move = [&](Index from, Index to, Index summand = 0) {
      if ((sends_ ? from : to) != rank_) return;
      piece.rank = sends_ ? to : from;
      piece.summand = summand;
      peers.push_back(piece);
    };
    switch (policy_.kind) {
      case ReplicaPolicy::to_nodes:
        return enter_nodes(move);
      case ReplicaPolicy::between_nodes:
        return cross_nodes(move);
      case ReplicaPolicy::within_nodes:
        return spread_on_nodes(move);
      case ReplicaPolicy::sums_of_nodes:
        return sum_on_nodes(move);
      default:
        return sum_nodes(move);
    }
  }

 private:
  /// Sets the turns. A source axis of 8 parts whose elements go to a target axis of 3: each target cell overlaps about
  /// 3 source cells, which take turns 0, 1 and 2; all target cells have turn 0.
  void find_turns(const std::vector<AxisGroup>& groups) {
    source_turns_.fill(1);
    target_turns_.fill(1);
    if (source_.boxed() || target_.boxed()) return;
    const auto parts = [](const Distribution& distribution, int axis) { return distribution.axes()[at(axis)].parts; };
    for (const AxisGroup& group : groups) {
      for (const int axis : group.axes[0]) source_turns_[at(axis)] = parts(source_, axis);
      for (const int axis : group.axes[1]) target_turns_[at(axis)] = parts(target_, axis);
      if (!group.plain()) continue;
      const Index source_parts = parts(source_, group.source_axis), target_parts = parts(target_, group.target_axis);
      source_turns_[at(group.source_axis)] = ceil_div(source_parts, target_parts);
      target_turns_[at(group.target_axis)] = ceil_div(target_parts, source_parts);
    }
  }

  static Index product(const AxisArray& turns) {
    return std::accumulate(turns.begin(), turns.end(), Index{1}, std::multiplies<Index>());
  }

  static std::size_t at(int axis) { return static_cast<std::size_t>(axis); }
  int node_of(Index rank) const { return nodes_[static_cast<std::size_t>(rank)]; }

  /// \return whether the cell is another one than that of `holders`.
  bool find_holders(const Distribution& distribution, const Cell& cell, Holders& holders) const {
    if (!holders.all.ranks.empty() && holders.cell == cell.coordinates) return false;
    holders = {cell.coordinates, {}, {}};
    for (Index replica = 0; replica < distribution.replicas(); ++replica) {
      const Index rank = distribution.rank_of(cell.coordinates, replica);
      holders.all.ranks.push_back(rank);
      auto found = first_node(holders.nodes, node_of(rank));
      if (found == holders.nodes.end() || found->node != node_of(rank))
        found = holders.nodes.insert(found, {node_of(rank), {}});
      found->ranks.push_back(rank);
    }
    return true;
  }

  /// Owners of sums are on nodes with a part of the sum, if the target is.
  void find_owners() {
    owners_.ranks.clear();
    for (const Index rank : targets_.all.ranks)
      if (policy_.sums && sources_.on(node_of(rank))) owners_.ranks.push_back(rank);
    if (owners_.ranks.empty()) owners_ = targets_.all;
  }

  static Index turn(const Distribution& distribution, const Cell& cell, const AxisArray& turns) {
    if (distribution.boxed()) return cell.number;
    Index turn = 0;
    for (std::size_t axis = 0; axis < turns.size(); ++axis)
      turn = turn * turns[axis] + cell.coordinates[axis] % turns[axis];
    return turn;
  }

  Index owner() const { return owners_.at(turn_); }
  /// The forwarder of a node with replicas, the leader of one with partial results.
  Index chosen(const NodeHolders& on_node) const { return on_node.has(owner()) ? owner() : on_node.at(turn_); }

  /// Replicas to the nodes: to all ranks of those that hold the source cell, and to one rank of each other node, or to
  /// the owner only.
  template <class Move>
  void enter_nodes(const Move& move) const {
    for (const NodeHolders& on_node : targets_.nodes) {
      if (const NodeHolders* const near = sources_.on(on_node.node))
        for (const Index rank : on_node.ranks) move(near->has(rank) ? rank : near->at(rank), rank);
      else if (const Index rank = chosen(on_node); !shares_ || rank == owner())
        move(sources_.all.at(rank), rank);
    }
  }

  bool forwards_on(int node) const { return policy_.sums || !sources_.on(node); }

  /// From the owner to one rank of each other node that wants it.
  template <class Move>
  void cross_nodes(const Move& move) const {
    if (!policy_.sums && !shares_) return;
    for (const NodeHolders& on_node : targets_.nodes)
      if (on_node.node != node_of(owner()) && forwards_on(on_node.node)) move(owner(), chosen(on_node));
  }

  /// From the forwarder to the other ranks of its node.
  template <class Move>
  void spread_on_nodes(const Move& move) const {
    const NodeHolders* const on_node = targets_.on(node_of(rank_));
    if (!on_node || !forwards_on(on_node->node)) return;
    const Index from = chosen(*on_node);
    for (const Index rank : on_node->ranks)
      if (rank != from) move(from, rank);
  }

  /// Partial results of each node to their leader, which comes first; then the ranks that follow it.
  template <class Move>
  void sum_on_nodes(const Move& move) const {
    if (policy_.in_order) return sum_level(move, false);
    const NodeHolders* const on_node = sources_.on(node_of(rank_));
    if (!on_node) return;
    const std::vector<Index>& ranks = on_node->ranks;
    const Index to = chosen(*on_node), count = static_cast<Index>(ranks.size());
    const Index first = std::find(ranks.begin(), ranks.end(), to) - ranks.begin();
    for (Index summand = 0; summand < count; ++summand) move(on_node->at(first + summand), to, summand);
  }

  /// Partial results of all nodes to the owner; its own node comes first, then the nodes that follow it.
  template <class Move>
  void sum_nodes(const Move& move) const {
    if (policy_.in_order) return sum_level(move, true);
    const auto next = first_node(sources_.nodes, node_of(owner()));
    const Index first = next - sources_.nodes.begin(), count = static_cast<Index>(sources_.nodes.size());
    for (Index summand = 0; summand < count; ++summand)
      move(chosen(sources_.nodes[static_cast<std::size_t>((first + summand) % count)]), owner(), summand);
  }

  /// One level of the tree of replicas: pairs of neighbouring groups of 1, 2, 4, ... replicas, of which one has the
  /// sum, become one group. Each level halves the distance of the sum from the owner, if it is one of them.
  template <class Move>
  void sum_level(const Move& move, bool last) const {
    const Index size = Index{1} << policy_.level, count = source_.replicas();
    for (Index first = 0; first < count; first += 2 * size) {
      const Index to = last ? owner() : rank_with_sum(first, 2 * size);
      move(rank_with_sum(first, size), to, 0);
      if (first + size < count) move(rank_with_sum(first + size, size), to, 1);
    }
  }

  /// The rank that has the sum of a group of replicas: the owner if it is one of them.
  Index rank_with_sum(Index first, Index size) const {
    const std::vector<Index>& ranks = sources_.all.ranks;
    const auto found = std::find(ranks.begin(), ranks.end(), owner());
    const Index wanted = found != ranks.end() ? found - ranks.begin() : turn_ % source_.replicas();
    while (size > 1) {
      size /= 2;
      if ((wanted & size) != 0 && first + size < source_.replicas()) first += size;
    }
    return sources_.all.at(first);
  }

  const Distribution &source_, &target_;
  const std::vector<int>& nodes_;  // [ranks]
  const ReplicaPolicy policy_;
  const bool shares_, sends_;
  const Index rank_;
  AxisArray source_turns_{}, target_turns_{};  // by axis: neighbouring cells that take turns
  Index pieces_ = 1;
  // Of the pair at hand:
  Holders sources_, targets_;
  NodeHolders owners_;  // that take turns
  Index turn_ = 0;
};

}  // namespace dace_redist
