// SPDX-License-Identifier: BSD-3-Clause
#include "device/packed_messages.hpp"

namespace dace_redist {

PackedChunk plan_chunk(Direction direction, const Chunk& chunk, const ElementSteps& steps) {
  return direction == Direction::pack ? pack_plan(chunk, steps) : unpack_plan(chunk, steps);
}

void append_copies(Direction direction, const std::vector<StridedBlock>& blocks, Index displacement, int target,
                   std::vector<DeviceCopy>& copies) {
  for (const StridedBlock& block : blocks) {
    const bool packs = direction == Direction::pack;
    copies.push_back({packs ? to_packed(block, displacement) : from_packed(block, displacement), 0, target});
    displacement += block.count();
  }
}

PackedMessages::PackedMessages(Device& device, Direction direction, const std::vector<Message>& messages,
                               const ElementSteps& steps, bool in_array) {
  constexpr Index alignment = 256;  // elements; a message begins where a kernel moves whole words
  std::vector<DeviceCopy> copies;
  Index count = 0;
  for (const Message& message : messages) {
    const PackedChunk plan = plan_chunk(direction, {message.peer, message.count, message.blocks}, steps);
    if (in_array && plan.in_place) {
      parts_.push_back({plan.peer, plan.nbytes, true, plan.array_offset});
      continue;
    }
    parts_.push_back({plan.peer, plan.nbytes, false, count * steps.message_bytes()});
    append_copies(direction, message.blocks, count, 0, copies);
    count += ceil_div(message.count, alignment) * alignment;
  }
  buffer_bytes_ = count * steps.message_bytes();
  if (!copies.empty()) kernel_ = device.copy_kernel(copies, step_of(direction, steps));
}

}  // namespace dace_redist
