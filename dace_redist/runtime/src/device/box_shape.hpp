// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A block in words, and how it is cut for a device: long dimensions split, boxes chosen where source and target have
/// different fastest dimensions.
/// Start reading at: cut_into_boxes().

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "device/tile_descriptors.hpp"

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

namespace detail {

/// Moves a block along a dimension.
inline void move_along(WordBlock& block, const WordDimension& dimension, std::int64_t by) {
  block.source_offset += by * dimension.source_stride;
  block.target_offset += by * dimension.target_stride;
}

/// Grows a box whose extents in each dimension are 1 at first.
class BoxExtents {
 public:
  /// \param most_words  of a box.
  BoxExtents(const std::vector<WordDimension>& dimensions, std::int64_t source_bytes, std::int64_t target_bytes,
             std::int64_t most_words)
      : dimensions_(dimensions),
        source_bytes_(source_bytes),
        target_bytes_(target_bytes),
        most_words_(most_words),
        extents_(dimensions.size(), 1) {}

  const std::vector<std::int64_t>& extents() const { return extents_; }

  /// Takes words along dimensions, the first ones before the others, until there are so many, if that fits.
  void grow(const std::vector<std::size_t>& order, std::int64_t words) {
    std::int64_t taken = 1;
    for (const std::size_t d : order) {
      const std::int64_t count = dimensions_[d].count;
      grow_to(d, std::min(count, words / taken));
      taken *= extents_[d];
      if (extents_[d] < count) return;
    }
  }

  /// Takes as many words as fit along the first dimension that is cut.
  void fill(const std::vector<std::size_t>& order) {
    std::int64_t words = 1;
    for (const std::int64_t extent : extents_) words *= extent;
    const auto cut =
        std::find_if(order.begin(), order.end(), [this](std::size_t d) { return extents_[d] < dimensions_[d].count; });
    if (cut == order.end()) return;
    const std::int64_t extent = std::min(dimensions_[*cut].count, most_words_ / (words / extents_[*cut]));
    grow_to(*cut, extent < dimensions_[*cut].count ? extent / sector_words() * sector_words() : extent);
  }

  /// Makes the parts of a dimension of equal size, as far as whole sectors of cache lines go.
  void balance() {
    for (std::size_t d = 0; d < extents_.size(); ++d) {
      const std::int64_t count = dimensions_[d].count, parts = (count + extents_[d] - 1) / extents_[d],
                         even = (count + parts - 1) / parts,
                         sectors = (even + sector_words() - 1) / sector_words() * sector_words();
      extents_[d] = sectors <= extents_[d] ? sectors : even;
    }
  }

 private:
  void grow_to(std::size_t d, std::int64_t extent) {
    if (extent <= extents_[d]) return;
    const std::int64_t before = extents_[d];
    extents_[d] = extent;
    if (!fits()) extents_[d] = before;
  }

  std::int64_t sector_words() const { return std::max<std::int64_t>(1, 32 / std::min(source_bytes_, target_bytes_)); }

  /// Whether there are not too many words, whose distances from the first fit 32 bits.
  bool fits() const {
    constexpr std::int64_t farthest = std::numeric_limits<std::int32_t>::max();
    std::int64_t words = 1, source = 0, target = 0;
    for (std::size_t d = 0; d < extents_.size(); ++d) {
      words *= extents_[d];
      source += (extents_[d] - 1) * std::abs(dimensions_[d].source_stride / source_bytes_);
      target += (extents_[d] - 1) * std::abs(dimensions_[d].target_stride / target_bytes_);
    }
    return words <= most_words_ && source <= farthest && target <= farthest;
  }

  const std::vector<WordDimension>& dimensions_;
  std::int64_t source_bytes_, target_bytes_, most_words_;
  std::vector<std::int64_t> extents_;
};

/// The dimensions from the fastest to the slowest in the source; those that stay in place come last.
inline std::vector<std::size_t> source_order(const std::vector<WordDimension>& dimensions) {
  std::vector<std::size_t> order;
  for (std::size_t d = dimensions.size(); d-- > 0;) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto distance = [&](std::size_t d) {
      return static_cast<std::uint64_t>(std::abs(dimensions[d].source_stride)) - 1;  // the largest one of stride 0
    };
    return distance(a) < distance(b);
  });
  return order;
}

