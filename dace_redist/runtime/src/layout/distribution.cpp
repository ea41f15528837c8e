// SPDX-License-Identifier: BSD-3-Clause
#include "layout/distribution.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_map>

namespace dace_redist {

Distribution::Data::Data(Encoding numbers, const std::string& owner) : encoding(std::move(numbers)), name(owner) {
  if (!encoding.empty() && encoding[0] == margins_kind) read_margins();
  if (encoding.size() < 2) fail("incomplete description");
  kind = encoding[0];
  if (kind != blocked_kind && kind != tiled_kind && kind != boxed_kind) fail(text("unknown kind ", encoding[0]));
  if (encoding[1] < 0 || encoding[1] > max_dims)
    fail(text("tensors of 0 to ", max_dims, " dimensions are supported, got ", encoding[1]));
  const auto read = kind == tiled_kind   ? &Data::read_tiled
                    : kind == boxed_kind ? &Data::read_boxed
                                         : &Data::read_blocked;
  (this->*read)(static_cast<std::size_t>(encoding[1]));
  for (std::size_t axis = 0; axis < axes.size(); ++axis)
    if (halo[axis] > 0) check_margins(axis);
  if (kind == blocked_kind) count_cell("blocks", 0, 0, [this](std::size_t i) { return axes[i].extent; });
}

void Distribution::Data::read_margins() {
  const Index ndim = encoding.size() > 1 ? encoding[1] : -1;
  if (ndim < 0 || ndim > max_dims || encoding.size() < static_cast<std::size_t>(4 + 2 * ndim) ||
      encoding[static_cast<std::size_t>(3 + 2 * ndim)] != ndim)
    fail("incomplete description");
  std::copy_n(encoding.begin() + 2, ndim, halo.begin());
  std::copy_n(encoding.begin() + 2 + ndim, ndim, periodic.begin());
  for (std::size_t axis = 0; axis < max_dims; ++axis) {
    if (halo[axis] < 0) fail(text("halo[", axis, "] must be at least 0, got ", halo[axis]));
    if (periodic[axis] < 0 || periodic[axis] > 1) fail(text("periodic[", axis, "] must be 0 or 1"));
  }
  with_margins = std::move(encoding);
  encoding.assign(with_margins.begin() + 2 + 2 * ndim, with_margins.end());
}

void Distribution::Data::check_margins(std::size_t axis) const {
  const AxisSplit& split = axes[axis];
  if (kind == blocked_kind && split.block_count() > split.parts)
    fail(text("halo[", axis, "] must be 0, got ", halo[axis], ": a rank holds several blocks of axis ", axis,
              " (block-cyclic), halos need one"));
  Index shortest = kind == boxed_kind || split.extent == 0 ? split.extent : split.shortest();
  for (Index box = 0; box < boxes.count(); ++box) shortest = std::min(shortest, boxes.intervals(box, axis).size());
  if (halo[axis] > shortest)
    fail(text("halo[", axis, "] must not be wider than a part, ", shortest, " elements along axis ", axis, ", got ",
              halo[axis]));
}

/// Elements of a cell and its margins.
/// \param what, rank  of the cell. \param used  elements of the rank's local array before. \param extent  by axis.
template <class Extent>
Index Distribution::Data::count_cell(const char* what, Index rank, Index used, const Extent& extent) const {
  Index elements = 1, end = 0;
  bool fits = true, empty = false;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Index width = 0;
    fits = fits && !__builtin_mul_overflow(halo[i], 2, &width) && !__builtin_add_overflow(extent(i), width, &width) &&
           !__builtin_mul_overflow(elements, std::max<Index>(1, width), &elements);
    empty = empty || width == 0;
  }
  if (!fits || __builtin_add_overflow(used, elements, &end))
    fail(text("the ", what, " of rank ", rank, " hold more elements than 64 bits count"));
  return empty ? 0 : elements;
}

void Distribution::Data::add_rank(Index rank) {
  constexpr Index max_rank = std::numeric_limits<int>::max() - 1;
  if (rank > max_rank) fail(text("ranks of MPI are at most ", max_rank, ", got ", rank));
  ranks_needed = std::max(ranks_needed, rank + 1);
}

void Distribution::Data::fail(const std::string& reason) const { throw Error(text(name, ": ", reason)); }

std::vector<Index> Distribution::Data::numbers(std::size_t begin, std::size_t end) const {
  const auto first = encoding.begin();
  return {first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end)};
}

