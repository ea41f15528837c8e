// SPDX-License-Identifier: BSD-3-Clause
#include "copy/packing.hpp"

#include <algorithm>
#include <utility>

namespace dace_redist {

std::vector<BlockGroup> group_blocks(const Message& message, Index most_elements, Index most_tiny) {
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

void MessageCutter::restart(Index part_count) {
  part_count_ = std::max<Index>(1, part_count);
  group_ = 0;
  open_group();
}

void MessageCutter::advance() {
  if (++index_ < parts_) return set_part();
  ++group_;
  open_group();
}

void MessageCutter::open_group() {
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

void MessageCutter::set_part() {
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

std::vector<Chunk> cut(const Message& message, Index max_count, double growth) {
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

StridedBlock to_packed(StridedBlock block, Index displacement) {
  block.target_offset = displacement;
  Index stride = 1;
  for (std::size_t d = static_cast<std::size_t>(block.ndim); d-- > 0; stride *= block.counts[d])
    block.target_strides[d] = stride;
  return block;
}

StridedBlock reversed(StridedBlock block) {
  std::swap(block.source_offset, block.target_offset);
  std::swap(block.source_strides, block.target_strides);
  return block;
}

StridedBlock from_packed(StridedBlock block, Index displacement) {
  return reversed(to_packed(reversed(block), displacement));
}

PackedChunk pack_plan(const Chunk& chunk, const ElementSteps& steps) {
  return packed_chunk(chunk, chunk.count * steps.message_bytes(), steps.pack(), to_packed);
}

PackedChunk unpack_plan(const Chunk& chunk, const ElementSteps& steps) {
  return packed_chunk(chunk, chunk.count * steps.message_bytes(), steps.unpack(), from_packed);
}

}  // namespace dace_redist
