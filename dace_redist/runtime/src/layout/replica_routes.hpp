// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The ranks that send a pair of cells and those that receive it, where cells have replicas.
/// Start reading at: ReplicaRoutes.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "layout/schedule.hpp"

namespace dace_redist {

/// In place of the number of a slice: all of a target cell.
inline constexpr Index whole_cell = -1;

/// A rank that this rank exchanges a pair of cells with.
struct ReplicaPeer {
  Index rank = 0;
  Index summand = 0;            // order in which the receiver reduces; equal on both sides
  Index piece = 0, pieces = 1;  // of the pair, if it is cut
};

/// A replica policy applied to a source and a target, as seen by a rank that sends or that receives. Target cells may
/// be cut into slices, one for each replica of the target.
class ReplicaRoutes {
 public:
  ReplicaRoutes(const ScheduleArguments& arguments, bool sends)
      : source_(arguments.source),
        target_(arguments.target),
        policy_(arguments.policy),
        gathers_(policy_.kind == ReplicaPolicy::allgather),
        sends_(sends),
        rank_(arguments.rank),
        replica_((sends ? source_ : target_).replica_of(rank_)) {
    if (policy_.scatter_target || gathers_) slice_axis_ = slice_axis(target_);
  }

  /// The slices of target cells that the rank sends, or receives.
  std::vector<Index> slices() const {
    if (!gathers_ && !policy_.scatter_target) return {whole_cell};
    if (gathers_ == sends_) return {replica_};  // its own slice, sent to all others or received from all senders
    std::vector<Index> slices;
    for (Index replica = 0; replica < target_.replicas(); ++replica)
      if (!gathers_ || replica != replica_) slices.push_back(replica);
    return slices;
  }

  /// The window of a source axis that holds a slice, by the indices that the target cell owns along `target_axis`.
  IndexMap::Window window(const IndexMap::Window& moved, const Intervals& target_cell, int target_axis,
                          Index slice) const {
    if (target_axis != slice_axis_) return moved;
    const Index lo = std::max(target_cell.start - moved.shift, moved.lo);
    const Index count = std::max<Index>(0, std::min(target_cell.end - moved.shift, moved.hi) - lo);
    const AxisSplit split{count, target_.replicas(), 1, true};
    return {lo + split.block_begin(slice), lo + split.block_begin(slice + 1), moved.shift};
  }

  /// Sets `peers` to the ranks that a slice of two cells is sent to, or received from.
  void find_peers(const Cell& source, const Cell& target, Index slice, std::vector<ReplicaPeer>& peers) const {
    peers.clear();
    sends_ ? find_receivers(source, target, slice, peers) : find_senders(source, target, slice, peers);
  }

 private:
  /// The target axis along which cells are cut into slices: the slowest one with an index for each replica.
  static int slice_axis(const Distribution& target) {
    const std::vector<Index> shape = target.local_shape(target.first_rank());
    const auto long_enough =
        std::find_if(shape.begin(), shape.end(), [&](Index extent) { return extent >= target.replicas(); });
    return static_cast<int>((long_enough == shape.end() ? std::max_element(shape.begin(), shape.end()) : long_enough) -
                            shape.begin());
  }

  void find_receivers(const Cell& source, const Cell& target, Index slice, std::vector<ReplicaPeer>& peers) const {
    const Index summand = (replica_ - first_sender(target, slice) + source_.replicas()) % source_.replicas();
    for (Index replica = 0; replica < target_.replicas(); ++replica) {
      if (policy_.scatter_target && replica != slice) continue;
      const Index receiver = target_.rank_of(target.coordinates, replica);
      if (policy_.kind == ReplicaPolicy::any) {
        if (source_.sender(source.coordinates, receiver) == rank_) peers.push_back({receiver, 0});
      } else if (gathers_) {
        if (replica != replica_) peers.push_back({receiver, 0});
      } else {
        peers.push_back({receiver, summand});
      }
    }
  }

  void find_senders(const Cell& source, const Cell& target, Index slice, std::vector<ReplicaPeer>& peers) const {
    if (policy_.kind == ReplicaPolicy::any) return peers.push_back({source_.sender(source.coordinates, rank_), 0});
    if (gathers_) return peers.push_back({source_.rank_of(source.coordinates, slice), 0});
    const Index first = first_sender(target, slice);
    for (Index summand = 0; summand < source_.replicas(); ++summand)
      peers.push_back({source_.rank_of(source.coordinates, (first + summand) % source_.replicas()), summand});
  }

  /// The replica of the source that is summand 0. Summands are equal for all replicas of a target cell, so that all of
  /// them reduce in one order, and for all cells of a message. Cells and slices begin with different replicas of the
  /// source, so that all replicas send at a time.
  Index first_sender(const Cell& target, Index slice) const {
    if (source_.replicas() == 1 || policy_.in_order) return 0;
    Index position = target_.blocked() ? 0 : target_.rank_of(target.coordinates, 0);
    for (std::size_t axis = 0; axis < target_.axes().size() && target_.blocked(); ++axis)
      position = position * target_.axes()[axis].parts + target.coordinates[axis];
    return (position + std::max<Index>(slice, 0)) % source_.replicas();
  }

  const Distribution &source_, &target_;
  const ReplicaPolicy policy_;
  const bool gathers_, sends_;
  const Index rank_, replica_;  // this rank, and its number among the replicas of its cells
  int slice_axis_ = -1;         // of the target; -1: cells are not cut into slices
};

}  // namespace dace_redist
