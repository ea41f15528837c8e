// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// One dimension: the global indices that a coordinate owns, and the coordinates that own some of them in another
/// split; and grids of coordinates. Start reading at: AxisSplit.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace dace_redist {

using Index = std::int64_t;

/// a / b rounded up, for a >= 0 and b > 0; does not overflow.
inline constexpr Index ceil_div(Index a, Index b) { return a / b + (a % b != 0); }

/// The least common multiple; the largest number if it is larger.
inline constexpr Index common_multiple(Index a, Index b) {
  const Index factor = a / std::gcd(a, b), largest = std::numeric_limits<Index>::max();
  return factor > largest / b ? largest : factor * b;
}

/// The global indices that one coordinate owns along one dimension: `count` intervals of `length` indices, `period`
/// apart, the last one cut off at `end`. The local array holds them one after another: the global index
/// start + k * period + i (i < length) has local index k * length + i.
struct Intervals {
  Index start = 0, length = 0, period = 1, count = 0, end = 0;

  constexpr bool empty() const { return count == 0; }
  constexpr Index local_index(Index global) const {
    const Index from_start = global - start;
    return from_start / period * length + from_start % period;
  }
  /// Number of indices owned.
  constexpr Index size() const { return count < 2 ? end - start : local_index(end - 1) + 1; }
  /// Number of indices owned below a global index.
  constexpr Index count_below(Index global) const {
    if (global <= start || global >= end) return global >= end ? size() : 0;
    return (global - start) / period * length + std::min((global - start) % period, length);
  }
  /// The first index owned from a global index on; not below `end` if there is none.
  constexpr Index next(Index global) const {
    const Index past = global > start ? (global - start) % period : 0;
    return global < start ? start : past < length ? global : global - past + period;
  }
  /// These intervals with `by` added to all global indices; local indices do not change.
  constexpr Intervals shifted(Index by) const { return {start + by, length, period, count, end + by}; }
  /// These intervals with `by` indices more on both sides of each; one interval if they then meet.
  constexpr Intervals widened(Index by) const {
    if (by == 0 || empty()) return *this;
    const Index whole = end - start + 2 * by;
    if (count == 1 || length + 2 * by >= period) return {start - by, whole, whole, 1, end + by};
    return {start - by, length + 2 * by, period, count, end + by};
  }
};

/// One dimension of `extent` indices, split over `parts` coordinates in blocks of `block` indices: block j belongs to
/// coordinate j mod parts. `balanced`: one block per coordinate; the first `extent mod parts` blocks hold one index
/// more. `begins`: one block per coordinate, of any length. `block` is at least 1, also if the extent is 0.
///
/// No product overflows, for all extents, parts and blocks of 64 bits.
struct AxisSplit {
  Index extent = 0, parts = 1, block = 1;
  bool balanced = false;
  const Index* begins = nullptr;  // [parts + 1] ascending from 0 to the extent; must outlive the split

  constexpr Index block_count() const { return balanced || begins ? parts : ceil_div(extent, block); }
  /// Begin of block j; `extent` for blocks past the last one.
  constexpr Index block_begin(Index j) const {
    if (begins) return begins[std::min(j, parts)];
    if (!balanced) return j > extent / block ? extent : j * block;
    return j * (extent / parts) + std::min(j, extent % parts);
  }
  /// The block that holds a global index.
  constexpr Index block_of(Index global) const {
    if (begins) return std::upper_bound(begins, begins + parts, global) - begins - 1;
    if (!balanced) return global / block;
    const Index quotient = extent / parts, longer = extent % parts, edge = longer == 0 ? 0 : longer * (quotient + 1);
    return global < edge ? global / (quotient + 1) : longer + (global - edge) / quotient;
  }
  constexpr Index owner(Index global) const { return block_of(global) % parts; }
  /// Elements per block if all blocks but the last have equal lengths (0 for an extent of 0); else -1.
  constexpr Index uniform_block() const {
    if (parts == 1) return extent;
    if (begins) return uniform_length();
    if (!balanced) return std::min(block, extent);
    const Index longer = extent % parts;
    return longer == 0 || longer == parts - 1 || extent < parts ? ceil_div(extent, parts) : -1;
  }
  /// Most and fewest indices of a coordinate.
  constexpr Index longest() const {
    Index most = intervals(0).size();
    for (Index j = 1; begins && j < parts; ++j) most = std::max(most, begins[j + 1] - begins[j]);
    return most;
  }
  constexpr Index shortest() const {
    Index fewest = intervals(parts - 1).size();
    for (Index j = 0; begins && j < parts; ++j) fewest = std::min(fewest, begins[j + 1] - begins[j]);
    return fewest;
  }
  /// The indices of a coordinate.
  constexpr Intervals intervals(Index coordinate) const {
    if (parts == 1) return {0, extent, std::max<Index>(extent, 1), extent > 0 ? 1 : 0, extent};
    const Index blocks = block_count();
    if (coordinate >= blocks) return {};
    const Index begin = block_begin(coordinate);
    if (blocks <= parts) {
      const Index end = block_begin(coordinate + 1);
      return begin < end ? Intervals{begin, end - begin, end - begin, 1, end} : Intervals{};
    }
    const Index count = (blocks - 1 - coordinate) / parts + 1, last = coordinate + (count - 1) * parts;
    return {begin, block, block * parts, count, block_begin(last + 1)};
  }

 private:
  constexpr Index uniform_length() const {
    const AxisSplit uniform{extent, parts, std::max<Index>(begins[1], 1)};
    for (Index j = 1; j <= parts; ++j)
      if (begins[j] != uniform.block_begin(j)) return -1;
    return begins[1];
  }
};

/// The coordinates of `other` that own an index of `mine` in [first, last), ascending. Cost: the number of coordinates
/// found if `other` has one block per coordinate; else the number of blocks visited until every coordinate was seen or
/// the pattern repeats.
std::vector<Index> overlapping_coordinates(const Intervals& mine, const AxisSplit& other, Index first, Index last);

// Grids of processes or tiles: their sizes and coordinates

/// Dimensions that a tensor may have.
inline constexpr int max_dims = 16;

/// One number per tensor axis; entries from ndim on are 0. Planning handles one per message, without allocations.
using AxisArray = std::array<Index, max_dims>;

/// Product of non-negative extents; 1 if there are none.
/// \param what, owner  name the extents in the error message, as "owner: what".
/// \throws Error if the product of the non-zero extents overflows 64 bits, since strides are computed from it.
Index checked_product(const std::vector<Index>& extents, const char* what, const std::string& owner = {});

/// Tiles per dimension: ceil(shape / tile). \throws Error unless extents are at least 0 and tiles at least 1.
std::vector<Index> tile_grid(const std::vector<Index>& shape, const std::vector<Index>& tile, const std::string& name);

/// Calls `visit(coordinates)` for all coordinates of a grid, the last axis fastest.
template <class Visit>
void for_each_coordinates(const AxisArray& sizes, int ndim, Visit&& visit) {
  for (int axis = 0; axis < ndim; ++axis)
    if (sizes[static_cast<std::size_t>(axis)] == 0) return;
  AxisArray at{};
  for (;;) {
    visit(at);
    std::size_t axis = static_cast<std::size_t>(ndim);
    while (axis > 0 && ++at[axis - 1] == sizes[axis - 1]) at[--axis] = 0;
    if (axis == 0) return;
  }
}

}  // namespace dace_redist
