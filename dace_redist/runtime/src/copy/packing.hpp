// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages cut to size and turned into copies between an array and a contiguous buffer.

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "copy/huge_pages.hpp"
#include "copy/run_list.hpp"
#include "distribution/schedule.hpp"
#include "trace/trace.hpp"

namespace dace_redist {

/// Cache-line aligned bytes, not touched when allocated: the first writer decides where they lie. Large ones ask for
/// huge pages, as NumPy's arrays do: strided copies then spend less on finding pages.
class Buffer {
 public:
  Buffer() = default;
  /// \throws std::bad_alloc
  explicit Buffer(Index nbytes) {
    if (nbytes <= 0) return;
    const Index alignment = nbytes < huge_from ? line_bytes : huge_page_bytes;
    const std::size_t rounded = static_cast<std::size_t>(ceil_div(nbytes, alignment) * alignment);
    bytes_.reset(static_cast<char*>(std::aligned_alloc(static_cast<std::size_t>(alignment), rounded)));
    if (!bytes_) throw std::bad_alloc();
    if (alignment == huge_page_bytes) ask_for_huge_pages(bytes_.get(), static_cast<Index>(rounded));
  }
  char* at(Index offset) const { return bytes_.get() + offset; }

 private:
  static constexpr Index line_bytes = 64, huge_from = Index{4} << 20;

  struct FreeBuffer {
    void operator()(char* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<char, FreeBuffer> bytes_;
};

/// A part of a message that moves as one: consecutive blocks, cut the same way by sender and receiver.
struct Chunk {
  Index peer = 0;
  Index count = 0;  // elements
  std::vector<StridedBlock> blocks;
};

/// Blocks of a message that are taken together: one, or several tiny ones.
struct BlockGroup {
  std::size_t first, count;
  Index elements;
};

/// Cuts a message into groups of blocks, the same way for sender and receiver.
///
/// \param most_elements  of a group of several blocks.
/// \param most_tiny  elements of a block that is taken together with others; 0: each block alone.
inline std::vector<BlockGroup> group_blocks(const Message& message, Index most_elements, Index most_tiny) {
  std::vector<BlockGroup> groups;
  bool open = false;
  for (std::size_t b = 0; b < message.blocks.size(); ++b) {
    const Index elements = message.blocks[b].count();
    const bool tiny = elements <= most_tiny;
    if (open && tiny && groups.back().elements + elements <= most_elements) {
      ++groups.back().count;
      groups.back().elements += elements;
    } else {
      groups.push_back({b, 1, elements});
    }
    open = tiny;
  }
  return groups;
}

/// Walks through a message part by part, the same way for sender and receiver. A part is a group of blocks, or, of a
/// large block, as many rows as fit.
class MessageCutter {
 public:
  /// \param message  its blocks must outlive the cutter.
  /// \param part_count  most elements of a part, if a single innermost row is not larger.
  /// \param most_tiny  see group_blocks().
  MessageCutter(const Message& message, Index part_count, Index most_tiny = 0)
      : blocks_(message.blocks.data()), groups_(group_blocks(message, std::max<Index>(1, part_count), most_tiny)) {
    restart(part_count);
  }

  /// Goes to the first part again, and may cut parts of another size; the groups stay as they are.
  void restart(Index part_count) {
    part_count_ = std::max<Index>(1, part_count);
    group_ = 0;
    open_group();
  }
  bool done() const { return group_ == groups_.size(); }

  /// The part that comes next; of several blocks, the first one.
  const StridedBlock& part() const { return parts_ == 1 ? blocks_[groups_[group_].first] : part_; }
  const std::vector<BlockGroup>& groups() const { return groups_; }
  /// Which group the part belongs to, and whether it is all of it.
  std::size_t group() const { return group_; }
  bool whole_group() const { return parts_ == 1; }
  bool several_blocks() const { return groups_[group_].count > 1; }
  /// Whether a cutter of an equally shaped message is at the same part.
  bool level_with(const MessageCutter& other) const { return group_ == other.group_ && index_ == other.index_; }

  void advance() {
    if (++index_ < parts_) return set_part();
    ++group_;
    open_group();
  }

  /// Takes parts as long as there are `max_count` elements or fewer, but at least one, and calls `visit(displacement)`
  /// before each step, with the elements already taken. Returns the number of elements taken.
  template <class Visit>
  Index take(Index max_count, Visit&& visit) {
    Index taken = 0;
    do {
      visit(taken);
      taken += count_;
      advance();
    } while (!done() && taken + count_ <= max_count);
    return taken;
  }

