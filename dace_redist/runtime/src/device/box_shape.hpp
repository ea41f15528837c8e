// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A block in words, and its cut for a device: long dimensions are split, and boxes are chosen where source and target
/// have different fastest dimensions.

#include <cstdint>
#include <vector>

namespace dace_redist {

/// A dimension of words.
struct WordDimension {
  std::int64_t count, source_stride, target_stride;  ///< strides in bytes
};

/// A block of words: steps, each of which is a box of words.
struct WordBlock {
  std::int64_t source_offset = 0, target_offset = 0;  ///< bytes
  std::vector<WordDimension> steps;                   ///< outermost first
  std::vector<WordDimension> box;                     ///< outermost first in the target's order; empty: one word
};

/// Whether the fastest dimensions of source and target differ, so that boxes of words should go through shared memory.
///
/// \param dimensions  in the target's order, outermost first.
/// \param run_bytes  contiguous bytes on both sides.
/// \param run_is_last  whether the last dimension is the run.
bool is_transposed(const std::vector<WordDimension>& dimensions, std::int64_t run_bytes, bool run_is_last);

/// Cuts a block whose steps are words into blocks of boxes.
/// \param source_bytes, target_bytes  of a word.
/// \param max_words  of a box.
std::vector<WordBlock> cut_into_boxes(const WordBlock& block, std::int64_t source_bytes, std::int64_t target_bytes,
                                      std::int64_t max_words);

/// Appends a block to `blocks`, in parts if a dimension of its steps is longer than max_tile_count.
void split_long_dimensions(const WordBlock& block, std::vector<WordBlock>& blocks);

}  // namespace dace_redist
