// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

#include "core/element_type.hpp"
#include "plan/given_messages.hpp"

namespace dace_redist {
namespace {

using Blocks = std::vector<SideBlock>;

/// A datatype that is packed by MPI instead.
struct NotDecoded {};

constexpr std::size_t max_pieces = 16384, max_loops = 10;

struct Bounds {
  Index lower = 0, extent = 0;
};
/// \param get  MPI_Type_get_true_extent: bounds of the bytes that move.
Bounds bounds_of(MPI_Datatype type, int (*get)(MPI_Datatype, MPI_Aint*, MPI_Aint*) = MPI_Type_get_extent) {
  MPI_Aint lower = 0, extent = 0;
  check(get(type, &lower, &extent), "MPI_Type_get_extent");
  return {lower, extent};
}
Index size_of(MPI_Datatype type) {
  MPI_Count size = 0;
  check(MPI_Type_size_x(type, &size), "MPI_Type_size_x");
  return size;
}

bool is_run(const SideBlock& block) { return block.loops.size() == 1; }

/// Appends blocks, displaced. A run that follows another one becomes a part of it.
void append(Blocks& blocks, const Blocks& others, Index displacement) {
  for (const SideBlock& other : others) {
    const Index offset = other.offset + displacement;
    if (!blocks.empty() && is_run(blocks.back()) && is_run(other) &&
        blocks.back().offset + blocks.back().loops[0].count == offset) {
      blocks.back().loops[0].count += other.loops[0].count;
      continue;
    }
    if (blocks.size() == max_pieces) throw NotDecoded();
    blocks.push_back({offset, other.loops});
  }
}

Blocks displaced(Blocks blocks, Index displacement) {
  for (SideBlock& block : blocks) block.offset += displacement;
  return blocks;
}

Blocks repeated(const Blocks& blocks, Index count, Index stride) {
  if (count == 1 || blocks.empty()) return blocks;
  Blocks made;
  if (count == 0) return made;
  if (blocks.size() > 1) {
    for (Index i = 0; i < count; ++i) append(made, blocks, i * stride);
    return made;
  }
  std::vector<SideBlock::Loop> loops = blocks[0].loops;
  if (stride == loops[0].count * loops[0].stride)
    loops[0].count *= count;
  else
    loops.insert(loops.begin(), {count, stride});
  if (loops.size() > max_loops) throw NotDecoded();
  made.push_back({blocks[0].offset, std::move(loops)});
  return made;
}

/// The constructor of a type, and the numbers of what it takes: integers, addresses, large counts, types.
struct Envelope {
  int combiner = MPI_COMBINER_NAMED;
  std::array<MPI_Count, 4> lengths{};
};

Envelope envelope_of(MPI_Datatype type) {
  Envelope made;
#if MPI_VERSION >= 4
  auto& lengths = made.lengths;
  check(MPI_Type_get_envelope_c(type, &lengths[0], &lengths[1], &lengths[2], &lengths[3], &made.combiner),
        "MPI_Type_get_envelope_c");
#else
  std::array<int, 3> lengths{};
  check(MPI_Type_get_envelope(type, &lengths[0], &lengths[1], &lengths[2], &made.combiner), "MPI_Type_get_envelope");
  made.lengths = {lengths[0], lengths[1], 0, lengths[2]};
#endif
  bool predefined = made.combiner == MPI_COMBINER_F90_REAL || made.combiner == MPI_COMBINER_F90_COMPLEX ||
                    made.combiner == MPI_COMBINER_F90_INTEGER;
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION > 0)
  predefined |= made.combiner == MPI_COMBINER_VALUE_INDEX;
#endif
  if (predefined) made.combiner = MPI_COMBINER_NAMED;
  return made;
}

/// Frees what MPI_Type_get_contents() returns: a new handle of each type that is not predefined.
struct FreeContent {
  static MPI_Datatype null() { return MPI_DATATYPE_NULL; }
  static void free(MPI_Datatype* type) {
    caught([type] {
      if (envelope_of(*type).combiner != MPI_COMBINER_NAMED) MPI_Type_free(type);
    });
  }
};

/// What a derived type is made of.
struct Contents {
  int combiner = MPI_COMBINER_NAMED;
  std::vector<Index> n{};  ///< integers, then addresses, as MPI_Type_get_contents() has them
  std::vector<Owned<MPI_Datatype, FreeContent>> types{};

