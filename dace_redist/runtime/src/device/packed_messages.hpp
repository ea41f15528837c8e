// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages of one direction in one buffer of a device, packed or unpacked by one launch.

#include <memory>
#include <vector>

#include "device/device_objects.hpp"

namespace dace_redist {

/// From an array to messages, or from messages to an array.
enum class Direction { pack, unpack };

/// The host's plan for a chunk: whether it is contiguous in the array, and where.
PackedChunk plan_chunk(Direction direction, const Chunk& chunk, const ElementSteps& steps);

/// Appends the copies of blocks between the array and a packed message.
/// \param displacement  elements of the buffer before the message.
/// \param target  number of the target's address.
void append_copies(Direction direction, const std::vector<StridedBlock>& blocks, Index displacement, int target,
                   std::vector<DeviceCopy>& copies);

/// The step that elements take in a direction.
inline const ElementStep& step_of(Direction direction, const ElementSteps& steps) {
  return direction == Direction::pack ? steps.pack() : steps.unpack();
}

/// The places of messages in a buffer, and the kernel between the buffer and the array.
class PackedMessages {
 public:
  struct Part {
    int peer;
    Index nbytes;
    bool in_array;  ///< contiguous in the array, and not copied
    Index offset;   ///< bytes, in the array or in the buffer
  };

  PackedMessages() = default;

  /// \param in_array  whether messages that are contiguous in the array stay there.
  PackedMessages(Device& device, Direction direction, const std::vector<Message>& messages, const ElementSteps& steps,
                 bool in_array);

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
