// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Grids of processes or tiles: their sizes, and positions in row-major order.

#include <cstddef>
#include <string>
#include <vector>

#include "layout/intervals.hpp"

namespace dace_redist {

/// Product of numbers of at least 0, 1 if there are none. \throws Error if that of those above 0, which strides are
/// made of, does not fit 64 bits.
Index checked_product(const std::vector<Index>& values, const std::string& what);

/// Tiles per dimension: ceil(shape / tile). \throws Error unless extents are 0 or more and tiles of 1 element or more.
std::vector<Index> tile_grid(const std::vector<Index>& shape, const std::vector<Index>& tile, const std::string& name);

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
