// SPDX-License-Identifier: BSD-3-Clause
#include "copy/reduce_blocks.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "copy/chunk_walk.hpp"
#include "copy/copy_block.hpp"
#include "copy/copy_kernels.hpp"
#include "copy/stream_threshold.hpp"

namespace dace_redist {
namespace {

/// Target bytes to which all blocks are applied before the next ones; several sums of as many are in the cache.
constexpr std::int64_t step_bytes = 4096;

/// The planes of the last two dimensions of all blocks, one after another; in elements.
class Planes {
 public:
  explicit Planes(const std::vector<PartialBlock>& blocks)
      : first_{{blocks[0].block.ndim, 0, 0, blocks[0].block.counts, {}, blocks[0].block.target_strides}, 1},
        walk_(first_, first_.ndim - 2, detail::ChunkWalk::all, detail::ChunkWalk::all),
        plane_(walk_.plane()) {
    if (first_.ndim == 0) plane_.target_column = 1;
  }

  const detail::Plane& target() const { return plane_; }
  std::int64_t source_row(const PartialBlock& partial) const { return stride(partial, 2, 0); }
  std::int64_t source_column(const PartialBlock& partial) const { return stride(partial, 1, 1); }
  std::int64_t source_at(const PartialBlock& partial) const {
    return partial.block.source_offset + walk_.offset(partial.block.source_strides);
  }
  std::int64_t target_at() const { return walk_.target(); }
  bool advance() { return walk_.advance(); }

 private:
  std::int64_t stride(const PartialBlock& partial, int from_end, std::int64_t otherwise) const {
    return first_.ndim < from_end ? otherwise
                                  : partial.block.source_strides[static_cast<std::size_t>(first_.ndim - from_end)];
  }