  MPI_Datatype type(std::size_t number = 0) const { return types[number].get(); }
};

Contents contents_of(MPI_Datatype type) {
  const auto [combiner, lengths] = envelope_of(type);
  Contents made{combiner};
  if (combiner == MPI_COMBINER_NAMED) return made;
  std::vector<int> integers(static_cast<std::size_t>(lengths[0]));
  std::vector<MPI_Aint> addresses(static_cast<std::size_t>(lengths[1]));
  std::vector<MPI_Count> counts(static_cast<std::size_t>(lengths[2]));
  std::vector<MPI_Datatype> types(static_cast<std::size_t>(lengths[3]));
  made.types.reserve(types.size());
#if MPI_VERSION >= 4
  check(MPI_Type_get_contents_c(type, lengths[0], lengths[1], lengths[2], lengths[3], integers.data(), addresses.data(),
                                counts.data(), types.data()),
        "MPI_Type_get_contents_c");
#else
  check(MPI_Type_get_contents(type, static_cast<int>(lengths[0]), static_cast<int>(lengths[1]),
                              static_cast<int>(lengths[3]), integers.data(), addresses.data(), types.data()),
        "MPI_Type_get_contents");
#endif
  for (const MPI_Datatype one : types) made.types.emplace_back(one);
  made.n.assign(integers.begin(), integers.end());
  made.n.insert(made.n.end(), addresses.begin(), addresses.end());
  // where the counts stand among the integers of other constructors: of arrays, sizes after the first of them
  const std::ptrdiff_t before = combiner == MPI_COMBINER_SUBARRAY ? 1 : combiner == MPI_COMBINER_DARRAY ? 3 : 0;
  made.n.insert(made.n.begin() + before, counts.begin(), counts.end());
  return made;
}

Blocks decode(MPI_Datatype type);

Blocks decode_named(MPI_Datatype type) {
  const Index size = size_of(type);
  const Bounds bounds = bounds_of(type, MPI_Type_get_true_extent);
  if (size == 0) return {};
  if (bounds.extent != size) throw NotDecoded();
  return {{bounds.lower, {{size, 1}}}};
}

/// Blocks of one type at displacements, as the indexed types have them.
template <class Length, class Displacement>
Blocks decode_indexed(const Contents& type, const Length& length, const Displacement& displacement) {
  const Blocks element = decode(type.type());
  const Index extent = bounds_of(type.type()).extent;
  Blocks made;
  for (std::size_t block = 0; block < static_cast<std::size_t>(type.n[0]); ++block)
    append(made, repeated(element, length(block), extent), displacement(block, extent));
  return made;
}

Blocks decode_struct(const Contents& type) {
  Blocks made;
  for (std::size_t member = 0; member < type.types.size(); ++member)
    if (type.n[member + 1] > 0)
      append(made, repeated(decode(type.type(member)), type.n[member + 1], bounds_of(type.type(member)).extent),
             type.n[1 + type.types.size() + member]);
  return made;
}

/// The indices of an array's axis: `count` blocks of `length`, `period` apart, the last one cut off at the end.
struct AxisBlocks {
  Index first, length, period;
};

/// Elements of an array, whose axes are nested in one of MPI's orders.
template <class BlocksOfAxis>
Blocks decode_array(MPI_Datatype element, int order, const std::vector<Index>& shape, const BlocksOfAxis& along) {
  Blocks blocks = decode(element);
  Index stride = bounds_of(element).extent;
  for (std::size_t n = 0; n < shape.size(); ++n) {
    const std::size_t axis = order == MPI_ORDER_C ? shape.size() - 1 - n : n;
    const auto [first, length, period] = along(axis);
    const Index extent = shape[axis], whole = std::max<Index>(0, (extent - first - length + period) / period);
    Blocks made = displaced(repeated(repeated(blocks, length, stride), whole, period * stride), first * stride);
    const Index next = first + whole * period, rest = std::min(length, extent - next);
    if (rest > 0) append(made, repeated(blocks, rest, stride), next * stride);
    blocks = std::move(made);
    stride *= extent;
  }
  return blocks;
}

std::vector<Index> numbers(const Contents& type, std::size_t first, std::size_t count) {
  const auto begin = type.n.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

Blocks decode_subarray(const Contents& type) {
  const auto ndim = static_cast<std::size_t>(type.n[0]);
  return decode_array(type.type(), static_cast<int>(type.n.back()), numbers(type, 1, ndim), [&](std::size_t axis) {
    const Index extent = type.n[1 + axis];
    return AxisBlocks{type.n[1 + 2 * ndim + axis], type.n[1 + ndim + axis], extent};
  });
}

Blocks decode_darray(const Contents& type) {
  const auto ndim = static_cast<std::size_t>(type.n[2]);
  std::vector<Index> coordinates(ndim);
  Index rank = type.n[1];
  for (std::size_t axis = ndim; axis-- > 0;) {
    const Index parts = type.n[3 + 3 * ndim + axis];
    coordinates[axis] = rank % parts;
    rank /= parts;
  }
  return decode_array(type.type(), static_cast<int>(type.n.back()), numbers(type, 3, ndim), [&](std::size_t axis) {
    const Index extent = type.n[3 + axis], parts = type.n[3 + 3 * ndim + axis];
    const Index distribution = type.n[3 + ndim + axis], argument = type.n[3 + 2 * ndim + axis];
    Index length = argument;
    if (distribution == MPI_DISTRIBUTE_NONE) return AxisBlocks{0, extent, extent};
    if (argument == MPI_DISTRIBUTE_DFLT_DARG)
      length = distribution == MPI_DISTRIBUTE_CYCLIC ? 1 : ceil_div(extent, parts);
    return AxisBlocks{coordinates[axis] * length, length, length * parts};
  });
}

Blocks decode_derived(const Contents& type) {
  const auto at = [&](std::size_t index) -> Index { return type.n[index]; };
  const auto count = static_cast<std::size_t>(type.n.empty() ? 0 : type.n[0]);
  const auto in_extents = [&](std::size_t first) {
    return [&at, first](std::size_t block, Index extent) { return at(first + block) * extent; };
  };
  const auto in_bytes = [&](std::size_t first) {
    return [&at, first](std::size_t block, Index) { return at(first + block); };
  };
  const auto one_length = [&](std::size_t) { return at(1); };
  const auto lengths = [&](std::size_t block) { return at(1 + block); };
  switch (type.combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
      return decode(type.type());
    case MPI_COMBINER_CONTIGUOUS:
      return repeated(decode(type.type()), at(0), bounds_of(type.type()).extent);
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR: {
      const Index extent = bounds_of(type.type()).extent;
      const Index stride = type.combiner == MPI_COMBINER_VECTOR ? at(2) * extent : at(2);
      return repeated(repeated(decode(type.type()), at(1), extent), at(0), stride);
    }
    case MPI_COMBINER_INDEXED:
      return decode_indexed(type, lengths, in_extents(1 + count));
    case MPI_COMBINER_HINDEXED:
      return decode_indexed(type, lengths, in_bytes(1 + count));
    case MPI_COMBINER_INDEXED_BLOCK:
      return decode_indexed(type, one_length, in_extents(2));
    case MPI_COMBINER_HINDEXED_BLOCK:
      return decode_indexed(type, one_length, in_bytes(2));
    case MPI_COMBINER_STRUCT:
      return decode_struct(type);
    case MPI_COMBINER_SUBARRAY:
      return decode_subarray(type);
    case MPI_COMBINER_DARRAY:
      return decode_darray(type);
    default:
      throw NotDecoded();
  }
}

Blocks decode(MPI_Datatype type) {
  const Contents contents = contents_of(type);
  return contents.combiner == MPI_COMBINER_NAMED ? decode_named(type) : decode_derived(contents);
}

Datatype duplicate(MPI_Datatype type) {
  Datatype made;
  check(MPI_Type_dup(type, made.put()), "MPI_Type_dup");
  check(MPI_Type_commit(made.put()), "MPI_Type_commit");
  return made;
}

/// The side as MPI packs it: one run for each peer.
MessageSide packed_side(const TypedSide& arguments, int ranks, MPI_Comm comm) {
  MessageSide side;
  std::vector<TypedPart> parts;
  Index nbytes = 0;
  side.start = std::numeric_limits<Index>::max();
  for (int peer = 0; peer < ranks; ++peer) {
    const int count = arguments.counts[peer];
    const Index size = count > 0 ? count * size_of(arguments.types[peer]) : 0;
    if (size == 0) continue;
    const Index displacement = arguments.displacements[peer];
    side.blocks[peer] = {{nbytes, {{size, 1}}}};
    side.start = std::min(side.start, displacement + bounds_of(arguments.types[peer], MPI_Type_get_true_extent).lower);
    parts.push_back({duplicate(arguments.types[peer]), count, displacement, nbytes, size});
    nbytes += ceil_div(size, element_alignment) * element_alignment;
  }
  side.packed = std::make_shared<PackedSide>(std::move(parts), nbytes, comm);
  return side;
}

}  // namespace

std::optional<std::vector<SideBlock>> datatype_blocks(MPI_Datatype type, Index count) try {
  if (count == 0) return Blocks{};
  return repeated(decode(type), count, bounds_of(type).extent);
} catch (const NotDecoded&) {
  return {};
}

MessageSide typed_side(const TypedSide& arguments, MPI_Comm comm) {
  MessageSide side;
  const int ranks = comm_size(comm);
  for (int peer = 0; peer < ranks; ++peer) {
    const int count = arguments.counts[peer];
    if (count < 0) throw ArgumentError(text("the count of rank ", peer, " must be at least 0, got ", count));
    if (count > 0 && arguments.types[peer] == MPI_DATATYPE_NULL)
      throw ArgumentError(text("the datatype of rank ", peer, " is MPI_DATATYPE_NULL, but its count is ", count));
  }
  for (int peer = 0; peer < ranks; ++peer) {
    if (arguments.counts[peer] == 0) continue;
    const auto blocks = datatype_blocks(arguments.types[peer], arguments.counts[peer]);
    if (!blocks) return packed_side(arguments, ranks, comm);
    if (!blocks->empty()) side.blocks[peer] = displaced(*blocks, arguments.displacements[peer]);
  }
  return side;
}

}  // namespace dace_redist
