// SPDX-License-Identifier: BSD-3-Clause
#include "layout/refinement.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/error.hpp"

namespace dace_redist {
namespace {

using Loop = SideBlock::Loop;
using Blocks = std::deque<SideBlock>;

/// A block on both sides.
struct PairedBlock {
  struct PairedLoop {
    Index count;
    std::array<Index, 2> strides;
  };
  std::array<Index, 2> offsets{};
  std::vector<PairedLoop> loops{};
};
using PairedBlocks = std::vector<PairedBlock>;

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

/// Cuts the first block of a list after `count` elements.
void cut_first(Blocks& blocks, Index count) {
  Blocks parts, behind;
  cut(blocks.front(), count, parts, behind);
  blocks.pop_front();
  std::move(behind.begin(), behind.end(), std::back_inserter(parts));
  blocks.insert(blocks.begin(), std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end()));
}

/// The innermost loops of a block, and as much of the next one as makes `count` elements; and the loops around them.
struct Rows {
  SideBlock inner, outer;
};
Rows split_loops(const SideBlock& block, std::size_t inner_loops, Index repeats) {
  const auto next = block.loops.end() - static_cast<std::ptrdiff_t>(inner_loops) - 1;
  Rows rows{{0, {next, block.loops.end()}}, {block.offset, {block.loops.begin(), next + 1}}};
  rows.inner.loops.front().count = repeats;
  rows.outer.loops.back() = {next->count / repeats, next->stride * repeats};
  return rows;
}

void pair_lists(Blocks source, Blocks target, PairedBlocks& paired);

/// Takes the inner loops off two blocks whose counts divide each other. \return these loops, innermost last.
std::vector<PairedBlock::PairedLoop> take_common(SideBlock& source, SideBlock& target) {
  std::vector<PairedBlock::PairedLoop> common;
  while (!source.loops.empty() && !target.loops.empty()) {
    Loop &x = source.loops.back(), &y = target.loops.back();
    const Index count = std::min(x.count, y.count);
    if (x.count % count != 0 || y.count % count != 0) break;
    common.push_back({count, {x.stride, y.stride}});
    for (SideBlock* const side : {&source, &target}) {
      Loop& loop = side->loops.back();
      loop = {loop.count / count, loop.stride * count};
      if (loop.count == 1) side->loops.pop_back();
    }
  }
  std::reverse(common.begin(), common.end());
  return common;
}

/// How many innermost loops of two blocks make the rows after whose least common multiple both repeat.
struct Period {
  Index count = 0;  // elements; 0: there is none
  std::array<std::size_t, 2> loops{};
  std::array<Index, 2> repeats{};
};
Period find_period(const SideBlock& source, const SideBlock& target) {
  Period best;
  const Index total = source.count();
  Index x = 1;
  for (std::size_t i = 1; i < source.loops.size(); ++i) {
    const Index outer_x = source.loops[source.loops.size() - 1 - i].count;
    x *= source.loops[source.loops.size() - i].count;
    Index y = 1;
    for (std::size_t j = 1; j < target.loops.size(); ++j) {
      const Index outer_y = target.loops[target.loops.size() - 1 - j].count;
      y *= target.loops[target.loops.size() - j].count;
      const Index count = std::lcm(x, y);
      if (count >= total || outer_x % (count / x) != 0 || outer_y % (count / y) != 0) continue;
      if (best.count == 0 || count < best.count) best = {count, {i, j}, {count / x, count / y}};
    }
  }
  return best;
}

/// Pairs two blocks with as many elements.
void pair_blocks(SideBlock source, SideBlock target, PairedBlocks& paired) {
  merge_loops(source.loops);
  merge_loops(target.loops);
  const auto common = take_common(source, target);
  PairedBlocks outer, inner(1);
  if (source.loops.empty()) {
    outer.push_back({{source.offset, target.offset}});
  } else if (const Period period = find_period(source, target); period.count > 0) {
    const Rows x = split_loops(source, period.loops[0], period.repeats[0]),
               y = split_loops(target, period.loops[1], period.repeats[1]);
    inner.clear();
    pair_lists({x.inner}, {y.inner}, inner);
    pair_blocks(x.outer, y.outer, outer);
  } else {
    Blocks rows{source};
    cut_first(rows, source.count() / source.loops.front().count);
    pair_lists(std::move(rows), {target}, outer);
  }
  for (const PairedBlock& around : outer)
    for (const PairedBlock& within : inner) {
      PairedBlock& block = paired.emplace_back(around);
      for (const std::size_t side : {0, 1}) block.offsets[side] += within.offsets[side];
      block.loops.insert(block.loops.end(), within.loops.begin(), within.loops.end());
      block.loops.insert(block.loops.end(), common.begin(), common.end());
    }
}

void pair_lists(Blocks source, Blocks target, PairedBlocks& paired) {
  while (!source.empty()) {
    const Index x = source.front().count(), y = target.front().count();
    if (x > y) cut_first(source, y);
    if (y > x) cut_first(target, x);
    if (x != y) continue;
    pair_blocks(std::move(source.front()), std::move(target.front()), paired);
    source.pop_front();
    target.pop_front();
  }
}

StridedBlock strided_block(const PairedBlock& paired) {
  if (paired.loops.size() > static_cast<std::size_t>(max_block_dims))
    throw Error(text("a message needs more than ", max_block_dims, " nested loops: give it as several blocks"));
  StridedBlock block;
  block.source_offset = paired.offsets[0];
  block.target_offset = paired.offsets[1];
  for (const auto& [count, strides] : paired.loops) {
    // forward in the source: Open MPI (4.1.4) sends bytes of stride -1 in ascending order
    const Index direction = strides[0] < 0 ? -1 : 1;
    if (direction < 0) block.source_offset += (count - 1) * strides[0];
    if (direction < 0) block.target_offset += (count - 1) * strides[1];
    const auto d = static_cast<std::size_t>(block.ndim++);
    block.counts[d] = count;
    block.source_strides[d] = direction * strides[0];
    block.target_strides[d] = direction * strides[1];
  }
  return merged(block);
}

}  // namespace

Index SideBlock::count() const {
  Index product = 1;
  for (const Loop& loop : loops) product *= loop.count;
  return product;
}

std::vector<StridedBlock> refine(const std::vector<SideBlock>& source, const std::vector<SideBlock>& target) {
  PairedBlocks paired;
  pair_lists({source.begin(), source.end()}, {target.begin(), target.end()}, paired);
  std::vector<StridedBlock> blocks;
  blocks.reserve(paired.size());
  std::transform(paired.begin(), paired.end(), std::back_inserter(blocks), strided_block);
  return blocks;
}

}  // namespace dace_redist
