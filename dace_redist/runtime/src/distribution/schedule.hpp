// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Turns two distributions into the messages of one rank. Needs no MPI.
/// Start reading at: make_schedule.

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "distribution/distribution.hpp"
#include "distribution/strided_block.hpp"

namespace dace_redist {

/// Where a rank's local array lies: strides in elements, one per dimension of its local shape; empty: C order.
struct LocalLayout {
  std::vector<Index> strides;
};

/// Local arrays of several ranks by rank; in C order where a rank is not among them.
using Layouts = std::map<Index, LocalLayout>;

/// Everything one rank sends to, or receives from, another. Both ranks hold the blocks, and the elements in each
/// block, in the same order: a packed message is the blocks one after another, each in row-major order of its counts.
struct Message {
  Index peer = 0;
  Index count = 0;                   // elements
  std::vector<StridedBlock> blocks;  // not merged: their counts are equal on both sides
};

/// What one rank does: by ascending peer. `self` never leaves the rank.
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

namespace detail {

/// What a cell shares, along one axis, with one coordinate of the other distribution.
struct AxisOverlap {
  Index coordinate = 0, count = 0;
  std::vector<Piece> pieces;
};

/// A part of a message: what one source cell and one target cell share.
struct CellPair {
  Index peer = 0, source_cell = 0, target_cell = 0, count = 0;
  std::vector<StridedBlock> blocks;
};

/// Where a cell lies in its rank's local array.
struct CellLayout {
  Index offset = 0;
  std::vector<Index> strides;
};

inline CellLayout cell_layout(const Distribution& distribution, const Cell& cell, const LocalLayout& local) {
  CellLayout layout{distribution.cell_offset(cell), c_strides(distribution.cell_shape(cell))};
  if (local.strides.empty()) return layout;
  if (!distribution.tiled()) return {0, local.strides};
  layout.offset *= local.strides[0];
  for (Index& stride : layout.strides) stride *= local.strides[0];
  return layout;
}

inline void append_dimension(StridedBlock& block, Index count, Index source_stride, Index target_stride) {
  if (count == 1) return;
  if (block.ndim == max_block_dims) throw Error(text("a message needs more than ", max_block_dims, " nested loops"));
  const std::size_t at = static_cast<std::size_t>(block.ndim++);
  block.counts[at] = count;
  block.source_strides[at] = source_stride;
  block.target_strides[at] = target_stride;
}

/// The box made of one piece per axis.
inline StridedBlock box(const std::vector<const Piece*>& pieces, const CellLayout& source, const CellLayout& target) {
  StridedBlock block;
  block.source_offset = source.offset;
  block.target_offset = target.offset;
  for (std::size_t axis = 0; axis < pieces.size(); ++axis) {
    const Piece& piece = *pieces[axis];
    block.source_offset += piece.source_offset * source.strides[axis];
    block.target_offset += piece.target_offset * target.strides[axis];
    for (std::size_t level = 0; level < Piece::levels; ++level)
      append_dimension(block, piece.counts[level], piece.source_strides[level] * source.strides[axis],
                       piece.target_strides[level] * target.strides[axis]);
  }
  return block;
}

/// Calls `visit(choice)` for every way to choose one entry per list, the last list fastest.
template <class T, class Visit>
void for_each_choice(const std::vector<std::vector<T>>& lists, Visit&& visit) {
  std::vector<const T*> choice;
  std::vector<std::size_t> at(lists.size(), 0);
  for (const auto& list : lists)
    if (list.empty()) return;
  for (;;) {
    choice.clear();
    for (std::size_t i = 0; i < lists.size(); ++i) choice.push_back(&lists[i][at[i]]);
    visit(choice);
    std::size_t i = lists.size();
    while (i > 0 && ++at[i - 1] == lists[i - 1].size()) at[--i] = 0;
    if (i == 0) return;
  }
}

/// Which of the two distributions the rank at hand looks from.
enum class Side { source, target };

/// Collects what one cell of this rank shares with all cells of the other distribution.
class Collector {
 public:
  Collector(const Distribution& source, const Distribution& target, Index rank, Side side,
            const Layouts& source_layouts, const Layouts& target_layouts, bool with_blocks)
      : source_(source),
        target_(target),
        rank_(rank),
        side_(side),
        source_layouts_(source_layouts),
        target_layouts_(target_layouts),
        with_blocks_(with_blocks) {}

  void add(const Cell& cell) {
    std::vector<std::vector<AxisOverlap>> overlaps;
    for (int axis = 0; axis < mine().ndim(); ++axis) overlaps.push_back(axis_overlaps(cell, axis));
    for_each_choice(overlaps, [&](const std::vector<const AxisOverlap*>& choice) { add_cell_pair(cell, choice); });
  }

  std::vector<CellPair> pairs;

 private:
  bool sends() const { return side_ == Side::source; }
  const Distribution& mine() const { return sends() ? source_ : target_; }
  const Distribution& other() const { return sends() ? target_ : source_; }

