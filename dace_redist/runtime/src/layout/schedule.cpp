// SPDX-License-Identifier: BSD-3-Clause
#include "layout/schedule.hpp"

#include <optional>
#include <tuple>
#include <utility>

#include "layout/node_routes.hpp"
#include "layout/replica_routes.hpp"

namespace dace_redist {

namespace {

/// A part of a message: the elements that one source cell and one target cell share.
struct CellPair {
  Message message;
  Index source_cell = 0, target_cell = 0;
};

/// What a cell shares, along a group of axes, with each cell of the other distribution.
struct Overlaps {
  std::vector<Index> coordinates{};      // [cells][axes of the group in the other distribution]
  std::vector<SharedElements> shared{};  // [cells]
};

/// Collects what a rank sends, or what it receives: for each of its cells ("own"), the pairs with all overlapping cells
/// of the other distribution, and for each pair the peers that the replica policy names.
class Collector {
 public:
  /// \param with_self  the self copy is among the messages.
  Collector(const ScheduleArguments& arguments, bool sends, bool with_self)
      : arguments_(arguments),
        own_(own_side(arguments.policy, sends)),
        other_(1 - own_),
        sends_(sends),
        with_self_(with_self),
        distributions_{&arguments.source, &arguments.target},
        layouts_{arguments.sources, arguments.targets},
        routes_(arguments, sends) {
    if (arguments.policy.knows_nodes()) node_routes_.emplace(arguments, sends);
  }

  std::vector<Message> messages() {
    const std::vector<Cell> cells = distributions_[own_]->cells(arguments_.rank);
    if (cells.empty()) return {};
    const std::vector<Index> slices = routes_.slices();
    const Distribution& target = arguments_.target;
    AxisArray images{};  // of the target along its axes: next to it, too, where margins mirror across its ends
    for (int axis = 0; axis < target.ndim(); ++axis) images[at(axis)] = target.wraps(axis) ? 3 : 1;
    for_each_coordinates(images, target.ndim(), [&](const AxisArray& image) {
      for (std::size_t axis = 0; axis < target.axes().size(); ++axis)
        to_image_[axis] = (image[axis] - images[axis] / 2) * target.axes()[axis].extent;
      for (const Cell& cell : cells)
        for (const Index slice : slices) add_cell({cell, slice, layout_of(own_, cell, sends_, arguments_.rank)});
    });
    return join();
  }

 private:
  /// A cell of this rank, or a slice of it.
  struct OwnCell {
    const Cell& cell;
    Index slice;
    CellLayout layout;
  };

  static std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

  /// The distribution of which both ranks, or this one, hold cells.
  static std::size_t own_side(const ReplicaPolicy& policy, bool sends) {
    if (policy.forwards()) return target_side;
    return sends || policy.kind == ReplicaPolicy::sums_of_nodes ? source_side : target_side;
  }

  bool own_source() const { return own_ == source_side; }
  const std::vector<AxisGroup>& groups() const { return arguments_.map.groups(); }

  template <class Thing>
  std::pair<const Thing&, const Thing&> by_side(const Thing& own, const Thing& other) const {
    if (own_source()) return {own, other};
    return {other, own};
  }

  /// The position of a side's cell in the array that a rank sends from, or receives in. Elements are read where they
  /// are owned, and written to margins.
  CellLayout layout_of(std::size_t side, const Cell& cell, bool sends, Index rank) const {
    return cell_layout(side, *distributions_[side], cell, local(sends ? source_side : target_side, rank));
  }

  const LocalLayout* local(std::size_t side, Index rank) const {
    const Layouts* const known = layouts_[side];
    if (!known) return nullptr;
    const auto entry = known->find(rank);
    return entry == known->end() ? nullptr : &entry->second;
  }

  /// The indices of a source axis that move, and their shift to the present image of the target.
  IndexMap::Window moved(const AxisGroup& group) const {
    const auto [lo, hi, shift] = arguments_.map.window(group.source_axis);
    return {lo, hi, shift + to_image_[at(group.target_axis)]};
  }

  /// The indices that a side's cell sends, or receives, along its axis of a group.
  Intervals indices(std::size_t side, const Cell& cell, const AxisGroup& group) const {
    return side == source_side ? arguments_.source.intervals(cell, group.source_axis)
                               : arguments_.target.with_margins(cell, group.target_axis);
  }

