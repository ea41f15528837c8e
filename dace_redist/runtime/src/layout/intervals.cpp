// SPDX-License-Identifier: BSD-3-Clause
#include "layout/intervals.hpp"

#include "core/error.hpp"

namespace dace_redist {

std::vector<Index> overlapping_coordinates(const Intervals& mine, const AxisSplit& other, Index first, Index last) {
  if (mine.empty()) return {};
  const bool cyclic = other.block_count() > other.parts;  // else coordinates are found in ascending order
  const std::size_t max_found = static_cast<std::size_t>(std::min(other.parts, other.block_count()));
  std::vector<Index> found;
  std::vector<bool> seen(cyclic ? max_found : 0, false);
  const Index end = std::min(mine.end, last);
  Index k = std::max<Index>(0, (first - mine.start) / mine.period), stop = end;
  if (cyclic && mine.count > 1) {  // stop where both sides repeat
    const Index begin = mine.start + k * mine.period, cut_off = begin < first ? mine.period : 0;
    const Index period = common_multiple(mine.period, other.block * other.parts);
    if (period < end - begin - cut_off) stop = begin + period + cut_off;
  }
  while (k < mine.count && found.size() < max_found) {
    const Index lo = mine.start + k++ * mine.period;
    if (lo >= stop) break;
    const Index from = std::max(lo, first), until = lo + std::min(mine.length, end - lo);
    if (from >= until) continue;
    const Index last_block = other.block_of(until - 1);
    for (Index j = other.block_of(from); j <= last_block && found.size() < max_found; ++j) {
      const Index coordinate = j % other.parts;
      if (cyclic ? seen[static_cast<std::size_t>(coordinate)] : !found.empty() && j <= found.back()) continue;
      found.push_back(coordinate);
      if (cyclic) seen[static_cast<std::size_t>(coordinate)] = true;
    }
    // past all further intervals that lie within this block
    if (!cyclic) k = std::max(k, (other.block_begin(last_block + 1) - mine.start - mine.length) / mine.period + 1);
  }
  if (cyclic) std::sort(found.begin(), found.end());
  return found;
}

Index checked_product(const std::vector<Index>& extents, const char* what, const std::string& owner) {
  Index product = 1;
  bool zero = false;
  for (const Index extent : extents) {
    zero = zero || extent == 0;
    if (extent == 0) continue;
    if (product > std::numeric_limits<Index>::max() / extent)
      throw Error(
          text(owner, owner.empty() ? "" : ": ", what, " ", tuple_text(extents), " is larger than 64 bits hold"));
    product *= extent;
  }
  return zero ? 0 : product;
}

std::vector<Index> tile_grid(const std::vector<Index>& shape, const std::vector<Index>& tile, const std::string& name) {
  if (shape.size() != tile.size())
    throw Error(text(name, ": tile needs ", shape.size(), " entries, one per dimension, got ", tile.size()));
  std::vector<Index> grid;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) throw Error(text(name, ": shape[", i, "] must be at least 0, got ", shape[i]));
    if (tile[i] < 1) throw Error(text(name, ": tile[", i, "] must be at least 1 element, got ", tile[i]));
    grid.push_back(ceil_div(shape[i], tile[i]));
  }
  return grid;
}

}  // namespace dace_redist
