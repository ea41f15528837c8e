// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Ownership of a tensor: it is cut into cells, each held by one rank or by several replicas.
/// Start reading at: Distribution.

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "dace_redist_types.h"
#include "layout/boxes.hpp"
#include "layout/intervals.hpp"

namespace dace_redist {

/// A distribution as plain numbers: how Python, generated code and other ranks hand it over.
///
/// Blocked: 0, ndim, grid_ndim, shape[ndim], grid[grid_ndim], dims[ndim], block[ndim], pins[grid_ndim], nranks,
/// ranks[nranks], lengths. dims: grid axis of each tensor axis, -1 if not split. block: elements per block, 0 for
/// ceil(extent / parts), -1 for balanced, -2 for parts whose lengths stand at the end, axis after axis. pins: the one
/// coordinate of a grid axis that takes part, -1 for all (an axis that is neither named by dims nor pinned holds
/// replicas). nranks: 0 for ranks 0, 1, 2, ...
///
/// Tiled: 1, ndim, shape[ndim], tile[ndim], owner of each tile in row-major order.
///
/// Boxed: 2, ndim, shape[ndim], number of boxes, then of each box its owner, offset[ndim], extent[ndim].
///
/// With margins: 3, ndim, halo[ndim], periodic[ndim], then one of the others. A local array has halo[i] elements more
/// on both sides of axis i of each block, tile or box. They mirror the elements next to it, across the ends of the
/// tensor only along periodic axes. periodic: 0 or 1.
using Encoding = std::vector<Index>;

inline constexpr Index blocked_kind = 0, tiled_kind = 1, boxed_kind = 2, margins_kind = 3;
/// Code of a block whose parts have lengths of their own.
inline constexpr Index block_lengths = -2;

/// One cell of a distribution: the product of one interval sequence per dimension.
struct Cell {
  AxisArray coordinates{};  // [ndim] along each tensor axis; of a box its number
  Index number = 0;         // row-major among the cells: the order of cells within a message
};

/// An immutable, checked distribution of an n-D tensor. Copies are cheap: they share the decoded numbers.
class DR_API Distribution {
 public:
  /// \throws Error if the numbers do not describe a distribution; the message begins with `name`.
  explicit Distribution(Encoding encoding, const std::string& name = "distribution");
  /// Another one by another name.
  Distribution(const Distribution& other, std::string name) : data_(other.data_), name_(std::move(name)) {}

  /// The numbers that the distribution was made from. Distributions with equal numbers are equal, whatever their names.
  const Encoding& encoding() const { return data_->with_margins.empty() ? data_->encoding : data_->with_margins; }
  bool operator==(const Distribution& other) const { return data_ == other.data_ || encoding() == other.encoding(); }
  bool operator!=(const Distribution& other) const { return !(*this == other); }

  /// The same without margins.
  Distribution without_margins() const { return has_margins() ? Distribution(data_->encoding, name_) : *this; }
  /// The same with ranks counted from `first` on.
  Distribution shifted_ranks(Index first) const;

  int ndim() const { return static_cast<int>(data_->axes.size()); }
  const std::vector<AxisSplit>& axes() const { return data_->axes; }
  const std::string& name() const { return name_; }
  /// False: a rank's local array holds its cells, tiles or boxes, one after another.
  bool blocked() const { return data_->kind == blocked_kind; }
  bool boxed() const { return data_->kind == boxed_kind; }
  const Boxes& boxes() const { return data_->boxes; }
  /// The largest rank named, plus one; at least 1, since a communicator has at least one rank.
  Index ranks_needed() const { return data_->ranks_needed; }

  /// The cells of a rank, in the order of its local array; none if the rank is outside the distribution.
  /// \throws Error if the rank is negative.
  std::vector<Cell> cells(Index rank) const;
  /// Number of ranks that hold each cell.
  Index replicas() const { return data_->replicas; }
  /// Number of a rank that holds cells among their replicas.
  Index replica_of(Index rank) const;
  /// The rank that holds a replica of the cell at `coordinates`.
  Index rank_of(const AxisArray& coordinates, Index replica) const;
  /// The rank that sends a cell to `receiver`: the receiver itself if it holds the cell, else one of the replicas by
  /// turns.
  Index sender(const AxisArray& coordinates, Index receiver) const;

  bool has_margins() const { return !data_->with_margins.empty(); }
  /// Whether boxes have an element several times.
  bool overlaps() const { return boxed() && boxes().overlap(); }
  /// Width of the margins along one axis.
  Index halo(int axis) const { return data_->halo[static_cast<std::size_t>(axis)]; }
  /// Whether margins along one axis mirror elements across the ends of the tensor.
  bool wraps(int axis) const { return halo(axis) > 0 && data_->periodic[static_cast<std::size_t>(axis)] != 0; }