  /// Width of the margins on the other side, to which elements of this rank may go.
  Index margin(const AxisGroup& group) const { return own_source() ? arguments_.target.halo(group.target_axis) : 0; }

  void add_cell(const OwnCell& own) {
    if (distributions_[other_]->boxed()) return add_boxes(own);
    std::vector<Overlaps> overlaps;  // [groups]
    overlaps.reserve(groups().size());
    AxisArray counts{};
    std::size_t most = 1;  // pairs
    for (const AxisGroup& group : groups()) {
      overlaps.push_back(group.plain() ? find_overlaps(indices(own_, own.cell, group), group, own.slice)
                                       : find_group_overlaps(own.cell, group, own.slice));
      counts[overlaps.size() - 1] = static_cast<Index>(overlaps.back().shared.size());
      most *= overlaps.back().shared.size();
    }
    if (pairs_.empty()) pairs_.reserve(most);
    for_each_coordinates(counts, static_cast<int>(groups().size()), [&](const AxisArray& choice) {
      SharedBox box{};
      Cell other;
      for (std::size_t number = 0; number < overlaps.size(); ++number) {
        const auto& [coordinates, shared] = overlaps[number];
        const auto cell = static_cast<std::size_t>(choice[number]);
        const AxisGroup& group = groups()[number];
        const std::vector<int>& axes = group.axes[other_];
        box[number] = &shared[cell];
        if (group.plain()) other.coordinates[at(group.axis(other_))] = coordinates[cell];
        for (std::size_t i = 0; i < axes.size(); ++i)
          other.coordinates[at(axes[i])] = coordinates[cell * axes.size() + i];
      }
      other.number = distributions_[other_]->cell_number(other.coordinates);
      if (arguments_.source.boxed()) return void(add_parts(own, other));
      Index count = 1;
      for (std::size_t group = 0; group < groups().size(); ++group) count *= box[group]->count;
      for (const ReplicaPeer& peer : find_peers(own, other, count)) add_pair(own, other, peer, box);
    });
  }

  /// \param count  elements that the cells share, about.
  const std::vector<ReplicaPeer>& find_peers(const OwnCell& own, const Cell& other, Index count) {
    const auto [source, target] = by_side(own.cell, other);
    if (!node_routes_) {
      routes_.find_peers(source, target, own.slice, peers_);
      return peers_;
    }
    peers_.clear();
    const Index pieces = node_routes_->pieces(count);
    for (Index piece = 0; piece < pieces; ++piece)
      node_routes_->find_peers(source, target, {0, 0, piece, pieces}, peers_);
    return peers_;
  }

  /// Adds the pairs of a cell with the boxes of the other distribution.
  /// \throws Error if the cell needs an element that no box of the source holds.
  void add_boxes(const OwnCell& own) {
    const Distribution& other = *distributions_[other_];
    IndexBox moving, others;  // indices of the cell that move: of the source, and of the other distribution
    std::array<Intervals, max_dims> needed{};
    Index missing = 1;
    for (const AxisGroup& group : groups()) {  // one axis each
      const auto [lo, hi, shift] = moved(group);
      const std::size_t axis = at(group.source_axis), there = at(group.axis(other_));
      const Index to_other = own_source() ? shift : 0;
      const Intervals held = needed[axis] = indices(own_, own.cell, group).shifted(to_other - shift);
      moving.lo[axis] = std::max(lo, held.start);
      moving.hi[axis] = std::min(hi, held.end);
      others.lo[there] = moving.lo[axis] + to_other - margin(group);
      others.hi[there] = moving.hi[axis] + to_other + margin(group);
      missing *= std::max<Index>(0, held.count_below(hi) - held.count_below(lo));
    }
    for (const Index box : other.boxes().overlapping(others)) missing -= add_parts(own, {{box}, box});
    AxisArray hole{};
    if (own_source() || missing <= 0 || !other.boxes().find_hole(moving, needed, hole)) return;
    throw Error(text(other.name(), ": no box holds element ",
                     tuple_text(std::vector<Index>(hole.begin(), hole.begin() + other.ndim())), ", which rank ",
                     arguments_.rank, " of the target needs: add a box, or move a region that boxes cover"));
  }

