// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// All messages of one direction in one buffer of a device, packed or unpacked by one launch.

#include <memory>
#include <vector>

#include "device/device_objects.hpp"

namespace dace_redist {

/// Which way elements go between an array and messages.
enum class Direction { pack, unpack };

/// Where each message lies in a buffer, and the kernel between the buffer and the array.
class PackedMessages {
 public:
  struct Part {
    int peer;
    Index nbytes;
    bool in_array;  ///< it is contiguous in the array, and not copied
    Index offset;   ///< bytes, in the array or in the buffer
  };

  PackedMessages() = default;

  /// \param in_array  whether messages that are contiguous in the array stay there.
  PackedMessages(Device& device, Direction direction, const std::vector<Message>& messages, const ElementSteps& steps,
                 bool in_array) {
    const bool packs = direction == Direction::pack;
    std::vector<DeviceCopy> copies;
    Index count = 0;
    for (const Message& message : messages) {
      const Chunk chunk{message.peer, message.count, message.blocks};
      const PackedChunk plan = packs ? pack_plan(chunk, steps) : unpack_plan(chunk, steps);
      if (in_array && plan.in_place) {
        parts_.push_back({plan.peer, plan.nbytes, true, plan.array_offset});
        continue;
      }
      parts_.push_back({plan.peer, plan.nbytes, false, count * steps.message_bytes()});
      Index displacement = count;
      for (const StridedBlock& block : message.blocks) {
        copies.push_back({packs ? to_packed(block, displacement) : from_packed(block, displacement), 0, 0});
        displacement += block.count();
      }
      count += ceil_div(message.count, 256) * 256;  // the next one begins where a kernel moves whole words
    }
    buffer_bytes_ = count * steps.message_bytes();
    if (!copies.empty()) kernel_ = device.copy_kernel(copies, packs ? steps.pack() : steps.unpack());
  }

  const std::vector<Part>& parts() const { return parts_; }  ///< [messages]
  Index buffer_bytes() const { return buffer_bytes_; }

  /// Enqueues the copies of all messages that are not contiguous.
  void launch(const char* source, char* target, Stream stream) const {
    if (kernel_) kernel_->launch({source}, {target}, stream);
  }

 private:
  std::vector<Part> parts_;
  Index buffer_bytes_ = 0;
  std::unique_ptr<CopyKernel> kernel_;
};

}  // namespace dace_redist
