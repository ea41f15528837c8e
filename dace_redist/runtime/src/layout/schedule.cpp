// SPDX-License-Identifier: BSD-3-Clause
#include "layout/schedule.hpp"

#include <tuple>
#include <utility>

namespace dace_redist {

namespace {

/// The indices that a cell shares, along one source axis, with one coordinate of the other distribution.
struct AxisOverlap {
  Index coordinate = 0, extent = 0;  // of the other distribution: the coordinate, and its number of indices
  Index count = 0;                   // of shared indices
  Index first_piece = 0, piece_count = 0;
};

/// All of them along one source axis.
struct AxisOverlaps {
  std::vector<AxisOverlap> by_coordinate;
  std::vector<Piece> pieces;
};

/// A part of a message: the elements that one source cell and one target cell share.
struct CellPair {
  Message message;
  Index source_cell = 0, target_cell = 0;
};

/// The arguments of make_schedule().
struct Transfer {
  const Distribution &source, &target;
  const IndexMap& map;
  Index rank;
  bool with_blocks;
  const Layouts &source_layouts, &target_layouts;
  ReplicaRoutes routes;
};

/// Collects what a rank sends, or what it receives: for each of its cells ("own"), the pairs with all overlapping cells
/// of the other distribution, and for each pair the peers that the replica policy names.
class Collector {
 public:
  Collector(const Transfer& transfer, bool sends)
      : transfer_(transfer),
        sends_(sends),
        own_(sends_ ? transfer.source : transfer.target),
        other_(sends_ ? transfer.target : transfer.source),
        own_layouts_(sends_ ? transfer.source_layouts : transfer.target_layouts),
        other_layouts_(sends_ ? transfer.target_layouts : transfer.source_layouts) {}

  std::vector<Message> messages() {
    const std::vector<Cell> cells = own_.cells(transfer_.rank);
    if (cells.empty()) return {};
    const ReplicaRoutes& routes = transfer_.routes;
    const std::vector<Index> slices =
        sends_ ? routes.sent_slices(transfer_.rank) : routes.received_slices(transfer_.rank);
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
    std::vector<AxisOverlaps> overlaps{};  // [ndim] by source axis
  };

  static std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

  int own_axis(int source_axis) const { return sends_ ? source_axis : transfer_.map.target_axis(source_axis); }
  int other_axis(int source_axis) const { return sends_ ? transfer_.map.target_axis(source_axis) : source_axis; }

  static const LocalLayout* find(const Layouts& layouts, Index rank) {
    const auto entry = layouts.find(rank);
    return entry == layouts.end() ? nullptr : &entry->second;
  }

  /// Adds the pairs of a cell with all cells of the other distribution.
  void add_cell(const Cell& cell, Index slice) {
    const int ndim = transfer_.map.ndim();
    OwnCell own{cell, slice};
    AxisArray extents{}, overlap_counts{};
    own.overlaps.reserve(at(ndim));
    for (int axis = 0; axis < ndim; ++axis) {
      const Intervals indices = own_.intervals(cell, own_axis(axis));
      extents[at(own_axis(axis))] = indices.size();
      own.overlaps.push_back(find_overlaps(indices, axis, slice));
      overlap_counts[at(axis)] = static_cast<Index>(own.overlaps.back().by_coordinate.size());
    }
    own.layout = cell_layout(own_, cell, extents, find(own_layouts_, transfer_.rank));
    std::vector<ReplicaPeer> peers;
    for_each_coordinates(overlap_counts, ndim, [&](const AxisArray& choice) { add_pair(own, choice, peers); });
  }

