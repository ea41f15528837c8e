// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages of one direction in one buffer of a device.

#include <memory>
#include <vector>

#include "device/device_objects.hpp"
#include "transport/chunk.hpp"

namespace dace_redist {

/// The part of a block between an array and a packed message.
/// \param displacement  elements of the buffer before the part.
StridedBlock packed_side(Chunk::Side side, const StridedBlock& part, Index displacement);

/// The place in the array, in bytes, of a message that moves by this one copy and lies there as it is sent; else -1.
Index place_in_array(Chunk::Side side, const std::vector<DeviceCopy>& copies, const ElementStep& step);

/// The places of messages in a buffer, and the kernels between the buffer and the array.
class PackedMessages {
 public:
  PackedMessages() = default;

  /// \param self  null, or the self copy, which is made together with received messages.
  PackedMessages(Device& device, Chunk::Side side, const std::vector<PeerMessage>& messages, const Tensor& tensor,
                 const PeerMessage* self = nullptr);

  const std::vector<Index>& offsets() const { return offsets_; }  ///< [messages] bytes of the buffer before each
  Index buffer_bytes() const { return buffer_bytes_; }

  /// Enqueues the copies of all messages; partial results in the order of the reduction.
  /// \param sources  of sent messages the array; of received ones the buffer, and the array that the self copy reads.
  void launch(const std::vector<const char*>& sources, char* target, Stream stream) const {
    for (const auto& kernel : kernels_) kernel->launch(sources, {target}, stream);
  }

 private:
  std::vector<Index> offsets_;
  Index buffer_bytes_ = 0;
  std::vector<std::unique_ptr<CopyKernel>> kernels_;
};

}  // namespace dace_redist
