// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Who owns what: a tensor cut into cells, each held by one rank or by several replicas.
/// Start reading at: Distribution.

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"
#include "core/export.hpp"
#include "layout/grid.hpp"
#include "layout/intervals.hpp"

namespace dace_redist {

/// A distribution as plain numbers: how Python, generated code and other ranks hand it over.
///
/// Blocked: 0, ndim, grid_ndim, shape[ndim], grid[grid_ndim], dims[ndim], block[ndim], pins[grid_ndim], nranks,
/// ranks[nranks]. dims: grid axis of each tensor axis, -1 if not split. block: elements per block, 0 for
/// ceil(extent / parts), -1 for balanced. pins: the one coordinate of a grid axis that takes part, -1 for all
/// (an axis that is neither named by dims nor pinned holds replicas). nranks: 0 for ranks 0, 1, 2, ...
///
/// Tiled: 1, ndim, shape[ndim], tile[ndim], owner of each tile in row-major order.
using Encoding = std::vector<Index>;

inline constexpr Index blocked_kind = 0, tiled_kind = 1;
inline constexpr int max_dims = 16;

/// One cell of a distribution: the product of one interval sequence per dimension.
struct Cell {
  std::vector<Index> coordinates;  // [ndim] along each tensor axis
  Index number = 0;                // row-major among the cells: the order in which messages hold them
};

/// An immutable, checked distribution of an n-D tensor.
class DR_API Distribution {
 public:
  /// \throws Error if the numbers describe no distribution; `name` says which one in the message.
  explicit Distribution(const Encoding& encoding, const std::string& name = "distribution");

  int ndim() const { return static_cast<int>(axes_.size()); }
  const std::vector<AxisSplit>& axes() const { return axes_; }
  const std::string& name() const { return name_; }
  bool tiled() const { return tiled_; }
  /// The largest rank named, plus one; 1 if none is, as a communicator has at least one.
  Index ranks_needed() const { return ranks_needed_; }

  /// The cells a rank holds, in the order of its local array; none if it is outside the distribution.
  std::vector<Cell> cells(Index rank) const;
  /// How many ranks hold each cell.
  Index replicas() const { return replica_count_; }
  /// The rank that holds a replica of the cell at `coordinates` (of tensor axes).
  Index rank_of(const std::vector<Index>& coordinates, Index replica) const;
  /// The rank that sends a cell to `receiver`: the receiver itself if it holds one, else replicas take turns.
  Index sender(const std::vector<Index>& coordinates, Index receiver) const;

  /// Indices of the cell along one axis.
  Intervals intervals(const Cell& cell, int axis) const {
    return axes_[static_cast<std::size_t>(axis)].intervals(cell.coordinates[static_cast<std::size_t>(axis)]);
  }
  /// The number of the cell at these coordinates: its tile; 0 where a rank holds one cell at the most.
  Index cell_number(const std::vector<Index>& coordinates) const { return tiled_ ? row_major(coordinates, grid_) : 0; }
  /// Where a cell begins in the rank's local array, in elements: 0 but for tiles.
  Index cell_offset(const Cell& cell) const {
    return tiled_ ? tile_offsets_[static_cast<std::size_t>(cell.number)] : 0;
  }
  /// Elements of the cell per dimension.
  std::vector<Index> cell_shape(const Cell& cell) const;
  /// The rank at coordinate 0 of all axes: under blocks, no rank owns more along any of them. 0 if there are no tiles.
  Index first_rank() const { return tiled_ && owners_.empty() ? 0 : rank_of(std::vector<Index>(axes_.size(), 0), 0); }
  /// Shape of a rank's local array: what it owns per dimension; one-dimensional for tiles; zeros outside the grid,
  /// where a tensor of 0 dimensions has the shape (0,): () is that of one element.
  std::vector<Index> local_shape(Index rank) const;
  /// The rank that owns an element (of several replicas the first).
  Index owner(const std::vector<Index>& index) const;

 private:
  void read_blocked(const Encoding& encoding);
  void read_tiled(const Encoding& encoding);
  void read_ranks(const Encoding& encoding, std::size_t at);
  void read_axis(std::size_t axis, Index extent, Index grid_axis, Index block);
  [[noreturn]] void fail(const std::string& what) const { throw Error(text(name_, ": ", what)); }
  Index grid_position(const std::vector<Index>& coordinates, Index replica) const;
  Cell cell_at(Index number) const;

  std::string name_;
  bool tiled_ = false;
  std::vector<AxisSplit> axes_;            // [ndim]
  std::vector<Index> grid_, pins_;         // [grid_ndim]
  std::vector<Index> dims_;                // [ndim] grid axis or -1
  std::vector<std::size_t> replica_axes_;  // grid axes that hold replicas
  Index replica_count_ = 1, ranks_needed_ = 0;
  std::vector<Index> ranks_;                    // [grid size] or empty: 0, 1, 2, ...
  std::unordered_map<Index, Index> positions_;  // rank -> grid position, if ranks_ is given
  std::vector<Index> owners_, tile_offsets_;    // [tiles]
};

}  // namespace dace_redist