  /// Adds the pairs with another cell where source or target are in boxes. Each peer has its own parts.
  /// \return the number of their elements, or fewer.
  Index add_parts(const OwnCell& own, const Cell& other) {
    const auto [source, target] = by_side(own.cell, other);
    std::array<Intervals, max_dims> sources, targets;  // by source axis, of source indices
    IndexBox wanted;
    for (const AxisGroup& group : groups()) {  // one axis each
      const std::size_t axis = at(group.source_axis);
      const Intervals there = indices(target_side, target, group);
      const IndexMap::Window window = routes_.window(moved(group), there, group.target_axis, own.slice);
      sources[axis] = indices(source_side, source, group);
      targets[axis] = there.shifted(-window.shift);
      wanted.lo[axis] = std::max(window.lo, targets[axis].start);
      wanted.hi[axis] = std::min(window.hi, targets[axis].end);
    }
    SharedBox box{};
    for (std::size_t axis = 0; axis < groups().size(); ++axis) box[axis] = &shared_[axis];
    const auto share_within = [&](const IndexBox& part) {
      Index count = 1;
      for (std::size_t axis = 0; axis < groups().size(); ++axis) {
        shared_[axis] = shared_indices({groups()[axis].source_axis, groups()[axis].target_axis}, sources[axis],
                                       targets[axis], part.lo[axis], part.hi[axis]);
        count *= shared_[axis].count;
      }
      return count;
    };
    Index sum = 0, shared = 1;  // equal on both sides, by which routes of nodes cut pairs into pieces
    if (node_routes_ && !arguments_.source.boxed())
      shared = share_within(wanted);  // as the owner of a target box finds
    else
      for (std::size_t axis = 0; axis < groups().size(); ++axis)
        shared *= std::max<Index>(0, wanted.hi[axis] - wanted.lo[axis]);
    for (const ReplicaPeer& peer : find_peers(own, other, shared)) {
      std::vector<IndexBox> parts{wanted};
      if (arguments_.source.boxed()) {
        Index receiver = sends_ ? peer.rank : arguments_.rank;
        if (node_routes_) receiver = arguments_.target.rank_of(target.coordinates, 0);  // equal on all steps
        parts = arguments_.source.boxes().parts_sent(source.number, wanted, receiver);
      }
      for (const IndexBox& part : parts) {
        const Index count = share_within(part);
        if (count > 0) add_pair(own, other, peer, box);
        if (!node_routes_) sum += count;  // else this rank may take part in a few pieces only
      }
    }
    return sum;
  }

  /// The overlaps of `own` indices along a group of one axis each with each coordinate of the other distribution.
  Overlaps find_overlaps(const Intervals& own, const AxisGroup& group, Index slice) const {
    const Index halo = margin(group);
    const IndexMap::Window whole = moved(group);  // of source indices, as `window`
    IndexMap::Window window = own_source() ? whole : routes_.window(whole, own, group.target_axis, slice);
    const Index to_other = own_source() ? whole.shift : 0;
    const AxisSplit& split = distributions_[other_]->axes()[at(group.axis(other_))];
    const Index lo = std::max<Index>(0, window.lo + to_other - halo),
                hi = std::min(split.extent, window.hi + to_other + halo);
    const Intervals near = own.shifted(own_source() ? whole.shift : -whole.shift).widened(halo);
    const std::vector<Index> coordinates = overlapping_coordinates(near, split, lo, hi);
    Overlaps overlaps;
    overlaps.coordinates.reserve(coordinates.size());
    overlaps.shared.reserve(coordinates.size());
    for (const Index coordinate : coordinates) {
      const Intervals other = split.intervals(coordinate).widened(halo);
      const auto [source, target] = by_side(own, other);
      if (own_source()) window = routes_.window(whole, target, group.target_axis, slice);
      SharedElements shared = shared_indices({group.source_axis, group.target_axis}, source,
                                             target.shifted(-whole.shift), window.lo, window.hi);
      if (shared.count == 0) continue;  // of another slice
      overlaps.coordinates.push_back(coordinate);
      overlaps.shared.push_back(std::move(shared));
    }
    return overlaps;
  }

  /// One side of a group, with the indices that a cell owns.
  /// \param coordinates  [axes] of the cell; null: unknown.
  GroupSide side_of(const AxisGroup& group, std::size_t side, const Index* coordinates, Index slice) const {
    GroupSide axes;
    for (const int axis : group.axes[side]) {
      GroupAxis& one = axes.emplace_back(GroupAxis{axis, distributions_[side]->axes()[at(axis)]});
      one.hi = one.split.extent;
      if (!coordinates) continue;
      one.owned = one.split.intervals(coordinates[axes.size() - 1]);
      IndexMap::Window window{0, one.hi, 0};
      if (side == target_side) window = routes_.window(window, one.owned, axis, slice);
      one.lo = std::max(window.lo, one.owned.start);
      one.hi = std::min(window.hi, one.owned.end);
    }
    return with_strides(std::move(axes));
  }

