// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Ownership along one dimension: every index against its definition, and extents, blocks and parts whose products do
/// not fit 64 bits. An overflow in a constant expression is an error of the compiler.

#include <cstdio>
#include <vector>

#include "layout/intervals.hpp"

using dace_redist::AxisSplit;
using dace_redist::Index;
using dace_redist::Intervals;

constexpr Index large = Index{1} << 62;
constexpr AxisSplit one_block{Index{1} << 50, 1 << 14, Index{1} << 50, false};
static_assert(one_block.intervals(0).size() == Index{1} << 50);
static_assert(one_block.intervals(1 << 13).empty() && one_block.intervals((1 << 14) - 1).empty());
static_assert(one_block.block_begin(1 << 13) == one_block.extent);
constexpr AxisSplit long_blocks{large + 1, 4, large / 2, false};
static_assert(long_blocks.intervals(1).size() == large / 2 && long_blocks.intervals(2).size() == 1);
static_assert(long_blocks.intervals(3).empty());
constexpr AxisSplit short_blocks{large + 1, Index{1} << 31, Index{1} << 30, false};
static_assert(short_blocks.intervals(0).size() == (Index{1} << 31) + 1);
static_assert(short_blocks.intervals((Index{1} << 31) - 1).size() == Index{1} << 31);
constexpr AxisSplit balanced{large, large - 1, 1, true};
static_assert(balanced.intervals(0).size() == 2 && balanced.intervals(large - 2).end == large);

/// Block j of the definition: coordinate j mod parts owns it.
Index owner(const AxisSplit& split, Index global) {
  Index j = 0;
  while (split.block_begin(j + 1) <= global) ++j;
  return j % split.parts;
}

bool agrees(const AxisSplit& split) {
  Index owned = 0;
  for (Index coordinate = 0; coordinate < split.parts; ++coordinate) {
    const Intervals indices = split.intervals(coordinate);
    Index local = 0;
    for (Index global = 0; global < split.extent; ++global) {
      if (owner(split, global) != coordinate) continue;
      if (split.owner(global) != coordinate || indices.local_index(global) != local) return false;
      if (global < indices.start || global >= indices.end) return false;
      ++local;
    }
    if (local != indices.size() || indices.empty() != (local == 0)) return false;
    owned += local;
  }
  return owned == split.extent;
}

/// All ways to cut an extent into parts of any length, also of 0.
bool all_lengths_agree(Index extent, std::vector<Index> begins, Index parts) {
  if (static_cast<Index>(begins.size()) == parts) {
    begins.push_back(extent);
    return agrees({extent, parts, 1, false, begins.data()});
  }
  for (Index begin = begins.back(); begin <= extent; ++begin) {
    begins.push_back(begin);
    if (!all_lengths_agree(extent, begins, parts)) return false;
    begins.pop_back();
  }
  return true;
}

int main() {
  for (Index extent = 0; extent < 6; ++extent)
    for (Index parts = 1; parts < 5; ++parts)
      if (!all_lengths_agree(extent, {0}, parts)) {
        std::printf("lengths: extent %ld, %ld parts\n", long(extent), long(parts));
        return 1;
      }
  for (Index extent = 0; extent < 20; ++extent)
    for (Index parts = 1; parts < 8; ++parts)
      for (Index block = 0; block < 9; ++block) {
        const AxisSplit split{extent, parts, std::max<Index>(block, 1), block == 0};
        if (agrees(split)) continue;
        std::printf("extent %ld, %ld parts, block %ld\n", long(extent), long(parts), long(block));
        return 1;
      }
  return 0;
}
