// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Lists of copies. Small blocks become one list of runs: a loop nest for each would take longer than its bytes.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "copy/copy.hpp"
#include "copy/copy_kernels.hpp"
#include "copy/element_steps.hpp"
#include "core/export.hpp"

namespace dace_redist {

/// Runs at any offsets; consecutive runs of one length are copied by one loop.
class DR_API RunList {
 public:
  /// Adds all runs of a block. Up to 32 runs take less memory than the block.
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

/// Copies between two arrays, made in any order: large blocks one by one, small ones as runs.
class DR_API CopyList {
 public:
  static constexpr std::int64_t max_listed_runs = 32, max_listed_run = 1024;

  /// Adds a step for the elements of a block. All calls must pass the same step.
  /// \return true if the step copies and the block is contiguous on both sides.
  bool append(const StridedBlock& block, const ElementStep& step);
  /// Adds the copy of a block.
  void append(const CopyBlock& block);

  const std::vector<CopyBlock>& blocks() const { return blocks_; }
  const RunList& runs() const { return runs_; }
  /// Blocks to which kernel() is applied.
  const std::vector<ElementBlock>& element_blocks() const { return element_blocks_; }
  const ElementKernel* kernel() const { return kernel_; }

 private:
  std::vector<CopyBlock> blocks_;
  RunList runs_;
  std::vector<ElementBlock> element_blocks_;
  const ElementKernel* kernel_ = nullptr;
};

}  // namespace dace_redist
