// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Plans the launches that make a list of copies on a device: words, groups of equal blocks, tiles.
/// Start reading at: PreparedCopies.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "device/tile_descriptors.hpp"
#include "device/tile_words.hpp"

namespace dace_redist {

/// The launch of one kernel.
struct TilePart {
  TileWords words = TileWords::bytes1;
  bool boxes = false;
  std::size_t first_source = 0, first_target = 0;  ///< of the addresses that the launch takes
  std::size_t first_group = 0, group_count = 0;
  std::size_t first_group_of_tile = 0;
  std::uint32_t tiles = 0, shift = 0;
};

/// The launches of a list of copies, and their tables in one piece of memory.
class CopyTiles {
 public:
  /// \param alignment  of all addresses that the copies name: 1, 2, 4, 8 or 16.
  CopyTiles(const std::vector<DeviceCopy>& copies, const ElementStep& step, std::int64_t alignment);

  const std::vector<TilePart>& parts() const { return parts_; }
  const OperationValues& operation() const { return operation_; }

  /// The tables, to be put into the memory where the launches run. Can be called once.
  std::vector<char> take_tables() { return std::move(tables_); }

  /// The arguments of the launch of a part.
  /// \param tables  the address of the tables.
  TileLaunch launch(const TilePart& part, const char* tables, const std::vector<const char*>& sources,
                    const std::vector<char*>& targets) const;

 private:
  std::vector<TilePart> parts_;
  OperationValues operation_;
  std::vector<char> tables_;
  /// Bytes from the start of the tables.
  struct {
    std::size_t groups, dimensions, places, box_reads, box_writes, group_of_tile;
  } offsets_{};
};

/// A list of copies, prepared for each alignment of addresses when it first occurs.
/// \tparam Tables  the tables of CopyTiles in the memory where the launches run: made of a std::vector<char>, with
/// `const char* start() const`.
template <class Tables>
class PreparedCopies {
 public:
  PreparedCopies(std::vector<DeviceCopy> copies, const ElementStep& step) : copies_(std::move(copies)), step_(step) {
    if (step.kernel != nullptr) {
      kernel_ = *step.kernel;
      step_.kernel = &kernel_;
    }
    for (const DeviceCopy& copy : copies_) {
      if (copy.source < 0 || copy.target < 0) throw Error("a copy on a device has an address of negative number");
      mark(used_sources_, copy.source);
      mark(used_targets_, copy.target);
    }
    prepared(variants_.size() - 1);
  }
  PreparedCopies(const PreparedCopies&) = delete;
  PreparedCopies& operator=(const PreparedCopies&) = delete;

  /// Calls `start(part, launch)` for each launch.
  template <class Start>
  void launch(const std::vector<const char*>& sources, const std::vector<char*>& targets, const Start& start) {
    const std::int64_t source = alignment_of("source", used_sources_, sources, step_.source_bytes),
                       target = alignment_of("target", used_targets_, targets, step_.target_bytes);
    std::size_t log2 = 0;
    while (log2 + 1 < variants_.size() && std::min(source, target) >> (log2 + 1) != 0) ++log2;
    const Variant& variant = prepared(step_.kernel != nullptr ? variants_.size() - 1 : log2);
    for (const TilePart& part : variant.tiles.parts())
      start(part, variant.tiles.launch(part, variant.tables.start(), sources, targets));
  }

 private:
  struct Variant {
    explicit Variant(CopyTiles all) : tiles(std::move(all)), tables(tiles.take_tables()) {}
    CopyTiles tiles;
    Tables tables;
  };

  static void mark(std::vector<bool>& used, int number) {
    const auto index = static_cast<std::size_t>(number);
    if (used.size() <= index) used.resize(index + 1);
    used[index] = true;
  }

  /// The largest number of 1, 2, 4, 8, 16 that divides all addresses in use.
  /// \throws Error if elements that are computed with are not aligned to their size.
  template <class Address>
  std::int64_t alignment_of(const char* side, const std::vector<bool>& used, const std::vector<Address>& addresses,
                            std::int64_t element_bytes) const {
    if (addresses.size() < used.size())
      throw Error(text("copies on a device use ", side, " address ", used.size() - 1, " of ", addresses.size()));
    std::uintptr_t all = 16;
    for (std::size_t i = 0; i < used.size(); ++i)
      if (used[i]) all |= reinterpret_cast<std::uintptr_t>(addresses[i]);
    const auto alignment = static_cast<std::int64_t>(all & (~all + 1));
    if (step_.kernel != nullptr && alignment < element_bytes)
      throw Error(text("elements of ", element_bytes, " bytes that are computed with must be aligned to their size on ",
                       "a GPU, but the address of the ", side, " is a multiple of ", alignment,
                       " bytes only; copy the array to memory of its own"));
    return alignment;
  }

  const Variant& prepared(std::size_t log2) {
    if (!variants_[log2])
      variants_[log2] = std::make_unique<Variant>(CopyTiles(copies_, step_, std::int64_t{1} << log2));
    return *variants_[log2];
  }

  std::vector<DeviceCopy> copies_;
  ElementStep step_;
  ElementKernel kernel_;
  std::vector<bool> used_sources_, used_targets_;
  std::array<std::unique_ptr<Variant>, 5> variants_;  // by the logarithm of the alignment
};

}  // namespace dace_redist