  /// The overlaps of `own` indices with each coordinate of the other distribution along a source axis.
  AxisOverlaps find_overlaps(const Intervals& own, int axis, Index slice) const {
    const int target_axis = transfer_.map.target_axis(axis);
    const IndexMap::Window moved = transfer_.map.window(axis);  // of source indices, as `window`
    IndexMap::Window window = sends_ ? moved : transfer_.routes.window(moved, own, target_axis, slice);
    const Index from_own = sends_ ? moved.shift : -moved.shift, from_source = sends_ ? moved.shift : 0;
    const AxisSplit& split = other_.axes()[at(other_axis(axis))];
    const std::vector<Index> coordinates =
        overlapping_coordinates(own.shifted(from_own), split, window.lo + from_source, window.hi + from_source);
    AxisOverlaps overlaps;
    overlaps.by_coordinate.reserve(coordinates.size());
    overlaps.pieces.reserve(coordinates.size());
    for (const Index coordinate : coordinates) {
      const Intervals other = split.intervals(coordinate);
      if (sends_) window = transfer_.routes.window(moved, other, target_axis, slice);
      const std::size_t first = overlaps.pieces.size();
      append_overlap(sends_ ? own : other, (sends_ ? other : own).shifted(-moved.shift), window.lo, window.hi,
                     overlaps.pieces);
      if (overlaps.pieces.size() == first) continue;  // of another slice
      Index count = 0;
      for (std::size_t i = first; i < overlaps.pieces.size(); ++i) count += overlaps.pieces[i].count();
      overlaps.by_coordinate.push_back({coordinate, other.size(), count, static_cast<Index>(first),
                                        static_cast<Index>(overlaps.pieces.size() - first)});
    }
    return overlaps;
  }

  /// Adds the pair with the cell at one coordinate per axis, once for each peer.
  /// \param choice  number of the overlap per source axis.
  /// \param peers   scratch memory.
  void add_pair(const OwnCell& own, const AxisArray& choice, std::vector<ReplicaPeer>& peers) {
    Cell other;
    AxisArray extents{};
    SharedBox box{};
    Index count = 1;
    for (int axis = 0; axis < transfer_.map.ndim(); ++axis) {
      const AxisOverlaps& overlaps = own.overlaps[at(axis)];
      const AxisOverlap& overlap = overlaps.by_coordinate[static_cast<std::size_t>(choice[at(axis)])];
      other.coordinates[at(other_axis(axis))] = overlap.coordinate;
      extents[at(other_axis(axis))] = overlap.extent;
      box[at(axis)] = {overlaps.pieces.data() + overlap.first_piece, overlap.piece_count, overlap.count};
      count *= overlap.count;
    }
    other.number = other_.cell_number(other.coordinates);
    if (sends_)
      transfer_.routes.find_receivers(transfer_.rank, own.cell, other, own.slice, peers);
    else
      transfer_.routes.find_senders(transfer_.rank, other, own.cell, own.slice, peers);
    for (const ReplicaPeer& peer : peers) {
      if (peer.rank == transfer_.rank && !sends_) continue;  // the self copy is listed once, by the source
      CellPair& pair = pairs_.emplace_back();
      pair.message.peer = peer.rank;
      pair.message.count = count;
      pair.message.turn = peer.turn;
      pair.source_cell = sends_ ? own.cell.number : other.number;
      pair.target_cell = sends_ ? other.number : own.cell.number;
      if (!transfer_.with_blocks) continue;
      const CellLayout layout = cell_layout(other_, other, extents, find(other_layouts_, peer.rank));
      append_blocks(box, transfer_.map, sends_ ? own.layout : layout, sends_ ? layout : own.layout,
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

  const Transfer& transfer_;
  const bool sends_;
  const Distribution &own_, &other_;
  const Layouts &own_layouts_, &other_layouts_;
  std::vector<CellPair> pairs_;
};

}  // namespace

RankSchedule make_schedule(const Distribution& source, const Distribution& target, const IndexMap& map, Index rank,
                           bool with_blocks, const Layouts& source_layouts, const Layouts& target_layouts,
                           const ReplicaPolicy& policy) {
  const Transfer transfer{
      source, target, map, rank, with_blocks, source_layouts, target_layouts, ReplicaRoutes(source, target, policy)};
  RankSchedule schedule{Collector(transfer, true).messages(), Collector(transfer, false).messages(), {}};
  schedule.self.peer = rank;
  const auto self = std::find_if(schedule.sends.begin(), schedule.sends.end(),
                                 [rank](const Message& message) { return message.peer == rank; });
  if (self != schedule.sends.end()) {
    schedule.self = std::move(*self);
    schedule.sends.erase(self);
  }
  return schedule;
}

}  // namespace dace_redist
