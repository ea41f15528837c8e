// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// One direction of staged messages: its chunks in order, and the ring of slots that they pass through.

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "device/device_transport.hpp"
#include "device/packed_messages.hpp"

namespace dace_redist {

/// Packs chunks into slots in main memory, or unpacks them. Where the array lies in main memory, the processor does so
/// at once.
///
/// Where it lies on the device, a kernel packs into a slot there, which is copied to the slot in main memory; the other
/// way round for unpacking. The slots take turns in two streams, so that kernels and copies of different chunks
/// overlap; received partial results have one stream, which keeps their order. Where a chunk is contiguous in the
/// array, the kernel is left out. An MPI that takes addresses on the device sends and receives the slots there.
class StagedSide {
 public:
  struct StagedChunk {
    int peer;
    Index nbytes, step;
    std::vector<Chunk> host;             // one, if the array lies in main memory
    std::unique_ptr<CopyKernel> kernel;  // null if the array holds the chunk as the message does
    Index place = -1;                    // bytes in the array, in that case
  };

  /// \param tensors  one tensor.
  StagedSide(PlanDevice& device, Chunk::Side side, Memory memory, const Tensors& tensors, const Staging& staging,
             const std::vector<PeerMessage>& messages);
  StagedSide(const StagedSide&) = delete;
  StagedSide& operator=(const StagedSide&) = delete;

  /// Takes over messages of the same sizes, for another layout of the array.
  void set_messages(const std::vector<PeerMessage>& messages);

  const std::vector<StagedChunk>& chunks() const { return chunks_; }
  std::size_t slots() const { return chunk_in_.size(); }
  Index offset(std::size_t slot) const { return offsets_[slot]; }  ///< bytes from the start of the slots
  Index nbytes() const { return offsets_.back(); }                 ///< of all slots
  /// Whether the caller of start() waits for PlanDevice::started(); otherwise the device does.
  bool runs_at_once() const { return memory_ == Memory::host; }

  /// Takes the arrays of a transfer, for the time after PlanDevice::started().
  void begin(const Arrays& arrays);
  /// Gives a slot to the next chunk. \return whether there is one.
  bool take_next(std::size_t slot);
  std::size_t chunk_in(std::size_t slot) const { return chunk_in_[slot]; }
  const StagedChunk& chunk(std::size_t slot) const { return chunks_[chunk_in_[slot]]; }
  /// The slot on the device if MPI sends or receives there; else null.
  char* direct(std::size_t slot) const;
  /// Starts to move the chunk of a slot between the array and the slot.
  /// \param staged  the bytes of the slot in main memory; null: those of direct().
  void start(std::size_t slot, char* staged);
  /// Whether the bytes of a slot are no longer in use.
  bool copied(std::size_t slot) const;
  /// The stream of a slot's chunks.
  Stream stream(std::size_t slot) const { return streams_[one_stream_ ? 0 : slot % 2].get(); }
  /// Orders work that the caller enqueues afterwards behind all that was started.
  void finish();

 private:
  void add_chunks(const PeerMessage& message);
  void make_slots(std::size_t depth);

  PlanDevice& order_;
  Chunk::Side side_;
  Memory memory_;
  const Tensors& tensors_;
  Staging staging_;
  bool one_stream_;
  std::vector<StagedChunk> chunks_;
  std::vector<Index> offsets_;  // [slots + 1] bytes
  DeviceBuffer slots_;
  std::array<DeviceHandle, 2> streams_;
  std::vector<DeviceHandle> events_;  // [slots] after the last use of a slot's bytes

  // Of the transfer at hand:
  Arrays arrays_;
  std::vector<std::size_t> chunk_in_;  // [slots]
  std::size_t posted_ = 0;
};

}  // namespace dace_redist
