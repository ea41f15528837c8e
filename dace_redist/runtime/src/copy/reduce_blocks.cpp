// SPDX-License-Identifier: BSD-3-Clause
#include "copy/reduce_blocks.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "copy/copy_block.hpp"
#include "copy/copy_kernels.hpp"
#include "copy/stream_threshold.hpp"

namespace dace_redist {
namespace {

/// Target bytes to which all blocks are applied before the next ones.
constexpr std::int64_t step_bytes = 4096;

/// Drops dimensions of one element, and orders the others by target stride.
void order_dimensions(StridedBlock& block) {
  std::size_t kept = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d) {
    if (block.counts[d] == 1) continue;
    block.counts[kept] = block.counts[d];
    block.source_strides[kept] = block.source_strides[d];
    block.target_strides[kept++] = block.target_strides[d];
  }
  block.ndim = static_cast<int>(kept);
  detail::sort_dimensions(block);
}

/// Merges neighbouring dimensions that are contiguous in the target and in all sources.
void merge_dimensions_of_all(std::vector<PartialBlock>& blocks) {
  const StridedBlock& first = blocks[0].block;
  std::size_t kept = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(first.ndim); ++d) {
    const std::int64_t count = first.counts[d];
    const bool contiguous = kept > 0 && std::all_of(blocks.begin(), blocks.end(), [&](const PartialBlock& partial) {
                              const StridedBlock& block = partial.block;
                              return block.source_strides[kept - 1] == block.source_strides[d] * count &&
                                     block.target_strides[kept - 1] == block.target_strides[d] * count;
                            });
    if (!contiguous) ++kept;
    for (PartialBlock& partial : blocks) {
      StridedBlock& block = partial.block;
      block.counts[kept - 1] = contiguous ? block.counts[kept - 1] * count : count;
      block.source_strides[kept - 1] = block.source_strides[d];
      block.target_strides[kept - 1] = block.target_strides[d];
    }
  }
  for (PartialBlock& partial : blocks) partial.block.ndim = static_cast<int>(kept);
}

/// Iterates over the planes of the last two dimensions of all blocks.
class Planes {
 public:
  explicit Planes(std::vector<PartialBlock>& blocks) : blocks_(blocks), first_(blocks[0].block) {
    const auto ndim = static_cast<std::size_t>(first_.ndim);
    outer_ = ndim > 2 ? ndim - 2 : 0;
  }

  std::int64_t rows() const { return first_.ndim > 1 ? first_.counts[outer_] : 1; }
  std::int64_t columns() const { return first_.ndim > 0 ? first_.counts[last()] : 1; }
  std::int64_t target_row() const { return first_.ndim > 1 ? first_.target_strides[outer_] : 0; }
  std::int64_t target_column() const { return first_.ndim > 0 ? first_.target_strides[last()] : 1; }
  std::int64_t source_row(const PartialBlock& partial) const {
    return first_.ndim > 1 ? partial.block.source_strides[outer_] : 0;
  }
  std::int64_t source_column(const PartialBlock& partial) const {
    return first_.ndim > 0 ? partial.block.source_strides[last()] : 1;
  }

  /// Goes to the next plane: the offsets of the blocks move.
  /// \return false after the last one.
  bool advance() {
    for (std::size_t d = outer_; d-- > 0;) {
      move(d, 1);
      if (++at_[d] < first_.counts[d]) return true;
      move(d, -at_[d]);
      at_[d] = 0;
    }
    return false;
  }

 private:
  std::size_t last() const { return static_cast<std::size_t>(first_.ndim) - 1; }

  void move(std::size_t d, std::int64_t steps) {
    for (PartialBlock& partial : blocks_) {
      partial.block.source_offset += steps * partial.block.source_strides[d];
      partial.block.target_offset += steps * partial.block.target_strides[d];
    }
  }

  std::vector<PartialBlock>& blocks_;
  const StridedBlock& first_;
  std::size_t outer_ = 0;  // dimensions before the last two
  std::array<std::int64_t, max_block_dims> at_{};
};

