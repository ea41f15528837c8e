// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The work of a thread of the tile kernels; a processor runs it for one thread after another.
///
/// Blocks whose fastest dimensions in source and target agree are copied by copy_words(). Others are transposed by
/// read_rows() and write_columns(), with a barrier of the thread block between them.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "copy/element_arithmetic.hpp"
#include "core/error.hpp"
#include "device/tile_tables.hpp"

/// Stands before loops whose arrays are to be in registers of a GPU.
#ifdef __CUDA_ARCH__
#define DACE_REDIST_UNROLL _Pragma("unroll")
#else
#define DACE_REDIST_UNROLL
#endif

namespace dace_redist {

/// Tells the compiler that an address is of neither shared nor local memory: loads and stores then have the
/// instructions of global memory, and accesses to shared memory may move past them.
template <class Address>
DACE_REDIST_HOST_DEVICE Address* in_device_memory(Address* address) {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(address));
#endif
  return address;
}

/// Loads a word from an address that is aligned to its size.
template <class T>
DACE_REDIST_HOST_DEVICE T load_word(const char* from) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const T*>(from);
#else
  if (reinterpret_cast<std::uintptr_t>(from) % sizeof(T) != 0) throw Error("a tile kernel loads a misaligned word");
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
#endif
}

/// Stores a word at an address that is aligned to its size.
template <class T>
DACE_REDIST_HOST_DEVICE void store_word(char* to, const T& value) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<T*>(to) = value;
#else
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(T) != 0) throw Error("a tile kernel stores a misaligned word");
  std::memcpy(to, &value, sizeof value);
#endif
}

/// The computation with a word of a launch. \tparam Source, Target  types of Arithmetic.
template <class From, class To>
struct TileWords {
  using Source = From;
  using Target = To;
  DACE_REDIST_HOST_DEVICE explicit TileWords(const ElementOperation& operation) : combination(operation) {}
  DACE_REDIST_HOST_DEVICE bool reads_target() const { return combination.reads_target(); }
  DACE_REDIST_HOST_DEVICE To operator()(From value, To current) const {
    return combination(converted<To>(value), current);
  }
  Combination<To> combination;
};

template <class T>
struct TypeTag {
  using type = T;
};

template <class From, class Visit>
void visit_target_words(ElementType target, const Visit& visit) {
  visit_element_type(target, [&](auto zero) {
    using To = Arithmetic<decltype(zero)>;
    constexpr ElementKind from = detail::kind_of<From>, to = detail::kind_of<To>;
    if constexpr (std::is_same_v<From, To> ||
                  (from == to && from >= ElementKind::real && !is_half<From> && !is_half<To>))
      visit(TypeTag<TileWords<From, To>>());
  });
}

/// Calls `visit` with the TypeTag of TileWords; does nothing without a kernel, see device_computes().
template <class Visit>
void visit_tile_words(const ElementOperation& operation, const Visit& visit) {
  visit_element_type(operation.source,
                     [&](auto zero) { visit_target_words<Arithmetic<decltype(zero)>>(operation.target, visit); });
}

/// Words that a thread loads before it stores them: enough bytes in flight to hide the latency of memory, and few
/// enough registers for 1024 threads on a multiprocessor.
inline constexpr std::uint32_t words_in_flight = 4;

/// Words of a transposed tile.
DACE_REDIST_HOST_DEVICE constexpr std::uint32_t transposed_words(std::size_t word_bytes) {
  return word_bytes == 16 ? 1024 : 2048;
}

/// Byte of a word in shared memory. After each 128 bytes, a row of all banks, there is a gap of one word: so words that
/// a warp stores at a distance of rows are in different banks.
template <class Word>
DACE_REDIST_HOST_DEVICE constexpr std::uint32_t shared_byte(std::uint32_t position) {
  constexpr std::uint32_t nbytes = sizeof(Word), gap = nbytes < 4 ? 4 : nbytes;
  return position * nbytes + position / (128 / nbytes) * gap;
}

/// A transposed tile in shared memory.
template <class Words>
struct TransposedTile {
  static constexpr std::uint32_t words = transposed_words(sizeof(typename Words::Source));
  alignas(16) char bytes[shared_byte<typename Words::Source>(words)];
};

/// The group of a tile.
DACE_REDIST_HOST_DEVICE inline const TileGroup& group_of(const TileLaunch& launch, std::uint32_t tile) {
  std::uint32_t low = launch.first_group, high = low + launch.group_count - 1;
  while (low < high) {
    const std::uint32_t middle = (low + high + 1) / 2;
    if (launch.groups[middle].first_tile <= tile)
      low = middle;
    else
      high = middle - 1;
  }
  return launch.groups[low];
}

struct TileAddresses {
  const char* source;
  char* target;
};

/// Finds the addresses of steps of a group.
template <std::uint32_t count>
DACE_REDIST_HOST_DEVICE void locate(const TileLaunch& launch, const TileGroup& group, std::uint32_t (&steps)[count],
                                    TileAddresses (&at)[count]) {
  std::int64_t source[count] = {}, target[count] = {};
#ifdef __CUDA_ARCH__
#pragma unroll 1  // otherwise registers are too few
#endif
  for (std::uint32_t d = group.ndim; d-- > 0;) {
    const TileDimension dimension = launch.dimensions[group.first_dimension + d];
    DACE_REDIST_UNROLL
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t quotient = dimension.by_count.quotient(steps[i]);
      const std::int64_t index = steps[i] - quotient * dimension.count;
      source[i] += index * dimension.source_stride;
      target[i] += index * dimension.target_stride;
      steps[i] = quotient;
    }
  }
  DACE_REDIST_UNROLL
  for (std::uint32_t i = 0; i < count; ++i) {
    const TilePlace& place = launch.places[group.first_place + steps[i]];
    at[i] = {in_device_memory(launch.sources[place.source] + (place.source_offset + source[i])),
             in_device_memory(launch.targets[place.target] + (place.target_offset + target[i]))};
  }
}

