// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The copies of a device made by the processor, with the index arithmetic of a GPU, thread by thread.

#include <vector>

#include "device/copy_tiles.hpp"

namespace dace_redist {

/// Copies at once, in the calling thread, in main memory.
class HostCopyKernel : public TiledCopies {
 public:
  HostCopyKernel(const std::vector<DeviceCopy>& copies, const ElementStep& step) : TiledCopies(copies, step) {
    prepare(16);
  }

 private:
  Table make_table(const void* bytes, std::size_t nbytes) override;
  void start(const TilePart& part, const TileLaunch& launch, Stream stream) override;
};

}  // namespace dace_redist
