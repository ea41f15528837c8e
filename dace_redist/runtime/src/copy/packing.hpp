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
#include "core/export.hpp"
#include "layout/schedule.hpp"
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
DR_API std::vector<BlockGroup> group_blocks(const Message& message, Index most_elements, Index most_tiny);

/// Walks through a message part by part, the same way for sender and receiver. A part is a group of blocks, or, of a
/// large block, as many rows as fit.
class DR_API MessageCutter {
 public:
  /// \param message  its blocks must outlive the cutter.
  /// \param part_count  most elements of a part, for which longer rows are cut, too.
  /// \param most_tiny  see group_blocks().
  MessageCutter(const Message& message, Index part_count, Index most_tiny = 0)
      : blocks_(message.blocks.data()), groups_(group_blocks(message, std::max<Index>(1, part_count), most_tiny)) {
    restart(part_count);
  }

  /// Goes to the first part again, and may cut parts of another size; the groups stay as they are.
  void restart(Index part_count);
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

  void advance();

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
  void open_group();

  /// Keeps some rows of dimension `cut_` at one index of all dimensions before it.
  void set_part();

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
DR_API std::vector<Chunk> cut(const Message& message, Index max_count, double growth = 1.0);

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
DR_API StridedBlock to_packed(StridedBlock block, Index displacement);

/// The block seen from the other side.
DR_API StridedBlock reversed(StridedBlock block);

/// The block with its source side replaced by a packed message, from `displacement` elements on.
DR_API StridedBlock from_packed(StridedBlock block, Index displacement);

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
DR_API PackedChunk pack_plan(const Chunk& chunk, const ElementSteps& steps);

/// How this rank unpacks a chunk it receives.
DR_API PackedChunk unpack_plan(const Chunk& chunk, const ElementSteps& steps);

}  // namespace dace_redist
