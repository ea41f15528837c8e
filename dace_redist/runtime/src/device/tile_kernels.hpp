// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The work of a thread of the tile kernels; a processor runs it for one thread after another.
///
/// A kernel is a row of phases with a barrier of the thread block after each: start_tile() and copy_words(), or
/// start_tile(), place_boxes(), read_boxes() and write_boxes(). Index arithmetic in 64 bits is done once per tile; a
/// thread adds its own position to the tile's first index, and carries from dimension to dimension in 32 bits.

#include <cstdint>

#include "device/tile_descriptors.hpp"
#include "device/tile_words.hpp"

namespace dace_redist {

/// Addresses or distances on both sides, in bytes.
struct alignas(16) TileAddresses {
  std::uint64_t source, target;
};

/// The first step of a tile; in shared memory.
struct TileStart {
  TileAddresses parts[max_tile_dims + 1];   ///< of the place, then of each dimension; the step lies at their sum
  std::uint32_t digits[max_tile_dims + 1];  ///< index of the place, then in each dimension
  std::uint32_t group, steps;
};

/// Words of a tile that goes through shared memory.
template <class Words>
inline constexpr std::uint32_t box_tile_words = sizeof(typename Words::Source) == 16  ? 1024
                                                : sizeof(typename Words::Source) >= 4 ? 2048
                                                                                      : 4096;

/// Byte of a word in shared memory. After each 128 bytes, a row of all banks, there is a gap of one word: so words that
/// a warp stores at a distance of rows are in different banks.
template <class Word>
DACE_REDIST_HOST_DEVICE constexpr std::uint32_t shared_byte(std::uint32_t position) {
  constexpr std::uint32_t nbytes = sizeof(Word), gap = nbytes < 4 ? 4 : nbytes;
  return position * nbytes + position / (128 / nbytes) * gap;
}

/// The boxes of a tile in shared memory: their addresses, and their words.
template <class Words>
struct BoxTile {
  static constexpr std::uint32_t words = box_tile_words<Words>;
  TileAddresses boxes[tile_threads];
  alignas(16) char bytes[shared_byte<typename Words::Source>(words)];
};

namespace detail {

DACE_REDIST_HOST_DEVICE inline std::uint32_t group_of(const TileLaunch& launch, std::uint32_t tile) {
  if (launch.group_count == 1) return 0;
  std::uint32_t low = launch.group_of_tile[tile >> launch.shift];
  if (launch.shift == 0) return low;
  std::uint32_t high = launch.group_of_tile[(tile >> launch.shift) + 1];
  while (low < high) {
    const std::uint32_t middle = (low + high + 1) / 2;
    if (launch.groups[middle].first_tile <= tile)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

DACE_REDIST_HOST_DEVICE inline TileAddresses addresses_of(const TileLaunch& launch, const TilePlace& place) {
  return {
      reinterpret_cast<std::uint64_t>(launch.sources[place.source]) + static_cast<std::uint64_t>(place.source_offset),
      reinterpret_cast<std::uint64_t>(launch.targets[place.target]) + static_cast<std::uint64_t>(place.target_offset)};
}

/// address + distance * stride; in one instruction of a GPU if the stride fits 32 bits.
template <bool narrow>
DACE_REDIST_HOST_DEVICE std::uint64_t moved(std::uint64_t address, std::int32_t distance, std::int64_t stride) {
  if constexpr (narrow) {
#ifdef __CUDA_ARCH__
    asm("mad.wide.s32 %0, %1, %2, %0;" : "+l"(address) : "r"(distance), "r"(static_cast<std::int32_t>(stride)));
    return address;
#else
    stride = static_cast<std::int32_t>(stride);
#endif
  }
  return address + static_cast<std::uint64_t>(distance * stride);
}

template <std::uint32_t count, bool narrow>
DACE_REDIST_HOST_DEVICE void locate_steps(const TileLaunch& launch, const TileGroup& group, const TileStart& start,
                                          const std::uint32_t (&steps)[count], TileAddresses (&at)[count]) {
  TileAddresses first = start.parts[0];
  for (std::uint32_t d = 1; d <= group.ndim; ++d) {
    first.source += start.parts[d].source;
    first.target += start.parts[d].target;
  }
  std::uint32_t carry[count];
  DACE_REDIST_UNROLL
  for (std::uint32_t i = 0; i < count; ++i) {
    carry[i] = steps[i];
    at[i] = first;
  }
  // steps ascend, and so do their carries: if the last carry is 0, all are
  for (std::uint32_t d = group.ndim; d > 0 && carry[count - 1] != 0; --d) {
    const TileDimension& dimension = launch.dimensions[group.first_dimension + d - 1];
    const std::uint32_t digit = start.digits[d], extent = dimension.count;
    const Divisor by_count = dimension.by_count;
    const std::int64_t source_stride = dimension.source_stride, target_stride = dimension.target_stride;
    DACE_REDIST_UNROLL
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t quotient = by_count.quotient(digit + carry[i]);
      const auto distance = static_cast<std::int32_t>(carry[i] - quotient * extent);
      at[i].source = moved<narrow>(at[i].source, distance, source_stride);
      at[i].target = moved<narrow>(at[i].target, distance, target_stride);
      carry[i] = quotient;
    }
  }
  if (carry[count - 1] == 0) return;
  DACE_REDIST_UNROLL
  for (std::uint32_t i = 0; i < count; ++i) {
    if (carry[i] == 0) continue;
    const TileAddresses place = addresses_of(launch, launch.places[group.first_place + start.digits[0] + carry[i]]);
    at[i].source += place.source - start.parts[0].source;
    at[i].target += place.target - start.parts[0].target;
  }
}

/// Finds the addresses of steps of a tile. \param steps  counted from the tile's first, ascending.
template <std::uint32_t count>
DACE_REDIST_HOST_DEVICE void locate(const TileLaunch& launch, const TileGroup& group, const TileStart& start,
                                    const std::uint32_t (&steps)[count], TileAddresses (&at)[count]) {
  if (group.narrow != 0)
    locate_steps<count, true>(launch, group, start, steps, at);
  else
    locate_steps<count, false>(launch, group, start, steps, at);
}

DACE_REDIST_HOST_DEVICE inline const char* source_at(std::uint64_t address) {
  return in_device_memory(reinterpret_cast<const char*>(address));
}
DACE_REDIST_HOST_DEVICE inline char* target_at(std::uint64_t address) {
  return in_device_memory(reinterpret_cast<char*>(address));
}

/// The sequence of a tile's boxes; in registers, as stores might change memory.
struct BoxLayout {
  std::uint32_t boxes, box_words, first_word;
  Divisor by_box_words;

  DACE_REDIST_HOST_DEVICE BoxLayout(const TileGroup& group, const TileStart& start)
      : boxes(start.steps),
        box_words(group.box_words),
        first_word(group.first_word),
        by_box_words(group.by_box_words) {}

  DACE_REDIST_HOST_DEVICE std::uint32_t words() const { return boxes * box_words; }
  DACE_REDIST_HOST_DEVICE std::uint32_t box_of(std::uint32_t word) const {
    return boxes == 1 ? 0 : by_box_words.quotient(word);
  }
};

}  // namespace detail

/// Finds the first step of a tile, a thread for each dimension.
DACE_REDIST_HOST_DEVICE inline void start_tile(const TileLaunch& launch, std::uint32_t tile, std::uint32_t thread,
                                               TileStart& start) {
  const std::uint32_t number = detail::group_of(launch, tile);
  const TileGroup& group = launch.groups[number];
  if (thread > group.ndim) return;
  const std::uint64_t first = std::uint64_t{tile - group.first_tile} * group.tile_steps;
  if (thread == 0) {
    const std::uint64_t left = group.steps - first;
    start.group = number;
    start.steps = left < group.tile_steps ? static_cast<std::uint32_t>(left) : group.tile_steps;
    start.digits[0] = static_cast<std::uint32_t>(group.by_place.quotient(first));
    start.parts[0] = detail::addresses_of(launch, launch.places[group.first_place + start.digits[0]]);
    return;
  }
  const TileDimension* const dimension = launch.dimensions + group.first_dimension + thread - 1;
  const LongDivisor outer = thread == 1 ? group.by_place : dimension[-1].by_inner;
  const std::uint64_t digit = dimension->by_inner.quotient(first) - outer.quotient(first) * dimension->count;
  start.digits[thread] = static_cast<std::uint32_t>(digit);
  start.parts[thread] = {digit * static_cast<std::uint64_t>(dimension->source_stride),
                         digit * static_cast<std::uint64_t>(dimension->target_stride)};
}

/// Copies the words of a tile whose steps are words: neighbouring threads take neighbouring words.
template <class Words>
DACE_REDIST_HOST_DEVICE void copy_words(const TileLaunch& launch, const TileStart& start, std::uint32_t thread,
                                        const Words& words) {
  constexpr std::uint32_t count = Words::per_thread;
  const TileGroup& group = launch.groups[start.group];
  const std::uint32_t end = start.steps;  // in a register, as stores might change memory
  for (std::uint32_t first = thread; first < end; first += count * tile_threads) {
    std::uint32_t steps[count];
    TileAddresses at[count];
    // beyond the end the last word is read again, but not written
    DACE_REDIST_UNROLL
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t step = first + i * tile_threads;
      steps[i] = step < end ? step : end - 1;
    }
    detail::locate(launch, group, start, steps, at);
    typename Words::Source values[count];
    typename Words::Target current[count] = {};
    DACE_REDIST_UNROLL
    for (std::uint32_t i = 0; i < count; ++i) values[i] = words.load(detail::source_at(at[i].source));
    if (words.reads_target()) {
      DACE_REDIST_UNROLL
      for (std::uint32_t i = 0; i < count; ++i) current[i] = words.load_target(detail::target_at(at[i].target));
    }
    DACE_REDIST_UNROLL
    for (std::uint32_t i = 0; i < count; ++i)
      if (first + i * tile_threads < end)
        words.store(detail::target_at(at[i].target), words.compute(values[i], current[i]));
  }
}

/// Finds where the boxes of a tile lie, a thread for each.
template <class Words>
DACE_REDIST_HOST_DEVICE void place_boxes(const TileLaunch& launch, const TileStart& start, std::uint32_t thread,
                                         BoxTile<Words>& tile) {
  if (thread >= start.steps) return;
  const std::uint32_t steps[1] = {thread};
  TileAddresses at[1];
  detail::locate(launch, launch.groups[start.group], start, steps, at);
  tile.boxes[thread] = at[0];
}

/// Reads the boxes of a tile into shared memory, in the order of the source.
template <class Words>
DACE_REDIST_HOST_DEVICE void read_boxes(const TileLaunch& launch, const TileStart& start, std::uint32_t thread,
                                        const Words& words, BoxTile<Words>& tile) {
  using Source = typename Words::Source;
  constexpr std::uint32_t count = BoxTile<Words>::words / tile_threads;
  const detail::BoxLayout layout(launch.groups[start.group], start);
  const std::uint32_t end = layout.words();
  // beyond the end the last word is read again, but not stored; all entries of the table are read before the words
  std::uint64_t sources[count];
  std::uint32_t positions[count];
  DACE_REDIST_UNROLL
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t step = thread + i * tile_threads, here = step < end ? step : end - 1;
    const std::uint32_t box = layout.box_of(here), box_start = box * layout.box_words;
    const BoxRead read = launch.box_reads[layout.first_word + here - box_start];
    sources[i] = tile.boxes[box].source + static_cast<std::uint64_t>(std::int64_t{read.source} * words.source_bytes());
    positions[i] = box_start + read.position;
  }
  Source values[count];
  DACE_REDIST_UNROLL
  for (std::uint32_t i = 0; i < count; ++i) values[i] = words.load(detail::source_at(sources[i]));
  DACE_REDIST_UNROLL
  for (std::uint32_t i = 0; i < count; ++i)
    if (thread + i * tile_threads < end) store_word(tile.bytes + shared_byte<Source>(positions[i]), values[i]);
}