Index Distribution::Data::set_grid(const std::vector<Index>& sizes, const char* what) {
  const Index size = checked_product(sizes, what, name);
  grid.resize(sizes.size());
  Index stride = 1;
  for (std::size_t g = sizes.size(); g-- > 0; stride *= sizes[g]) {
    grid[g].size = sizes[g];
    grid[g].stride = stride;
  }
  return size;
}

void Distribution::Data::read_blocked(std::size_t ndim) {
  const Index grid_axis_count = encoding.size() > 2 ? encoding[2] : -1;
  if (grid_axis_count < 0 || grid_axis_count > 1024)
    fail(text("the process grid may have 0 to 1024 axes, got ", grid_axis_count));
  const std::size_t grid_ndim = static_cast<std::size_t>(grid_axis_count), shape_at = 3, grid_at = shape_at + ndim;
  const std::size_t dims_at = grid_at + grid_ndim, block_at = dims_at + ndim, pins_at = block_at + ndim;
  if (encoding.size() < pins_at + grid_ndim + 1) fail("incomplete description");
  const std::vector<Index> sizes = numbers(grid_at, dims_at);
  const Index* const pins = &encoding[pins_at];
  for (std::size_t g = 0; g < grid_ndim; ++g) {
    if (sizes[g] < 1) fail(text("process grid ", tuple_text(sizes), ": sizes must be at least 1"));
    if (pins[g] < -1 || pins[g] >= sizes[g])
      fail(text("grid axis ", g, " is pinned to coordinate ", pins[g], " but has ", sizes[g], " coordinates"));
  }
  ranks_needed = set_grid(sizes, "process grid");
  const std::size_t list_at = pins_at + grid_ndim, after_ranks = encoding.size() - list_at - 1;
  if (encoding[list_at] < 0 || encoding[list_at] > static_cast<Index>(after_ranks)) fail("incomplete description");
  std::size_t lengths_at = list_at + 1 + static_cast<std::size_t>(encoding[list_at]);
  axes.reserve(ndim);
  for (std::size_t i = 0; i < ndim; ++i) {
    read_axis(i, encoding[shape_at + i], encoding[dims_at + i], encoding[block_at + i]);
    if (encoding[block_at + i] != block_lengths) continue;
    axes[i].begins = read_lengths(i, lengths_at);
    lengths_at += static_cast<std::size_t>(axes[i].parts);
  }
  if (lengths_at != encoding.size()) fail("incomplete description");
  checked_product(numbers(shape_at, grid_at), "shape", name);
  for (std::size_t g = 0; g < grid_ndim; ++g) pin_or_replicate(g, pins[g]);
  read_ranks(list_at);
}

void Distribution::Data::read_axis(std::size_t axis, Index extent, Index grid_axis, Index block) {
  const auto number = [&](std::size_t i) { return counted_axis(static_cast<Index>(i), encoding[1]); };
  const auto grid_size = static_cast<Index>(grid.size());
  if (extent < 0) fail(text(entry("shape", number(axis)), " must be at least 0, got ", extent));
  if (grid_axis < -1 || grid_axis >= grid_size)
    fail(text(entry("axes", number(axis)), " is ", counted(grid_axis), ", but the process grid has ",
              grid.empty() ? "no axes" : text("axes ", counted(0), " to ", counted(grid_size - 1)),
              " (DR_NOT_SPLIT: not split)"));
  for (std::size_t other = 0; other < axis; ++other)
    if (grid_axis >= 0 && grid_axes[other] == grid_axis)
      fail(text("grid axis ", counted(grid_axis), " is used twice: by tensor axes ", number(other), " and ",
                number(axis)));
  if (block < block_lengths) fail(text(entry("block", number(axis)), " must be at least 1 element, got ", block));
  grid_axes[axis] = static_cast<int>(grid_axis);
  const Index parts = grid_axis < 0 ? 1 : grid[static_cast<std::size_t>(grid_axis)].size;
  const Index elements = block > 0 ? std::min(block, extent) : ceil_div(extent, parts);
  axes.push_back({extent, parts, std::max<Index>(elements, 1), block == -1});
}

