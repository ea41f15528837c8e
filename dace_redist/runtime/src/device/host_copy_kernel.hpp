// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The copies of a device made by the processor, with the index arithmetic of a GPU, thread by thread.

#include <utility>
#include <vector>

#include "device/copy_tiles.hpp"

namespace dace_redist {

/// Copies at once, in the calling thread, in main memory.
class HostCopyKernel : public CopyKernel {
 public:
  HostCopyKernel(const std::vector<DeviceCopy>& copies, const ElementStep& step) : copies_(copies, step) {}

  void launch(const std::vector<const char*>& sources, const std::vector<char*>& targets, Stream stream) override;

 private:
  struct Tables {
    explicit Tables(std::vector<char> all) : bytes(std::move(all)) {}
    const char* start() const { return bytes.data(); }
    std::vector<char> bytes;
  };

  PreparedCopies<Tables> copies_;
};

}  // namespace dace_redist
