// SPDX-License-Identifier: BSD-3-Clause
#include "layout/schedule.hpp"

#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

namespace dace_redist {

namespace {

/// In place of the number of a slice: all of a target cell.
constexpr Index whole_cell = -1;

/// A rank that this rank exchanges a pair of cells with.
struct ReplicaPeer {
  Index rank = 0;
  Index turn = 0;  // order in which the receiver reduces; equal on both sides
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
    const Index turn = (replica_ - first_sender(target, slice) + source_.replicas()) % source_.replicas();
    for (Index replica = 0; replica < target_.replicas(); ++replica) {
      if (policy_.scatter_target && replica != slice) continue;
      const Index receiver = target_.rank_of(target.coordinates, replica);
      if (policy_.kind == ReplicaPolicy::any) {
        if (source_.sender(source.coordinates, receiver) == rank_) peers.push_back({receiver, 0});
      } else if (gathers_) {
        if (replica != replica_) peers.push_back({receiver, 0});
      } else {
        peers.push_back({receiver, turn});
      }
    }
  }

  void find_senders(const Cell& source, const Cell& target, Index slice, std::vector<ReplicaPeer>& peers) const {
    if (policy_.kind == ReplicaPolicy::any) return peers.push_back({source_.sender(source.coordinates, rank_), 0});
    if (gathers_) return peers.push_back({source_.rank_of(source.coordinates, slice), 0});
    const Index first = first_sender(target, slice);
    for (Index turn = 0; turn < source_.replicas(); ++turn)
      peers.push_back({source_.rank_of(source.coordinates, (first + turn) % source_.replicas()), turn});
  }

  /// The replica of the source whose turn is 0. Turns are equal for all replicas of a target cell, so that all of them
  /// reduce in one order, and for all cells of a message. Cells and slices begin with different replicas of the source,
  /// so that all replicas send at a time.
  Index first_sender(const Cell& target, Index slice) const {
    if (source_.replicas() == 1) return 0;
    Index position = target_.tiled() ? target_.rank_of(target.coordinates, 0) : 0;
    for (std::size_t axis = 0; axis < target_.axes().size() && !target_.tiled(); ++axis)
      position = position * target_.axes()[axis].parts + target.coordinates[axis];
    return (position + std::max<Index>(slice, 0)) % source_.replicas();
  }

  const Distribution &source_, &target_;
  const ReplicaPolicy policy_;
  const bool gathers_, sends_;
  const Index rank_, replica_;  // this rank, and its number among the replicas of its cells
  int slice_axis_ = -1;         // of the target; -1: cells are not cut into slices
};

/// A part of a message: the elements that one source cell and one target cell share.
struct CellPair {
  Message message;
  Index source_cell = 0, target_cell = 0;
};

/// Collects what a rank sends, or what it receives: for each of its cells ("own"), the pairs with all overlapping cells
/// of the other distribution, and for each pair the peers that the replica policy names.
class Collector {
 public:
  /// \param with_self  the self copy is among the messages.
  Collector(const ScheduleArguments& arguments, bool sends, bool with_self)
      : arguments_(arguments),
        sends_(sends),
        with_self_(with_self),
        own_(sends ? arguments.source : arguments.target),
        other_(sends ? arguments.target : arguments.source),
        own_layouts_(sends ? arguments.sources : arguments.targets),
        other_layouts_(sends ? arguments.targets : arguments.sources),
        routes_(arguments, sends) {}

  std::vector<Message> messages() {
    const std::vector<Cell> cells = own_.cells(arguments_.rank);
    if (cells.empty()) return {};
    const std::vector<Index> slices = routes_.slices();
    for (const Cell& cell : cells)
      for (const Index slice : slices) add_cell(cell, slice);
    return join();
  }

 private:
  /// A cell of this rank, and the overlaps of one of its slices.
  struct OwnCell {
    const Cell& cell;
    Index slice;
    CellLayout layout{};
    std::vector<std::vector<Overlap>> overlaps{};  // [groups] with each coordinate of the other
  };

  static std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

  int own_axis(const AxisGroup& group) const { return sends_ ? group.source_axis : group.target_axis; }
  int other_axis(const AxisGroup& group) const { return sends_ ? group.target_axis : group.source_axis; }
  std::size_t own_side() const { return sends_ ? 0 : 1; }

  static const LocalLayout* find(const Layouts* layouts, Index rank) {
    if (!layouts) return nullptr;
    const auto entry = layouts->find(rank);
    return entry == layouts->end() ? nullptr : &entry->second;
  }

