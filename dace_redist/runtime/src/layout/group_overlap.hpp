// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The elements that two cells have in common along a group of axes (AxisGroup), one tensor being the other one
/// reshaped. Start reading at: append_group_overlap.

#include <array>
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

/// The coordinates of all cells that may hold an element of the group that `own` holds: [cells][axes of `other`],
/// ascending. Cost: that of append_group_overlap with all of them.
std::vector<std::vector<Index>> overlapping_cells(const GroupSide& own, const GroupSide& other);

/// Appends the elements that two cells share. Both sides of a message call this with equal arguments and so get their
/// pieces in one order. \return their number.
///
/// Ranges of flat indices are cut at the rows of the slower axis of both sides. Whole rows repeat after the least
/// common multiple of the strides of both sides: one loop. Cost: the number of pieces; where neither stride divides
/// the other, one for each row.
Index append_group_overlap(const GroupSide& source, const GroupSide& target, std::vector<Piece>& pieces,
                           std::vector<GroupLoop>& loops);

}  // namespace dace_redist
