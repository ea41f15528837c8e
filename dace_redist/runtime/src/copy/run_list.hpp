// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Copies of many small blocks: as one list of runs, since a loop nest for each would take longer than its bytes.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "copy/copy.hpp"
#include "copy/element_steps.hpp"

namespace dace_redist {

/// Runs at any places, copied one after another by one loop as long as they are equally long.
class RunList {
 public:
  bool empty() const { return stretches_.empty(); }

  /// Adds all runs of a block. What the list then holds of it is less than the block itself for up to 32 runs.
  void append(const CopyBlock& block) {
    if (block.nbytes() == 0) return;
    if (stretches_.empty() || stretches_.back().run_bytes != block.run_bytes)
      stretches_.push_back({0, block.run_bytes, detail::listed_copy(block.run_bytes)});
    detail::ChunkWalk walk(block, -1, 1, 1);
    do {
      runs_.push_back({block.source_offset + walk.source(), block.target_offset + walk.target()});
      ++stretches_.back().count;
    } while (walk.advance());
  }

  /// \param source, target  Starts of the two arrays, which do not overlap; any alignment.
  void copy(const char* source, char* target) const {
    const detail::ListedRun* next = runs_.data();
    for (const Stretch& stretch : stretches_) {
      stretch.copy_runs(next, stretch.count, stretch.run_bytes, source, target);
      next += stretch.count;
    }
  }

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
class CopyList {
 public:
  static constexpr std::int64_t most_listed_runs = 32, longest_listed_run = 1024;

  /// Adds the copy of a block, or whatever the step does with its elements. All steps of a list are alike.
  /// \return whether the block is contiguous on both sides, and is copied.
  bool append(const StridedBlock& block, const ElementStep& step) {
    if (step.kernel) {
      kernel_ = step.kernel;
      element_blocks_.push_back(make_element_block(block, step.source_bytes, step.target_bytes));
      return false;
    }
    const CopyBlock copy = make_copy_block(block, step.source_bytes);
    append(copy);
    return copy.contiguous();
  }
  void append(const CopyBlock& block) {
    if (block.run_bytes <= longest_listed_run && block.nbytes() <= most_listed_runs * block.run_bytes)
      runs_.append(block);
    else
      blocks_.push_back(block);
  }
  void clear() { *this = CopyList{}; }

  const std::vector<CopyBlock>& blocks() const { return blocks_; }
  const RunList& runs() const { return runs_; }
  /// Blocks with whose elements kernel() computes, besides those that are copied.
  const std::vector<ElementBlock>& element_blocks() const { return element_blocks_; }
  const ElementKernel* kernel() const { return kernel_; }

  /// Copies all; with non-temporal stores where a block is larger than the cache.
  void copy(const char* source, char* target) const {
    for (const ElementBlock& block : element_blocks_) kernel_->apply(block, source, target);
    for (const CopyBlock& block : blocks_)
      dace_redist::copy(block, source, target, block.nbytes() >= stream_threshold_bytes());
    runs_.copy(source, target);
  }

 private:
  std::vector<CopyBlock> blocks_;
  RunList runs_;
  std::vector<ElementBlock> element_blocks_;
  const ElementKernel* kernel_ = nullptr;
};

}  // namespace dace_redist
