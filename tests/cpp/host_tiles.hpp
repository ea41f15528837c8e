// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The copies of a device made by the processor, with the index arithmetic of a GPU, thread by thread.

#include <cstdint>

#include "device/tile_kernels.hpp"

namespace dace_redist {

/// Copies at once, in the calling thread, in main memory.
inline void run_tiles(const TileLaunch& launch) {
  visit_tile_words(launch.operation, [&](auto tag) {
    using Words = typename decltype(tag)::type;
    const Words words(launch.operation);
    TransposedTile<Words> shared;
    const auto for_each_thread = [](const auto& phase) {  // up to the barrier of the thread block
      for (std::uint32_t thread = 0; thread < tile_threads; ++thread) phase(thread);
    };
    for (std::uint32_t tile = 0; tile < launch.tiles; ++tile) {
      if (!launch.transposed) {
        for_each_thread([&](std::uint32_t thread) { copy_words(launch, tile, thread, words); });
        continue;
      }
      for_each_thread([&](std::uint32_t thread) { read_rows(launch, tile, thread, words, shared); });
      for_each_thread([&](std::uint32_t thread) { write_columns(launch, tile, thread, words, shared); });
    }
  });
}

}  // namespace dace_redist
