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
    const Distribution& target = arguments_.target;
    AxisArray images{};  // of the target along its axes: next to it, too, where margins mirror across its ends
    for (int axis = 0; axis < target.ndim(); ++axis) images[at(axis)] = target.wraps(axis) ? 3 : 1;
    for_each_coordinates(images, target.ndim(), [&](const AxisArray& image) {
      for (std::size_t axis = 0; axis < target.axes().size(); ++axis)
        to_image_[axis] = (image[axis] - images[axis] / 2) * target.axes()[axis].extent;
      for (const Cell& cell : cells)
        for (const Index slice : slices) add_cell(cell, slice);
    });
    return join();
  }

 private:
  /// A cell of this rank, and the overlaps of one of its slices.
  struct OwnCell {
    const Cell& cell;
    Index slice;
    CellLayout layout{};
    std::vector<std::vector<Overlap>> overlaps{};  // [ndim] by source axis, with each coordinate of the other

    const Overlap& overlap(int axis, const AxisArray& choice) const {
      return overlaps[at(axis)][static_cast<std::size_t>(choice[at(axis)])];
    }
  };

  static std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

  int own_axis(int source_axis) const { return sends_ ? source_axis : arguments_.map.target_axis(source_axis); }
  int other_axis(int source_axis) const { return sends_ ? arguments_.map.target_axis(source_axis) : source_axis; }

  static const LocalLayout* find(const Layouts* layouts, Index rank) {
    if (!layouts) return nullptr;
    const auto entry = layouts->find(rank);
    return entry == layouts->end() ? nullptr : &entry->second;
  }

  /// The indices of a source axis that move, and their shift to the present image of the target.
  IndexMap::Window moved(int axis) const {
    const auto [lo, hi, shift] = arguments_.map.window(axis);
    return {lo, hi, shift + to_image_[at(arguments_.map.target_axis(axis))]};
  }

  /// The indices that a cell of this rank sends, or receives, along one of its axes.
  Intervals own_indices(const Cell& cell, int axis) const {
    return sends_ ? own_.intervals(cell, axis) : own_.with_margins(cell, axis);
  }

  /// Width of the margins that elements of this rank may go to.
  Index margin(int source_axis) const {
    return sends_ ? arguments_.target.halo(arguments_.map.target_axis(source_axis)) : 0;
  }

  /// Adds the pairs of a cell with all cells of the other distribution.
  void add_cell(const Cell& cell, Index slice) {
    const int ndim = arguments_.map.ndim();
    OwnCell own{cell, slice};
    AxisArray overlap_counts{};
    own.layout = cell_layout(own_, cell, find(own_layouts_, arguments_.rank), sends_);
    if (other_.boxed()) return add_boxes(own);
    own.overlaps.reserve(at(ndim));
    for (int axis = 0; axis < ndim; ++axis) {
      own.overlaps.push_back(find_overlaps(own_indices(cell, own_axis(axis)), axis, slice));
      overlap_counts[at(axis)] = static_cast<Index>(own.overlaps.back().size());
    }
    OwnCell parts{cell, slice, own.layout, std::vector<std::vector<Overlap>>(at(ndim), std::vector<Overlap>(1))};
    for_each_coordinates(overlap_counts, ndim, [&](const AxisArray& choice) {
      Cell other;
      for (int axis = 0; axis < ndim; ++axis)
        other.coordinates[at(other_axis(axis))] = own.overlap(axis, choice).coordinate;
      other.number = other_.cell_number(other.coordinates);
      if (arguments_.source.boxed()) return void(add_parts(parts, other));
      find_peers(own, other);
      for (const ReplicaPeer& peer : peers_) add_pair(own, choice, other, peer);
    });
  }

  void find_peers(const OwnCell& own, const Cell& other) {
    routes_.find_peers(sends_ ? own.cell : other, sends_ ? other : own.cell, own.slice, peers_);
  }

  /// Adds the pairs of a cell with the boxes of the other distribution.
  /// \throws Error if the cell needs an element that no box of the source holds.
  void add_boxes(OwnCell& own) {
    const IndexMap& map = arguments_.map;
    IndexBox moving, others;  // indices of the cell that move: of the source, and of the other distribution
    std::array<Intervals, max_dims> needed{};
    Index missing = 1;
    for (int axis = 0; axis < map.ndim(); ++axis) {
      const auto [lo, hi, shift] = moved(axis);
      const std::size_t there = at(other_axis(axis));
      const Intervals held = needed[at(axis)] = own_indices(own.cell, own_axis(axis)).shifted(sends_ ? 0 : -shift);
      moving.lo[at(axis)] = std::max(lo, held.start);
      moving.hi[at(axis)] = std::min(hi, held.end);
      others.lo[there] = moving.lo[at(axis)] + (sends_ ? shift : 0) - margin(axis);
      others.hi[there] = moving.hi[at(axis)] + (sends_ ? shift : 0) + margin(axis);
      missing *= std::max<Index>(0, held.count_below(hi) - held.count_below(lo));
    }
    own.overlaps.assign(at(map.ndim()), std::vector<Overlap>(1));
    for (const Index box : other_.boxes().overlapping(others)) missing -= add_parts(own, {{box}, box});
    AxisArray hole{};
    if (sends_ || missing <= 0 || !other_.boxes().find_hole(moving, needed, hole)) return;
    throw Error(text(other_.name(), ": no box holds element ",
                     tuple_text(std::vector<Index>(hole.begin(), hole.begin() + map.ndim())), ", which rank ",
                     arguments_.rank, " of the target needs: add a box, or move a region that boxes cover"));
  }

  /// Adds the pairs with another cell where source or target are in boxes. Each peer has its own parts.
  /// \param own  gets the overlaps of each part.
  /// \return the number of elements that the last peer sends or receives.
  Index add_parts(OwnCell& own, const Cell& other) {
    const IndexMap& map = arguments_.map;
    const Cell &source = sends_ ? own.cell : other, &target = sends_ ? other : own.cell;
    std::array<Intervals, max_dims> sources, targets;  // by source axis, of source indices
    IndexBox wanted;
    for (int axis = 0; axis < map.ndim(); ++axis) {
      const Intervals there = arguments_.target.with_margins(target, map.target_axis(axis));
      const IndexMap::Window window = routes_.window(moved(axis), there, map.target_axis(axis), own.slice);
      sources[at(axis)] = arguments_.source.intervals(source, axis);
      targets[at(axis)] = there.shifted(-window.shift);
      wanted.lo[at(axis)] = std::max(window.lo, targets[at(axis)].start);
      wanted.hi[at(axis)] = std::min(window.hi, targets[at(axis)].end);
    }
    Index sum = 0;
    find_peers(own, other);
    for (const ReplicaPeer& peer : peers_) {
      sum = 0;
      std::vector<IndexBox> parts{wanted};
      if (arguments_.source.boxed())
        parts = arguments_.source.boxes().parts_sent(source.number, wanted, sends_ ? peer.rank : arguments_.rank);
      for (const IndexBox& part : parts) {
        Index count = 1;
        for (int axis = 0; axis < map.ndim(); ++axis) {
          Overlap& overlap = own.overlaps[at(axis)][0];
          overlap.pieces.clear();
          append_overlap(sources[at(axis)], targets[at(axis)], part.lo[at(axis)], part.hi[at(axis)], overlap.pieces);
          count *= overlap.set_count();
        }
        if (count > 0) add_pair(own, {}, other, peer);
        sum += count;
      }
    }
    return sum;
  }

  /// The overlaps of `own` indices with each coordinate of the other distribution along a source axis.
  std::vector<Overlap> find_overlaps(const Intervals& own, int axis, Index slice) const {
    const int target_axis = arguments_.map.target_axis(axis);
    const IndexMap::Window whole = moved(axis);  // of source indices, as `window`
    IndexMap::Window window = sends_ ? whole : routes_.window(whole, own, target_axis, slice);
    const Index from_own = sends_ ? whole.shift : -whole.shift, from_source = sends_ ? whole.shift : 0;
    const AxisSplit& split = other_.axes()[at(other_axis(axis))];
    const Index lo = std::max<Index>(0, window.lo + from_source - margin(axis)),
                hi = std::min(split.extent, window.hi + from_source + margin(axis));
    const std::vector<Index> coordinates =
        overlapping_coordinates(own.shifted(from_own).widened(margin(axis)), split, lo, hi);
    std::vector<Overlap> overlaps;
    overlaps.reserve(coordinates.size());
    for (const Index coordinate : coordinates) {
      const Intervals other = split.intervals(coordinate).widened(margin(axis));
      if (sends_) window = routes_.window(whole, other, target_axis, slice);
      Overlap overlap{coordinate};
      append_overlap(sends_ ? own : other, (sends_ ? other : own).shifted(-whole.shift), window.lo, window.hi,
                     overlap.pieces);
      if (overlap.set_count() > 0) overlaps.push_back(std::move(overlap));  // else of another slice
    }
    return overlaps;
  }

  /// Adds the pair with another cell for one peer.
  /// \param choice  number of the overlap per source axis.
  void add_pair(const OwnCell& own, const AxisArray& choice, const Cell& other, const ReplicaPeer& peer) {
    if (peer.rank == arguments_.rank && !with_self_) return;
    SharedBox box{};
    CellPair& pair = pairs_.emplace_back();
    pair.message.count = 1;
    for (int axis = 0; axis < arguments_.map.ndim(); ++axis) {
      box[at(axis)] = &own.overlap(axis, choice);
      pair.message.count *= box[at(axis)]->count;
    }
    pair.message.peer = peer.rank;
    pair.message.turn = peer.turn;
    pair.source_cell = sends_ ? own.cell.number : other.number;
    pair.target_cell = sends_ ? other.number : own.cell.number;
    if (!arguments_.with_blocks) return;
    const CellLayout layout = cell_layout(other_, other, find(other_layouts_, peer.rank), !sends_);
    append_blocks(box, arguments_.map, sends_ ? own.layout : layout, sends_ ? layout : own.layout, pair.message.blocks);
  }

  /// Joins the pairs of each peer to one message, in an order that is equal on both sides.
  std::vector<Message> join() {
    const auto before = [](const CellPair& a, const CellPair& b) {
      return std::tie(a.message.peer, a.source_cell, a.target_cell) <
             std::tie(b.message.peer, b.source_cell, b.target_cell);
    };
    if (!std::is_sorted(pairs_.begin(), pairs_.end(), before))
      std::stable_sort(pairs_.begin(), pairs_.end(), before);  // parts of a pair stay in order
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
  AxisArray to_image_{};  // [ndim] by target axis: shift of the image of the target whose pairs are added
  const ReplicaRoutes routes_;
  std::vector<CellPair> pairs_;
  std::vector<ReplicaPeer> peers_;  // of the pair that is added
};

}  // namespace

bool scatters_target(const Distribution& source, const Distribution& target, Index element_bytes) {
  constexpr Index min_saved_bytes = 32 << 10;  // fewer bytes received by a rank, against one exchange more
  if (target.has_margins()) return false;      // replicas would not send each other their margins
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
