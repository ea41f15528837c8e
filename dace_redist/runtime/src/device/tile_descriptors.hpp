// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The tables of a launch: plain data, in the memory of a device.
///
/// A launch copies *groups* of blocks that have one shape and lie at different *places*. The blocks of a group are cut
/// into *steps*: single words, or boxes of words that go through shared memory. Step s of a group is step s modulo
/// place_steps of place s / place_steps, with its index in the dimensions as in row-major order. A thread block copies
/// a *tile*: consecutive steps, of one block or of several small ones. Start reading at: TileLaunch.

#include <cstdint>

#include "copy/device_function.hpp"
#include "copy/element_arithmetic.hpp"

namespace dace_redist {

inline constexpr std::uint32_t tile_threads = 256;     ///< of a thread block
inline constexpr std::uint32_t launch_addresses = 64;  ///< on each side of a launch
inline constexpr int max_tile_dims = 31;  ///< of a group; one thread per dimension finds a tile's first index
inline constexpr std::int64_t max_tile_count = 1 << 30;  ///< steps in a dimension; index + steps of a tile fit 32 bits

/// Divides numbers below 2^31 by a multiplication and a shift (Granlund and Montgomery, PLDI 1994).
struct Divisor {
  std::uint32_t magic = 1, shift = 0;

  Divisor() = default;
  /// \param divisor  1 to 2^31.
  explicit Divisor(std::uint32_t divisor) {
    while ((std::uint64_t{1} << shift) < divisor) ++shift;
    magic = static_cast<std::uint32_t>((((std::uint64_t{1} << shift) - divisor) << 32) / divisor + 1);
  }

  DACE_REDIST_HOST_DEVICE std::uint32_t quotient(std::uint32_t number) const {
#ifdef __CUDA_ARCH__
    const std::uint32_t high = __umulhi(number, magic);
#else
    const auto high = static_cast<std::uint32_t>((std::uint64_t{number} * magic) >> 32);
#endif
    return (high + number) >> shift;
  }
};

/// Divides numbers below 2^63 as Divisor does.
struct LongDivisor {
  std::uint64_t magic = 1;
  std::uint32_t shift = 0;

  LongDivisor() = default;
  explicit LongDivisor(std::uint64_t divisor) {
    __extension__ using Wide = unsigned __int128;
    while ((std::uint64_t{1} << shift) < divisor) ++shift;
    magic = static_cast<std::uint64_t>((Wide((std::uint64_t{1} << shift) - divisor) << 64) / divisor + 1);
  }

  DACE_REDIST_HOST_DEVICE std::uint64_t quotient(std::uint64_t number) const {
#ifdef __CUDA_ARCH__
    const std::uint64_t high = __umul64hi(number, magic);
#else
    __extension__ using Wide = unsigned __int128;
    const auto high = static_cast<std::uint64_t>((Wide(number) * magic) >> 64);
#endif
    return (high + number) >> shift;
  }
};

/// A dimension of a group's steps.
struct alignas(16) TileDimension {
  std::uint32_t count = 1;
  Divisor by_count;
  std::uint32_t unused = 0;                           // 16 bytes are loaded at once
  std::int64_t source_stride = 0, target_stride = 0;  ///< bytes
  LongDivisor by_inner;                               ///< by the number of steps in the dimensions inside this one
};

/// Blocks of one shape.
struct alignas(16) TileGroup {
  std::uint32_t first_tile = 0;
  std::uint32_t tile_steps = 1;       ///< of each tile but the last one
  std::uint32_t first_dimension = 0;  ///< in TileLaunch::dimensions
  std::uint32_t ndim = 0;
  std::uint32_t first_place = 0;  ///< in TileLaunch::places
  std::uint32_t narrow = 0;       ///< whether all strides fit 32 bits
  std::uint32_t box_words = 1;    ///< words of a step
  std::uint32_t first_word = 0;   ///< of a box in TileLaunch::box_reads and box_writes
  Divisor by_box_words;
  LongDivisor by_place;     ///< by the steps of a place
  std::uint64_t steps = 0;  ///< of all places
};

/// The start of a block.
struct TilePlace {
  std::int64_t source_offset = 0, target_offset = 0;  ///< bytes
  std::uint32_t source = 0, target = 0;               ///< of the launch's addresses
};

/// The source of a word of a box; in the order of source addresses.
struct alignas(8) BoxRead {
  std::int32_t source = 0;     ///< words from the start of the box
  std::uint32_t position = 0;  ///< of the word in the order of box_writes
};

/// The arguments of a launch; passed by value.
struct TileLaunch {
  const TileGroup* groups = nullptr;  ///< [group_count]
  const TileDimension* dimensions = nullptr;
  const TilePlace* places = nullptr;
  const BoxRead* box_reads = nullptr;
  const std::int32_t* box_writes = nullptr;      ///< target of a box's word: words from the start of the box
  const std::uint32_t* group_of_tile = nullptr;  ///< group of each 2^shift-th tile, and the last group
  std::uint32_t group_count = 0, shift = 0;
  OperationValues operation;
  const char* sources[launch_addresses] = {};
  char* targets[launch_addresses] = {};
};

}  // namespace dace_redist