  /// Indices of the cell along one axis.
  Intervals intervals(const Cell& cell, int axis) const {
    const std::size_t at = static_cast<std::size_t>(axis);
    return boxed() ? boxes().intervals(cell.number, at) : axes()[at].intervals(cell.coordinates[at]);
  }
  /// Those, and the ones that its margins mirror; below 0 or past the extent where they lie across the ends.
  Intervals with_margins(const Cell& cell, int axis) const { return intervals(cell, axis).widened(halo(axis)); }
  /// Extent of the cell and its margins along one axis.
  Index local_extent(const Cell& cell, int axis) const { return intervals(cell, axis).size() + 2 * halo(axis); }
  /// Number of the cell at these coordinates: its tile or box; 0 under blocks, where a rank holds at most one cell.
  Index cell_number(const AxisArray& coordinates) const { return blocked() ? 0 : grid_position(coordinates, 0); }
  /// Begin of a cell in the rank's local array, in elements.
  Index cell_offset(const Cell& cell) const {
    return blocked() ? 0 : data_->cell_offsets[static_cast<std::size_t>(cell.number)];
  }
  /// Elements of the cell and its margins per dimension.
  std::vector<Index> cell_shape(const Cell& cell) const;
  /// Rank of grid position 0, which owns a largest block; 0 if the tensor has no tiles or boxes.
  Index first_rank() const { return !blocked() && data_->cell_offsets.empty() ? 0 : rank_of({}, 0); }
  /// Shape of a rank's local array: the elements owned per dimension, and margins; one-dimensional for tiles, and for
  /// boxes unless the rank owns one. Ranks outside the grid have zeros; for a tensor of 0 dimensions they have (0,),
  /// since () is the shape of one element.
  std::vector<Index> local_shape(Index rank) const;
  /// Extents that hold the block of any rank and its margins, per dimension of the tensor.
  std::vector<Index> largest_block() const;
  /// The rank that owns an element; the first one of several replicas; -1 if no box holds it.
  Index owner(const std::vector<Index>& index) const;

 private:
  struct GridAxis {
    Index size = 1, stride = 1;  // coordinates, and the distance of two neighbours in the list of ranks
    Index pin = -1;              // the one coordinate that takes part; -1: all
    bool holds_replicas = false;
  };

  struct Data {
    Data(Encoding numbers, const std::string& owner);
    void read_margins();
    void check_margins(std::size_t axis) const;
    template <class Extent>
    Index count_cell(const char* what, Index rank, Index used, const Extent& extent) const;
    void add_rank(Index rank);
    void read_blocked(std::size_t ndim);
    void read_axis(std::size_t axis, Index extent, Index grid_axis, Index block);
    const Index* read_lengths(std::size_t axis, std::size_t at);
    void pin_or_replicate(std::size_t grid_axis, Index pin);
    void read_ranks(std::size_t at);
    void read_tiled(std::size_t ndim);
    void read_boxed(std::size_t ndim);
    void read_box(Index box);
    Index set_grid(const std::vector<Index>& sizes, const char* what);
    std::vector<Index> numbers(std::size_t begin, std::size_t end) const;
    [[noreturn]] void fail(const std::string& reason) const;

    Encoding encoding;                                        // without margins
    Encoding with_margins;                                    // empty: there are none
    std::size_t ranks_at = 0, rank_count = 0, rank_step = 1;  // place of ranks in `encoding`; none: 0, 1, 2, ...
    AxisArray halo{}, periodic{};
    std::string name;
    Index kind = blocked_kind;
    std::vector<AxisSplit> axes;             // [ndim]
    std::vector<std::vector<Index>> begins;  // of axes whose parts have lengths
    std::vector<GridAxis> grid;              // of processes, or of tiles
    std::array<int, max_dims> grid_axes{};   // [ndim] grid axis of each tensor axis, -1: not split
    Index pinned = 0;                        // position in the grid of the pinned coordinates
    Index replicas = 1, ranks_needed = 1;
    std::vector<Index> ranks;                        // [grid size] by position; empty: 0, 1, 2, ...; not of boxes
    std::vector<std::pair<Index, Index>> positions;  // of blocks in `ranks`, of boxes: (rank, position), ascending
    std::vector<Index> cell_offsets;                 // [tiles or boxes] in the local array
    Boxes boxes;
  };

  AxisArray coordinates_at(Index position) const;
  /// Position of a rank in the grid of processes; -1 if the rank is outside of it.
  Index position_of(Index rank) const;
  Index grid_position(const AxisArray& coordinates, Index replica) const;

  std::shared_ptr<const Data> data_;
  std::string name_;
};

}  // namespace dace_redist