  std::vector<AxisOverlap> axis_overlaps(const Cell& cell, int axis) const {
    const Intervals own = mine().intervals(cell, axis);
    const AxisSplit& split = other().axes()[static_cast<std::size_t>(axis)];
    std::vector<AxisOverlap> overlaps;
    for (Index coordinate : overlapping_coordinates(own, split)) {
      const Intervals theirs = split.intervals(coordinate);
      AxisOverlap overlap{coordinate, 0, sends() ? intersect(own, theirs) : intersect(theirs, own)};
      for (const Piece& piece : overlap.pieces) overlap.count += piece.counts[0] * piece.counts[1] * piece.counts[2];
      overlaps.push_back(std::move(overlap));
    }
    return overlaps;
  }

  void add_cell_pair(const Cell& cell, const std::vector<const AxisOverlap*>& choice) {
    Cell theirs;
    for (const AxisOverlap* overlap : choice) theirs.coordinates.push_back(overlap->coordinate);
    theirs.number = other().cell_number(theirs.coordinates);
    if (!sends()) return append(source_.sender(theirs.coordinates, rank_), cell, theirs, choice);
    for (Index replica = 0; replica < target_.replicas(); ++replica) {
      const Index receiver = target_.rank_of(theirs.coordinates, replica);
      if (source_.sender(cell.coordinates, receiver) == rank_) append(receiver, cell, theirs, choice);
    }
  }

  void append(Index peer, const Cell& own, const Cell& theirs, const std::vector<const AxisOverlap*>& choice) {
    if (peer == rank_ && !sends()) return;  // a self-copy is listed once, by the source side
    CellPair pair{peer, sends() ? own.number : theirs.number, sends() ? theirs.number : own.number, 1, {}};
    for (const AxisOverlap* overlap : choice) pair.count *= overlap->count;
    if (with_blocks_) append_blocks(pair, own, theirs, choice);
    pairs.push_back(std::move(pair));
  }

  void append_blocks(CellPair& pair, const Cell& own, const Cell& theirs,
                     const std::vector<const AxisOverlap*>& choice) {
    const CellLayout here = cell_layout(mine(), own, layout(sends() ? source_layouts_ : target_layouts_, rank_));
    const CellLayout there =
        cell_layout(other(), theirs, layout(sends() ? target_layouts_ : source_layouts_, pair.peer));
    std::vector<std::vector<Piece>> pieces;
    for (const AxisOverlap* overlap : choice) pieces.push_back(overlap->pieces);
    for_each_choice(pieces, [&](const std::vector<const Piece*>& chosen) {
      pair.blocks.push_back(sends() ? box(chosen, here, there) : box(chosen, there, here));
    });
  }

  static LocalLayout layout(const Layouts& layouts, Index rank) {
    const auto found = layouts.find(rank);
    return found == layouts.end() ? LocalLayout{} : found->second;
  }

  const Distribution &source_, &target_;
  Index rank_;
  Side side_;
  const Layouts &source_layouts_, &target_layouts_;
  bool with_blocks_;
};

/// Joins the pairs of each peer, in the order both sides agree on.
inline std::vector<Message> join(std::vector<CellPair> pairs) {
  std::stable_sort(pairs.begin(), pairs.end(), [](const CellPair& a, const CellPair& b) {
    return std::tie(a.peer, a.source_cell, a.target_cell) < std::tie(b.peer, b.source_cell, b.target_cell);
  });
  std::vector<Message> messages;
  for (CellPair& pair : pairs) {
    if (messages.empty() || messages.back().peer != pair.peer) messages.push_back({pair.peer, 0, {}});
    Message& message = messages.back();
    message.count += pair.count;
    message.blocks.insert(message.blocks.end(), pair.blocks.begin(), pair.blocks.end());
  }
  return messages;
}

}  // namespace detail

/// \throws Error unless both distributions describe the same tensor.
inline void check_same_shape(const Distribution& source, const Distribution& target) {
  std::vector<Index> from, to;
  for (const AxisSplit& axis : source.axes()) from.push_back(axis.extent);
  for (const AxisSplit& axis : target.axes()) to.push_back(axis.extent);
  if (from != to)
    throw Error(text("source and target need one global shape, got ", tuple_text(from), " and ", tuple_text(to)));
}

/// The messages of one rank. Cost: the sum over dimensions of the blocks met there, plus the messages of this rank;
/// independent of the number of ranks and, but for tiles, of elements.
///
/// \param with_blocks  false: only peers and counts.
/// \param source_layouts, target_layouts  the local arrays; offsets and strides on the side of a peer hold for these.
/// \throws Error if the global shapes differ.
inline RankSchedule make_schedule(const Distribution& source, const Distribution& target, Index rank,
                                  bool with_blocks = true, const Layouts& source_layouts = {},
                                  const Layouts& target_layouts = {}) {
  check_same_shape(source, target);
  const auto collect = [&](detail::Side side, const std::vector<Cell>& cells) {
    detail::Collector collector(source, target, rank, side, source_layouts, target_layouts, with_blocks);
    for (const Cell& cell : cells) collector.add(cell);
    return detail::join(std::move(collector.pairs));
  };
  RankSchedule schedule{
      collect(detail::Side::source, source.cells(rank)), collect(detail::Side::target, target.cells(rank)), {}};
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
