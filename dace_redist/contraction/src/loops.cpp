// SPDX-License-Identifier: BSD-3-Clause
#include "loops.hpp"

#include <cstdlib>

namespace dace_redist::contraction {
namespace {

constexpr Index transposed_tile = 32;  // of both dimensions where two tensors are read across each other

/// Cache lines that a step in a dimension touches, roughly, times 8; a sum is not written at each step.
Index step_cost(const Dimension& dimension) {
  Index cost = 0;
  for (const Index stride : dimension.strides) cost += std::min<Index>(8, std::abs(stride));
  return dimension.extent < 8 ? cost + 8 : cost;
}

Index max_stride(const Dimension& dimension) {
  Index longest = 0;
  for (const Index stride : dimension.strides) longest = std::max(longest, std::abs(stride));
  return longest;
}

}  // namespace

LoopNest::LoopNest(Dimensions dimensions) : dimensions_(std::move(dimensions)) {
  std::stable_sort(dimensions_.begin(), dimensions_.end(),
                   [](const Dimension& x, const Dimension& y) { return max_stride(x) > max_stride(y); });
  const auto cheapest =
      std::min_element(dimensions_.rbegin(), dimensions_.rend(),
                       [](const Dimension& x, const Dimension& y) { return step_cost(x) < step_cost(y); });
  if (cheapest != dimensions_.rend()) std::rotate(cheapest.base() - 1, cheapest.base(), dimensions_.end());
  choose_tiles();
  for (const Dimension& dimension : dimensions_)
    if (dimension.strides[C] != 0) kept_.push_back({dimension.extent, {0, 0, dimension.strides[C]}, 1u << C});
  if (!kept_.empty()) kept_.back().tile = kept_.back().extent;
}

/// Tiles the loops where a tensor that is strided in the innermost dimension is contiguous in another one.
void LoopNest::choose_tiles() {
  if (dimensions_.empty()) return;
  dimensions_.back().tile = dimensions_.back().extent;
  const auto last = dimensions_.end() - 1;
  const auto across = [&inner = *last](const Dimension& dimension) {
    bool any = false;
    for (const Operand tensor : {A, B, C})
      any = any || (dimension.strides[tensor] == 1 && std::abs(inner.strides[tensor]) > 1);
    return any;
  };
  const auto found = std::find_if(dimensions_.begin(), last, across);
  if (found != last) {
    std::rotate(found, found + 1, last);
    (last - 1)->tile = transposed_tile;
    last->tile = std::min(last->tile, 8 * transposed_tile);
  } else if (dimensions_.size() > 1) {
    (last - 1)->tile = (last - 1)->extent;
  }
}

double LoopNest::cost() const {
  if (dimensions_.empty()) return 0;
  double steps = 1;
  for (const Dimension& dimension : dimensions_) steps *= static_cast<double>(dimension.extent);
  const Dimension& inner = dimensions_.back();
  const bool contiguous =
      std::all_of(inner.strides.begin(), inner.strides.end(), [](Index stride) { return stride == 0 || stride == 1; });
  return steps * ((contiguous ? 0.4 : 1.5) + 8.0 / static_cast<double>(inner.extent));
}

}  // namespace dace_redist::contraction
