// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The elements that two cells have in common along an axis or a group of axes (AxisGroup), one tensor being the other
/// one reshaped. Start reading at: shared_elements.

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "layout/intervals.hpp"

namespace dace_redist {

/// An axis of a group, and the indices that a cell owns of it.
struct GroupAxis {
  int axis = 0;  // of its tensor
  AxisSplit split{1, 1, 1, false};
  Index stride = 1;                // distance of neighbours in flat indices
  Intervals owned{0, 1, 1, 1, 1};  // by the cell
  Index lo = 0, hi = 1;            // of the owned indices those in [lo, hi) count
};

/// The axes of a group on one side, slowest first; at least one.
using GroupSide = std::vector<GroupAxis>;

/// Sets the strides of the axes; a tensor without axes gets one of one index.
GroupSide with_strides(GroupSide axes);

/// A loop around a piece, along an axis of either side, or, with a count of 1, an offset; in local indices.
struct GroupLoop {
  std::array<int, 2> axes;  // of source and target
  Index count;
  std::array<Index, 2> offsets, steps;
};

/// Elements that are neighbours on both sides, in loops, the first one outermost.
struct Piece {
  std::array<Index, 2> offsets;  // local indices of source and target along the fastest axes
  Index count;
  std::size_t first_loop = 0, loop_count = 0;
};

/// The elements that two cells share: nearly always one piece, which allocates nothing.
struct SharedElements {
  struct Several {
    std::vector<Piece> pieces{};
    std::vector<GroupLoop> loops{};  // of all pieces
  };

  Index count = 0;
  Piece piece{};  // unless there are several
  std::unique_ptr<Several> several{};

  const Piece* begin() const { return several ? several->pieces.data() : &piece; }
  const Piece* end() const { return begin() + (several ? several->pieces.size() : count > 0 ? 1 : 0); }
};

/// The coordinates of all cells that may hold an element of the group that `own` holds: [cells][axes of `other`],
/// ascending. Cost: that of shared_elements() with all of them.
std::vector<std::vector<Index>> overlapping_cells(const GroupSide& own, const GroupSide& other);

/// The elements that two cells share. Both sides of a message call this with equal arguments and so get their pieces in
/// one order.
///
/// Ranges of flat indices are cut at the rows and owned intervals of the slower axis of both sides. What repeats after
/// the least common multiple of the strides or periods of both sides is one loop. Cost: the number of pieces; where
/// neither of two strides divides the other, one for each row until both repeat.
SharedElements shared_elements(const GroupSide& source, const GroupSide& target);

/// Those along one axis of each side, of flat indices in [first, last).
SharedElements shared_indices(const std::array<int, 2>& axes, const Intervals& source, const Intervals& target,
                              Index first, Index last);

}  // namespace dace_redist
