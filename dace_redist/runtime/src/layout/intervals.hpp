// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// One dimension: which global indices a coordinate owns, and what two coordinates have in common.
/// Start reading at: AxisSplit (who owns what along one dimension), then `intersect`.

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace dace_redist {

using Index = std::int64_t;

/// a / b rounded up, for a >= 0 and b > 0; does not overflow.
inline constexpr Index ceil_div(Index a, Index b) { return a / b + (a % b != 0); }

/// The global indices one coordinate owns along one dimension: `count` intervals of `length` indices, `period` apart,
/// the last one cut off at `end`. Locally they lie one after another: global g = start + k * period + i (i < length)
/// has local index k * length + i.
struct Intervals {
  Index start = 0, length = 0, period = 1, count = 0, end = 0;

  bool empty() const { return count == 0; }
  Index local_index(Index global) const { return (global - start) / period * length + (global - start) % period; }
  /// Number of indices owned.
  Index size() const { return empty() ? 0 : local_index(end - 1) + 1; }
  /// The same intervals with `by` added to all global indices; local indices stay.
  Intervals shifted(Index by) const { return {start + by, length, period, count, end + by}; }
};

/// One dimension of `extent` indices, split over `parts` coordinates in blocks of `block` indices: block j belongs to
/// coordinate j mod parts. `balanced`: one block per coordinate, the first `extent mod parts` hold one index more.
/// `block` is at least 1 also where the extent is 0, of which no coordinate owns anything.
struct AxisSplit {
  Index extent = 0, parts = 1, block = 1;
  bool balanced = false;

  Index block_count() const { return balanced ? parts : ceil_div(extent, block); }
  Index block_begin(Index j) const {
    if (!balanced) return std::min(j * block, extent);
    return j * (extent / parts) + std::min(j, extent % parts);
  }
  /// The block that holds a global index.
  Index block_of(Index global) const {
    if (!balanced) return global / block;
    const Index quotient = extent / parts, longer = extent % parts, edge = longer * (quotient + 1);
    return global < edge ? global / (quotient + 1) : longer + (global - edge) / quotient;
  }
  Index owner(Index global) const { return block_of(global) % parts; }
  /// Elements per block where all blocks but the last are equally long, 0 of an extent of 0; -1 where they are not.
  Index uniform_block() const {
    if (parts == 1) return extent;
    if (!balanced) return std::min(block, extent);
    const Index longer = extent % parts;
    return longer == 0 || longer == parts - 1 || extent < parts ? ceil_div(extent, parts) : -1;
  }

  Intervals intervals(Index coordinate) const {
    const Index blocks = block_count(), begin = block_begin(coordinate), end = block_begin(coordinate + 1);
    if (coordinate >= blocks || begin >= end) return {};
    if (blocks <= parts) return {begin, end - begin, end - begin, 1, end};
    if (parts == 1) return {0, extent, extent, 1, extent};
    const Index count = (blocks - 1 - coordinate) / parts + 1, last = coordinate + (count - 1) * parts;
    return {begin, block, block * parts, count, block_begin(last + 1)};
  }
};

/// The coordinates of `other` that own an index of `mine` in [first, last), ascending. Cost: the blocks met until all
/// coordinates are found or both sides repeat, and where each coordinate of `other` has one block, the coordinates
/// found.
std::vector<Index> overlapping_coordinates(const Intervals& mine, const AxisSplit& other, Index first, Index last);

/// Indices that two interval sequences share, as a nest of loops in local indices of both sides, outermost first:
/// [repetitions of the joint period][equal runs within it][the run, stride 1].
struct Piece {
  static constexpr int levels = 3;
  Index source_offset = 0, target_offset = 0;
  std::array<Index, levels> counts{1, 1, 1}, source_strides{0, 0, 1}, target_strides{0, 0, 1};
};

/// The indices in [first, last) that `source` and `target` have in common. Both sides of a message call this with the
/// same arguments, so that they agree on the order. Cost: the runs of one joint period and of the rest before and
/// after.
std::vector<Piece> intersect(const Intervals& source, const Intervals& target, Index first, Index last);

}  // namespace dace_redist
