// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A strided block prepared for copying: in bytes, dimensions in the order of the target, contiguous runs found.

#include <cstddef>
#include <cstdint>

#include "dace_redist_types.h"
#include "layout/strided_block.hpp"

namespace dace_redist {

/// Arguments of a copy, in bytes: made once by make_copy_block(), used by every copy().
///
/// Offsets and strides count bytes, and dimensions runs. Dimensions are ordered by target stride, so that writes are
/// sequential. Elements that are contiguous on both sides form one run.
struct CopyBlock : StridedBlock {  // counts are those of runs, at least 2
  std::int64_t run_bytes = 0;      ///< contiguous bytes per copy; 0: nothing to copy

  /// Bytes copied.
  constexpr std::int64_t nbytes() const { return count() * run_bytes; }

  /// True if the block is one run on both sides, or empty.
  constexpr bool contiguous() const { return ndim == 0; }
};

/// Source and target of one of the copies in a batch: addresses of the first run.
struct CopyEndpoints {
  const char* source;
  char* target;
};

inline constexpr std::size_t max_batch = 16;  ///< copies of one block in a batch

/// Converts a block of elements to bytes, without runs: sorts and merges the dimensions. Elements may differ in size on
/// the two sides.
DR_API CopyBlock make_element_block(const StridedBlock& block, std::int64_t source_bytes, std::int64_t target_bytes);

/// Converts a block of elements to bytes for a copy.
///
/// \param block  The box, in elements.
/// \param element_bytes  Bytes of an element, >= 1.
DR_API CopyBlock make_copy_block(const StridedBlock& block, std::int64_t element_bytes);

/// Part `part` of `parts` of a block, for threads that share a copy; may be empty.
///
/// Cuts the outermost dimensions into equal or nearly equal counts, and the remainder along the longest dimension, or
/// along the run, at multiples of 64 bytes.
///
/// \param part  0 <= part < parts.
DR_API CopyBlock slice(const CopyBlock& block, int part, int parts);

namespace detail {

constexpr std::int64_t magnitude(std::int64_t stride) { return stride < 0 ? -stride : stride; }

/// Sorts the dimensions: those of count 1, then by descending target stride, then source stride.
void sort_dimensions(StridedBlock& block);

/// Contiguous target bytes: one run, or as many dimensions as follow each other.
std::int64_t target_span(const CopyBlock& block);

/// Dimension of the shortest source stride, if that is not the last one and runs are short; else -1. It and the last
/// one are best copied in tiles, whose lines on both sides stay in the cache.
int transposed_dimension(const CopyBlock& block);

}  // namespace detail

}  // namespace dace_redist
