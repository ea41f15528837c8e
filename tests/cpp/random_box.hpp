// SPDX-License-Identifier: BSD-3-Clause
// Random boxes of two arrays, and their elements one by one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "layout/strided_block.hpp"
#include "random.hpp"

namespace {

using dace_redist::StridedBlock;
using BoxStrides = std::array<std::int64_t, dace_redist::max_block_dims>;

/// A block whose offsets are 0, and the elements that it needs before and after its start on both sides.
struct Box {
  StridedBlock block;
  std::int64_t source_before = 0, source_extent = 1, target_before = 0, target_extent = 1;
};

/// Limits of random boxes.
struct BoxLimits {
  int ndim;
  std::int64_t elements, long_extent, short_extent;  // half of the extents are short
  bool reversed_targets;
};

/// Strides of an array that holds the counts, its dimensions in `order` (outermost first), with random padding.
/// \return the number of elements of that array.
std::int64_t fill_strides(Random& random, const StridedBlock& block, const std::vector<std::size_t>& order,
                          BoxStrides& strides) {
  std::int64_t stride = random.one_in(6) ? 2 : 1;
  for (std::size_t at = order.size(); at-- > 0;) {
    strides[order[at]] = stride;
    stride *= std::max<std::int64_t>(1, block.counts[order[at]]) + (random.one_in(3) ? random.between(1, 3) : 0);
  }
  return stride;
}

/// The dimensions in their own order, or in a random one.
std::vector<std::size_t> random_order(Random& random, std::size_t ndim) {
  if (random.one_in(2)) return random.permutation(ndim);
  std::vector<std::size_t> natural(ndim);
  std::iota(natural.begin(), natural.end(), std::size_t{0});
  return natural;
}

/// A box with any order of dimensions on both sides; some run backwards, some are broadcast, few are empty.
Box random_box(Random& random, const BoxLimits& limits) {
  Box made;
  StridedBlock& block = made.block;
  block.ndim = static_cast<int>(random.between(random.one_in(15) ? 0 : 1, limits.ndim));
  const auto ndim = static_cast<std::size_t>(block.ndim);
  std::int64_t left = limits.elements;
  for (const std::size_t d : random.permutation(ndim)) {
    block.counts[d] = random.between(1, std::min(left, random.one_in(2) ? limits.long_extent : limits.short_extent));
    left = std::max<std::int64_t>(1, left / block.counts[d]);
  }
  if (ndim > 0 && random.one_in(50)) block.counts[ndim / 2] = 0;
  made.source_extent = fill_strides(random, block, random_order(random, ndim), block.source_strides);
  made.target_extent = fill_strides(random, block, random_order(random, ndim), block.target_strides);
  for (std::size_t d = 0; d < ndim; ++d) {
    const std::int64_t last = std::max<std::int64_t>(0, block.counts[d] - 1);
    if (random.one_in(8)) {
      made.source_before += last * block.source_strides[d];
      block.source_strides[d] = -block.source_strides[d];
    } else if (random.one_in(25)) {
      block.source_strides[d] = 0;
    }
    if (limits.reversed_targets && random.one_in(12)) {
      made.target_before += last * block.target_strides[d];
      block.target_strides[d] = -block.target_strides[d];
    }
  }
  return made;
}

/// Calls `visit(source, target)` with the offsets of each element of a block, in the order of its dimensions.
template <class Visit>
void for_each_element(const StridedBlock& block, const Visit& visit) {
  std::array<std::int64_t, dace_redist::max_block_dims> index{};
  for (std::int64_t left = block.count(); left > 0; --left) {
    std::int64_t from = block.source_offset, to = block.target_offset;
    for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d) {
      from += index[d] * block.source_strides[d];
      to += index[d] * block.target_strides[d];
    }
    visit(from, to);
    for (auto d = static_cast<std::size_t>(block.ndim); d-- > 0;) {
      if (++index[d] < block.counts[d]) break;
      index[d] = 0;
    }
  }
}

}  // namespace
