// SPDX-License-Identifier: BSD-3-Clause
#include "layout/refinement.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "layout/message_blocks.hpp"

namespace dace_redist {
namespace {

using Loop = SideBlock::Loop;
using Blocks = std::deque<SideBlock>;

/// Drops loops of one element, and joins loops that are one.
void merge_loops(std::vector<Loop>& loops) {
  std::vector<Loop> merged;
  for (const Loop& loop : loops) {
    if (loop.count == 1) continue;
    if (!merged.empty() && merged.back().stride == loop.count * loop.stride)
      merged.back() = {merged.back().count * loop.count, loop.stride};
    else
      merged.push_back(loop);
  }
  loops = std::move(merged);
}

/// Cuts a block after `count` elements. Appends what lies before and what lies behind, in order.
void cut(const SideBlock& block, Index count, Blocks& before, Blocks& behind) {
  const Loop outer = block.loops.front();
  SideBlock row{block.offset, {block.loops.begin() + 1, block.loops.end()}};
  const Index row_count = row.count(), whole = count / row_count, part = count % row_count;
  const auto append_rows = [&](Index first, Index end, Blocks& blocks) {
    if (first >= end) return;
    SideBlock& rows = blocks.emplace_back(block);
    rows.offset += first * outer.stride;
    rows.loops.front().count = end - first;
  };
  append_rows(0, whole, before);
  row.offset += whole * outer.stride;
  if (part > 0) cut(row, part, before, behind);
  append_rows(whole + (part > 0), outer.count, behind);
}

void cut_first(Blocks& blocks, Index count) {
  Blocks parts, behind;
  cut(blocks.front(), count, parts, behind);
  blocks.pop_front();
  std::move(behind.begin(), behind.end(), std::back_inserter(parts));
  blocks.insert(blocks.begin(), std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end()));
}

/// The loops of a block as the axes of a tensor.
GroupSide axes_of(const SideBlock& block) {
  GroupSide axes;
  for (const Loop& loop : block.loops) {
    const AxisSplit whole{loop.count, 1, 1, false};
    axes.push_back({static_cast<int>(axes.size()), whole, 1, whole.intervals(0), 0, loop.count});
  }
  return with_strides(std::move(axes));
}

/// Has a block go forward in the source: Open MPI (4.1.4) sends bytes of stride -1 in ascending order.
void turn_forward(StridedBlock& block) {
  for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d) {
    if (block.source_strides[d] >= 0) continue;
    block.source_offset += (block.counts[d] - 1) * block.source_strides[d];
    block.target_offset += (block.counts[d] - 1) * block.target_strides[d];
    block.source_strides[d] = -block.source_strides[d];
    block.target_strides[d] = -block.target_strides[d];
  }
}

/// Pairs two blocks with as many elements.
void pair_blocks(SideBlock source, SideBlock target, BlockList& paired) {
  merge_loops(source.loops);
  merge_loops(target.loops);
  const SharedElements shared = shared_elements(axes_of(source), axes_of(target));
  const auto stride = [](const SideBlock& side, std::size_t loop) {
    return side.loops.empty() ? 0 : side.loops[loop].stride;
  };
  const Index source_step = stride(source, source.loops.size() - 1),
              target_step = stride(target, target.loops.size() - 1);
  for (const Piece& piece : shared) {
    StridedBlock block;
    block.source_offset = source.offset + piece.offsets[0] * source_step;
    block.target_offset = target.offset + piece.offsets[1] * target_step;
    for (std::size_t i = piece.first_loop; i < piece.first_loop + piece.loop_count; ++i) {
      const auto& [axes, count, offsets, steps] = shared.several->loops[i];
      const Index along_source = stride(source, static_cast<std::size_t>(axes[0])),
                  along_target = stride(target, static_cast<std::size_t>(axes[1]));
      block.source_offset += offsets[0] * along_source;
      block.target_offset += offsets[1] * along_target;
      append_loop(block, count, steps[0] * along_source, steps[1] * along_target);
    }
    append_loop(block, piece.count, source_step, target_step);
    turn_forward(block);
    paired.push_back({0, merged(block)});
  }
}

}  // namespace

Index SideBlock::count() const {
  Index product = 1;
  for (const Loop& loop : loops) product *= loop.count;
  return product;
}

BlockList refine(const std::vector<SideBlock>& sources, const std::vector<SideBlock>& targets) {
  BlockList paired;
  Blocks source(sources.begin(), sources.end()), target(targets.begin(), targets.end());
  while (!source.empty()) {
    const Index x = source.front().count(), y = target.front().count();
    if (x > y) cut_first(source, y);
    if (y > x) cut_first(target, x);
    if (x != y) continue;
    pair_blocks(std::move(source.front()), std::move(target.front()), paired);
    source.pop_front();
    target.pop_front();
  }
  return paired;
}

}  // namespace dace_redist