  const CopyBlock first_;  // counts and target
  detail::ChunkWalk walk_;
  detail::Plane plane_;
};

/// True if one loop can reduce the planes: rows are contiguous, without conversion, scaling or update of the target.
bool fits_one_loop(const std::vector<PartialBlock>& blocks, const Planes& planes, const SumSteps& sums) {
  if (!sums.store.operation().is_copy()) return false;
  if (blocks.size() < 2 || blocks.size() > max_batch || planes.target().target_column != 1) return false;
  return std::all_of(blocks.begin(), blocks.end(), [&](const PartialBlock& partial) {
    const auto number = &partial - blocks.data();
    const bool plain = number % 2 == 0 ? partial.kernel->operation().is_copy() : partial.kernel->reduces_rows();
    return plain && planes.source_column(partial) == 1;
  });
}

void reduce_in_one_loop(const std::vector<PartialBlock>& blocks, const Planes& planes, std::int64_t nbytes,
                        char* target, bool stream) {
  std::array<ElementKernel::ReducedRows::Source, max_batch> sources;
  stream = stream && reinterpret_cast<std::uintptr_t>(target) % static_cast<std::uintptr_t>(nbytes) == 0;
  for (std::size_t b = 0; b < blocks.size(); ++b)
    sources[b] = {blocks[b].source + planes.source_at(blocks[b]) * nbytes, planes.source_row(blocks[b]) * nbytes};
  const detail::Plane& plane = planes.target();
  blocks[1].kernel->reduce_rows(
      {sources.data(), blocks.size(), target, plane.target_row * nbytes, plane.rows, plane.columns * nbytes, stream});
}

/// Applies the kernels to a part of a row at a time. The sums of 1, 2, 4, ... blocks are in a stack, the lowest of them
/// in the target, unless that is updated.
void apply_kernels(const std::vector<PartialBlock>& blocks, const SumSteps& sums, const Planes& planes,
                   std::int64_t target_bytes, char* target) {
  constexpr std::size_t most_sums = 32;
  const detail::Plane& plane = planes.target();
  const std::int64_t at_once = step_bytes / target_bytes, target_stride = plane.target_column * target_bytes;
  const bool in_target = sums.store.operation().is_copy();
  // A line lies between two sums: they are in different sets of the cache.
  alignas(64) std::array<std::array<char, step_bytes + 64>, most_sums> stack;
  for (std::int64_t row = 0; row < plane.rows; ++row)
    for (std::int64_t done = 0; done < plane.columns; done += at_once) {
      const std::int64_t some = std::min(at_once, plane.columns - done);
      char* const to = target + row * plane.target_row * target_bytes + done * target_stride;
      std::size_t depth = 0;
      const auto add = [&](const ElementKernel& kernel, const char* source, std::int64_t stride) {
        if (depth == 1 && in_target)
          kernel.apply_row({source, to, stride, target_stride, some});
        else
          kernel.apply_row({source, stack[depth - 1].data(), stride, target_bytes, some});
      };
      const auto join = [&] {
        --depth;
        add(sums.reduce, stack[depth].data(), target_bytes);
      };
      for (std::size_t b = 0; b < blocks.size(); ++b) {
        const PartialBlock& partial = blocks[b];
        const std::int64_t step = planes.source_column(partial);
        const std::int64_t at = planes.source_at(partial) + row * planes.source_row(partial) + done * step;
        if (b % 2 == 0) ++depth;
        add(*partial.kernel, partial.source + at * partial.source_bytes, step * partial.source_bytes);
        for (std::size_t size = 2; (b + 1) % (2 * size) == 0 && 2 * size < blocks.size(); size *= 2) join();
      }
      while (depth > 2) join();
      if (!in_target) sums.store.apply_row({stack[0].data(), to, target_bytes, target_stride, some});
      if (depth == 2) sums.reduce.apply_row({stack[1].data(), to, target_bytes, target_stride, some});
    }
}

}  // namespace

void reduce_blocks(std::vector<PartialBlock>& blocks, const SumSteps& sums, std::int64_t target_bytes, char* target,
                   bool stream) {
  if (blocks[0].block.count() == 0) return;
  for (PartialBlock& partial : blocks) detail::sort_dimensions(partial.block);
  detail::merge_dimensions(blocks, [](PartialBlock& partial) -> StridedBlock& { return partial.block; });
  Planes planes(blocks);
  const bool one_loop = fits_one_loop(blocks, planes, sums);
  const bool streams =
      stream && detail::can_stream && one_loop && planes.target().columns * target_bytes >= detail::direct_stream_run;
  do {
    char* const to = target + (blocks[0].block.target_offset + planes.target_at()) * target_bytes;
    if (one_loop)
      reduce_in_one_loop(blocks, planes, target_bytes, to, streams);
    else
      apply_kernels(blocks, sums, planes, target_bytes, to);
  } while (planes.advance());
  if (streams) detail::stream_fence();
}

void ReductionSteps::set(const ElementOperation& operation, std::int64_t source_bytes) {
  ElementOperation first = operation, further = operation, copy, store, reduce;
  first.reduction = Reduction::none;
  further.beta = 0;
  copy.source = copy.target = store.source = store.target = reduce.source = reduce.target = operation.target;
  store.beta = operation.beta;
  reduce.reduction = operation.reduction;
  first_.set(first, source_bytes);
  further_.set(further, source_bytes);
  first.beta = 0;
  leaf_.set(first, source_bytes);
  copy_ = ElementKernel(copy);
  sums_ = {ElementKernel(store), ElementKernel(reduce)};
}

PartialBlock ReductionSteps::partial(std::int64_t summand_index, bool packed) const {
  return made(summand_index == 0 ? first_ : further_, packed);
}

PartialBlock ReductionSteps::leaf(std::int64_t summand_index, bool packed) const {
  return made(summand_index % 2 == 0 ? leaf_ : further_, packed);
}

PartialBlock ReductionSteps::made(const ElementSteps& steps, bool packed) const {
  const ElementStep& step = packed ? steps.unpack() : steps.direct();
  return {step.kernel ? step.kernel : &copy_, nullptr, step.source_bytes, {}};
}

}  // namespace dace_redist
