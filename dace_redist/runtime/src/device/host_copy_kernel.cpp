// SPDX-License-Identifier: BSD-3-Clause
#include "device/host_copy_kernel.hpp"

#include <cstdint>
#include <memory>

#include "device/tile_kernels.hpp"

namespace dace_redist {
namespace {

/// A phase of a kernel: all threads of a thread block, then its barrier.
template <class Phase>
void for_each_thread(const Phase& phase) {
  for (std::uint32_t thread = 0; thread < tile_threads; ++thread) phase(thread);
}

template <class Words>
void run_tiles(const TilePart& part, const TileLaunch& launch) {
  const Words words(launch.operation);
  const auto start = std::make_unique<TileStart>();
  const auto shared = std::make_unique<BoxTile<Words>>();
  for (std::uint32_t tile = 0; tile < part.tiles; ++tile) {
    for_each_thread([&](std::uint32_t thread) { start_tile(launch, tile, thread, *start); });
    if (!part.boxes) {
      for_each_thread([&](std::uint32_t thread) { copy_words(launch, *start, thread, words); });
      continue;
    }
    for_each_thread([&](std::uint32_t thread) { place_boxes(launch, *start, thread, *shared); });
    for_each_thread([&](std::uint32_t thread) { read_boxes(launch, *start, thread, words, *shared); });
    for_each_thread([&](std::uint32_t thread) { write_boxes(launch, *start, thread, words, *shared); });
  }
}

}  // namespace

void HostCopyKernel::launch(const std::vector<const char*>& sources, const std::vector<char*>& targets, Stream) {
  copies_.launch(sources, targets, [](const TilePart& part, const TileLaunch& launch) {
    visit_tile_words(part.words, launch.operation,
                     [&](auto tag) { run_tiles<typename decltype(tag)::type>(part, launch); });
  });
}

}  // namespace dace_redist
