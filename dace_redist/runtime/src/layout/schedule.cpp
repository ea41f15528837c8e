// SPDX-License-Identifier: BSD-3-Clause
#include "layout/schedule.hpp"

#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

#include "layout/replica_routes.hpp"

namespace dace_redist {

namespace {

/// A part of a message: the elements that one source cell and one target cell share.
struct CellPair {
  Message message;
  Index source_cell = 0, target_cell = 0;
};

/// What a cell shares, along a group of axes, with a coordinate of the other distribution on each of them.
struct Overlap {
  std::vector<Index> coordinates{};  // of the other distribution along its axes of the group
  SharedElements shared{};
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
    std::vector<std::vector<Overlap>> overlaps{};  // [groups] with each coordinate of the other

    const Overlap& overlap(std::size_t group, const AxisArray& choice) const {
      return overlaps[group][static_cast<std::size_t>(choice[group])];
    }
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

  /// The indices of a source axis that move, and their shift to the present image of the target.
  IndexMap::Window moved(const AxisGroup& group) const {
    const auto [lo, hi, shift] = arguments_.map.window(group.source_axis);
    return {lo, hi, shift + to_image_[at(group.target_axis)]};
  }

  /// The indices that a cell of this rank sends, or receives, along one of its axes.
  Intervals own_indices(const Cell& cell, int axis) const {
    return sends_ ? own_.intervals(cell, axis) : own_.with_margins(cell, axis);
  }

  /// Width of the margins that elements of this rank may go to.
  Index margin(const AxisGroup& group) const { return sends_ ? arguments_.target.halo(group.target_axis) : 0; }

  /// Adds the pairs of a cell with all cells of the other distribution.
  void add_cell(const Cell& cell, Index slice) {
    const std::vector<AxisGroup>& groups = arguments_.map.groups();
    OwnCell own{cell, slice};
    AxisArray overlap_counts{};
    own.layout = cell_layout(own_, cell, find(own_layouts_, arguments_.rank), sends_);
    if (other_.boxed()) return add_boxes(own);
    own.overlaps.reserve(groups.size());
    for (const AxisGroup& group : groups) {
      own.overlaps.push_back(group.plain() ? find_overlaps(own_indices(cell, own_axis(group)), group, slice)
                                           : find_group_overlaps(cell, group, slice));
      overlap_counts[own.overlaps.size() - 1] = static_cast<Index>(own.overlaps.back().size());
    }
    OwnCell parts{cell, slice, own.layout, std::vector<std::vector<Overlap>>(groups.size(), std::vector<Overlap>(1))};
    for_each_coordinates(overlap_counts, static_cast<int>(groups.size()), [&](const AxisArray& choice) {
      const Cell other = other_cell(own, choice);
      if (arguments_.source.boxed()) return void(add_parts(parts, other));
      find_peers(own, other);
      for (const ReplicaPeer& peer : peers_) add_pair(own, choice, other, peer);
    });
  }

  /// The cell of the other distribution at one coordinate per axis.
  Cell other_cell(const OwnCell& own, const AxisArray& choice) const {
    Cell other;
    for (std::size_t number = 0; number < own.overlaps.size(); ++number) {
      const AxisGroup& group = arguments_.map.groups()[number];
      const Overlap& overlap = own.overlap(number, choice);
      const std::vector<int>& axes = group.axes[1 - own_side()];
      if (group.plain()) other.coordinates[at(other_axis(group))] = overlap.coordinates[0];
      for (std::size_t i = 0; i < axes.size(); ++i) other.coordinates[at(axes[i])] = overlap.coordinates[i];
    }
    other.number = other_.cell_number(other.coordinates);
    return other;
  }

  void find_peers(const OwnCell& own, const Cell& other) {
    routes_.find_peers(sends_ ? own.cell : other, sends_ ? other : own.cell, own.slice, peers_);
  }