 private:
  void open_group() {
    if (done()) return;
    index_ = 0;
    parts_ = 1;
    count_ = inner_ = groups_[group_].elements;
    if (count_ <= part_count_) return;
    const StridedBlock& block = blocks_[groups_[group_].first];
    for (cut_ = 0; cut_ < static_cast<std::size_t>(block.ndim); ++cut_) {
      inner_ /= block.counts[cut_];
      if (inner_ <= part_count_) break;
      parts_ *= block.counts[cut_];
    }
    rows_ = std::max<Index>(1, part_count_ / inner_);
    steps_ = ceil_div(block.counts[cut_], rows_);
    parts_ *= steps_;
    part_ = block;
    set_part();
  }

  /// Keeps some rows of dimension `cut_` at one index of all dimensions before it.
  void set_part() {
    const StridedBlock& block = blocks_[groups_[group_].first];
    part_.source_offset = block.source_offset;
    part_.target_offset = block.target_offset;
    const auto move = [&](std::size_t d, Index steps) {
      part_.source_offset += steps * block.source_strides[d];
      part_.target_offset += steps * block.target_strides[d];
    };
    const Index row = index_ % steps_ * rows_;
    move(cut_, row);
    Index outer = index_ / steps_;
    for (std::size_t d = cut_; d-- > 0; outer /= block.counts[d]) move(d, outer % block.counts[d]);
    std::fill_n(part_.counts.begin(), cut_, 1);
    part_.counts[cut_] = std::min(rows_, block.counts[cut_] - row);
    count_ = part_.counts[cut_] * inner_;
  }

  const StridedBlock* blocks_;
  Index part_count_ = 1;
  std::vector<BlockGroup> groups_;
  std::size_t group_ = 0;        // group at hand
  std::size_t cut_ = 0;          // dimension that is cut
  Index inner_ = 1;              // elements of a row of it
  Index rows_ = 1, steps_ = 1;   // rows per part, parts per index of the dimensions before
  Index index_ = 0, parts_ = 1;  // part at hand, of as many
  Index count_ = 0;              // elements of that part
  StridedBlock part_;
};

/// Cuts a message into chunks of at most `max_count` elements. With `growth` > 1 the first chunk has a sixteenth of
/// that and each one up to `growth` times the size of the one before: the pipeline fills sooner ("superpipeline";
/// A. Denis, Euro-Par 2011).
inline std::vector<Chunk> cut(const Message& message, Index max_count, double growth = 1.0) {
  max_count = std::max<Index>(1, max_count);
  const Index first = growth > 1.0 ? std::max<Index>(1, max_count / 16) : max_count;
  std::vector<Chunk> chunks;
  double size = static_cast<double>(first);
  for (MessageCutter cutter(message, first); !cutter.done();) {
    Chunk chunk{message.peer, 0, {}};
    chunk.count = cutter.take(static_cast<Index>(size), [&](Index) { chunk.blocks.push_back(cutter.part()); });
    chunks.push_back(std::move(chunk));
    size = std::min(size * growth, static_cast<double>(max_count));
  }
  return chunks;
}

/// One chunk as this rank moves it: straight from or into the array where it is contiguous there, else by copies.
struct PackedChunk {
  int peer = 0;
  Index nbytes = 0;
  bool in_place = false;
  Index array_offset = 0;  // bytes, if in place
  CopyList copies;         // array -> packed chunk (pack) or packed chunk -> array (unpack)

  void pack(const char* array, char* packed) const {
    const trace::Span span("pack", peer, nbytes);
    copies.copy(array, packed);
  }
  void unpack(const char* packed, char* array) const {
    const trace::Span span("unpack", peer, nbytes);
    copies.copy(packed, array);
  }
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

/// The block with its source side replaced by a packed message, from `displacement` elements on.
inline StridedBlock from_packed(StridedBlock block, Index displacement) {
  return reversed(to_packed(reversed(block), displacement));
}

/// How this rank moves a chunk of `nbytes`: `array_block(block, displacement)` is a block between array and packed
/// chunk.
template <class ArrayBlock>
PackedChunk packed_chunk(const Chunk& chunk, Index nbytes, const ElementStep& step, const ArrayBlock& array_block) {
  PackedChunk plan{static_cast<int>(chunk.peer), nbytes, false, 0, {}};
  Index displacement = 0;
  for (const StridedBlock& block : chunk.blocks) {
    const StridedBlock moved = array_block(block, displacement);
    displacement += block.count();
    plan.in_place = plan.copies.append(moved, step) && chunk.blocks.size() == 1;
    plan.array_offset = std::max(moved.source_offset, moved.target_offset) * step.source_bytes;  // the other is 0
  }
  return plan;
}

/// How this rank packs a chunk it sends.
inline PackedChunk pack_plan(const Chunk& chunk, const ElementSteps& steps) {
  return packed_chunk(chunk, chunk.count * steps.message_bytes(), steps.pack(), to_packed);
}

/// How this rank unpacks a chunk it receives.
inline PackedChunk unpack_plan(const Chunk& chunk, const ElementSteps& steps) {
  return packed_chunk(chunk, chunk.count * steps.message_bytes(), steps.unpack(), from_packed);
}

}  // namespace dace_redist
