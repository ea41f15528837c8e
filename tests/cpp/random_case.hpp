// Random redistributions of one or several tensors, with what each element of the target becomes.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/options.hpp"
#include "local_array.hpp"
#include "oracle.hpp"
#include "random_operation.hpp"

namespace {

/// Cuts a box at random, and appends the boxes in random order.
void cut_box(Random& random, Spec& spec, Indices offset, Indices extent, int depth) {
  const std::size_t axis = extent.empty() ? 0 : static_cast<std::size_t>(random.between(0, Index(extent.size()) - 1));
  if (depth > 0 && !extent.empty() && extent[axis] > 1) {
    Indices first = extent;
    first[axis] = random.between(1, extent[axis] - 1);
    extent[axis] -= first[axis];
    Indices second = offset;
    second[axis] += first[axis];
    const bool swapped = random.one_in(2);
    cut_box(random, spec, swapped ? second : offset, swapped ? extent : first, depth - 1);
    return cut_box(random, spec, swapped ? offset : second, swapped ? first : extent, depth - 1);
  }
  spec.offsets.insert(spec.offsets.end(), offset.begin(), offset.end());
  spec.extents.insert(spec.extents.end(), extent.begin(), extent.end());
}

/// Boxes that overlap anyhow.
/// \param covers  they hold each element.
void add_boxes(Random& random, Spec& spec, Index ranks, bool covers) {
  spec.boxed = true;
  if (covers) cut_box(random, spec, Indices(spec.shape.size(), 0), spec.shape, static_cast<int>(random.between(0, 4)));
  for (Index more = random.between(0, 3); more > 0; --more) {
    Indices offset, extent;
    for (const Index n : spec.shape) {
      offset.push_back(random.between(0, n));
      extent.push_back(random.between(0, n - offset.back()));
    }
    cut_box(random, spec, offset, extent, 1);
  }
  const Index ndim = static_cast<Index>(spec.shape.size());
  const Index count = ndim > 0 ? static_cast<Index>(spec.offsets.size()) / ndim : covers ? 1 + random.between(0, 2) : 1;
  for (Index box = 0; box < count; ++box) spec.owners.push_back(random.between(0, ranks - 1));
}

/// \param covers  some rank holds each element.
/// \param boxes   allow boxes.
Spec random_spec(Random& random, const Indices& shape, Index ranks, bool covers, bool boxes) {
  Spec spec;
  spec.shape = shape;
  if (boxes && random.one_in(4)) {
    add_boxes(random, spec, ranks, covers);
    return spec;
  }
  spec.tiled = random.one_in(4);
  if (spec.tiled) {
    Index tiles = 1;
    for (Index n : shape) {
      spec.tile.push_back(random.between(std::max<Index>(1, ceil_div(n, 4)), n + 1));
      tiles *= ceil_div(n, spec.tile.back());
    }
    for (Index t = 0; t < tiles; ++t) spec.owners.push_back(random.between(0, ranks - 1));
    return spec;
  }
  for (bool more = !random.one_in(8); more; more = spec.grid.size() <= shape.size() && random.between(1, 3) > 1)
    spec.grid.push_back(random.between(1, ranks / product(spec.grid)));
  const Index axes = static_cast<Index>(spec.grid.size()), ndim = static_cast<Index>(shape.size());
  const Indices chosen = random.permutation(axes + ndim);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    spec.dims.push_back(chosen[i] < axes ? chosen[i] : -1);
    spec.block.push_back(random.one_of<Index>({0, 0, -1, -1, block_lengths, 1, 2, 3, shape[i], Index{1} << 62}));
    if (spec.block.back() != block_lengths) continue;
    Indices cuts(static_cast<std::size_t>(spec.dims[i] < 0 ? 1 : spec.grid[static_cast<std::size_t>(spec.dims[i])]));
    for (Index& cut : cuts) cut = random.between(0, shape[i]);
    cuts.back() = shape[i];
    std::sort(cuts.begin(), cuts.end());
    std::adjacent_difference(cuts.begin(), cuts.end(), cuts.begin());
    spec.lengths.push_back(cuts);
  }
  for (Index g = 0; g < axes; ++g) {
    const bool named = std::find(spec.dims.begin(), spec.dims.end(), g) != spec.dims.end();
    spec.pins.push_back(named || random.one_in(2) ? -1 : random.between(0, spec.grid[static_cast<std::size_t>(g)] - 1));
  }
  if (random.one_in(2)) spec.ranks = random.permutation(ranks);
  if (!spec.ranks.empty()) spec.ranks.resize(static_cast<std::size_t>(product(spec.grid)));
  return spec;
}