/// Copies a tile of words: neighbouring threads take neighbouring words.
template <class Words>
DACE_REDIST_HOST_DEVICE void copy_words(const TileLaunch& launch, std::uint32_t tile, std::uint32_t thread,
                                        const Words& words) {
  using Target = typename Words::Target;
  constexpr std::uint32_t count = words_in_flight;
  const TileGroup& group = group_of(launch, tile);
  const std::uint32_t first = (tile - group.first_tile) * count * tile_threads + thread;
  const std::uint32_t steps = group.steps;  // in a register, as stores might change memory
  std::uint32_t own[count];
  TileAddresses at[count];
  typename Words::Source values[count];
  Target current[count] = {};
  DACE_REDIST_UNROLL
  for (std::uint32_t i = 0; i < count; ++i) {  // behind the end the last word is read again, but not written
    const std::uint32_t step = first + i * tile_threads;
    own[i] = step < steps ? step : steps - 1;
  }
  locate(launch, group, own, at);
  DACE_REDIST_UNROLL
  for (std::uint32_t i = 0; i < count; ++i) values[i] = load_word<typename Words::Source>(at[i].source);
  if (words.reads_target()) {
    DACE_REDIST_UNROLL
    for (std::uint32_t i = 0; i < count; ++i) current[i] = load_word<Target>(at[i].target);
  }
  DACE_REDIST_UNROLL
  for (std::uint32_t i = 0; i < count; ++i)
    if (first + i * tile_threads < steps) store_word(at[i].target, words(values[i], current[i]));
}

/// A transposed tile: its start, and the words of its sides, fewer at the ends of their dimensions.
struct TransposedPart {
  TileAddresses at;
  std::uint32_t columns, rows;
};

DACE_REDIST_HOST_DEVICE inline TransposedPart transposed_part(const TileLaunch& launch, const TileGroup& group,
                                                              std::uint32_t step) {
  const TileDimension* const parts = launch.dimensions + group.first_dimension + group.ndim - 2;
  const std::uint32_t outer = parts[1].by_count.quotient(step), row = step - outer * parts[1].count,
                      column = outer - parts[0].by_count.quotient(outer) * parts[0].count;
  const auto words = [](const TileSide& side, std::uint32_t part) {
    const std::uint32_t left = side.count - part * side.length;
    return left < side.length ? left : side.length;
  };
  std::uint32_t steps[1] = {step};
  TileAddresses at[1];
  locate(launch, group, steps, at);
  return {at[0], words(group.columns, column), words(group.rows, row)};
}

/// Reads a transposed tile into shared memory: neighbouring threads take neighbouring words of the source.
template <class Words>
DACE_REDIST_HOST_DEVICE void read_rows(const TileLaunch& launch, std::uint32_t tile, std::uint32_t thread, const Words&,
                                       TransposedTile<Words>& shared) {
  using Source = typename Words::Source;
  constexpr std::uint32_t count = TransposedTile<Words>::words / tile_threads;
  const TileGroup& group = group_of(launch, tile);
  const TransposedPart part = transposed_part(launch, group, tile - group.first_tile);
  const TileSide &columns = group.columns, &rows = group.rows;
  Source values[count] = {};
  DACE_REDIST_UNROLL
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t position = thread + i * tile_threads, column = rows.by_length.quotient(position),
                        row = position - column * rows.length;
    if (column < part.columns && row < part.rows)
      values[i] = load_word<Source>(part.at.source + (column * columns.source_stride + row * rows.source_stride));
  }
  DACE_REDIST_UNROLL
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t position = thread + i * tile_threads;
    if (position < columns.length * rows.length) store_word(shared.bytes + shared_byte<Source>(position), values[i]);
  }
}

/// Writes a transposed tile from shared memory: neighbouring threads take neighbouring words of the target.
template <class Words>
DACE_REDIST_HOST_DEVICE void write_columns(const TileLaunch& launch, std::uint32_t tile, std::uint32_t thread,
                                           const Words& words, const TransposedTile<Words>& shared) {
  using Source = typename Words::Source;
  using Target = typename Words::Target;
  constexpr std::uint32_t count = TransposedTile<Words>::words / tile_threads;
  const TileGroup& group = group_of(launch, tile);
  const TransposedPart part = transposed_part(launch, group, tile - group.first_tile);
  const TileSide &columns = group.columns, &rows = group.rows;
  char* to[count] = {};
  Source values[count] = {};
  Target current[count] = {};
  DACE_REDIST_UNROLL
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t position = thread + i * tile_threads, row = columns.by_length.quotient(position),
                        column = position - row * columns.length;
    if (column >= part.columns || row >= part.rows) continue;
    to[i] = part.at.target + (column * columns.target_stride + row * rows.target_stride);
    values[i] = load_word<Source>(shared.bytes + shared_byte<Source>(column * rows.length + row));
  }
  if (words.reads_target()) {
    DACE_REDIST_UNROLL
    for (std::uint32_t i = 0; i < count; ++i)
      if (to[i] != nullptr) current[i] = load_word<Target>(to[i]);
  }
  DACE_REDIST_UNROLL
  for (std::uint32_t i = 0; i < count; ++i)
    if (to[i] != nullptr) store_word(to[i], words(values[i], current[i]));
}

}  // namespace dace_redist