/// True if one loop can reduce the planes: rows are contiguous, without conversion, scaling or update of the target.
bool fits_one_loop(const std::vector<PartialBlock>& blocks, const Planes& planes) {
  if (blocks.size() < 2 || blocks.size() > max_batch || planes.target_column() != 1) return false;
  return std::all_of(blocks.begin(), blocks.end(), [&](const PartialBlock& partial) {
    const bool plain = &partial == &blocks[0] ? partial.kernel->operation().is_copy() : partial.kernel->reduces_rows();
    return plain && planes.source_column(partial) == 1;
  });
}

void reduce_in_one_loop(const std::vector<PartialBlock>& blocks, const Planes& planes, std::int64_t nbytes,
                        char* target, bool stream) {
  std::array<ElementKernel::ReducedRows::Source, max_batch> sources;
  stream = stream && reinterpret_cast<std::uintptr_t>(target) % static_cast<std::uintptr_t>(nbytes) == 0;
  for (std::size_t b = 0; b < blocks.size(); ++b)
    sources[b] = {blocks[b].source + blocks[b].block.source_offset * nbytes, planes.source_row(blocks[b]) * nbytes};
  blocks[1].kernel->reduce_rows({sources.data(), blocks.size(), target, planes.target_row() * nbytes, planes.rows(),
                                 planes.columns() * nbytes, stream});
}

/// Applies the kernels one after another, to a part of a row at a time.
void apply_kernels(const std::vector<PartialBlock>& blocks, const Planes& planes, std::int64_t target_bytes,
                   char* target) {
  const std::int64_t at_once = step_bytes / target_bytes, stride = planes.target_column() * target_bytes;
  for (std::int64_t row = 0; row < planes.rows(); ++row)
    for (std::int64_t done = 0; done < planes.columns(); done += at_once) {
      const std::int64_t some = std::min(at_once, planes.columns() - done);
      char* const to = target + row * planes.target_row() * target_bytes + done * stride;
      for (const PartialBlock& partial : blocks) {
        const std::int64_t step = planes.source_column(partial);
        const std::int64_t at = partial.block.source_offset + row * planes.source_row(partial) + done * step;
        partial.kernel->apply_row(
            {partial.source + at * partial.source_bytes, to, step * partial.source_bytes, stride, some});
      }
    }
}

}  // namespace

void reduce_blocks(std::vector<PartialBlock>& blocks, std::int64_t target_bytes, char* target, bool stream) {
  if (blocks[0].block.count() == 0) return;
  for (PartialBlock& partial : blocks) order_dimensions(partial.block);
  merge_dimensions_of_all(blocks);
  Planes planes(blocks);
  const bool one_loop = fits_one_loop(blocks, planes);
  const bool streams =
      stream && detail::can_stream && one_loop && planes.columns() * target_bytes >= detail::direct_stream_run;
  do {
    char* const to = target + blocks[0].block.target_offset * target_bytes;
    if (one_loop)
      reduce_in_one_loop(blocks, planes, target_bytes, to, streams);
    else
      apply_kernels(blocks, planes, target_bytes, to);
  } while (planes.advance());
  if (streams) detail::stream_fence();
}

void ReductionSteps::set(const ElementOperation& operation, std::int64_t source_bytes) {
  ElementOperation copy;
  copy.source = copy.target = operation.target;
  first_.set(operation_for(operation, 0), source_bytes);
  further_.set(operation_for(operation, 1), source_bytes);
  copy_ = ElementKernel(copy);
}

PartialBlock ReductionSteps::partial(std::int64_t summand_index, bool packed) const {
  const ElementSteps& steps = summand_index == 0 ? first_ : further_;
  const ElementStep& step = packed ? steps.unpack() : steps.direct();
  return {step.kernel ? step.kernel : &copy_, nullptr, step.source_bytes, {}};
}

}  // namespace dace_redist
