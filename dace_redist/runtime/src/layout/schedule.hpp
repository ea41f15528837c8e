// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Turns two distributions into the messages of one rank. Needs no MPI.
/// Start reading at: make_schedule.

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "dace_redist_types.h"
#include "layout/block_list.hpp"
#include "layout/distribution.hpp"
#include "layout/index_map.hpp"
#include "layout/message_blocks.hpp"

namespace dace_redist {

/// The replicas of a source cell that send to each replica of a target cell.
struct ReplicaPolicy {
  enum Kind {
    any,        ///< one of them: the receiver itself if it holds the cell
    all,        ///< each of them; the receiver reduces their messages in the order of Message::summand
    allgather,  ///< source and target are one distribution: each replica sends its slice to the other replicas
    // Steps of exchanges between nodes, see NodeRoutes:
    sums_of_nodes,  ///< partial results to the leader of their node, into an array in C order like the source
    sum_nodes,      ///< these sums to the owner
    to_nodes,       ///< one of the replicas to each node that wants it
    between_nodes,  ///< from the owner's part of the target to those of one rank of each other node
    within_nodes,   ///< from that rank's part to those of the others on its node
  };
  Kind kind = any;
  bool scatter_target = false;  ///< of `all`: each replica of the target receives only its 1/n slice
  bool sums = false;            ///< of steps between nodes: what moves are sums of partial results
  /// Of `all`, `sums_of_nodes` and `sum_nodes`: partial results are reduced by their replicas in a binary tree. Of the
  /// latter two, the level of the tree, from 0 on, in the place of the step between nodes.
  bool in_order = false;
  Index level = 0;

  bool knows_nodes() const { return kind >= sums_of_nodes; }
  bool reduces() const { return kind == all || kind == sums_of_nodes || kind == sum_nodes; }
  /// Whether elements move from the target's part to the target's part.
  bool forwards() const { return kind == between_nodes || kind == within_nodes; }
  /// Whether sender and receiver hold one cell, of the target or of the source.
  bool has_one_cell() const { return forwards() || kind == sums_of_nodes; }
};

/// The steps that reduce partial results in each node, and then those of the nodes; in order, the levels of the tree.
std::vector<ReplicaPolicy> steps_of_sums(Index replicas, bool in_order);

/// True if the nodes that hold the source are so few that, of its replicas in the target, each node is to receive a
/// share only, and then to send it to the other nodes. \param nodes  [ranks] node of each.
bool shares_between_nodes(const Distribution& source, const Distribution& target, const std::vector<int>& nodes);

/// True if each replica of the target is to receive its slice of the partial results only, and then to send the reduced
/// slice to the others in a second exchange: with s replicas of the source, which hold the partial results, and t of
/// the target, an element then moves s + t - 1 times instead of s t times. False if that saves little.
///
/// \param element_bytes  of the target; 0 if they are larger than in a message: the target is not cut into slices.
bool scatters_target(const Distribution& source, const Distribution& target, Index element_bytes);

/// Layouts of local arrays, by rank; arrays of other ranks are in C order.
using Layouts = std::map<Index, LocalLayout>;

/// All elements that one rank sends to, or receives from, another. Both ranks hold the blocks, and the elements in each
/// block, in one order: a packed message is the blocks one after another, each in row-major order of its counts.
struct Message {
  Index peer = 0;
  Index count = 0;    // elements
  BlockList blocks;   // not merged: their counts are equal on both sides; of tensor 0
  Index summand = 0;  // order in which the receiver reduces, see ReplicaPolicy
};

/// The messages of one rank, by ascending peer, and its self copy.
struct RankSchedule {
  std::vector<Message> sends, receives;
  Message self;
};

/// C-order strides of a shape, in elements.
inline std::vector<Index> c_strides(const std::vector<Index>& shape) {
  std::vector<Index> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<Index>(shape[i], 1);
  return strides;
}

/// The elements that move, and the rank whose messages are wanted.
struct ScheduleArguments {
  const Distribution &source, &target;
  const IndexMap& map;
  Index rank;
  ReplicaPolicy policy{};
  bool with_blocks = true;           ///< false: only peers and counts
  const Layouts* sources = nullptr;  ///< layouts of local arrays of this rank and of its peers; null: C order
  const Layouts* targets = nullptr;
  const std::vector<int>* nodes = nullptr;  ///< [ranks] node of each, a rank on it; of policies that know nodes
};

/// The messages of one rank. Cost: the sum over dimensions of the blocks met there, plus the messages of this rank;
/// independent of the number of ranks and, but for tiles, of elements.
DR_API RankSchedule make_schedule(const ScheduleArguments& arguments);

/// The messages that one rank receives, its self copy among them.
DR_API std::vector<Message> received_messages(const ScheduleArguments& arguments);

}  // namespace dace_redist