  /// The overlaps of a cell along a group of several axes with each cell of the other distribution.
  Overlaps find_group_overlaps(const Cell& cell, const AxisGroup& group, Index slice) const {
    std::vector<Index> own_coordinates;
    for (const int axis : group.axes[own_]) own_coordinates.push_back(cell.coordinates[at(axis)]);
    const GroupSide own = side_of(group, own_, own_coordinates.data(), slice);
    Overlaps overlaps;
    for (const std::vector<Index>& coordinates : overlapping_cells(own, side_of(group, other_, nullptr, slice))) {
      const GroupSide other = side_of(group, other_, coordinates.data(), slice);
      const auto [source, target] = by_side(own, other);
      SharedElements shared = shared_elements(source, target);
      if (shared.count == 0) continue;
      overlaps.coordinates.insert(overlaps.coordinates.end(), coordinates.begin(), coordinates.end());
      overlaps.shared.push_back(std::move(shared));
    }
    return overlaps;
  }

  /// Adds the pair with another cell for one peer. \param box  what they share.
  void add_pair(const OwnCell& own, const Cell& other, const ReplicaPeer& peer, const SharedBox& box) {
    if (peer.rank == arguments_.rank && !with_self_) return;
    const auto [source, target] = by_side(own.cell, other);
    CellPair& pair = pairs_.emplace_back(CellPair{{}, source.number, target.number});
    pair.message.peer = peer.rank;
    pair.message.summand = peer.summand;
    pair.message.count = 1;
    for (std::size_t group = 0; group < groups().size(); ++group) pair.message.count *= box[group]->count;
    if (!arguments_.with_blocks && peer.pieces == 1) return;
    const bool one_cell = arguments_.policy.has_one_cell();  // which the peer holds, too
    const CellLayout there = layout_of(one_cell ? own_ : other_, one_cell ? own.cell : other, !sends_, peer.rank);
    append_blocks(box, arguments_.map, sends_ ? own.layout : there, sends_ ? there : own.layout, pair.message.blocks);
    if (peer.pieces == 1) return;
    pair.message.count = keep_piece(pair.message.blocks, peer.piece, peer.pieces);
    if (pair.message.count == 0) return pairs_.pop_back();
    if (!arguments_.with_blocks) pair.message.blocks = {};
  }

  /// Joins the pairs of each peer to one message, in an order that is equal on both sides.
  std::vector<Message> join() {
    const auto before = [](const CellPair& a, const CellPair& b) {
      return std::tie(a.message.peer, a.source_cell, a.target_cell) <
             std::tie(b.message.peer, b.source_cell, b.target_cell);
    };
    if (!std::is_sorted(pairs_.begin(), pairs_.end(), before))
      std::stable_sort(pairs_.begin(), pairs_.end(), before);  // parts of a pair stay in order
    std::size_t peers = 0;
    for (std::size_t pair = 0; pair < pairs_.size(); ++pair)
      peers += pair == 0 || pairs_[pair - 1].message.peer != pairs_[pair].message.peer;
    std::vector<Message> messages;
    messages.reserve(peers);
    for (CellPair& pair : pairs_) {
      if (messages.empty() || messages.back().peer != pair.message.peer) {
        messages.push_back(std::move(pair.message));
        continue;
      }
      Message& message = messages.back();
      message.count += pair.message.count;
      message.blocks.append(pair.message.blocks, 0);
    }
    return messages;
  }

  const ScheduleArguments& arguments_;
  const std::size_t own_, other_;  // sides
  const bool sends_;
  const bool with_self_;
  const std::array<const Distribution*, 2> distributions_;  // by side
  const std::array<const Layouts*, 2> layouts_;
  AxisArray to_image_{};  // [ndim] by target axis: shift of the image of the target whose pairs are added
  const ReplicaRoutes routes_;
  std::optional<NodeRoutes> node_routes_;
  std::vector<CellPair> pairs_;
  // Of the pair that is added:
  std::vector<ReplicaPeer> peers_;
  std::array<SharedElements, max_dims> shared_;
};

}  // namespace

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
