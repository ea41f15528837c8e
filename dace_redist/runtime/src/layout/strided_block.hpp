// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A box of elements described by counts and strides on both sides of a copy.

#include <array>
#include <cstddef>
#include <cstdint>

namespace dace_redist {

/// Most dimensions a block may have; blocks hold arrays of this length, so that planning needs no allocation per block.
inline constexpr int max_block_dims = 24;

/// A box of elements and where it lies on both sides.
///
/// Counts and strides are given outermost dimension first; strides may be negative, and zero on the source.
struct StridedBlock {
  int ndim = 0;                                               ///< 0: exactly one element
  std::int64_t source_offset = 0;                             ///< elements from the start of the source array
  std::int64_t target_offset = 0;                             ///< elements from the start of the target array
  std::array<std::int64_t, max_block_dims> counts{};          ///< [ndim], >= 0
  std::array<std::int64_t, max_block_dims> source_strides{};  ///< [ndim], elements
  std::array<std::int64_t, max_block_dims> target_strides{};  ///< [ndim], elements

  /// Number of elements: the product of the counts, 0 if one of them is 0.
  constexpr std::int64_t count() const {
    std::int64_t product = 1;
    for (std::size_t d = 0; d < static_cast<std::size_t>(ndim); ++d) product *= counts[d];
    return product;
  }
};

namespace detail {

/// Drops dimensions of count 1 and merges neighbours that are contiguous on both sides; keeps the order.
/// `Block` is anything with `ndim`, `counts`, `source_strides` and `target_strides`.
template <class Block>
constexpr void merge_dimensions(Block& block) {
  std::size_t kept = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d) {
    const std::int64_t count = block.counts[d];
    if (count == 1) continue;
    const bool contiguous = kept > 0 && block.source_strides[kept - 1] == block.source_strides[d] * count &&
                            block.target_strides[kept - 1] == block.target_strides[d] * count;
    if (!contiguous) ++kept;
    block.counts[kept - 1] = contiguous ? block.counts[kept - 1] * count : count;
    block.source_strides[kept - 1] = block.source_strides[d];
    block.target_strides[kept - 1] = block.target_strides[d];
  }
  block.ndim = static_cast<int>(kept);
}

}  // namespace detail

/// The same copy with dimensions of one element dropped and neighbours merged where contiguous on both sides.
///
/// Keeps the order of the remaining dimensions.
constexpr StridedBlock merged(const StridedBlock& block) {
  StridedBlock result = block;
  detail::merge_dimensions(result);
  return result;
}

}  // namespace dace_redist