/// The begins of the parts of an axis, whose lengths stand at a position of the encoding.
const Index* Distribution::Data::read_lengths(std::size_t axis, std::size_t at) {
  const Index extent = axes[axis].extent, parts = axes[axis].parts;
  const Index number = counted_axis(static_cast<Index>(axis), encoding[1]);
  if (parts > static_cast<Index>(encoding.size() - at)) fail("incomplete description");
  const std::vector<Index> lengths = numbers(at, at + static_cast<std::size_t>(parts));
  std::vector<Index>& sums = begins.emplace_back(1, 0);
  bool fits = true;
  for (const Index length : lengths) {
    if (length < 0) fail(text(entry("block", number), ": lengths of parts must be at least 0, got ", length));
    fits = fits && length <= extent - sums.back();
    if (fits) sums.push_back(sums.back() + length);
  }
  if (!fits || sums.back() != extent)
    fail(text(entry("block", number), ": the lengths of the parts must add up to ", entry("shape", number), ", ",
              extent, ", got ", tuple_text(lengths)));
  return sums.data();
}

void Distribution::Data::pin_or_replicate(std::size_t grid_axis, Index pin) {
  const auto end = grid_axes.begin() + static_cast<std::ptrdiff_t>(axes.size());
  const bool split = std::find(grid_axes.begin(), end, static_cast<int>(grid_axis)) != end;
  if (split && pin >= 0) fail(text("grid axis ", grid_axis, " is both pinned and split over"));
  GridAxis& axis = grid[grid_axis];
  axis.pin = pin;
  if (pin >= 0) pinned += pin * axis.stride;
  axis.holds_replicas = !split && pin < 0;
  if (axis.holds_replicas) replicas *= axis.size;
}

void Distribution::Data::read_ranks(std::size_t at) {
  const Index count = encoding[at];
  ranks_at = at + 1;
  rank_count = static_cast<std::size_t>(count);
  if (count == 0) return;
  ranks = numbers(ranks_at, ranks_at + rank_count);
  if (count != ranks_needed)
    fail(text("process grid ", tuple_text(numbers(3 + axes.size(), 3 + axes.size() + grid.size())), " needs ",
              ranks_needed, " ranks, got a list of ", count));
  for (std::size_t position = 0; position < ranks.size(); ++position) {
    if (ranks[position] < 0)
      fail(text(entry("ranks", counted(static_cast<Index>(position))), " must not be negative, got ", ranks[position]));
    positions.emplace_back(ranks[position], static_cast<Index>(position));
  }
  std::sort(positions.begin(), positions.end());
  for (std::size_t i = 1; i < positions.size(); ++i)
    if (positions[i].first == positions[i - 1].first)
      fail(text("rank ", positions[i].first, " stands twice in the list of ranks"));
  ranks_needed = 1;
  add_rank(positions.back().first);
}

void Distribution::Data::read_tiled(std::size_t ndim) {
  const std::size_t tile_at = 2 + ndim, owners_at = tile_at + ndim;
  if (encoding.size() < owners_at) fail("incomplete description");
  const std::vector<Index> shape = numbers(2, tile_at), tile = numbers(tile_at, owners_at);
  const std::vector<Index> tile_counts = tile_grid(shape, tile, name);
  for (std::size_t i = 0; i < ndim; ++i) {
    axes.push_back({shape[i], std::max<Index>(tile_counts[i], 1), tile[i], false});
    grid_axes[i] = static_cast<int>(i);
  }
  const Index tiles = set_grid(tile_counts, "tile grid");
  checked_product(shape, "shape", name);
  ranks_at = owners_at;
  rank_count = encoding.size() - owners_at;
  ranks = numbers(ranks_at, encoding.size());
  if (static_cast<Index>(ranks.size()) != tiles)
    fail(text("tile grid ", tuple_text(tile_counts), " needs ", tiles, " owners, got ", ranks.size()));
  std::unordered_map<Index, Index> used;  // elements of each rank so far
  std::vector<Index> at(ndim, 0);
  for (const Index rank : ranks) {
    if (rank < 0) fail(text("the owner of tile ", tuple_text(at), " is rank ", rank, ", but ranks are 0 or more"));
    Index& offset = used[rank];
    cell_offsets.push_back(offset);
    offset += count_cell("tiles", rank, offset, [&](std::size_t i) { return axes[i].intervals(at[i]).size(); });
    add_rank(rank);
    for (std::size_t i = ndim; i-- > 0 && ++at[i] == tile_counts[i];) at[i] = 0;
  }
}

