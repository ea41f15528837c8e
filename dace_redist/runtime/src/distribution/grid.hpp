// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Grids of processes or tiles: their sizes, and positions in row-major order.

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "distribution/intervals.hpp"
#include "error.hpp"

namespace dace_redist {

/// Product of numbers of at least 0, 1 if there are none. \throws Error if that of those above 0, which strides are
/// made of, does not fit 64 bits.
inline Index checked_product(const std::vector<Index>& values, const std::string& what) {
  Index product = 1;
  bool zero = false;
  for (Index value : values) {
    zero = zero || value == 0;
    if (value == 0) continue;
    if (product > std::numeric_limits<Index>::max() / value)
      throw Error(text(what, " ", tuple_text(values), " is larger than 64 bits hold"));
    product *= value;
  }
  return zero ? 0 : product;
}

/// Tiles per dimension: ceil(shape / tile). \throws Error unless extents are 0 or more and tiles of 1 element or more.
inline std::vector<Index> tile_grid(const std::vector<Index>& shape, const std::vector<Index>& tile,
                                    const std::string& name) {
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

/// The position of coordinates in a row-major array.
inline Index row_major(const std::vector<Index>& coordinates, const std::vector<Index>& shape) {
  Index position = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) position = position * shape[i] + coordinates[i];
  return position;
}

inline std::vector<Index> row_major_coordinates(Index position, const std::vector<Index>& shape) {
  std::vector<Index> coordinates(shape.size());
  for (std::size_t i = shape.size(); i-- > 0; position /= shape[i]) coordinates[i] = position % shape[i];
  return coordinates;
}

}  // namespace dace_redist
