// SPDX-License-Identifier: BSD-3-Clause
#include "layout/distribution.hpp"

#include <algorithm>

namespace dace_redist {

Distribution::Distribution(const Encoding& encoding, const std::string& name) : name_(name) {
  if (encoding.size() < 2) fail("incomplete description");
  if (encoding[0] != blocked_kind && encoding[0] != tiled_kind) fail(text("unknown kind ", encoding[0]));
  if (encoding[1] < 0 || encoding[1] > max_dims)
    fail(text("tensors of 0 to ", max_dims, " dimensions are supported, got ", encoding[1]));
  tiled_ = encoding[0] == tiled_kind;
  tiled_ ? read_tiled(encoding) : read_blocked(encoding);
}

void Distribution::read_blocked(const Encoding& encoding) {
  const std::size_t ndim = static_cast<std::size_t>(encoding[1]);
  const Index grid_axes = encoding.size() > 2 ? encoding[2] : -1;
  if (grid_axes < 0 || grid_axes > 1024) fail(text("the process grid may have 0 to 1024 axes, got ", grid_axes));
  const std::size_t grid_ndim = static_cast<std::size_t>(grid_axes), shape_at = 3, grid_at = shape_at + ndim;
  const std::size_t dims_at = grid_at + grid_ndim, block_at = dims_at + ndim, pins_at = block_at + ndim;
  if (encoding.size() < pins_at + grid_ndim + 1) fail("incomplete description");
  const auto entry = [&](std::size_t at) { return encoding.begin() + static_cast<std::ptrdiff_t>(at); };
  const std::vector<Index> shape(entry(shape_at), entry(grid_at));
  grid_.assign(entry(grid_at), entry(dims_at));
  pins_.assign(entry(pins_at), entry(pins_at + grid_ndim));
  for (std::size_t g = 0; g < grid_ndim; ++g) {
    if (grid_[g] < 1) fail(text("process grid ", tuple_text(grid_), ": sizes must be at least 1"));
    if (pins_[g] < -1 || pins_[g] >= grid_[g])
      fail(text("grid axis ", g, " is pinned to coordinate ", pins_[g], " but has ", grid_[g], " coordinates"));
  }
  checked_product(grid_, text(name_, ": process grid"));
  for (std::size_t i = 0; i < ndim; ++i) read_axis(i, shape[i], encoding[dims_at + i], encoding[block_at + i]);
  checked_product(shape, text(name_, ": shape"));
  for (std::size_t g = 0; g < grid_ndim; ++g) {
    bool named = false;
    for (Index axis : dims_) named = named || axis == static_cast<Index>(g);
    if (named && pins_[g] >= 0) fail(text("grid axis ", g, " is both pinned and split over"));
    if (named || pins_[g] >= 0) continue;
    replica_axes_.push_back(g);
    replica_count_ *= grid_[g];
  }
  read_ranks(encoding, pins_at + grid_ndim);
}

void Distribution::read_axis(std::size_t axis, Index extent, Index grid_axis, Index block) {
  if (extent < 0) fail(text("shape[", axis, "] must be at least 0, got ", extent));
  if (grid_axis < -1 || grid_axis >= static_cast<Index>(grid_.size()))
    fail(text("dims[", axis, "] is ", grid_axis, ", but the process grid has ",
              grid_.empty() ? text("no axes") : text("axes 0 to ", grid_.size() - 1), " (None: not split)"));
  for (std::size_t other = 0; other < dims_.size(); ++other)
    if (grid_axis >= 0 && dims_[other] == grid_axis)
      fail(text("grid axis ", grid_axis, " is used twice: by tensor axes ", other, " and ", axis));
  if (block < -1) fail(text("block[", axis, "] must be at least 1 element, got ", block));
  const Index parts = grid_axis < 0 ? 1 : grid_[static_cast<std::size_t>(grid_axis)];
  dims_.push_back(grid_axis);
  const Index elements = block > 0 ? std::min(block, extent) : ceil_div(extent, parts);
  axes_.push_back({extent, parts, std::max<Index>(elements, 1), block == -1});
}

void Distribution::read_ranks(const Encoding& encoding, std::size_t at) {
  const Index size = checked_product(grid_, "process grid"), given = encoding[at];
  if (encoding.size() != at + 1 + static_cast<std::size_t>(given)) fail("incomplete description");
  ranks_needed_ = size;
  if (given == 0) return;
  if (given != size) fail(text("process grid ", tuple_text(grid_), " needs ", size, " ranks, got a list of ", given));
  ranks_.assign(encoding.begin() + static_cast<std::ptrdiff_t>(at + 1), encoding.end());
  ranks_needed_ = 0;
  for (std::size_t position = 0; position < ranks_.size(); ++position) {
    const Index rank = ranks_[position];
    if (rank < 0) fail(text("ranks[", position, "] must not be negative, got ", rank));
    if (!positions_.emplace(rank, static_cast<Index>(position)).second)
      fail(text("rank ", rank, " stands twice in the list of ranks"));
    ranks_needed_ = std::max(ranks_needed_, rank + 1);
  }
}

void Distribution::read_tiled(const Encoding& encoding) {
  const std::size_t ndim = static_cast<std::size_t>(encoding[1]);
  if (encoding.size() < 2 + 2 * ndim) fail("incomplete description");
  const auto tile_begin = encoding.begin() + 2 + static_cast<std::ptrdiff_t>(ndim);
  const auto owners_begin = tile_begin + static_cast<std::ptrdiff_t>(ndim);
  const std::vector<Index> shape(encoding.begin() + 2, tile_begin), tile_shape(tile_begin, owners_begin);
  grid_ = tile_grid(shape, tile_shape, name_);
  for (std::size_t i = 0; i < ndim; ++i)
    axes_.push_back({shape[i], std::max<Index>(grid_[i], 1), tile_shape[i], false});
  const Index tiles = checked_product(grid_, text(name_, ": tile grid"));
  checked_product(shape, text(name_, ": shape"));
  ranks_needed_ = 1;
  owners_.assign(owners_begin, encoding.end());
  if (static_cast<Index>(owners_.size()) != tiles)
    fail(text("tile grid ", tuple_text(grid_), " needs ", tiles, " owners, got ", owners_.size()));
  std::unordered_map<Index, Index> used;  // elements given to each rank so far
  for (Index tile = 0; tile < tiles; ++tile) {
    const Index rank = owners_[static_cast<std::size_t>(tile)];
    if (rank < 0) fail(text("the owner of tile ", tuple_text(cell_at(tile).coordinates), " is rank ", rank));
    tile_offsets_.push_back(used[rank]);
    used[rank] += checked_product(cell_shape(cell_at(tile)), "tile");
    ranks_needed_ = std::max(ranks_needed_, rank + 1);
  }
}

Cell Distribution::cell_at(Index number) const { return {row_major_coordinates(number, grid_), number}; }

std::vector<Cell> Distribution::cells(Index rank) const {
  std::vector<Cell> held;
  if (tiled_) {
    for (std::size_t tile = 0; tile < owners_.size(); ++tile)
      if (owners_[tile] == rank) held.push_back(cell_at(static_cast<Index>(tile)));
    return held;
  }
  Index position = rank;
  if (!ranks_.empty()) {
    const auto found = positions_.find(rank);
    if (found == positions_.end()) return held;
    position = found->second;
  }
  if (position < 0 || position >= checked_product(grid_, "process grid")) return held;
  const std::vector<Index> at = row_major_coordinates(position, grid_);
  for (std::size_t g = 0; g < grid_.size(); ++g)
    if (pins_[g] >= 0 && pins_[g] != at[g]) return held;
  Cell cell;
  for (Index axis : dims_) cell.coordinates.push_back(axis < 0 ? 0 : at[static_cast<std::size_t>(axis)]);
  held.push_back(cell);
  return held;
}

Index Distribution::grid_position(const std::vector<Index>& coordinates, Index replica) const {
  std::vector<Index> at(grid_.size(), 0);
  for (std::size_t g = 0; g < grid_.size(); ++g) at[g] = std::max<Index>(pins_[g], 0);
  for (std::size_t i = 0; i < dims_.size(); ++i)
    if (dims_[i] >= 0) at[static_cast<std::size_t>(dims_[i])] = coordinates[i];
  for (std::size_t r = replica_axes_.size(); r-- > 0; replica /= grid_[replica_axes_[r]])
    at[replica_axes_[r]] = replica % grid_[replica_axes_[r]];
  return row_major(at, grid_);
}

Index Distribution::rank_of(const std::vector<Index>& coordinates, Index replica) const {
  if (tiled_) return owners_[static_cast<std::size_t>(row_major(coordinates, grid_))];
  const Index position = grid_position(coordinates, replica);
  return ranks_.empty() ? position : ranks_[static_cast<std::size_t>(position)];
}

Index Distribution::sender(const std::vector<Index>& coordinates, Index receiver) const {
  if (replica_count_ == 1) return rank_of(coordinates, 0);
  for (const Cell& cell : cells(receiver))
    if (cell.coordinates == coordinates) return receiver;
  return rank_of(coordinates, receiver % replica_count_);
}

std::vector<Index> Distribution::cell_shape(const Cell& cell) const {
  std::vector<Index> shape;
  for (int axis = 0; axis < ndim(); ++axis) shape.push_back(intervals(cell, axis).size());
  return shape;
}

std::vector<Index> Distribution::local_shape(Index rank) const {
  const std::vector<Cell> held = cells(rank);
  if (!tiled_)
    return held.empty() ? std::vector<Index>(std::max<std::size_t>(axes_.size(), 1), 0) : cell_shape(held.front());
  Index elements = 0;
  for (const Cell& cell : held) elements += checked_product(cell_shape(cell), "tile");
  return {elements};
}

Index Distribution::owner(const std::vector<Index>& index) const {
  if (index.size() != axes_.size()) fail(text("index ", tuple_text(index), " needs ", axes_.size(), " entries"));
  std::vector<Index> coordinates;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (index[i] < 0 || index[i] >= axes_[i].extent)
      fail(text("index ", tuple_text(index), " is outside the tensor in dimension ", i));
    coordinates.push_back(axes_[i].owner(index[i]));
  }
  return rank_of(coordinates, 0);
}

}  // namespace dace_redist