inline std::vector<std::int64_t> box_extents(const std::vector<WordDimension>& dimensions, std::int64_t source_bytes,
                                             std::int64_t target_bytes, std::int64_t most_words) {
  constexpr std::int64_t longest_row = 512;  // bytes from which longer rows are not read or written faster
  std::vector<std::size_t> of_target;
  for (std::size_t d = dimensions.size(); d-- > 0;) of_target.push_back(d);
  const std::vector<std::size_t> of_source = source_order(dimensions);
  BoxExtents box(dimensions, source_bytes, target_bytes, most_words);
  for (std::int64_t words = 2; words * std::min(source_bytes, target_bytes) <= longest_row; words *= 2) {
    box.grow(of_target, words);
    box.grow(of_source, words);
  }
  box.fill(of_target);
  box.fill(of_source);
  box.balance();
  return box.extents();
}

/// Adds the parts of a block from dimension `first` on, boxes of the given extents and what is left at the ends.
inline void add_boxes(const WordBlock& block, std::vector<std::int64_t> extents, std::size_t first,
                      std::vector<WordBlock>& blocks) {
  const std::vector<WordDimension>& dimensions = block.steps;
  for (std::size_t d = first; d < dimensions.size(); ++d) {
    const std::int64_t count = dimensions[d].count, left = count % extents[d];
    if (left == 0) continue;
    WordBlock part = block;
    part.steps[d].count = count - left;
    add_boxes(part, extents, d + 1, blocks);
    move_along(part, dimensions[d], count - left);
    part.steps[d].count = extents[d] = left;
    return add_boxes(part, extents, d + 1, blocks);
  }
  WordBlock result{block.source_offset, block.target_offset, {}, {}};
  std::vector<WordDimension> cut;  // inside the others: boxes side by side share lines while these are in a cache
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    const WordDimension& all = dimensions[d];
    const std::int64_t steps = all.count / extents[d];
    if (steps > 1)
      (extents[d] > 1 ? cut : result.steps)
          .push_back({steps, extents[d] * all.source_stride, extents[d] * all.target_stride});
    if (extents[d] > 1) result.box.push_back({extents[d], all.source_stride, all.target_stride});
  }
  result.steps.insert(result.steps.end(), cut.begin(), cut.end());
  blocks.push_back(result);
}

}  // namespace detail

/// Whether words lie in different orders on both sides so that a box of them is to be turned around on the way.
///
/// \param dimensions  in the target's order, outermost first; the last one the run, if that is longer than a word.
/// \param run_bytes  contiguous bytes on both sides.
inline bool lies_transposed(const std::vector<WordDimension>& dimensions, std::int64_t run_bytes, bool run_is_last) {
  constexpr std::int64_t longest_run = 32;  // which fills the sectors of cache lines in any order
  constexpr std::int64_t farthest = 128;    // bytes: words farther apart are in different cache lines in any order
  if (run_bytes >= longest_run || dimensions.size() < (run_is_last ? 3 : 2)) return false;
  const std::size_t last = dimensions.size() - (run_is_last ? 2 : 1);
  const std::int64_t stride = std::abs(dimensions[last].source_stride);
  return std::any_of(dimensions.begin(), dimensions.begin() + static_cast<std::ptrdiff_t>(last),
                     [&](const WordDimension& dimension) {
                       const std::int64_t other = std::abs(dimension.source_stride);
                       return other > 0 && other < stride && other < farthest;
                     });
}

/// Cuts a block whose steps are words into blocks of boxes.
/// \param most_words  of a box.
inline std::vector<WordBlock> cut_into_boxes(const WordBlock& block, std::int64_t source_bytes,
                                             std::int64_t target_bytes, std::int64_t most_words) {
  std::vector<WordBlock> blocks;
  detail::add_boxes(block, detail::box_extents(block.steps, source_bytes, target_bytes, most_words), 0, blocks);
  return blocks;
}

/// Splits dimensions of steps that are longer than max_tile_count.
inline void split_long_dimensions(const WordBlock& block, std::vector<WordBlock>& blocks) {
  constexpr std::int64_t piece = 1 << 20;
  for (std::size_t d = 0; d < block.steps.size(); ++d) {
    const WordDimension all = block.steps[d];
    if (all.count <= max_tile_count) continue;
    const std::int64_t pieces = all.count / piece, left = all.count % piece;
    WordBlock part = block;
    part.steps[d] = {piece, all.source_stride, all.target_stride};
    part.steps.insert(part.steps.begin() + static_cast<std::ptrdiff_t>(d),
                      {pieces, piece * all.source_stride, piece * all.target_stride});
    split_long_dimensions(part, blocks);
    if (left == 0) return;
    part = block;
    detail::move_along(part, all, pieces * piece);
    part.steps[d].count = left;
    return split_long_dimensions(part, blocks);
  }
  blocks.push_back(block);
}

}  // namespace dace_redist
