// SPDX-License-Identifier: BSD-3-Clause
#include "file/pieces.hpp"

#include <algorithm>

namespace dace_redist {
namespace {

/// The axis along which pieces follow one another. \param layer  set to the bytes of a layer of whole chunks along it.
std::size_t cut_axis(const FileLayout& layout, const PieceLimits& limits, Index& layer) {
  layer = layout.element_bytes;
  std::vector<Index> chunks;
  for (std::size_t d = 0; d < layout.shape.size(); ++d) {
    chunks.push_back(ceil_div(layout.shape[d], layout.unit[d]));
    layer *= chunks[d] * layout.unit[d];
  }
  for (std::size_t axis = 0;; ++axis) {
    layer /= chunks[axis];
    const bool all_ranks = layout.shape[axis] > layout.unit[axis] * (limits.ranks - 1) || layer <= limits.min_share;
    if ((layer <= limits.max_bytes && all_ranks) || axis + 1 == layout.shape.size()) return axis;
  }
}

/// Cuts parts along one axis, first at `first`, then every `step` indices.
std::vector<Round> cut(const std::vector<Round>& parts, Index extent, Index first, Index step) {
  std::vector<Round> found;
  for (const Round& part : parts)
    for (Index low = 0, high = std::min(first, extent); low < extent;
         low = high, high = std::min(high + step, extent)) {
      found.push_back(part);
      found.back().lower.push_back(low);
      found.back().extents.push_back(high - low);
    }
  return found;
}

}  // namespace

Index Round::elements_of_piece() const {
  Index count = 1;
  for (std::size_t d = 0; d < extents.size(); ++d) count *= d == axis ? block : extents[d];
  return count;
}

Encoding Round::pieces(const std::vector<Index>& ranks) const {
  const std::size_t ndim = extents.size(), count = ndim > 0 ? ranks.size() : 1;
  Encoding numbers{blocked_kind, static_cast<Index>(ndim), 1};
  numbers.insert(numbers.end(), extents.begin(), extents.end());
  numbers.push_back(static_cast<Index>(count));
  for (std::size_t d = 0; d < ndim; ++d) numbers.push_back(d == axis ? 0 : -1);  // the axis of the grid
  for (std::size_t d = 0; d < ndim; ++d) numbers.push_back(d == axis ? block : extents[d]);
  numbers.insert(numbers.end(), {-1, static_cast<Index>(count)});
  numbers.insert(numbers.end(), ranks.begin(), ranks.begin() + static_cast<Index>(count));
  return numbers;
}

std::vector<Round> rounds(const FileLayout& layout, const PieceLimits& limits) {
  const std::vector<Index>& shape = layout.shape;
  std::vector<Round> found{{{}, {}, 0, 1}};
  if (std::count(shape.begin(), shape.end(), 0) > 0) return {};
  if (shape.empty()) return found;
  Index layer = 0;
  const std::size_t axis = cut_axis(layout, limits, layer);
  const Index unit = layout.unit[axis], most = std::max<Index>(1, limits.max_bytes / layer);
  const Index count = ceil_div(shape[axis], unit * limits.ranks * most);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const Index step = d < axis ? layout.unit[d] : d > axis ? shape[d] : unit * ceil_div(shape[d], unit * count);
    found = cut(found, shape[d], layout.lead[d] > 0 ? layout.lead[d] : step, step);
  }
  for (Round& one : found) {
    one.axis = axis;
    one.block = unit * ceil_div(one.extents[axis], unit * limits.ranks);
  }
  return found;
}

}  // namespace dace_redist
