// SPDX-License-Identifier: BSD-3-Clause
#include "layout/replica_policy.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace dace_redist {

namespace {

/// The target axis along which cells are cut into slices: the slowest one with an index for each replica.
int slice_axis(const Distribution& target) {
  const std::vector<Index> shape = target.local_shape(target.first_rank());
  const auto long_enough =
      std::find_if(shape.begin(), shape.end(), [&](Index extent) { return extent >= target.replicas(); });
  return static_cast<int>((long_enough == shape.end() ? std::max_element(shape.begin(), shape.end()) : long_enough) -
                          shape.begin());
}

}  // namespace

std::vector<ReplicaPolicy> reduction_exchanges(const Distribution& source, const Distribution& target,
                                               Index element_bytes) {
  constexpr Index min_saved_bytes = 32 << 10;  // fewer bytes received by a rank, against one exchange more
  const std::vector<Index> shape = target.local_shape(target.first_rank());
  const Index bytes = std::accumulate(shape.begin(), shape.end(), element_bytes, std::multiplies<Index>());
  const Index saved_bytes = bytes / target.replicas() * (target.replicas() - 1) * (source.replicas() - 1);
  const bool scatter = saved_bytes >= min_saved_bytes;
  std::vector<ReplicaPolicy> exchanges;
  for (Index turn = 0; turn < source.replicas(); ++turn)
    exchanges.push_back({ReplicaPolicy::round_robin, turn, scatter});
  if (scatter) exchanges.push_back({ReplicaPolicy::allgather, 0, false});
  return exchanges;
}

ReplicaRoutes::ReplicaRoutes(const Distribution& source, const Distribution& target, const ReplicaPolicy& policy)
    : source_(source), target_(target), policy_(policy) {
  if (policy.scatter_target || policy.kind == ReplicaPolicy::allgather) slice_axis_ = slice_axis(target);
}

std::vector<Index> ReplicaRoutes::sent_slices(Index rank) const {
  if (policy_.kind == ReplicaPolicy::allgather) return {source_.replica_of(rank)};
  if (!policy_.scatter_target) return {whole_cell};
  std::vector<Index> slices;
  for (Index replica = 0; replica < target_.replicas(); ++replica) slices.push_back(replica);
  return slices;
}

std::vector<Index> ReplicaRoutes::received_slices(Index rank) const {
  if (policy_.scatter_target) return {target_.replica_of(rank)};
  if (policy_.kind != ReplicaPolicy::allgather) return {whole_cell};
  std::vector<Index> slices;
  for (Index replica = 0; replica < target_.replicas(); ++replica)
    if (replica != target_.replica_of(rank)) slices.push_back(replica);
  return slices;
}

IndexMap::Window ReplicaRoutes::window(const IndexMap::Window& moved, const Intervals& target_cell, int target_axis,
                                       Index slice) const {
  if (target_axis != slice_axis_) return moved;
  const Index lo = std::max(target_cell.start - moved.shift, moved.lo);
  const Index count = std::max<Index>(0, std::min(target_cell.end - moved.shift, moved.hi) - lo);
  const AxisSplit split{count, target_.replicas(), 1, true};
  return {lo + split.block_begin(slice), lo + split.block_begin(slice + 1), moved.shift};
}

void ReplicaRoutes::find_receivers(Index rank, const Cell& source, const Cell& target, Index slice,
                                   std::vector<ReplicaPeer>& peers) const {
  peers.clear();
  const Index own = source_.replica_of(rank), senders = source_.replicas();
  const Index turn = (own - first_sender(target, slice) + senders) % senders;
  for (Index replica = 0; replica < target_.replicas(); ++replica) {
    const Index receiver = target_.rank_of(target.coordinates, replica);
    switch (policy_.kind) {
      case ReplicaPolicy::any:
        if (source_.sender(source.coordinates, receiver) == rank) peers.push_back({receiver, 0});
        break;
      case ReplicaPolicy::allgather:
        if (replica != own) peers.push_back({receiver, 0});
        break;
      default:
        if (policy_.scatter_target && replica != slice) break;
        if (in_this_exchange(turn)) peers.push_back({receiver, turn});
    }
  }
}

void ReplicaRoutes::find_senders(Index rank, const Cell& source, const Cell& target, Index slice,
                                 std::vector<ReplicaPeer>& peers) const {
  peers.clear();
  if (policy_.kind == ReplicaPolicy::any) return peers.push_back({source_.sender(source.coordinates, rank), 0});
  if (policy_.kind == ReplicaPolicy::allgather) return peers.push_back({source_.rank_of(source.coordinates, slice), 0});
  const Index first = first_sender(target, slice);
  for (Index turn = 0; turn < source_.replicas(); ++turn)
    if (in_this_exchange(turn))
      peers.push_back({source_.rank_of(source.coordinates, (first + turn) % source_.replicas()), turn});
}

/// The replica of the source whose turn is 0. Turns are equal for all replicas of a target cell, so that all of them
/// reduce in one order, and for all cells of a message. Cells and slices begin with different replicas of the source,
/// so that all replicas send at a time.
Index ReplicaRoutes::first_sender(const Cell& target, Index slice) const {
  if (source_.replicas() == 1) return 0;
  Index position = 0;
  if (target_.tiled()) position = target_.rank_of(target.coordinates, 0);
  for (std::size_t axis = 0; axis < target_.axes().size() && !target_.tiled(); ++axis)
    position = position * target_.axes()[axis].parts + target.coordinates[axis];
  return (position + std::max<Index>(slice, 0)) % source_.replicas();
}

}  // namespace dace_redist
