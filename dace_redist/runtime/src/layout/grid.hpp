// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Grids of processes or tiles: their sizes and coordinates.

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "layout/intervals.hpp"

namespace dace_redist {

/// Dimensions that a tensor may have.
inline constexpr int max_dims = 16;

/// One number per tensor axis; entries from ndim on are 0. Planning handles one per message, without allocations.
using AxisArray = std::array<Index, max_dims>;

/// Product of non-negative extents; 1 if there are none.
/// \param what, owner  name the extents in the error message, as "owner: what".
/// \throws Error if the product of the non-zero extents overflows 64 bits, since strides are computed from it.
Index checked_product(const std::vector<Index>& extents, const char* what, const std::string& owner = {});

/// Tiles per dimension: ceil(shape / tile). \throws Error unless extents are at least 0 and tiles at least 1.
std::vector<Index> tile_grid(const std::vector<Index>& shape, const std::vector<Index>& tile, const std::string& name);

/// Calls `visit(coordinates)` for all coordinates of a grid, the last axis fastest.
template <class Visit>
void for_each_coordinates(const AxisArray& sizes, int ndim, Visit&& visit) {
  for (int axis = 0; axis < ndim; ++axis)
    if (sizes[static_cast<std::size_t>(axis)] == 0) return;
  AxisArray at{};
  for (;;) {
    visit(at);
    std::size_t axis = static_cast<std::size_t>(ndim);
    while (axis > 0 && ++at[axis - 1] == sizes[axis - 1]) at[--axis] = 0;
    if (axis == 0) return;
  }
}

}  // namespace dace_redist
