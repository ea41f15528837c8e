// SPDX-License-Identifier: BSD-3-Clause
#include "layout/grid.hpp"

#include <limits>

#include "core/error.hpp"

namespace dace_redist {

Index checked_product(const std::vector<Index>& extents, const char* what, const std::string& owner) {
  Index product = 1;
  bool zero = false;
  for (const Index extent : extents) {
    zero = zero || extent == 0;
    if (extent == 0) continue;
    if (product > std::numeric_limits<Index>::max() / extent)
      throw Error(
          text(owner, owner.empty() ? "" : ": ", what, " ", tuple_text(extents), " is larger than 64 bits hold"));
    product *= extent;
  }
  return zero ? 0 : product;
}

std::vector<Index> tile_grid(const std::vector<Index>& shape, const std::vector<Index>& tile, const std::string& name) {
  if (shape.size() != tile.size())
    throw Error(text(name, ": tile needs ", shape.size(), " entries, one per dimension, got ", tile.size()));
  std::vector<Index> grid;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) throw Error(text(name, ": shape[", i, "] must be at least 0, got ", shape[i]));
    if (tile[i] < 1) throw Error(text(name, ": tile[", i, "] must be at least 1 element, got ", tile[i]));
    grid.push_back(ceil_div(shape[i], tile[i]));
  }
  return grid;
}

}  // namespace dace_redist
