// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Copies of many small blocks: as one list of runs, since a loop nest for each would take longer than its bytes.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "copy/copy.hpp"
#include "copy/copy_kernels.hpp"
#include "copy/element_steps.hpp"
#include "core/export.hpp"

namespace dace_redist {

/// Runs at any places, copied one after another by one loop as long as they are equally long.
class DR_API RunList {
 public:
  /// Adds all runs of a block. What the list then holds of it is less than the block itself for up to 32 runs.
  void append(const CopyBlock& block);

  /// \param source, target  Starts of the two arrays, which do not overlap; any alignment.
  void copy(const char* source, char* target) const;

 private:
  struct Stretch {
    std::size_t count;
    std::int64_t run_bytes;
    detail::ListedCopy copy_runs;
  };
  std::vector<detail::ListedRun> runs_;
  std::vector<Stretch> stretches_;  // consecutive runs of one length
};

/// Copies that are made together, in any order: large blocks one by one, small ones as runs.
class DR_API CopyList {
 public:
  static constexpr std::int64_t max_listed_runs = 32, max_listed_run = 1024;

  /// Adds the copy of a block, or whatever the step does with its elements. All steps of a list are alike.
  /// \return whether the block is contiguous on both sides, and is copied.
  bool append(const StridedBlock& block, const ElementStep& step);
  void append(const CopyBlock& block);
  void clear() { *this = CopyList{}; }

  const std::vector<CopyBlock>& blocks() const { return blocks_; }
  const RunList& runs() const { return runs_; }
  /// Blocks with whose elements kernel() computes, besides those that are copied.
  const std::vector<ElementBlock>& element_blocks() const { return element_blocks_; }
  const ElementKernel* kernel() const { return kernel_; }

  /// Copies all; with non-temporal stores where a block is larger than the cache.
  void copy(const char* source, char* target) const;

 private:
  std::vector<CopyBlock> blocks_;
  RunList runs_;
  std::vector<ElementBlock> element_blocks_;
  const ElementKernel* kernel_ = nullptr;
};

}  // namespace dace_redist
