// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Lists of copies, shared by the threads of a rank. Small blocks become one list of runs: a loop nest for each would
/// take longer than its bytes.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "copy/copy.hpp"
#include "copy/copy_kernels.hpp"
#include "copy/element_operation.hpp"
#include "dace_redist_types.h"

namespace dace_redist {

/// Copies between two arrays, made in any order: large blocks one by one, small ones as runs.
class DR_API CopyList {
 public:
  /// Adds a step for the elements of a block. All calls must pass the same step.
  /// \return true if the step copies and the block is contiguous on both sides.
  bool append(const StridedBlock& block, const ElementStep& step);
  /// Adds the copy of a block.
  void append(const CopyBlock& block);
  /// Adds all runs of a block. Up to 32 runs take less memory than the block.
  void append_runs(const CopyBlock& block);

  const std::vector<CopyBlock>& blocks() const { return blocks_; }
  /// Blocks to which kernel() is applied.
  const std::vector<CopyBlock>& element_blocks() const { return element_blocks_; }
  const ElementKernel* kernel() const { return kernel_; }
  /// Copies the runs.
  /// \param source, target  Starts of the two arrays, which do not overlap; any alignment.
  void copy_runs(const char* source, char* target) const;

 private:
  /// Consecutive runs of one length, copied by one loop.
  struct Stretch {
    std::size_t count;
    std::int64_t run_bytes;
    detail::ListedCopy copy_runs;
  };

  std::vector<CopyBlock> blocks_;
  std::vector<detail::ListedRun> runs_;
  std::vector<Stretch> stretches_;
  std::vector<CopyBlock> element_blocks_;
  const ElementKernel* kernel_ = nullptr;
};

/// Threads of OpenMP, at most the cores of this node for each of its ranks: threads that share a core wait for each
/// other. One if compiled without OpenMP.
DR_API int threads_of_rank(std::int64_t ranks);

/// Runs all copies of a list by `threads` threads: these share large blocks, which are streamed from
/// stream_threshold_bytes() on, and take small ones in turn.
DR_API void copy_threaded(const CopyList& copies, const char* source, char* target, int threads);

}  // namespace dace_redist
