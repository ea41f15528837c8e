// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The tables of a launch: plain data, in the memory of a device.
///
/// A launch copies *groups* of blocks that have one shape and lie at different *places*. The blocks of a group are cut
/// into *steps*: single words, or transposed tiles of words, which go through shared memory. The steps of a group are
/// counted through all its places, each in row-major order. A thread block takes a *tile*: consecutive words, or one
/// transposed tile. Start reading at: TileLaunch.

#include <cstdint>

#include "copy/element_arithmetic.hpp"

namespace dace_redist {

inline constexpr std::uint32_t tile_threads = 256;     ///< of a thread block
inline constexpr std::uint32_t launch_addresses = 64;  ///< on each side of a launch

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

/// A dimension of a group's steps.
struct alignas(16) TileDimension {
  std::uint32_t count = 1;
  Divisor by_count;
  std::uint32_t unused = 0;                           // 16 bytes are loaded at once
  std::int64_t source_stride = 0, target_stride = 0;  ///< bytes
};

/// A side of transposed tiles: a dimension of words, cut into parts.
struct alignas(16) TileSide {
  std::uint32_t count = 1;   ///< words of the dimension
  std::uint32_t length = 1;  ///< words of a part but the last one
  Divisor by_length;
  std::int64_t source_stride = 0, target_stride = 0;  ///< bytes
};

/// Blocks of one shape.
struct alignas(16) TileGroup {
  std::uint32_t first_tile = 0;
  std::uint32_t steps = 0;            ///< of all places; below 2^31
  std::uint32_t first_dimension = 0;  ///< in TileLaunch::dimensions
  std::uint32_t ndim = 0;
  std::uint32_t first_place = 0;  ///< in TileLaunch::places
  /// Of transposed tiles; their parts are the last two dimensions, those of columns first.
  TileSide columns;  ///< of words that are neighbours in the target
  TileSide rows;     ///< of words that are neighbours in the source
};

/// The start of a block.
struct TilePlace {
  std::int64_t source_offset = 0, target_offset = 0;  ///< bytes
  std::uint32_t source = 0, target = 0;               ///< of the launch's addresses
};

/// The arguments of a launch; passed by value.
struct TileLaunch {
  ElementOperation operation;  ///< copies where nothing is computed: of words of the source's type
  bool transposed = false;
  std::uint32_t tiles = 0;
  std::uint32_t first_group = 0, group_count = 0;  ///< of groups, in the order of their tiles
  const TileGroup* groups = nullptr;
  const TileDimension* dimensions = nullptr;
  const TilePlace* places = nullptr;
  std::uint32_t first_source = 0, first_target = 0;  ///< of a CopyKernel's addresses
  const char* sources[launch_addresses] = {};
  char* targets[launch_addresses] = {};
};

}  // namespace dace_redist
