// SPDX-License-Identifier: BSD-3-Clause
#include "copy/run_list.hpp"

#include <algorithm>

#include "copy/chunk_walk.hpp"
#include "copy/parallel_for.hpp"
#include "copy/stream_threshold.hpp"
#include "core/machine.hpp"

namespace dace_redist {
namespace {

using detail::min_parallel_bytes;

std::int64_t total_bytes(const CopyList& copies) {
  std::int64_t nbytes = 0;
  for (const CopyBlock& block : copies.blocks()) nbytes += block.nbytes();
  for (const CopyBlock& block : copies.element_blocks()) nbytes += block.nbytes();
  return nbytes;
}

/// Calls `copy_block(block, stream)` with the share of one thread: slices of large blocks, every `threads`th small one.
template <class CopyIt>
void share_blocks(const std::vector<CopyBlock>& blocks, int part, int threads, const CopyIt& copy_block) {
  int turn = 0;
  for (const CopyBlock& block : blocks) {
    const std::int64_t nbytes = block.nbytes();
    const bool stream = nbytes >= stream_threshold_bytes();
    if (threads > 1 && nbytes >= min_parallel_bytes)
      copy_block(slice(block, part, threads), stream);
    else if (turn++ % threads == part)
      copy_block(block, stream);
  }
}

}  // namespace

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

int threads_of_rank([[maybe_unused]] std::int64_t ranks) {
#ifdef _OPENMP
  return std::max(1, std::min(omp_get_max_threads(), static_cast<int>(usable_cores() / ranks)));
#else
  return 1;
#endif
}

void copy_threaded(const CopyList& copies, const char* source, char* target, int threads) {
  if (threads > 1 && total_bytes(copies) < min_parallel_bytes) threads = 1;
  parallel_for(threads, [&](int part) {
    share_blocks(copies.element_blocks(), part, threads,
                 [&](const CopyBlock& block, bool stream) { copies.kernel()->apply(block, source, target, stream); });
    share_blocks(copies.blocks(), part, threads,
                 [&](const CopyBlock& block, bool stream) { copy(block, source, target, stream); });
    if (part == threads - 1) copies.copy_runs(source, target);
  });
}

}  // namespace dace_redist