void Distribution::Data::read_boxed(std::size_t ndim) {
  const std::size_t boxes_at = 3 + ndim, step = 2 * ndim + 1;
  if (encoding.size() < boxes_at) fail("incomplete description");
  const std::vector<Index> shape = numbers(2, 2 + ndim);
  for (std::size_t i = 0; i < ndim; ++i) {
    if (shape[i] < 0) fail(text("shape[", i, "] must be at least 0, got ", shape[i]));
    axes.push_back({shape[i], 1, std::max<Index>(shape[i], 1), false});
  }
  checked_product(shape, "shape", name);
  const std::size_t given = encoding.size() - boxes_at, count = given / step;
  if (given % step != 0 || encoding[boxes_at - 1] != static_cast<Index>(count))
    fail(text(encoding[boxes_at - 1], " boxes of ", ndim, " dimensions take ", step, " numbers each, got ", given));
  if (encoding[boxes_at - 1] > Boxes::max_count) fail(text("more than ", Boxes::max_count, " boxes"));
  ranks_at = boxes_at;
  rank_count = count;
  rank_step = step;
  boxes = Boxes(encoding.data() + boxes_at, static_cast<Index>(count), ndim);
  positions.reserve(count);
  for (Index box = 0; box < boxes.count(); ++box) read_box(box);
  if (!std::is_sorted(positions.begin(), positions.end())) std::sort(positions.begin(), positions.end());
  cell_offsets.resize(count);
  Index used = 0, rank = -1;
  for (const auto& [owner, box] : positions) {
    if (owner != rank) used = 0;
    rank = owner;
    cell_offsets[static_cast<std::size_t>(box)] = used;
    used += count_cell("boxes", rank, used, [&, box = box](std::size_t i) { return boxes.intervals(box, i).size(); });
  }
}

void Distribution::Data::read_box(Index box) {
  const Index rank = boxes.owner(box);
  if (rank < 0) fail(text("the owner of box ", box, " must be a rank, at least 0, got ", rank));
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Index start = boxes.offset(box, i), length = boxes.extent(box, i), extent = axes[i].extent;
    if (length < 0) fail(text("box ", box, ": its extent in dimension ", i, " must be at least 0, got ", length));
    if (start < 0 || start > extent || length > extent - start)
      fail(text("box ", box, ": ", length, " indices from ", start, " on are not inside dimension ", i,
                " of the tensor, which has ", extent));
  }
  add_rank(rank);
  positions.emplace_back(rank, box);
}

Distribution::Distribution(Encoding encoding, const std::string& name)
    : data_(std::make_shared<const Data>(std::move(encoding), name)), name_(name) {}

Distribution Distribution::shifted_ranks(Index first) const {
  Encoding numbers = encoding();
  const std::size_t margins = numbers.size() - data_->encoding.size();
  auto rank = numbers.begin() + static_cast<std::ptrdiff_t>(margins + data_->ranks_at);
  if (blocked() && data_->rank_count == 0) {
    std::vector<Index> ranks(static_cast<std::size_t>(data_->ranks_needed));
    std::iota(ranks.begin(), ranks.end(), first);
    rank[-1] = data_->ranks_needed;
    numbers.insert(rank, ranks.begin(), ranks.end());
  }
  for (std::size_t n = 0; n < data_->rank_count; ++n) rank[static_cast<std::ptrdiff_t>(n * data_->rank_step)] += first;
  return Distribution(std::move(numbers), name_);
}

AxisArray Distribution::coordinates_at(Index position) const {
  AxisArray coordinates{};
  for (std::size_t i = 0; i < axes().size(); ++i) {
    if (data_->grid_axes[i] < 0) continue;
    const GridAxis& axis = data_->grid[static_cast<std::size_t>(data_->grid_axes[i])];
    coordinates[i] = position / axis.stride % axis.size;
  }
  return coordinates;
}

Index Distribution::position_of(Index rank) const {
  Index position = rank >= 0 && rank < ranks_needed() ? rank : -1;
  if (!data_->ranks.empty()) {
    const auto entry = std::lower_bound(data_->positions.begin(), data_->positions.end(), std::pair(rank, Index{0}));
    position = entry != data_->positions.end() && entry->first == rank ? entry->second : -1;
  }
  for (const GridAxis& axis : data_->grid)
    if (axis.pin >= 0 && position >= 0 && position / axis.stride % axis.size != axis.pin) return -1;
  return position;
}

