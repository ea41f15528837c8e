// SPDX-License-Identifier: BSD-3-Clause
#include "copy/copy_block.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace dace_redist {
namespace {

constexpr std::int64_t run_cut_bytes = 64;   ///< a run is cut at multiples of this
constexpr std::int64_t max_tiled_run = 128;  ///< longer runs fill lines on both sides in any loop order
constexpr std::int64_t even_cut_count = 8;   ///< with as many steps per part, parts differ by an eighth at most

/// Keeps part `index` of `ways` of dimension `d`; the dimension after the last one is the run.
void keep_part(CopyBlock& block, std::size_t d, std::int64_t index, std::int64_t ways) {
  if (d < static_cast<std::size_t>(block.ndim)) {
    const std::int64_t first = block.counts[d] * index / ways;
    block.counts[d] = block.counts[d] * (index + 1) / ways - first;
    block.source_offset += first * block.source_strides[d];
    block.target_offset += first * block.target_strides[d];
    return;
  }
  const std::int64_t pieces = (block.run_bytes + run_cut_bytes - 1) / run_cut_bytes;
  const std::int64_t first = pieces * index / ways * run_cut_bytes;
  block.run_bytes = std::min(block.run_bytes, pieces * (index + 1) / ways * run_cut_bytes) - first;
  block.source_offset += first;
  block.target_offset += first;
}

}  // namespace

CopyBlock make_element_block(const StridedBlock& block, std::int64_t source_bytes, std::int64_t target_bytes) {
  CopyBlock result{block, block.count() == 0 ? 0 : target_bytes};
  result.source_offset *= source_bytes;
  result.target_offset *= target_bytes;
  if (result.run_bytes == 0) result.ndim = 0;
  detail::sort_dimensions(result);
  detail::merge_dimensions(result);
  for (std::size_t d = 0; d < static_cast<std::size_t>(result.ndim); ++d) {
    result.source_strides[d] *= source_bytes;
    result.target_strides[d] *= target_bytes;
  }
  return result;
}

CopyBlock make_copy_block(const StridedBlock& block, std::int64_t element_bytes) {
  CopyBlock result = make_element_block(block, element_bytes, element_bytes);
  const auto last = static_cast<std::size_t>(result.ndim) - 1;
  if (result.ndim > 0 && result.source_strides[last] == element_bytes && result.target_strides[last] == element_bytes) {
    result.run_bytes *= result.counts[last];
    --result.ndim;
  }
  return result;
}

CopyBlock slice(const CopyBlock& block, int part, int parts) {
  CopyBlock result = block;
  std::int64_t index = part, pieces = parts;
  const auto cut = [&](std::size_t d, std::int64_t ways) {
    pieces /= ways;
    keep_part(result, d, index / pieces, ways);
    index %= pieces;
  };
  const auto ndim = static_cast<std::size_t>(block.ndim);
  for (std::size_t d = 0; d < ndim && pieces > 1; ++d) {
    const std::int64_t count = block.counts[d];
    cut(d, count >= even_cut_count * pieces ? pieces : std::gcd(count, pieces));
  }
  if (pieces > 1) {
    std::size_t longest = ndim;  // the run
    std::int64_t extent = result.run_bytes / run_cut_bytes;
    for (std::size_t d = ndim; d-- > 0;)
      if (result.counts[d] >= extent) extent = result.counts[longest = d];
    cut(longest, pieces);
  }
  if (result.nbytes() == 0) return CopyBlock{};
  detail::merge_dimensions(result);
  return result;
}

namespace detail {

void sort_dimensions(StridedBlock& block) {
  const auto before = [&block](std::size_t a, std::size_t b) {
    if ((block.counts[a] == 1) != (block.counts[b] == 1)) return block.counts[a] == 1;
    const std::int64_t target_a = magnitude(block.target_strides[a]), target_b = magnitude(block.target_strides[b]);
    if (target_a != target_b) return target_a > target_b;
    return magnitude(block.source_strides[a]) > magnitude(block.source_strides[b]);
  };
  for (std::size_t sorted = 1; sorted < static_cast<std::size_t>(block.ndim); ++sorted)
    for (std::size_t d = sorted; d > 0 && before(d, d - 1); --d) {
      std::swap(block.counts[d], block.counts[d - 1]);
      std::swap(block.source_strides[d], block.source_strides[d - 1]);
      std::swap(block.target_strides[d], block.target_strides[d - 1]);
    }
}

std::int64_t target_span(const CopyBlock& block) {
  std::int64_t span = block.run_bytes;
  for (auto d = static_cast<std::size_t>(block.ndim); d-- > 0 && block.target_strides[d] == span;)
    span *= block.counts[d];
  return span;
}

int transposed_dimension(const CopyBlock& block) {
  if (block.ndim < 2 || block.run_bytes > max_tiled_run) return -1;
  const int last = block.ndim - 1;
  int best = last;
  for (int d = 0; d < last; ++d) {
    const std::int64_t stride = magnitude(block.source_strides[static_cast<std::size_t>(d)]);
    if (stride > 0 && stride < magnitude(block.source_strides[static_cast<std::size_t>(best)])) best = d;
  }
  return best == last ? -1 : best;
}

}  // namespace detail

}  // namespace dace_redist
