// SPDX-License-Identifier: BSD-3-Clause
#include "device/box_shape.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>

#include "device/tile_descriptors.hpp"

namespace dace_redist {
namespace {

/// Moves a block along a dimension.
void move_along(WordBlock& block, const WordDimension& dimension, std::int64_t by) {
  block.source_offset += by * dimension.source_stride;
  block.target_offset += by * dimension.target_stride;
}

/// Grows a box whose extents in each dimension are 1 at first.
class BoxExtents {
 public:
  /// \param max_words  of a box.
  BoxExtents(const std::vector<WordDimension>& dimensions, std::int64_t source_bytes, std::int64_t target_bytes,
             std::int64_t max_words)
      : dimensions_(dimensions),
        source_bytes_(source_bytes),
        target_bytes_(target_bytes),
        max_words_(max_words),
        extents_(dimensions.size(), 1) {}

  const std::vector<std::int64_t>& extents() const { return extents_; }

  /// Takes words along dimensions, the first ones before the others, until the box has `words` of them, if that fits.
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
    const std::int64_t extent = std::min(dimensions_[*cut].count, max_words_ / (words / extents_[*cut]));
    grow_to(*cut, extent < dimensions_[*cut].count ? extent / sector_words() * sector_words() : extent);
  }

  /// Makes the parts of a dimension of equal size, in whole sectors of cache lines.
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

  /// Whether the box has at most max_words_, whose distances from the first fit 32 bits.
  bool fits() const {
    constexpr std::int64_t max_distance = std::numeric_limits<std::int32_t>::max();
    std::int64_t words = 1, source = 0, target = 0;
    for (std::size_t d = 0; d < extents_.size(); ++d) {
      words *= extents_[d];
      source += (extents_[d] - 1) * std::abs(dimensions_[d].source_stride / source_bytes_);
      target += (extents_[d] - 1) * std::abs(dimensions_[d].target_stride / target_bytes_);
    }
    return words <= max_words_ && source <= max_distance && target <= max_distance;
  }

  const std::vector<WordDimension>& dimensions_;
  std::int64_t source_bytes_, target_bytes_, max_words_;
  std::vector<std::int64_t> extents_;
};

/// The dimensions from the fastest to the slowest in the source; those of stride 0 come last.
std::vector<std::size_t> source_order(const std::vector<WordDimension>& dimensions) {
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

std::vector<std::int64_t> box_extents(const std::vector<WordDimension>& dimensions, std::int64_t source_bytes,
                                      std::int64_t target_bytes, std::int64_t max_words) {
  constexpr std::int64_t max_row_bytes = 512;  // longer rows are not read or written faster
  std::vector<std::size_t> of_target;
  for (std::size_t d = dimensions.size(); d-- > 0;) of_target.push_back(d);
  const std::vector<std::size_t> of_source = source_order(dimensions);
  BoxExtents box(dimensions, source_bytes, target_bytes, max_words);
  for (std::int64_t words = 2; words * std::min(source_bytes, target_bytes) <= max_row_bytes; words *= 2) {
    box.grow(of_target, words);
    box.grow(of_source, words);
  }
  box.fill(of_target);
  box.fill(of_source);
  box.balance();
  return box.extents();
}

/// Adds the parts of a block from dimension `first` on: boxes of the given extents, and the remainders at the ends.
void add_boxes(const WordBlock& block, std::vector<std::int64_t> extents, std::size_t first,
               std::vector<WordBlock>& blocks) {
  const std::vector<WordDimension>& dimensions = block.steps;
  for (std::size_t d = first; d < dimensions.size(); ++d) {
    const std::int64_t count = dimensions[d].count, rest = count % extents[d];
    if (rest == 0) continue;
    WordBlock part = block;
    part.steps[d].count = count - rest;
    add_boxes(part, extents, d + 1, blocks);
    move_along(part, dimensions[d], count - rest);
    part.steps[d].count = extents[d] = rest;
    return add_boxes(part, extents, d + 1, blocks);
  }
  WordBlock result{block.source_offset, block.target_offset, {}, {}};
  std::vector<WordDimension> cut;  // innermost steps: neighbouring boxes share cache lines
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

}  // namespace

bool is_transposed(const std::vector<WordDimension>& dimensions, std::int64_t run_bytes, bool run_is_last) {
  constexpr std::int64_t sector_bytes = 32, line_bytes = 128;  // of the cache
  if (run_bytes >= sector_bytes || dimensions.size() < (run_is_last ? 3 : 2)) return false;
  const std::size_t last = dimensions.size() - (run_is_last ? 2 : 1);
  const std::int64_t stride = std::abs(dimensions[last].source_stride);
  return std::any_of(dimensions.begin(), dimensions.begin() + static_cast<std::ptrdiff_t>(last),
                     [&](const WordDimension& dimension) {
                       const std::int64_t other = std::abs(dimension.source_stride);
                       return other > 0 && other < stride && other < line_bytes;
                     });
}

std::vector<WordBlock> cut_into_boxes(const WordBlock& block, std::int64_t source_bytes, std::int64_t target_bytes,
                                      std::int64_t max_words) {
  std::vector<WordBlock> blocks;
  add_boxes(block, box_extents(block.steps, source_bytes, target_bytes, max_words), 0, blocks);
  return blocks;
}

void split_long_dimensions(const WordBlock& block, std::vector<WordBlock>& blocks) {
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
    move_along(part, all, pieces * piece);
    part.steps[d].count = left;
    return split_long_dimensions(part, blocks);
  }
  blocks.push_back(block);
}

}  // namespace dace_redist
