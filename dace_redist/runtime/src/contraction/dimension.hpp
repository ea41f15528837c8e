// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The indices of a product of two tensors, each with its extent and its stride in every tensor.

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "layout/intervals.hpp"

namespace dace_redist {

/// The tensors of `c = alpha * sum(a * b) + beta * c`.
enum Operand : std::size_t { A = 0, B = 1, C = 2 };

/// One index, or several that were merged.
struct Dimension {
  Index extent = 1;
  std::array<Index, 3> strides{};  ///< elements; 0 in a tensor that has not got the index
  unsigned holders = 0;            ///< bit t: tensor t has the index

  bool in(Operand tensor) const { return (holders >> tensor & 1u) != 0; }
};

using Dimensions = std::vector<Dimension>;

namespace detail {

/// Whether `outer` and `inner` are one dimension in a tensor, which may lack both.
inline bool adjoin(const Dimension& outer, const Dimension& inner, Operand tensor) {
  return outer.strides[tensor] == inner.strides[tensor] * inner.extent;
}

inline bool adjoin(const Dimension& outer, const Dimension& inner) {
  return outer.holders == inner.holders && adjoin(outer, inner, A) && adjoin(outer, inner, B) &&
         adjoin(outer, inner, C);
}

/// Merges one pair of dimensions; false if there is none.
inline bool merge_pair(Dimensions& dimensions) {
  for (std::size_t outer = 0; outer < dimensions.size(); ++outer)
    for (std::size_t inner = 0; inner < dimensions.size(); ++inner) {
      if (outer == inner || !adjoin(dimensions[outer], dimensions[inner])) continue;
      dimensions[inner].extent *= dimensions[outer].extent;
      dimensions.erase(dimensions.begin() + static_cast<std::ptrdiff_t>(outer));
      return true;
    }
  return false;
}

}  // namespace detail

/// Drops dimensions of extent 1 and merges those that adjoin in every tensor that holds them.
inline void merge_dimensions(Dimensions& dimensions) {
  dimensions.erase(
      std::remove_if(dimensions.begin(), dimensions.end(), [](const Dimension& d) { return d.extent == 1; }),
      dimensions.end());
  while (detail::merge_pair(dimensions)) {
  }
}

}  // namespace dace_redist