/// Writes the boxes of a tile from shared memory, in the order of the target.
template <class Words>
DACE_REDIST_HOST_DEVICE void write_boxes(const TileLaunch& launch, const TileStart& start, std::uint32_t thread,
                                         const Words& words, const BoxTile<Words>& tile) {
  using Source = typename Words::Source;
  constexpr std::uint32_t count = BoxTile<Words>::words / tile_threads,
                          most = sizeof(typename Words::Target) == 16 ? 4 : 8, at_once = count < most ? count : most;
  const detail::BoxLayout layout(launch.groups[start.group], start);
  const std::uint32_t end = layout.words();
  for (std::uint32_t first = thread; first < end; first += at_once * tile_threads) {
    std::uint64_t targets[at_once];
    Source values[at_once];
    DACE_REDIST_UNROLL
    for (std::uint32_t i = 0; i < at_once; ++i) {
      const std::uint32_t step = first + i * tile_threads, here = step < end ? step : end - 1;
      const std::uint32_t box = layout.box_of(here);
      const std::int64_t distance = launch.box_writes[layout.first_word + here - box * layout.box_words];
      targets[i] = tile.boxes[box].target + static_cast<std::uint64_t>(distance * words.target_bytes());
      values[i] = load_word<Source>(tile.bytes + shared_byte<Source>(here));
    }
    typename Words::Target current[at_once] = {};
    if (words.reads_target()) {
      DACE_REDIST_UNROLL
      for (std::uint32_t i = 0; i < at_once; ++i) current[i] = words.load_target(detail::target_at(targets[i]));
    }
    DACE_REDIST_UNROLL
    for (std::uint32_t i = 0; i < at_once; ++i)
      if (first + i * tile_threads < end)
        words.store(detail::target_at(targets[i]), words.compute(values[i], current[i]));
  }
}

}  // namespace dace_redist
