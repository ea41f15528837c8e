// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The copies of a device made by the processor, with the very index arithmetic of a GPU, thread by thread.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "device/copy_tiles.hpp"

namespace dace_redist {

/// Copies at once, in the calling thread, in main memory.
class HostCopyKernel : public CopyKernel {
 public:
  HostCopyKernel(const std::vector<DeviceCopy>& copies, const ElementStep& step) : copies_(copies, step) {
    copies_.prepare();
  }

  void launch(const std::vector<const char*>& sources, const std::vector<char*>& targets, Stream) override {
    const CopyTiles& tiles = copies_.find(sources, targets);
    TileLaunch tables;
    tables.groups = tiles.groups.data();
    tables.dimensions = tiles.dimensions.data();
    tables.places = tiles.places.data();
    tables.box_reads = tiles.box_reads.data();
    tables.box_writes = tiles.box_writes.data();
    tables.group_of_tile = tiles.group_of_tile.data();
    for (const TilePart& part : tiles.parts) {
      const TileLaunch launch = tile_launch(tiles, part, tables, sources, targets);
      visit_tile_words(part.words, launch.operation, [&](auto tag) {
        using Words = typename decltype(tag)::type;
        const Words words(launch.operation);
        if (part.boxes)
          run_boxes(launch, part.tiles, words);
        else
          run_words(launch, part.tiles, words);
      });
    }
  }

 private:
  template <class Phase>
  static void for_each_thread(const Phase& phase) {
    for (std::uint32_t thread = 0; thread < tile_threads; ++thread) phase(thread);
  }

  template <class Words>
  static void run_words(const TileLaunch& launch, std::uint32_t tiles, const Words& words) {
    const auto start = std::make_unique<TileStart>();
    for (std::uint32_t tile = 0; tile < tiles; ++tile) {
      for_each_thread([&](std::uint32_t thread) { start_tile(launch, tile, thread, *start); });
      for_each_thread([&](std::uint32_t thread) { copy_words(launch, *start, thread, words); });
    }
  }

  template <class Words>
  static void run_boxes(const TileLaunch& launch, std::uint32_t tiles, const Words& words) {
    const auto start = std::make_unique<TileStart>();
    const auto shared = std::make_unique<BoxTile<Words>>();
    for (std::uint32_t tile = 0; tile < tiles; ++tile) {
      for_each_thread([&](std::uint32_t thread) { start_tile(launch, tile, thread, *start); });
      for_each_thread([&](std::uint32_t thread) { place_boxes(launch, *start, thread, *shared); });
      for_each_thread([&](std::uint32_t thread) { read_boxes(launch, *start, thread, words, *shared); });
      for_each_thread([&](std::uint32_t thread) { write_boxes(launch, *start, thread, words, *shared); });
    }
  }

  PreparedCopies<CopyTiles> copies_;
};

}  // namespace dace_redist