  /// Adds the pairs of a cell with all cells of the other distribution.
  void add_cell(const Cell& cell, Index slice) {
    const std::vector<AxisGroup>& groups = arguments_.map.groups();
    OwnCell own{cell, slice};
    AxisArray extents{}, overlap_counts{};
    own.overlaps.reserve(groups.size());
    for (const AxisGroup& group : groups) {
      if (group.plain()) {
        const Intervals indices = own_.intervals(cell, own_axis(group));
        extents[at(own_axis(group))] = indices.size();
        own.overlaps.push_back(find_overlaps(indices, group, slice));
      } else {
        for (const int axis : group.axes[own_side()]) extents[at(axis)] = own_.intervals(cell, axis).size();
        own.overlaps.push_back(find_group_overlaps(cell, group, slice));
      }
      overlap_counts[own.overlaps.size() - 1] = static_cast<Index>(own.overlaps.back().size());
    }
    own.layout = cell_layout(own_, cell, extents, find(own_layouts_, arguments_.rank));
    std::vector<ReplicaPeer> peers;
    for_each_coordinates(overlap_counts, static_cast<int>(groups.size()),
                         [&](const AxisArray& choice) { add_pair(own, choice, peers); });
  }

  /// The overlaps of `own` indices along a group of one axis each with each coordinate of the other distribution.
  std::vector<Overlap> find_overlaps(const Intervals& own, const AxisGroup& group, Index slice) const {
    const int target_axis = group.target_axis;
    const IndexMap::Window moved = arguments_.map.window(group.source_axis);  // of source indices, as `window`
    IndexMap::Window window = sends_ ? moved : routes_.window(moved, own, target_axis, slice);
    const Index from_own = sends_ ? moved.shift : -moved.shift, from_source = sends_ ? moved.shift : 0;
    const AxisSplit& split = other_.axes()[at(other_axis(group))];
    const std::vector<Index> coordinates =
        overlapping_coordinates(own.shifted(from_own), split, window.lo + from_source, window.hi + from_source);
    std::vector<Overlap> overlaps;
    overlaps.reserve(coordinates.size());
    for (const Index coordinate : coordinates) {
      const Intervals other = split.intervals(coordinate);
      if (sends_) window = routes_.window(moved, other, target_axis, slice);
      Overlap overlap{coordinate, other.size()};
      append_overlap(sends_ ? own : other, (sends_ ? other : own).shifted(-moved.shift), window.lo, window.hi,
                     overlap.pieces);
      for (const Piece& piece : overlap.pieces) overlap.count += piece.count();
      if (overlap.count > 0) overlaps.push_back(std::move(overlap));  // else of another slice
    }
    return overlaps;
  }

  /// One side of a group, with the indices that a cell owns.
  /// \param coordinates  [axes] of the cell; null: unknown.
  GroupSide side_of(const AxisGroup& group, std::size_t side, const Index* coordinates, Index slice) const {
    const Distribution& distribution = side == 0 ? arguments_.source : arguments_.target;
    GroupSide axes;
    for (const int axis : group.axes[side]) {
      GroupAxis& one = axes.emplace_back(GroupAxis{axis, distribution.axes()[at(axis)]});
      one.hi = one.split.extent;
      if (!coordinates) continue;
      one.owned = one.split.intervals(coordinates[axes.size() - 1]);
      IndexMap::Window window{0, one.hi, 0};
      if (side == 1) window = routes_.window(window, one.owned, axis, slice);
      one.lo = std::max(window.lo, one.owned.start);
      one.hi = std::min(window.hi, one.owned.end);
    }
    return with_strides(std::move(axes));
  }

  /// The overlaps of a cell along a group of several axes with each cell of the other distribution.
  std::vector<Overlap> find_group_overlaps(const Cell& cell, const AxisGroup& group, Index slice) const {
    std::vector<Index> own_coordinates;
    for (const int axis : group.axes[own_side()]) own_coordinates.push_back(cell.coordinates[at(axis)]);
    const GroupSide own = side_of(group, own_side(), own_coordinates.data(), slice);
    const GroupSide unknown = side_of(group, 1 - own_side(), nullptr, slice);
    std::vector<Overlap> overlaps;
    for (std::vector<Index>& coordinates : overlapping_cells(own, unknown)) {
      const GroupSide other = side_of(group, 1 - own_side(), coordinates.data(), slice);
      Overlap overlap;
      overlap.count = append_group_overlap(sends_ ? own : other, sends_ ? other : own, overlap.pieces, overlap.loops);
      overlap.coordinates = std::move(coordinates);
      if (overlap.count > 0) overlaps.push_back(std::move(overlap));
    }
    return overlaps;
  }

