// Messages cut to size and turned into copies between an array and a contiguous buffer.
#pragma once

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "dace_redist/copy.hpp"
#include "dace_redist/schedule.hpp"

namespace dace_redist {

/// Cache-line aligned bytes, not touched when allocated: the first writer decides where they lie. Large ones ask for
/// huge pages, as NumPy's arrays do: strided copies then spend less on finding pages.
class Buffer {
 public:
  Buffer() = default;
  /// \throws std::bad_alloc
  explicit Buffer(Index nbytes) {
    if (nbytes <= 0) return;
    const Index alignment = nbytes < huge_from ? line_bytes : huge_page;
    const std::size_t rounded = static_cast<std::size_t>(ceil_div(nbytes, alignment) * alignment);
    bytes_.reset(static_cast<char*>(std::aligned_alloc(static_cast<std::size_t>(alignment), rounded)));
    if (!bytes_) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (alignment == huge_page) madvise(bytes_.get(), rounded, MADV_HUGEPAGE);  // a wish: no matter if refused
#endif
  }
  char* at(Index offset) const { return bytes_.get() + offset; }

 private:
  static constexpr Index line_bytes = 64, huge_page = Index{2} << 20, huge_from = Index{4} << 20;

  struct Free {
    void operator()(char* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<char, Free> bytes_;
};

/// A part of a message that moves as one: consecutive blocks, cut the same way by sender and receiver.
struct Chunk {
  Index peer = 0;
  Index count = 0;  // elements
  std::vector<StridedBlock> blocks;
};

/// Appends `block` in parts of at most `max_count` elements, in the order of its elements.
inline void split_block(const StridedBlock& block, Index max_count, std::vector<StridedBlock>& parts) {
  const Index count = block.count();
  if (count <= max_count || block.ndim == 0) return parts.push_back(block);
  const Index rows = block.counts[0], rows_per_part = std::max<Index>(1, max_count / (count / rows));
  for (Index row = 0; row < rows; row += rows_per_part) {
    StridedBlock part = block;
    part.source_offset += row * block.source_strides[0];
    part.target_offset += row * block.target_strides[0];
    part.counts[0] = std::min(rows_per_part, rows - row);
    if (part.counts[0] == 1) {
      std::move(part.counts.begin() + 1, part.counts.end(), part.counts.begin());
      std::move(part.source_strides.begin() + 1, part.source_strides.end(), part.source_strides.begin());
      std::move(part.target_strides.begin() + 1, part.target_strides.end(), part.target_strides.begin());
      --part.ndim;
    }
    split_block(part, max_count, parts);
  }
}

/// Cuts a message into chunks of at most `max_count` elements. With `growth` > 1 the first chunk has a sixteenth of
/// that and each one up to `growth` times the size of the one before: the pipeline fills sooner ("superpipeline";
/// A. Denis, Euro-Par 2011).
inline std::vector<Chunk> cut(const Message& message, Index max_count, double growth = 1.0) {
  max_count = std::max<Index>(1, max_count);
  const Index first = growth > 1.0 ? std::max<Index>(1, max_count / 16) : max_count;
  std::vector<StridedBlock> parts;
  for (const StridedBlock& block : message.blocks) split_block(block, first, parts);
  std::vector<Chunk> chunks;
  double size = static_cast<double>(first);
  for (const StridedBlock& part : parts) {
    if (!chunks.empty() && static_cast<double>(chunks.back().count + part.count()) > size)
      size = std::min(size * growth, static_cast<double>(max_count));
    else if (!chunks.empty()) {
      chunks.back().count += part.count();
      chunks.back().blocks.push_back(part);
      continue;
    }
    chunks.push_back({message.peer, part.count(), {part}});
  }
  return chunks;
}

/// One chunk as this rank moves it: straight from or into the array where it is contiguous there, else by copies.
struct PackedChunk {
  int peer = 0;
  Index nbytes = 0;
  bool in_place = false;
  Index array_offset = 0;         // bytes, if in place
  std::vector<CopyBlock> copies;  // array -> packed chunk (pack) or packed chunk -> array (unpack)
};

/// The block with its target side replaced by a packed message, from `displacement` elements on.
inline StridedBlock to_packed(StridedBlock block, Index displacement) {
  block.target_offset = displacement;
  Index stride = 1;
  for (std::size_t d = static_cast<std::size_t>(block.ndim); d-- > 0; stride *= block.counts[d])
    block.target_strides[d] = stride;
  return block;
}

/// The block seen from the other side.
inline StridedBlock reversed(StridedBlock block) {
  std::swap(block.source_offset, block.target_offset);
  std::swap(block.source_strides, block.target_strides);
  return block;
}

/// How this rank packs a chunk it sends.
inline PackedChunk pack_plan(const Chunk& chunk, Index element_bytes) {
  PackedChunk plan{static_cast<int>(chunk.peer), chunk.count * element_bytes, false, 0, {}};
  Index displacement = 0;
  for (const StridedBlock& block : chunk.blocks) {
    plan.copies.push_back(make_copy_block(to_packed(block, displacement), element_bytes));
    displacement += block.count();
  }
  if (plan.copies.size() == 1 && plan.copies[0].contiguous()) {
    plan.in_place = true;
    plan.array_offset = plan.copies[0].source_offset;
  }
  return plan;
}

/// How this rank unpacks a chunk it receives.
inline PackedChunk unpack_plan(const Chunk& chunk, Index element_bytes) {
  PackedChunk plan{static_cast<int>(chunk.peer), chunk.count * element_bytes, false, 0, {}};
  Index displacement = 0;
  for (const StridedBlock& block : chunk.blocks) {
    plan.copies.push_back(make_copy_block(reversed(to_packed(reversed(block), displacement)), element_bytes));
    displacement += block.count();
  }
  if (plan.copies.size() == 1 && plan.copies[0].contiguous()) {
    plan.in_place = true;
    plan.array_offset = plan.copies[0].target_offset;
  }
  return plan;
}

/// Runs copies one after another, past the cache where a block is larger than it.
inline void copy_all(const std::vector<CopyBlock>& copies, const void* source, void* target) {
  for (const CopyBlock& block : copies) copy(block, source, target, block.nbytes() >= stream_threshold_bytes());
}

}  // namespace dace_redist
