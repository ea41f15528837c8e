// SPDX-License-Identifier: BSD-3-Clause
#include "device/packed_messages.hpp"

#include <algorithm>

namespace dace_redist {

StridedBlock packed_side(Chunk::Side side, const StridedBlock& part, Index displacement) {
  return side == Chunk::Side::sent ? to_packed(part, displacement) : from_packed(part, displacement);
}

Index place_in_array(Chunk::Side side, const std::vector<DeviceCopy>& copies, const ElementStep& step) {
  if (copies.size() != 1 || !CopyList().append(copies.front().block, step)) return -1;
  const StridedBlock& block = copies.front().block;
  return (side == Chunk::Side::sent ? block.source_offset : block.target_offset) * step.source_bytes;
}

PackedMessages::PackedMessages(Device& device, Chunk::Side side, const std::vector<PeerMessage>& messages,
                               const Tensor& tensor, const PeerMessage* self) {
  constexpr Index alignment = 256;  // elements; a message begins where a kernel moves whole words
  constexpr int from_buffer = 0, from_array = 1;
  std::vector<DeviceCopy> copies;
  const auto make_kernel = [&](const ElementStep& step) {
    if (!copies.empty()) kernels_.push_back(std::make_unique<CopyKernel>(device, copies, step));
    copies.clear();
  };
  const auto add_self = [&] {
    if (!self) return;
    for (const Block& block : self->blocks) copies.push_back({block.box, from_array, 0});
    make_kernel(tensor.direct_step(self->summand));
    self = nullptr;
  };
  Index count = 0;
  ElementStep step = tensor.steps.pack();
  if (!tensor.reduces) add_self();
  for (const PeerMessage& message : messages) {
    if (self && self->step < message.step) add_self();
    if (side == Chunk::Side::received) step = tensor.unpack_step(message.summand);
    offsets_.push_back(count * tensor.message_bytes());
    for (const Block& block : message.blocks) {
      copies.push_back({packed_side(side, block.box, count), from_buffer, 0});
      count += block.box.count();
    }
    count = ceil_div(count, alignment) * alignment;
    if (tensor.reduces && side == Chunk::Side::received) make_kernel(step);
  }
  make_kernel(step);
  add_self();
  buffer_bytes_ = count * tensor.message_bytes();
}

}  // namespace dace_redist
