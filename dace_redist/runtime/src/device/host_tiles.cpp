// SPDX-License-Identifier: BSD-3-Clause
#include "device/host_tiles.hpp"

#include <cstdint>

#include "device/tile_kernels.hpp"

namespace dace_redist {
namespace {

/// A phase of a kernel: all threads of a thread block, then its barrier.
template <class Phase>
void for_each_thread(const Phase& phase) {
  for (std::uint32_t thread = 0; thread < tile_threads; ++thread) phase(thread);
}

}  // namespace

void run_tiles(const TileLaunch& launch) {
  visit_tile_words(launch, [&](auto tag) {
    using Words = typename decltype(tag)::type;
    const Words words(launch.operation);
    TransposedTile<Words> shared;
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
