// SPDX-License-Identifier: BSD-3-Clause
#include "copy/run_list.hpp"

#include "copy/chunk_walk.hpp"

namespace dace_redist {

void CopyList::append_runs(const CopyBlock& block) {
  if (block.nbytes() == 0) return;
  if (stretches_.empty() || stretches_.back().run_bytes != block.run_bytes)
    stretches_.push_back({0, block.run_bytes, detail::listed_copy(block.run_bytes)});
  detail::ChunkWalk walk(block, -1, 1, 1);
  do {
    runs_.push_back({block.source_offset + walk.source(), block.target_offset + walk.target()});
    ++stretches_.back().count;
  } while (walk.advance());
}

void CopyList::copy_runs(const char* source, char* target) const {
  const detail::ListedRun* next = runs_.data();
  for (const Stretch& stretch : stretches_) {
    stretch.copy_runs(next, stretch.count, stretch.run_bytes, source, target);
    next += stretch.count;
  }
}

bool CopyList::append(const StridedBlock& block, const ElementStep& step) {
  if (step.kernel) {
    kernel_ = step.kernel;
    element_blocks_.push_back(make_element_block(block, step.source_bytes, step.target_bytes));
    return false;
  }
  const CopyBlock copy = make_copy_block(block, step.source_bytes);
  append(copy);
  return copy.contiguous();
}

void CopyList::append(const CopyBlock& block) {
  constexpr std::int64_t max_listed_runs = 32, max_listed_run = 1024;
  if (block.run_bytes <= max_listed_run && block.nbytes() <= max_listed_runs * block.run_bytes)
    append_runs(block);
  else
    blocks_.push_back(block);
}

}  // namespace dace_redist
