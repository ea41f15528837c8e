// Who holds each global index of a random distribution, by brute force.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "layout/distribution.hpp"
#include "random.hpp"

namespace {

using namespace dace_redist;
using Indices = std::vector<Index>;

Index product(const Indices& values) {
  Index result = 1;
  for (Index value : values) result *= value;
  return result;
}

/// Position of coordinates in a row-major array.
Index row_major(const Indices& coordinates, const Indices& shape) {
  Index position = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) position = position * shape[i] + coordinates[i];
  return position;
}

Indices row_major_coordinates(Index position, const Indices& shape) {
  Indices coordinates(shape.size());
  for (std::size_t i = shape.size(); i-- > 0; position /= shape[i]) coordinates[i] = position % shape[i];
  return coordinates;
}

/// Calls `visit(index)` for every index of an array of that shape, in C order.
template <class Visit>
void for_each_index(const Indices& shape, const Visit& visit) {
  for (Index position = 0, count = product(shape); position < count; ++position)
    visit(row_major_coordinates(position, shape));
}

/// A distribution as the test sees it.
struct Spec {
  bool tiled = false, boxed = false;
  Indices shape;
  Indices grid, dims, block, pins, ranks;  // of blocks, as in Encoding
  std::vector<Indices> lengths;            // of parts, of axes with block -2
  Indices tile, owners;                    // tiled; owners also of boxes
  Indices offsets, extents;                // of boxes, one after another

  Encoding encoding() const {
    if (boxed) return boxes_encoding();
    Encoding list{tiled ? tiled_kind : blocked_kind, static_cast<Index>(shape.size())};
    const auto append = [&](const Indices& part) { list.insert(list.end(), part.begin(), part.end()); };
    if (!tiled) list.push_back(static_cast<Index>(grid.size()));
    append(shape);
    for (const Indices* part : {&grid, &dims, &block, &pins})
      if (!tiled) append(*part);
    if (!tiled) list.push_back(static_cast<Index>(ranks.size()));
    append(tiled ? tile : ranks);
    append(owners);
    for (const Indices& part : lengths) append(part);
    return list;
  }

  Encoding boxes_encoding() const {
    const auto ndim = static_cast<std::ptrdiff_t>(shape.size());
    Encoding list{boxed_kind, ndim};
    list.insert(list.end(), shape.begin(), shape.end());
    list.push_back(static_cast<Index>(owners.size()));
    for (std::size_t box = 0; box < owners.size(); ++box) {
      list.push_back(owners[box]);
      for (const Indices* part : {&offsets, &extents}) {
        const auto begin = part->begin() + static_cast<std::ptrdiff_t>(box) * ndim;
        list.insert(list.end(), begin, begin + ndim);
      }
    }
    return list;
  }
};

/// What a rank holds: global positions (row-major) in the order of its local array, and that array's shape.
struct Part {
  Indices shape, globals;
};

/// The grid coordinate that owns global index g of an axis.
Index owner_along(const Spec& spec, std::size_t axis, Index g) {
  const Index n = spec.shape[axis],
              parts = spec.dims[axis] < 0 ? 1 : spec.grid[static_cast<std::size_t>(spec.dims[axis])];
  if (spec.block[axis] >= 0) return g / (spec.block[axis] > 0 ? spec.block[axis] : (n + parts - 1) / parts) % parts;
  Index coordinate = 0;
  if (spec.block[axis] == block_lengths) {
    const auto before = std::count(spec.block.begin(), spec.block.begin() + static_cast<std::ptrdiff_t>(axis), -2);
    const Indices& lengths = spec.lengths[static_cast<std::size_t>(before)];
    for (Index end = 0; (end += lengths[static_cast<std::size_t>(coordinate)]) <= g;) ++coordinate;
    return coordinate;
  }
  for (Index end = 0; (end += n / parts + (coordinate < n % parts ? 1 : 0)) <= g;) ++coordinate;
  return coordinate;
}

Part blocked_part(const Spec& spec, Index rank) {
  Part part{Indices(spec.shape.size(), 0), {}};
  Index position = rank;
  if (!spec.ranks.empty()) position = std::find(spec.ranks.begin(), spec.ranks.end(), rank) - spec.ranks.begin();
  if (position >= product(spec.grid)) return part;
  const Indices at = row_major_coordinates(position, spec.grid);
  for (std::size_t g = 0; g < at.size(); ++g)
    if (spec.pins[g] >= 0 && spec.pins[g] != at[g]) return part;
  std::vector<Indices> held(spec.shape.size());
  for (std::size_t axis = 0; axis < held.size(); ++axis) {
    const Index mine = spec.dims[axis] < 0 ? 0 : at[static_cast<std::size_t>(spec.dims[axis])];
    for (Index g = 0; g < spec.shape[axis]; ++g)
      if (owner_along(spec, axis, g) == mine) held[axis].push_back(g);
    part.shape[axis] = static_cast<Index>(held[axis].size());
  }
  for_each_index(part.shape, [&](Indices index) {
    for (std::size_t axis = 0; axis < held.size(); ++axis)
      index[axis] = held[axis][static_cast<std::size_t>(index[axis])];
    part.globals.push_back(row_major(index, spec.shape));
  });
  return part;
}

Part tiled_part(const Spec& spec, Index rank) {
  Part part;
  Indices tiles;
  for (std::size_t i = 0; i < spec.shape.size(); ++i)
    tiles.push_back((spec.shape[i] + spec.tile[i] - 1) / spec.tile[i]);
  for_each_index(tiles, [&](const Indices& at) {
    if (spec.owners[static_cast<std::size_t>(row_major(at, tiles))] != rank) return;
    Indices extents;
    for (std::size_t i = 0; i < at.size(); ++i)
      extents.push_back(std::min(spec.tile[i], spec.shape[i] - at[i] * spec.tile[i]));
    for_each_index(extents, [&](Indices index) {
      for (std::size_t i = 0; i < at.size(); ++i) index[i] += at[i] * spec.tile[i];
      part.globals.push_back(row_major(index, spec.shape));
    });
  });
  part.shape = {static_cast<Index>(part.globals.size())};
  return part;
}

Part boxed_part(const Spec& spec, Index rank) {
  Part part;
  const std::size_t ndim = spec.shape.size();
  for (std::size_t box = 0; box < spec.owners.size(); ++box) {
    if (spec.owners[box] != rank) continue;
    const auto begin = spec.extents.begin() + static_cast<std::ptrdiff_t>(box * ndim);
    part.shape.assign(begin, begin + static_cast<std::ptrdiff_t>(ndim));
    for_each_index(Indices(part.shape), [&](Indices index) {
      for (std::size_t i = 0; i < ndim; ++i) index[i] += spec.offsets[box * ndim + i];
      part.globals.push_back(row_major(index, spec.shape));
    });
  }
  if (std::count(spec.owners.begin(), spec.owners.end(), rank) != 1)
    part.shape = {static_cast<Index>(part.globals.size())};
  return part;
}

Part part_of(const Spec& spec, Index rank) {
  return spec.boxed ? boxed_part(spec, rank) : spec.tiled ? tiled_part(spec, rank) : blocked_part(spec, rank);
}

}  // namespace
