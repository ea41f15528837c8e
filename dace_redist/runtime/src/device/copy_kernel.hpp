// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Many copies of strided blocks, which a device makes in few launches. Start reading at: CopyKernel.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "copy/element_operation.hpp"
#include "core/machine.hpp"
#include "device/tile_tables.hpp"
#include "layout/strided_block.hpp"

namespace dace_redist {

/// Something of a device, which is given back with its last copy.
using DeviceHandle = std::shared_ptr<void>;

/// Runs the launches of a CopyKernel.
class TileRunner {
 public:
  virtual ~TileRunner() = default;
  /// Allocates memory where launches run, and fills it at once.
  virtual DeviceHandle upload(const void* bytes, std::int64_t nbytes) = 0;
  virtual void run(const TileLaunch& launch, Stream stream) = 0;
};

/// A copy of a block.
struct DeviceCopy {
  StridedBlock block;
  int source = 0, target = 0;  ///< of the launch's addresses, from which its offsets count
};

/// Whether a device has a kernel for elements of these types: equal types, and the two precisions of real and of
/// complex numbers.
bool device_computes(ElementType source, ElementType target);

/// \throws Error if the step needs a conversion for which a device has no kernel.
void check_device_step(const ElementStep& step);

/// Copies, or what a step does with elements, no element of which is written twice. Prepared for each alignment of
/// addresses when it first occurs.
class CopyKernel {
 public:
  /// \throws Error if a device cannot compute with elements as the step says.
  CopyKernel(TileRunner& device, std::vector<DeviceCopy> copies, const ElementStep& step);
  CopyKernel(const CopyKernel&) = delete;
  CopyKernel& operator=(const CopyKernel&) = delete;

  /// Enqueues all copies.
  /// \param sources, targets  the addresses that the copies name by number, all in memory that the device reaches.
  void launch(const std::vector<const char*>& sources, const std::vector<char*>& targets, Stream stream);

 private:
  /// Launches without their addresses, and their tables.
  struct Variant {
    std::vector<TileLaunch> launches;
    DeviceHandle groups, dimensions, places;
  };

  void prepare(std::size_t alignment);

  TileRunner& device_;
  std::vector<DeviceCopy> copies_;
  ElementKernel kernel_;
  ElementStep step_;
  std::set<int> used_sources_, used_targets_;
  std::array<Variant, 17> variants_;  // by alignment; empty: not prepared
};

}  // namespace dace_redist
