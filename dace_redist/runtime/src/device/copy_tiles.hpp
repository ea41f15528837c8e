// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Plans the launches that make a list of copies on a device: words, groups of equal blocks, tiles.
/// Start reading at: TiledCopies.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/device.hpp"
#include "device/tile_tables.hpp"
#include "device/tile_words.hpp"

namespace dace_redist {

/// The launch of one kernel.
struct TilePart {
  TileWords words = TileWords::bytes1;
  bool transposed = false;
  std::size_t first_source = 0, first_target = 0;  ///< of the addresses that the launch takes
  std::size_t first_group = 0;
  std::uint32_t group_count = 0, tiles = 0;
};

/// The launches of a list of copies, and their tables.
struct CopyTiles {
  std::vector<TilePart> parts;
  std::vector<TileGroup> groups;
  std::vector<TileDimension> dimensions;
  std::vector<TilePlace> places;

  /// \param alignment  of all addresses that the copies name: 1, 2, 4, 8 or 16.
  CopyTiles(const std::vector<DeviceCopy>& copies, const ElementStep& step, std::int64_t alignment);
};

/// A list of copies, prepared for each alignment of addresses when it first occurs.
class TiledCopies : public CopyKernel {
 public:
  void launch(const std::vector<const char*>& sources, const std::vector<char*>& targets, Stream stream) override;

 protected:
  /// Bytes in the memory where the launches run.
  using Table = std::shared_ptr<const char>;

  TiledCopies(std::vector<DeviceCopy> copies, const ElementStep& step);

  virtual Table make_table(const void* bytes, std::size_t nbytes) = 0;
  virtual void start(const TilePart& part, const TileLaunch& launch, Stream stream) = 0;

  /// Prepares for addresses of this alignment: 1, 2, 4, 8 or 16.
  void prepare(std::int64_t alignment);

 private:
  struct Variant {
    std::vector<TilePart> parts;
    Table groups, dimensions, places;
  };

  std::int64_t alignment_of(const std::vector<const char*>& sources, const std::vector<char*>& targets) const;

  std::vector<DeviceCopy> copies_;
  ElementKernel kernel_;
  ElementStep step_;
  OperationValues operation_;
  std::vector<bool> used_sources_, used_targets_;
  std::array<std::optional<Variant>, 17> variants_;  // by alignment
};

}  // namespace dace_redist
