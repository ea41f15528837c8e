// SPDX-License-Identifier: BSD-3-Clause
#include "layout/message_blocks.hpp"

#include <algorithm>

namespace dace_redist {

namespace {

std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

/// The two source axes along which blocks are cut into tiles; -1: blocks are not cut.
struct TiledAxes {
  int rows = -1;     // becomes the fastest axis of the target
  int columns = -1;  // the fastest axis of the source

  bool has(int axis) const { return axis == rows || axis == columns; }
  /// Elements of a tile along one of the two. Tiles are longer along the source's fastest axis, since short stretches
  /// cost more to read than to write.
  Index extent(int axis) const { return axis == rows ? 64 : 256; }
  bool cuts(int axis, const Piece& piece) const { return has(axis) && piece.counts[2] % extent(axis) == 0; }
};

/// The fastest axes of both sides if they differ. Trailing axes that both sides have in one place do not count as long
/// as they hold few elements.
TiledAxes tiled_axes(const SharedBox& box, const IndexMap& map) {
  constexpr Index min_run = 16;  // elements contiguous on both sides that need no tiles
  Index run = 1;
  for (int axis = map.ndim() - 1; axis >= 0 && run < min_run; --axis) {
    if (map.source_axis(axis) != axis) return {map.source_axis(axis), axis};
    run *= box[at(axis)]->count;
  }
  return {};
}

/// Cuts runs of two tiles or more in two: whole tiles of `extent` elements, and the rest.
std::vector<Piece> cut_runs(const std::vector<Piece>& pieces, Index extent) {
  std::vector<Piece> cut;
  for (Piece piece : pieces) {
    const Index run = piece.counts[2], whole = run < 2 * extent ? run : run - run % extent;
    piece.counts[2] = whole;
    cut.push_back(piece);
    if (whole == run) continue;
    piece.counts[2] = run - whole;
    piece.source_offset += whole;
    piece.target_offset += whole;
    cut.push_back(piece);
  }
  return cut;
}

/// Sets an empty block to one piece per source axis.
void set_block(StridedBlock& block, const std::array<const Piece*, max_dims>& pieces, const IndexMap& map,
               const CellLayout& source, const CellLayout& target, const TiledAxes& tiled) {
  block.source_offset = source.offset;
  block.target_offset = target.offset;
  const auto append_loop = [&](int axis, Index count, Index source_stride, Index target_stride) {
    if (count == 1) return;
    if (block.ndim == max_block_dims) throw Error(text("a message needs more than ", max_block_dims, " nested loops"));
    const std::size_t loop = at(block.ndim++);
    block.counts[loop] = count;
    block.source_strides[loop] = source_stride * source.strides[at(axis)];
    block.target_strides[loop] = target_stride * target.strides[at(map.target_axis(axis))];
  };
  for (int axis = 0; axis < map.ndim(); ++axis) {
    const Piece& piece = *pieces[at(axis)];
    block.source_offset += piece.source_offset * source.strides[at(axis)];
    block.target_offset += piece.target_offset * target.strides[at(map.target_axis(axis))];
    for (std::size_t level = 0; level + 1 < Piece::levels; ++level)
      append_loop(axis, piece.counts[level], piece.source_strides[level], piece.target_strides[level]);
    if (tiled.cuts(axis, piece))
      append_loop(axis, piece.counts[2] / tiled.extent(axis), tiled.extent(axis), tiled.extent(axis));
    else if (!tiled.has(axis))
      append_loop(axis, piece.counts[2], 1, 1);
  }
  for (const int axis : {tiled.rows, tiled.columns}) {  // the loops inside a tile
    if (axis < 0) continue;
    const Piece& piece = *pieces[at(axis)];
    append_loop(axis, tiled.cuts(axis, piece) ? tiled.extent(axis) : piece.counts[2], 1, 1);
  }
}

}  // namespace

CellLayout cell_layout(const Distribution& distribution, const Cell& cell, const LocalLayout* local, bool owned) {
  const int ndim = distribution.ndim();
  CellLayout layout;
  if (local && local->strides.size() > 1) {  // of one cell
    std::copy_n(local->strides.begin(), ndim, layout.strides.begin());
  } else {
    Index stride = local && !local->strides.empty() ? local->strides[0] : 1;
    layout.offset = distribution.cell_offset(cell) * stride;
    for (int axis = ndim; axis-- > 0; stride *= std::max<Index>(distribution.local_extent(cell, axis), 1))
      layout.strides[at(axis)] = stride;
  }
  for (int axis = 0; owned && axis < ndim; ++axis) layout.offset += distribution.halo(axis) * layout.strides[at(axis)];
  return layout;
}

void append_blocks(const SharedBox& box, const IndexMap& map, const CellLayout& source, const CellLayout& target,
                   std::vector<StridedBlock>& blocks) {
  const TiledAxes tiled = tiled_axes(box, map);
  std::array<const std::vector<Piece>*, max_dims> lists{};
  std::vector<Piece> rows, columns;
  AxisArray piece_counts{};
  for (int axis = 0; axis < map.ndim(); ++axis) {
    const std::vector<Piece>& whole = box[at(axis)]->pieces;
    std::vector<Piece>& cut = axis == tiled.rows ? rows : columns;
    if (tiled.has(axis)) cut = cut_runs(whole, tiled.extent(axis));
    lists[at(axis)] = tiled.has(axis) ? &cut : &whole;
    piece_counts[at(axis)] = static_cast<Index>(lists[at(axis)]->size());
  }
  for_each_coordinates(piece_counts, map.ndim(), [&](const AxisArray& choice) {
    std::array<const Piece*, max_dims> pieces;
    for (int axis = 0; axis < map.ndim(); ++axis) pieces[at(axis)] = lists[at(axis)]->data() + choice[at(axis)];
    set_block(blocks.emplace_back(), pieces, map, source, target, tiled);
  });
}

}  // namespace dace_redist
