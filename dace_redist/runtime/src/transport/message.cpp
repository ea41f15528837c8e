// SPDX-License-Identifier: BSD-3-Clause
#include "transport/message.hpp"

#include <algorithm>
#include <utility>

namespace dace_redist {
namespace {

std::vector<BlockGroup> group_blocks(const PeerMessage& message, const Tensors& tensors, Index max_group_bytes,
                                     Index max_tiny_bytes) {
  std::vector<BlockGroup> groups;
  bool open = false;
  for (auto block = message.blocks.begin(); block != message.blocks.end(); ++block) {
    const int tensor = block.tensor();
    const Index elements = block.count();
    const Index element_bytes = tensors[static_cast<std::size_t>(tensor)]->message_bytes(message);
    const bool tiny = elements * element_bytes <= max_tiny_bytes;
    if (open && tiny && groups.back().tensor == tensor &&
        (groups.back().elements + elements) * element_bytes <= max_group_bytes) {
      ++groups.back().count;
      groups.back().elements += elements;
    } else {
      groups.push_back({block, 1, tensor, elements, element_bytes});
    }
    open = tiny;
  }
  return groups;
}

ElementStep step_of(const PartialBlock& partial, Index target_bytes) {
  return {partial.source_bytes, target_bytes, partial.kernel};
}

}  // namespace

ElementStep Tensor::unpack_step(const PeerMessage& message) const {
  const TensorSteps& own = steps_of(message);
  if (!reduces) return own.steps.unpack();
  return step_of(own.reduction.partial(message.summand, true), own.reduction.target_bytes());
}

ElementStep Tensor::direct_step(const PeerMessage& message) const {
  return reduces ? step_of(reduction.partial(message.summand, false), reduction.target_bytes()) : steps.direct();
}

bool are_partial(const Tensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) { return tensor->reduces; });
}

MessageCutter::MessageCutter(const PeerMessage& message, const Tensors& tensors, Index part_bytes, Index max_tiny_bytes)
    : groups_(group_blocks(message, tensors, part_bytes, max_tiny_bytes)) {
  restart(part_bytes);
}

void MessageCutter::restart(Index part_bytes) {
  max_part_bytes_ = part_bytes;
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
  const BlockGroup& group = groups_[group_];
  const Index max_count = std::max<Index>(1, max_part_bytes_ / group.element_bytes);
  count_ = inner_ = group.elements;
  group.first.read(block_);
  if (count_ <= max_count) return;
  for (cut_ = 0; cut_ < static_cast<std::size_t>(block_.ndim); ++cut_) {
    inner_ /= block_.counts[cut_];
    if (inner_ <= max_count) break;
    parts_ *= block_.counts[cut_];
  }
  rows_ = std::max<Index>(1, max_count / inner_);
  steps_ = ceil_div(block_.counts[cut_], rows_);
  parts_ *= steps_;
  part_ = block_;
  set_part();
}

void MessageCutter::set_part() {
  part_.source_offset = block_.source_offset;
  part_.target_offset = block_.target_offset;
  const auto move = [&](std::size_t d, Index steps) {
    part_.source_offset += steps * block_.source_strides[d];
    part_.target_offset += steps * block_.target_strides[d];
  };
  const Index row = index_ % steps_ * rows_;
  move(cut_, row);
  Index outer = index_ / steps_;
  for (std::size_t d = cut_; d-- > 0; outer /= block_.counts[d]) move(d, outer % block_.counts[d]);
  std::fill_n(part_.counts.begin(), cut_, 1);
  part_.counts[cut_] = std::min(rows_, block_.counts[cut_] - row);
  count_ = part_.counts[cut_] * inner_;
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

Index packed_bytes(const PeerMessage& message, const Tensors& tensors) {
  Index nbytes = 0;
  int last = 0;
  for (auto block = message.blocks.begin(); block != message.blocks.end(); ++block) {
    const int tensor = block.tensor();
    if (std::exchange(last, tensor) != tensor) nbytes = ceil_div(nbytes, element_alignment) * element_alignment;
    nbytes += block.count() * tensors[static_cast<std::size_t>(tensor)]->message_bytes(message);
  }
  return nbytes;
}

}  // namespace dace_redist