  /// Adds the pair with the cell at one coordinate per axis, once for each peer.
  /// \param choice  number of the overlap per group.
  /// \param peers   scratch memory.
  void add_pair(const OwnCell& own, const AxisArray& choice, std::vector<ReplicaPeer>& peers) {
    Cell other;
    AxisArray extents{};
    SharedBox box{};
    Index count = 1;
    for (std::size_t number = 0; number < own.overlaps.size(); ++number) {
      const AxisGroup& group = arguments_.map.groups()[number];
      const Overlap& overlap = own.overlaps[number][static_cast<std::size_t>(choice[number])];
      if (group.plain()) {
        other.coordinates[at(other_axis(group))] = overlap.coordinate;
        extents[at(other_axis(group))] = overlap.extent;
      }
      const std::vector<int>& axes = group.axes[1 - own_side()];
      for (std::size_t i = 0; i < axes.size(); ++i) {
        other.coordinates[at(axes[i])] = overlap.coordinates[i];
        extents[at(axes[i])] = other_.axes()[at(axes[i])].intervals(overlap.coordinates[i]).size();
      }
      box[number] = &overlap;
      count *= overlap.count;
    }
    other.number = other_.cell_number(other.coordinates);
    routes_.find_peers(sends_ ? own.cell : other, sends_ ? other : own.cell, own.slice, peers);
    for (const ReplicaPeer& peer : peers) {
      if (peer.rank == arguments_.rank && !with_self_) continue;
      CellPair& pair = pairs_.emplace_back();
      pair.message.peer = peer.rank;
      pair.message.count = count;
      pair.message.turn = peer.turn;
      pair.source_cell = sends_ ? own.cell.number : other.number;
      pair.target_cell = sends_ ? other.number : own.cell.number;
      if (!arguments_.with_blocks) continue;
      const CellLayout layout = cell_layout(other_, other, extents, find(other_layouts_, peer.rank));
      append_blocks(box, arguments_.map, sends_ ? own.layout : layout, sends_ ? layout : own.layout,
                    pair.message.blocks);
    }
  }

  /// Joins the pairs of each peer to one message, in an order that is equal on both sides.
  std::vector<Message> join() {
    const auto before = [](const CellPair& a, const CellPair& b) {
      return std::tie(a.message.peer, a.source_cell, a.target_cell) <
             std::tie(b.message.peer, b.source_cell, b.target_cell);
    };
    if (!std::is_sorted(pairs_.begin(), pairs_.end(), before)) std::sort(pairs_.begin(), pairs_.end(), before);
    std::vector<Message> messages;
    for (CellPair& pair : pairs_) {
      if (messages.empty() || messages.back().peer != pair.message.peer) {
        messages.push_back(std::move(pair.message));
        continue;
      }
      Message& message = messages.back();
      message.count += pair.message.count;
      message.blocks.insert(message.blocks.end(), pair.message.blocks.begin(), pair.message.blocks.end());
    }
    return messages;
  }

  const ScheduleArguments& arguments_;
  const bool sends_, with_self_;
  const Distribution &own_, &other_;
  const Layouts *own_layouts_, *other_layouts_;
  const ReplicaRoutes routes_;
  std::vector<CellPair> pairs_;
};

}  // namespace

bool scatters_target(const Distribution& source, const Distribution& target, Index element_bytes) {
  constexpr Index min_saved_bytes = 32 << 10;  // fewer bytes received by a rank, against one exchange more
  const std::vector<Index> shape = target.local_shape(target.first_rank());
  const Index bytes = std::accumulate(shape.begin(), shape.end(), element_bytes, std::multiplies<Index>());
  return bytes / target.replicas() * (target.replicas() - 1) * (source.replicas() - 1) >= min_saved_bytes;
}

RankSchedule make_schedule(const ScheduleArguments& arguments) {
  RankSchedule schedule{Collector(arguments, true, true).messages(), Collector(arguments, false, false).messages(), {}};
  schedule.self.peer = arguments.rank;
  const auto self = std::find_if(schedule.sends.begin(), schedule.sends.end(),
                                 [&](const Message& message) { return message.peer == arguments.rank; });
  if (self != schedule.sends.end()) {
    schedule.self = std::move(*self);
    schedule.sends.erase(self);
  }
  return schedule;
}

std::vector<Message> received_messages(const ScheduleArguments& arguments) {
  return Collector(arguments, false, true).messages();
}

}  // namespace dace_redist
