// SPDX-License-Identifier: BSD-3-Clause
#include "layout/message_blocks.hpp"

#include <algorithm>

namespace dace_redist {

namespace {

std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

/// The two groups of axes along whose runs blocks are cut into tiles; -1: blocks are not cut.
struct TiledAxes {
  int rows = -1;     // with the fastest axis of the target
  int columns = -1;  // with the fastest axis of the source

  bool has(int group) const { return group == rows || group == columns; }
  /// Elements of a tile along one of the two. Tiles are longer along the source's fastest axis, since short stretches
  /// cost more to read than to write.
  Index extent(int group) const { return group == rows ? 64 : 256; }
  bool cuts(int group, const Piece& piece) const { return has(group) && piece.count % extent(group) == 0; }
};

/// The groups of the fastest axes of both sides if they differ. Trailing groups that both sides have in one place do
/// not count as long as they hold few elements.
TiledAxes tiled_axes(const SharedBox& box, const IndexMap& map) {
  constexpr Index min_run = 16;  // elements contiguous on both sides that need no tiles
  Index run = 1;
  for (int group = static_cast<int>(map.groups().size()) - 1; group >= 0 && run < min_run; --group) {
    if (map.group_at_target(group) != group) return {map.group_at_target(group), group};
    run *= box[at(group)]->count;
  }
  return {};
}

/// Cuts runs of two tiles or more in two: whole tiles of `extent` elements, and the rest.
std::vector<Piece> cut_runs(const SharedElements& pieces, Index extent) {
  std::vector<Piece> cut;
  for (Piece piece : pieces) {
    const Index run = piece.count, whole = run < 2 * extent ? run : run - run % extent;
    piece.count = whole;
    cut.push_back(piece);
    if (whole == run) continue;
    piece.count = run - whole;
    for (Index& offset : piece.offsets) offset += whole;
    cut.push_back(piece);
  }
  return cut;
}

/// Sets an empty block to one piece per group of axes.
void set_block(StridedBlock& block, const std::array<const Piece*, max_dims>& pieces, const SharedBox& box,
               const IndexMap& map, const CellLayout& from, const CellLayout& to, const TiledAxes& tiled) {
  block.source_offset = from.offset;
  block.target_offset = to.offset;
  const int groups = static_cast<int>(map.groups().size());
  const auto stride = [](const CellLayout& layout, int axis) { return layout.strides[at(axis)]; };
  const auto append_run = [&](int group, Index count, Index step) {
    const AxisGroup& axes = map.groups()[at(group)];
    append_loop(block, count, step * stride(from, axes.axis(from.side)), step * stride(to, axes.axis(to.side)));
  };
  for (int group = 0; group < groups; ++group) {
    const Piece& piece = *pieces[at(group)];
    const AxisGroup& fastest = map.groups()[at(group)];
    for (std::size_t i = piece.first_loop; i < piece.first_loop + piece.loop_count; ++i) {
      const auto& [axes, count, offsets, steps] = box[at(group)]->several->loops[i];
      const Index from_stride = stride(from, axes[from.side]), to_stride = stride(to, axes[to.side]);
      block.source_offset += offsets[from.side] * from_stride;
      block.target_offset += offsets[to.side] * to_stride;
      append_loop(block, count, steps[from.side] * from_stride, steps[to.side] * to_stride);
    }
    block.source_offset += piece.offsets[from.side] * stride(from, fastest.axis(from.side));
    block.target_offset += piece.offsets[to.side] * stride(to, fastest.axis(to.side));
    if (tiled.cuts(group, piece))
      append_run(group, piece.count / tiled.extent(group), tiled.extent(group));
    else if (!tiled.has(group))
      append_run(group, piece.count, 1);
  }
  for (const int group : {tiled.columns, tiled.rows}) {  // the loops inside a tile
    if (group < 0) continue;
    const Piece& piece = *pieces[at(group)];
    append_run(group, tiled.cuts(group, piece) ? tiled.extent(group) : piece.count, 1);
  }
}

}  // namespace

CellLayout cell_layout(std::size_t side, const Distribution& distribution, const Cell& cell, const LocalLayout* local) {
  const int ndim = distribution.ndim();
  CellLayout layout{side};
  if (local && local->strides.size() > 1) {  // of one cell
    std::copy_n(local->strides.begin(), ndim, layout.strides.begin());
  } else {
    Index stride = local && !local->strides.empty() ? local->strides[0] : 1;
    layout.offset = distribution.cell_offset(cell) * stride;
    for (int axis = ndim; axis-- > 0; stride *= std::max<Index>(distribution.local_extent(cell, axis), 1))
      layout.strides[at(axis)] = stride;
  }
  for (int axis = 0; side == source_side && axis < ndim; ++axis)
    layout.offset += distribution.halo(axis) * layout.strides[at(axis)];
  return layout;
}

void append_loop(StridedBlock& block, Index count, Index source_stride, Index target_stride) {
  if (count == 1) return;
  if (block.ndim == max_block_dims) throw Error(text("a message needs more than ", max_block_dims, " nested loops"));
  const std::size_t loop = at(block.ndim++);
  block.counts[loop] = count;
  block.source_strides[loop] = source_stride;
  block.target_strides[loop] = target_stride;
}

void append_blocks(const SharedBox& box, const IndexMap& map, const CellLayout& from, const CellLayout& to,
                   BlockList& blocks) {
  const TiledAxes tiled = tiled_axes(box, map);
  std::array<const Piece*, max_dims> lists;
  std::vector<Piece> rows, columns;
  AxisArray piece_counts{};
  const int groups = static_cast<int>(map.groups().size());
  for (int group = 0; group < groups; ++group) {
    const SharedElements& whole = *box[at(group)];
    std::vector<Piece>& cut = group == tiled.rows ? rows : columns;
    if (tiled.has(group)) cut = cut_runs(whole, tiled.extent(group));
    lists[at(group)] = tiled.has(group) ? cut.data() : whole.begin();
    piece_counts[at(group)] = tiled.has(group) ? static_cast<Index>(cut.size()) : whole.end() - whole.begin();
  }
  Block block;
  for_each_coordinates(piece_counts, groups, [&](const AxisArray& choice) {
    std::array<const Piece*, max_dims> pieces;
    for (int group = 0; group < groups; ++group) pieces[at(group)] = lists[at(group)] + choice[at(group)];
    block.box.ndim = 0;
    set_block(block.box, pieces, box, map, from, to, tiled);
    blocks.push_back(block);
  });
}

Index keep_piece(BlockList& blocks, Index piece, Index pieces) {
  Index elements = 0, short_count = 0;
  BlockList kept;
  Block block;
  StridedBlock& box = block.box;
  for (auto one = blocks.begin(); one != blocks.end(); ++one) {
    one.read(box);
    if (box.count() < pieces) {
      if (short_count++ % pieces != piece) continue;
    } else {
      const auto counts = box.counts.begin(), end = counts + box.ndim;
      const auto long_enough = std::find_if(counts, end, [&](Index extent) { return extent >= pieces; });
      const auto cut = long_enough == end ? std::max_element(counts, end) : long_enough;
      const AxisSplit split{*cut, pieces, 1, true};
      const Index begin = split.block_begin(piece);
      *cut = split.block_begin(piece + 1) - begin;
      if (*cut == 0) continue;
      box.source_offset += begin * box.source_strides[static_cast<std::size_t>(cut - counts)];
      box.target_offset += begin * box.target_strides[static_cast<std::size_t>(cut - counts)];
    }
    elements += box.count();
    kept.push_back(block);
  }
  blocks = std::move(kept);
  return elements;
}

}  // namespace dace_redist