/// A tensor that moves.
struct Move {
  Spec source, target;
  Encoding index_map;
  Index element_bytes = 1, target_bytes = 1;  // of an element of each side
  ElementOperation operation;
  Index replicas = 1;  // of the source

  /// Writes an element of the source.
  void write_source(unsigned char* bytes, Index global) const {
    if (operation.is_copy()) return write_value(bytes, global, static_cast<std::size_t>(element_bytes));
    write_number(bytes, operation.source, number_of(global));
  }
  /// Writes an element of the target as it is before.
  void write_before(unsigned char* bytes) const {
    if (operation.is_copy()) return;
    write_number(bytes, operation.target, number_before);
  }
  /// Writes an element of the target as it must become.
  void write_after(unsigned char* bytes, Index global) const {
    if (operation.is_copy()) return write_source(bytes, global);
    write_number(bytes, operation.target, number_after(operation, global, replicas));
  }
};

struct Case {
  Index number = 0;
  MPI_Comm comm = MPI_COMM_NULL;  // null on ranks that take no part
  std::vector<Move> moves;
  Options options = default_options();
};

/// Another shape of as many elements: two neighbouring extents multiplied, or any one.
Indices random_reshape(Random& random, Indices shape) {
  if (shape.size() > 1 && random.one_in(2)) {
    const std::size_t at = static_cast<std::size_t>(random.between(1, static_cast<Index>(shape.size()) - 1));
    shape[at - 1] *= shape[at];
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(at));
    return shape;
  }
  Index rest = product(shape);
  Indices other;
  while (rest > 1 && other.size() < 4) {
    Index factor = random.between(1, rest);
    while (rest % factor != 0) --factor;
    other.push_back(factor);
    rest /= factor;
  }
  if (rest != 1) other.push_back(rest);
  return other;
}

/// Random axes, and a region or a reshape, for half of the cases, as an IndexMap takes them, and the target's shape.
Encoding random_map(Random& random, const Indices& shape, Indices& target_shape) {
  const Index ndim = static_cast<Index>(shape.size());
  target_shape = shape;
  if (random.one_in(2)) return {};
  const auto at = [](Index axis) { return static_cast<std::size_t>(axis); };
  Encoding map = random.permutation(ndim), source_offset, box;
  const bool whole = random.one_in(2);
  for (const Index n : shape) {
    source_offset.push_back(whole ? 0 : random.between(0, n));
    box.push_back(whole ? n : random.between(0, n - source_offset.back()));
  }
  Encoding target_offset;
  for (Index t = 0; t < ndim; ++t) {
    target_offset.push_back(whole ? 0 : random.between(0, 3));
    target_shape[at(t)] = target_offset.back() + box[at(map[at(t)])] + (whole ? 0 : random.between(0, 3));
  }
  if (whole && random.one_in(2)) {
    target_shape = random_reshape(random, target_shape);
    map.insert(map.begin(), reshape_after_axes);
  }
  if (whole) return map;
  for (const Encoding* part : {&source_offset, &target_offset, &box}) map.insert(map.end(), part->begin(), part->end());
  return map;
}

/// What a rank holds of the target: the global positions in the source that its elements come from, -1 for none.
Part origins(const Move& the, Part part) {
  if (the.index_map.empty()) return part;
  const std::size_t ndim = the.source.shape.size();
  if (the.index_map[0] == reshape_after_axes) {
    Move permuted = the;
    permuted.index_map.erase(permuted.index_map.begin());
    permuted.target.shape.clear();
    for (const Index axis : permuted.index_map)
      permuted.target.shape.push_back(the.source.shape[static_cast<std::size_t>(axis)]);
    return origins(permuted, std::move(part));
  }
  for (Index& global : part.globals) {
    const Indices target = row_major_coordinates(global, the.target.shape);
    Indices source(ndim);
    bool moved = true;
    for (std::size_t t = 0; t < ndim; ++t) {
      const std::size_t s = static_cast<std::size_t>(the.index_map[t]);
      source[s] = target[t];
      if (the.index_map.size() == ndim) continue;
      const Index from = the.index_map[ndim + s], to = the.index_map[2 * ndim + t],
                  extent = the.index_map[3 * ndim + s];
      moved = moved && target[t] >= to && target[t] < to + extent;
      source[s] += from - to;
    }
    global = moved ? row_major(source, the.source.shape) : -1;
  }
  return part;
}