std::vector<Cell> Distribution::cells(Index rank) const {
  if (rank < 0) data_->fail(text("rank must be at least 0, got ", rank));
  if (blocked()) {
    const Index position = position_of(rank);
    if (position < 0) return {};
    return {{coordinates_at(position), 0}};
  }
  std::vector<Cell> tiles;
  if (boxed()) {
    const auto& owners = data_->positions;
    for (auto entry = std::lower_bound(owners.begin(), owners.end(), std::pair(rank, Index{0}));
         entry != owners.end() && entry->first == rank; ++entry)
      tiles.push_back({{entry->second}, entry->second});
    return tiles;
  }
  for (std::size_t tile = 0; tile < data_->ranks.size(); ++tile)
    if (data_->ranks[tile] == rank)
      tiles.push_back({coordinates_at(static_cast<Index>(tile)), static_cast<Index>(tile)});
  return tiles;
}

Index Distribution::replica_of(Index rank) const {
  if (replicas() == 1) return 0;
  const Index position = position_of(rank);
  Index replica = 0;
  for (const GridAxis& axis : data_->grid)
    if (axis.holds_replicas) replica = replica * axis.size + position / axis.stride % axis.size;
  return replica;
}

Index Distribution::grid_position(const AxisArray& coordinates, Index replica) const {
  if (boxed()) return coordinates[0];
  Index position = data_->pinned;
  for (std::size_t i = 0; i < axes().size(); ++i)
    if (data_->grid_axes[i] >= 0)
      position += coordinates[i] * data_->grid[static_cast<std::size_t>(data_->grid_axes[i])].stride;
  for (std::size_t g = data_->grid.size(); g-- > 0 && replica > 0;) {
    const GridAxis& axis = data_->grid[g];
    if (!axis.holds_replicas) continue;
    position += replica % axis.size * axis.stride;
    replica /= axis.size;
  }
  return position;
}

Index Distribution::rank_of(const AxisArray& coordinates, Index replica) const {
  const Index position = grid_position(coordinates, replica);
  if (boxed()) return boxes().owner(position);
  return data_->ranks.empty() ? position : data_->ranks[static_cast<std::size_t>(position)];
}

Index Distribution::sender(const AxisArray& coordinates, Index receiver) const {
  if (replicas() == 1) return rank_of(coordinates, 0);
  const Index position = position_of(receiver);
  if (position >= 0 && coordinates_at(position) == coordinates) return receiver;
  return rank_of(coordinates, receiver % replicas());
}

std::vector<Index> Distribution::cell_shape(const Cell& cell) const {
  std::vector<Index> shape(axes().size());
  for (int axis = 0; axis < ndim(); ++axis) shape[static_cast<std::size_t>(axis)] = local_extent(cell, axis);
  return shape;
}

std::vector<Index> Distribution::local_shape(Index rank) const {
  const std::vector<Cell> own = cells(rank);
  if (blocked() && own.empty()) return std::vector<Index>(std::max<std::size_t>(axes().size(), 1), 0);
  if (blocked() || (boxed() && own.size() == 1)) return cell_shape(own[0]);
  if (own.empty()) return {0};
  return {cell_offset(own.back()) + checked_product(cell_shape(own.back()), "tile")};
}

std::vector<Index> Distribution::largest_block() const {
  std::vector<Index> extents;
  for (int axis = 0; axis < ndim(); ++axis)
    extents.push_back(axes()[static_cast<std::size_t>(axis)].longest() + 2 * halo(axis));
  return extents;
}

Index Distribution::owner(const std::vector<Index>& index) const {
  if (index.size() != axes().size())
    data_->fail(text("index ", tuple_text(index), " needs ", axes().size(), " entries"));
  AxisArray coordinates{};
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (index[i] < 0 || index[i] >= axes()[i].extent)
      data_->fail(text("index ", tuple_text(index), " is outside the tensor in dimension ", i));
    coordinates[i] = axes()[i].owner(index[i]);
  }
  if (boxed()) {
    IndexBox one;
    for (std::size_t i = 0; i < index.size(); ++i) one.hi[i] = (one.lo[i] = index[i]) + 1;
    const std::vector<Index> holders = boxes().overlapping(one);
    return holders.empty() ? -1 : boxes().owner(*std::min_element(holders.begin(), holders.end()));
  }
  return rank_of(coordinates, 0);
}

}  // namespace dace_redist
