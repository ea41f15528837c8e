// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// A walk over the tiles of an index space.

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "contraction/dimension.hpp"

namespace dace_redist {

inline constexpr std::size_t most_dimensions = 24;  ///< of one product, after merging

/// Visits the tiles of some dimensions, the last one fastest; allocates nothing. The dimensions must outlive the walk.
class TileWalk {
 public:
  /// \param dimensions  Outermost first, at most most_dimensions, no extent 0.
  /// \param tiles  Extent of a tile in each; those at the end of a dimension may be smaller.
  TileWalk(const Dimensions& dimensions, const std::vector<Index>& tiles) : dimensions_(dimensions), tiles_(tiles) {}

  /// Elements from the start of a tensor.
  Index offset(Operand tensor) const { return offsets_[tensor]; }

  /// Extent of this tile in one dimension.
  Index extent(std::size_t d) const { return std::min(tiles_[d], dimensions_[d].extent - first_[d]); }

  /// First index of this tile in one dimension.
  Index first(std::size_t d) const { return first_[d]; }

  /// Goes to the next tile; false after the last one.
  bool advance() {
    for (std::size_t d = dimensions_.size(); d-- > 0;) {
      if (tiles_[d] >= dimensions_[d].extent) continue;
      move(d, tiles_[d]);
      if (first_[d] < dimensions_[d].extent) return true;
      move(d, -first_[d]);
    }
    return false;
  }

 private:
  void move(std::size_t d, Index by) {
    first_[d] += by;
    for (const Operand tensor : {A, B, C}) offsets_[tensor] += by * dimensions_[d].strides[tensor];
  }

  const Dimensions& dimensions_;
  const std::vector<Index>& tiles_;
  std::array<Index, most_dimensions> first_{};  // [dimensions]
  std::array<Index, 3> offsets_{};
};

}  // namespace dace_redist