  /// Adds the pairs of a cell with the boxes of the other distribution.
  /// \throws Error if the cell needs an element that no box of the source holds.
  void add_boxes(OwnCell& own) {
    const std::vector<AxisGroup>& groups = arguments_.map.groups();  // one axis each
    IndexBox moving, others;  // indices of the cell that move: of the source, and of the other distribution
    std::array<Intervals, max_dims> needed{};
    Index missing = 1;
    for (const AxisGroup& group : groups) {
      const auto [lo, hi, shift] = moved(group);
      const std::size_t axis = at(group.source_axis), there = at(other_axis(group));
      const Intervals held = needed[axis] = own_indices(own.cell, own_axis(group)).shifted(sends_ ? 0 : -shift);
      moving.lo[axis] = std::max(lo, held.start);
      moving.hi[axis] = std::min(hi, held.end);
      others.lo[there] = moving.lo[axis] + (sends_ ? shift : 0) - margin(group);
      others.hi[there] = moving.hi[axis] + (sends_ ? shift : 0) + margin(group);
      missing *= std::max<Index>(0, held.count_below(hi) - held.count_below(lo));
    }
    own.overlaps.assign(groups.size(), std::vector<Overlap>(1));
    for (const Index box : other_.boxes().overlapping(others)) missing -= add_parts(own, {{box}, box});
    AxisArray hole{};
    if (sends_ || missing <= 0 || !other_.boxes().find_hole(moving, needed, hole)) return;
    throw Error(text(other_.name(), ": no box holds element ",
                     tuple_text(std::vector<Index>(hole.begin(), hole.begin() + own_.ndim())), ", which rank ",
                     arguments_.rank, " of the target needs: add a box, or move a region that boxes cover"));
  }

  /// Adds the pairs with another cell where source or target are in boxes. Each peer has its own parts.
  /// \param own  gets the overlaps of each part.
  /// \return the number of elements that the last peer sends or receives.
  Index add_parts(OwnCell& own, const Cell& other) {
    const std::vector<AxisGroup>& groups = arguments_.map.groups();  // one axis each
    const Cell &source = sends_ ? own.cell : other, &target = sends_ ? other : own.cell;
    std::array<Intervals, max_dims> sources, targets;  // by source axis, of source indices
    IndexBox wanted;
    for (const AxisGroup& group : groups) {
      const std::size_t axis = at(group.source_axis);
      const Intervals there = arguments_.target.with_margins(target, group.target_axis);
      const IndexMap::Window window = routes_.window(moved(group), there, group.target_axis, own.slice);
      sources[axis] = arguments_.source.intervals(source, group.source_axis);
      targets[axis] = there.shifted(-window.shift);
      wanted.lo[axis] = std::max(window.lo, targets[axis].start);
      wanted.hi[axis] = std::min(window.hi, targets[axis].end);
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
        for (std::size_t axis = 0; axis < groups.size(); ++axis) {
          SharedElements& shared = own.overlaps[axis][0].shared;
          shared = shared_indices({groups[axis].source_axis, groups[axis].target_axis}, sources[axis], targets[axis],
                                  part.lo[axis], part.hi[axis]);
          count *= shared.count;
        }
        if (count > 0) add_pair(own, {}, other, peer);
        sum += count;
      }
    }
    return sum;
  }

  /// The overlaps of `own` indices along a group of one axis each with each coordinate of the other distribution.
  std::vector<Overlap> find_overlaps(const Intervals& own, const AxisGroup& group, Index slice) const {
    const int target_axis = group.target_axis;
    const Index halo = margin(group);
    const IndexMap::Window whole = moved(group);  // of source indices, as `window`
    IndexMap::Window window = sends_ ? whole : routes_.window(whole, own, target_axis, slice);
    const Index from_own = sends_ ? whole.shift : -whole.shift, from_source = sends_ ? whole.shift : 0;
    const AxisSplit& split = other_.axes()[at(other_axis(group))];
    const Index lo = std::max<Index>(0, window.lo + from_source - halo),
                hi = std::min(split.extent, window.hi + from_source + halo);
    const std::vector<Index> coordinates = overlapping_coordinates(own.shifted(from_own).widened(halo), split, lo, hi);
    std::vector<Overlap> overlaps;
    overlaps.reserve(coordinates.size());
    for (const Index coordinate : coordinates) {
      const Intervals other = split.intervals(coordinate).widened(halo);
      if (sends_) window = routes_.window(whole, other, target_axis, slice);
      SharedElements shared = shared_indices({group.source_axis, group.target_axis}, sends_ ? own : other,
                                             (sends_ ? other : own).shifted(-whole.shift), window.lo, window.hi);
      if (shared.count > 0) overlaps.push_back({{coordinate}, std::move(shared)});  // else of another slice
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
      SharedElements shared = shared_elements(sends_ ? own : other, sends_ ? other : own);
      if (shared.count > 0) overlaps.push_back({std::move(coordinates), std::move(shared)});
    }
    return overlaps;
  }

  /// Adds the pair with another cell for one peer.
  /// \param choice  number of the overlap per group.
  void add_pair(const OwnCell& own, const AxisArray& choice, const Cell& other, const ReplicaPeer& peer) {
    if (peer.rank == arguments_.rank && !with_self_) return;
    SharedBox box{};
    CellPair& pair = pairs_.emplace_back();
    pair.message.count = 1;
    for (std::size_t group = 0; group < own.overlaps.size(); ++group) {
      box[group] = &own.overlap(group, choice).shared;
      pair.message.count *= box[group]->count;
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
