// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The strided blocks of a message, from the indices that two cells share along each group of axes.

#include <vector>

#include "layout/block_list.hpp"
#include "layout/distribution.hpp"
#include "layout/group_overlap.hpp"
#include "layout/index_map.hpp"

namespace dace_redist {

/// Layout of a rank's local array: strides in elements, one per dimension of its local shape; empty: C order.
struct LocalLayout {
  std::vector<Index> strides;
};

/// Of a pair of things, that of the source and that of the target.
inline constexpr std::size_t source_side = 0, target_side = 1;

/// Position of a cell in its rank's local array, in elements.
struct CellLayout {
  std::size_t side = source_side;  // of which it is a cell
  Index offset = 0;
  AxisArray strides{};  // [ndim]
};

/// The position of a source's cell is that of its first element owned, of a target's that of the first one of its
/// margins. \param local  layout of the local array; null: C order.
CellLayout cell_layout(std::size_t side, const Distribution& distribution, const Cell& cell, const LocalLayout* local);

using SharedBox = std::array<const SharedElements*, max_dims>;  // [groups]

/// Adds a loop inside of those that a block has, unless it has one element. \throws Error if there are too many.
void append_loop(StridedBlock& block, Index count, Index source_stride, Index target_stride);

/// Appends the blocks of the elements that two cells share. Blocks and their order depend on `box` and `map` only, so
/// that sender and receiver have them in one order.
/// \param from, to  layouts of the arrays of sender and receiver: of both cells, or of one, which both hold.
///
/// The dimensions of a block are in the order of the map's groups. If the fastest axes of both sides differ, a block
/// is cut into tiles along these two: either side then reads or writes its array in stretches of a tile's row. Inside
/// of tiles, dimensions are in the order of the target: so the sender permutes, into slots that are aligned to lines.
/// Rows that a receiver permuted into an array that is not would all end in partial lines.
void append_blocks(const SharedBox& box, const IndexMap& map, const CellLayout& from, const CellLayout& to,
                   BlockList& blocks);

/// Keeps one of equal pieces of blocks: a part of each block, but blocks of fewer elements than pieces by turns.
/// \return its elements.
Index keep_piece(BlockList& blocks, Index piece, Index pieces);

}  // namespace dace_redist
