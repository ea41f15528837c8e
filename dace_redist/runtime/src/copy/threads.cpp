// SPDX-License-Identifier: BSD-3-Clause
#include "copy/threads.hpp"

#include <algorithm>
#include <array>

#include "copy/parallel_for.hpp"
#include "copy/stream_threshold.hpp"
#include "core/cores.hpp"

namespace dace_redist {
namespace {

/// Starting threads for fewer bytes costs more than it saves.
constexpr std::int64_t min_parallel_bytes = std::int64_t{64} << 10;

std::int64_t total_bytes(const CopyList& copies) {
  std::int64_t nbytes = 0;
  for (const CopyBlock& block : copies.blocks()) nbytes += block.nbytes();
  for (const ElementBlock& block : copies.element_blocks()) nbytes += block.nbytes();
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

int threads_of_rank([[maybe_unused]] std::int64_t ranks) {
#ifdef _OPENMP
  return std::max(1, std::min(omp_get_max_threads(), static_cast<int>(online_cores() / ranks)));
#else
  return 1;
#endif
}

void copy(const CopyBlock& block, const void* source, void* target, bool stream, int threads) {
  const CopyEndpoints endpoints{static_cast<const char*>(source) + block.source_offset,
                                static_cast<char*>(target) + block.target_offset};
  copy_batch(block, &endpoints, 1, stream, threads);
}

void copy_batch(const CopyBlock& block, const CopyEndpoints* endpoints, std::size_t count, bool stream, int threads) {
  if (block.nbytes() * static_cast<std::int64_t>(count) < min_parallel_bytes) threads = 1;
  if (threads == 1) return copy_batch(block, endpoints, count, stream);
  parallel_for(threads, [&](int part) {
    const CopyBlock share = slice(block, part, threads);
    std::array<CopyEndpoints, max_batch> places;
    for (std::size_t p = 0; p < count; ++p)
      places[p] = {endpoints[p].source + (share.source_offset - block.source_offset),
                   endpoints[p].target + (share.target_offset - block.target_offset)};
    copy_batch(share, places.data(), count, stream);
  });
}

void copy_threaded(const CopyList& copies, const char* source, char* target, int threads) {
  if (threads > 1 && total_bytes(copies) < min_parallel_bytes) threads = 1;
  parallel_for(threads, [&](int part) {
    share_blocks(copies.element_blocks(), part, threads, [&](const ElementBlock& block, bool stream) {
      copies.kernel()->apply(block, source, target, stream);
    });
    share_blocks(copies.blocks(), part, threads,
                 [&](const CopyBlock& block, bool stream) { copy(block, source, target, stream); });
    if (part == threads - 1) copies.runs().copy(source, target);
  });
}

}  // namespace dace_redist
