// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A strided block prepared for copying: in bytes, dimensions in the order of the target, contiguous runs found.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "layout/strided_block.hpp"

namespace dace_redist {

/// What one copy needs, in bytes: made once by make_copy_block(), used by every copy().
///
/// Dimensions are ordered by target stride, so that writes are sequential; what is contiguous on both sides is one run.
struct CopyBlock {
  std::int64_t source_offset = 0;                             ///< bytes from the start of the source array
  std::int64_t target_offset = 0;                             ///< bytes from the start of the target array
  std::int64_t run_bytes = 0;                                 ///< contiguous bytes per copy; 0: nothing to copy
  int ndim = 0;                                               ///< dimensions of runs; 0: one run
  std::array<std::int64_t, max_block_dims> counts{};          ///< [ndim], outermost first, >= 2
  std::array<std::int64_t, max_block_dims> source_strides{};  ///< [ndim], bytes
  std::array<std::int64_t, max_block_dims> target_strides{};  ///< [ndim], bytes

  /// Bytes that are copied.
  constexpr std::int64_t nbytes() const {
    std::int64_t product = run_bytes;
    for (std::size_t d = 0; d < static_cast<std::size_t>(ndim); ++d) product *= counts[d];
    return product;
  }

  /// Whether the block is one run on both sides (or empty).
  constexpr bool contiguous() const { return ndim == 0; }
};

namespace detail {

constexpr std::int64_t magnitude(std::int64_t stride) { return stride < 0 ? -stride : stride; }

/// Sorts the dimensions by descending target stride, then source stride (insertion sort: few, often sorted already).
constexpr void sort_dimensions(StridedBlock& block) {
  const auto before = [&block](std::size_t a, std::size_t b) {
    const std::int64_t target_a = magnitude(block.target_strides[a]), target_b = magnitude(block.target_strides[b]);
    if (target_a != target_b) return target_a > target_b;
    return magnitude(block.source_strides[a]) > magnitude(block.source_strides[b]);
  };
  const auto exchange = [](auto& values, std::size_t d) {
    const std::int64_t value = values[d];
    values[d] = values[d - 1];
    values[d - 1] = value;
  };
  for (std::size_t sorted = 1; sorted < static_cast<std::size_t>(block.ndim); ++sorted)
    for (std::size_t d = sorted; d > 0 && before(d, d - 1); --d) {
      exchange(block.counts, d);
      exchange(block.source_strides, d);
      exchange(block.target_strides, d);
    }
}

inline constexpr std::int64_t run_cut_bytes = 64;  ///< a run is cut at multiples of this
inline constexpr std::int64_t even_cut_count = 8;  ///< with as many steps per part, parts differ by an eighth at most

/// Keeps part `index` of `ways` of dimension `d`; the dimension after the last one is the run.
inline void keep_part(CopyBlock& block, std::size_t d, std::int64_t index, std::int64_t ways) {
  if (d < static_cast<std::size_t>(block.ndim)) {
    const std::int64_t first = block.counts[d] * index / ways;
    block.counts[d] = block.counts[d] * (index + 1) / ways - first;
    block.source_offset += first * block.source_strides[d];
    block.target_offset += first * block.target_strides[d];
    return;
  }
  const std::int64_t pieces = (block.run_bytes + run_cut_bytes - 1) / run_cut_bytes;
  const std::int64_t first = pieces * index / ways * run_cut_bytes;
  block.run_bytes = std::min(block.run_bytes, pieces * (index + 1) / ways * run_cut_bytes) - first;
  block.source_offset += first;
  block.target_offset += first;
}

}  // namespace detail

/// Turns a block of elements into a block of bytes without runs: orders the dimensions and merges them. The elements of
/// the two sides may be of different sizes.
inline CopyBlock make_element_block(const StridedBlock& block, std::int64_t source_bytes, std::int64_t target_bytes) {
  CopyBlock result;
  result.source_offset = block.source_offset * source_bytes;
  result.target_offset = block.target_offset * target_bytes;
  if (block.count() == 0) return result;
  StridedBlock sorted = merged(block);
  detail::sort_dimensions(sorted);
  detail::merge_dimensions(sorted);
  result.run_bytes = target_bytes;
  result.ndim = sorted.ndim;
  for (std::size_t d = 0; d < static_cast<std::size_t>(sorted.ndim); ++d) {
    result.counts[d] = sorted.counts[d];
    result.source_strides[d] = sorted.source_strides[d] * source_bytes;
    result.target_strides[d] = sorted.target_strides[d] * target_bytes;
  }
  return result;
}

/// The same for a copy, whose elements are of one size: what is contiguous on both sides is one run.
///
/// \param block  The box, in elements.
/// \param element_bytes  Bytes of an element, >= 1.
inline CopyBlock make_copy_block(const StridedBlock& block, std::int64_t element_bytes) {
  CopyBlock result = make_element_block(block, element_bytes, element_bytes);
  const auto last = static_cast<std::size_t>(result.ndim) - 1;
  if (result.ndim > 0 && result.source_strides[last] == element_bytes && result.target_strides[last] == element_bytes) {
    result.run_bytes *= result.counts[last];
    --result.ndim;
  }
  return result;
}

/// Part `part` of `parts` of a block, for threads that share a copy; may be empty.
///
/// Cuts the outermost dimensions into equal or nearly equal counts; what cannot be divided so is cut along its longest
/// dimension, or along the run, at multiples of 64 bytes.
///
/// \param part  0 <= part < parts.
inline CopyBlock slice(const CopyBlock& block, int part, int parts) {
  CopyBlock result = block;
  std::int64_t index = part, pieces = parts;
  const auto cut = [&](std::size_t d, std::int64_t ways) {
    pieces /= ways;
    detail::keep_part(result, d, index / pieces, ways);
    index %= pieces;
  };
  const auto ndim = static_cast<std::size_t>(block.ndim);
  for (std::size_t d = 0; d < ndim && pieces > 1; ++d) {
    const std::int64_t count = block.counts[d];
    cut(d, count >= detail::even_cut_count * pieces ? pieces : std::gcd(count, pieces));
  }
  if (pieces > 1) {
    std::size_t longest = ndim;
    std::int64_t extent = result.run_bytes / detail::run_cut_bytes;
    for (std::size_t d = ndim; d-- > 0;)
      if (result.counts[d] >= extent) extent = result.counts[longest = d];
    cut(longest, pieces);
  }
  if (result.nbytes() == 0) return CopyBlock{};
  detail::merge_dimensions(result);
  return result;
}

/// Where a copy of a block begins: both pointers are to its first run.
struct CopyEndpoints {
  const char* source;
  char* target;
};

inline constexpr std::size_t max_batch = 16;  ///< copies of one block that are made together

}  // namespace dace_redist
