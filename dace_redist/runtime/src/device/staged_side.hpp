// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The chunks of one direction, between this rank's array and slots in main memory.

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "device/packed_messages.hpp"
#include "device/plan_device.hpp"

namespace dace_redist {

/// Packs chunks into slots, or unpacks them. Where the array lies in main memory, the processor does so at once.
///
/// Where it lies on the device, a kernel packs into a slot there, which is copied to the slot in main memory; the other
/// way round for unpacking. The slots take turns in two streams, so that kernels and copies of different chunks
/// overlap. Where a chunk is contiguous in the array, the kernel is left out. An MPI that takes addresses on the device
/// sends and receives the slots there.
class StagedSide {
 public:
  /// \param slot_offsets  [slots + 1] bytes from the start of the slots.
  StagedSide(PlanDevice& device, Direction direction, Memory memory, const std::vector<Chunk>& chunks,
             const ElementSteps& steps, std::vector<Index> slot_offsets);
  StagedSide(const StagedSide&) = delete;
  StagedSide& operator=(const StagedSide&) = delete;

  /// Takes the array of an exchange, for the time after PlanDevice::started().
  void begin(char* array);
  /// Whether the caller of start() waits for PlanDevice::started(); otherwise the device does.
  bool runs_at_once() const { return memory_ == Memory::host; }
  /// The slot on the device if MPI sends or receives there; else null.
  char* direct(std::size_t slot) const;
  /// Starts to move a chunk between the array and a slot.
  /// \param staged  the bytes of the slot in main memory; null: those of direct().
  void start(std::size_t chunk, std::size_t slot, char* staged);
  /// Whether the bytes of a slot are no longer in use.
  bool done(std::size_t slot);
  /// Orders work that the caller enqueues afterwards behind all that was started.
  void finish();

 private:
  struct SideChunk {
    PackedChunk plan;                    // without copies if the array lies on the device
    std::unique_ptr<CopyKernel> kernel;  // null if the array holds the chunk as the message does
  };

  SideChunk device_chunk(const Chunk& chunk, const ElementSteps& steps) const;

  PlanDevice& order_;
  Direction direction_;
  Memory memory_;
  std::vector<Index> slot_offsets_;
  std::vector<SideChunk> chunks_;
  char* array_ = nullptr;
  DeviceBuffer slots_;
  std::array<OwnedStream, 2> streams_;
  std::vector<OwnedEvent> events_;  // [slots] after the last use of a slot's bytes
};

}  // namespace dace_redist