/// Of 1 to 5 dimensions; one in six may be of none, or have no elements.
Indices random_shape(Random& random, bool large) {
  if (large) return {random.between(150, 180), random.between(110, 130)};
  if (random.one_in(6)) {
    Indices shape(static_cast<std::size_t>(random.between(0, 3)));
    for (Index& n : shape) n = random.between(0, 3);
    return shape;
  }
  const std::size_t ndim = static_cast<std::size_t>(random.between(1, 5));
  const Index most = Indices{200, 24, 10, 6, 5}[ndim - 1];
  Indices shape(ndim);
  for (Index& n : shape) n = random.between(1, most);
  return shape;
}

Move random_move(Random& random, const Indices& shape, Index ranks) {
  Move move;
  Indices target_shape;
  move.index_map = random_map(random, shape, target_shape);
  const bool reshapes = !move.index_map.empty() && move.index_map[0] == reshape_after_axes;
  move.source = random_spec(random, shape, ranks, true, !reshapes);
  move.target = random_spec(random, target_shape, ranks, false, !reshapes);
  move.operation = random_operation(random);
  if (move.source.boxed) move.operation.reduction = Reduction::none;
  move.element_bytes = move.target_bytes = random.one_of<Index>({1, 2, 4, 8, 16});
  if (move.operation.is_copy()) return move;
  move.element_bytes = element_bytes_of(move.operation.source);
  move.target_bytes = element_bytes_of(move.operation.target);
  move.replicas = Distribution(move.source.encoding(), "source").replicas();
  return move;
}

Case random_case(Random& random, Index number, const std::vector<MPI_Comm>& comms, const Indices& sizes) {
  Case the;
  the.number = number;
  const std::size_t which =
      static_cast<std::size_t>(random.one_in(2) ? 0 : random.between(0, static_cast<Index>(comms.size()) - 1));
  the.comm = comms[which];
  const bool large = number % 16 == 15;
  bool tiny = true;
  for (Index tensors = random.one_in(2) ? 1 : random.between(2, 3); tensors > 0; --tensors) {
    const Indices shape = random_shape(random, large);
    the.moves.push_back(random_move(random, shape, sizes[which]));
    tiny = tiny && product(shape) * the.moves.back().element_bytes <= 1600;
  }
  const Indices cuts = tiny ? Indices{1, 7, 64, 1000, Index{1} << 30} : Indices{512, 1000, 4096, Index{1} << 30};
  the.options.chunk_bytes = random.one_of(cuts);
  the.options.max_message_bytes = random.one_in(2) ? Index{1} << 30 : random.one_of(cuts);
  the.options.depth = random.between(1, 4);
  the.options.growth = random.one_of<double>({1.0, 1.5, 3.0});
  the.options.threads = random.between(0, 3);
  the.options.slot_bytes = random.one_of(tiny ? Indices{1, 64, 1000, 65536} : Indices{512, 4096, 65536});
  return the;
}

/// This rank's arrays of a tensor, and their contents before and after a transfer.
struct MovedArrays {
  MovedArrays(const Move& move, Index rank, std::uint64_t seed)
      : source(Random(2 * seed), part_of(move.source, rank), move.element_bytes),
        target(Random(2 * seed + 1), origins(move, part_of(move.target, rank)), move.target_bytes) {
    source_before = source.picture(0x5A, [&](unsigned char* bytes, Index global) { move.write_source(bytes, global); });
    target_before = target.picture(0xA5, [&](unsigned char* bytes, Index) { move.write_before(bytes); });
    expected = target.picture(0xA5, [&](unsigned char* bytes, Index global) { move.write_after(bytes, global); });
  }

  LocalArrayMemory source, target;
  std::vector<unsigned char> source_before, target_before, expected;
};

}  // namespace
