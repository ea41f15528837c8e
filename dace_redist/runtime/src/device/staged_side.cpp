// SPDX-License-Identifier: BSD-3-Clause
#include "device/staged_side.hpp"

#include <utility>

namespace dace_redist {

StagedSide::StagedSide(PlanDevice& device, Direction direction, Memory memory, const std::vector<Chunk>& chunks,
                       const ElementSteps& steps, std::vector<Index> slot_offsets)
    : order_(device), direction_(direction), memory_(memory), slot_offsets_(std::move(slot_offsets)) {
  for (const Chunk& chunk : chunks)
    chunks_.push_back(memory == Memory::host ? SideChunk{plan_chunk(direction, chunk, steps), nullptr}
                                             : device_chunk(chunk, steps));
  if (memory == Memory::host) return;
  slots_ = DeviceBuffer(device.get(), slot_offsets_.back());
  for (OwnedStream& stream : streams_) stream = make_stream(device.get());
  for (std::size_t slot = 0; slot + 1 < slot_offsets_.size(); ++slot) events_.push_back(make_event(device.get()));
}

StagedSide::SideChunk StagedSide::device_chunk(const Chunk& chunk, const ElementSteps& steps) const {
  SideChunk made{plan_chunk(direction_, chunk, steps), nullptr};
  made.plan.copies = {};
  if (made.plan.in_place) return made;
  std::vector<DeviceCopy> copies;
  append_copies(direction_, chunk.blocks, 0, 0, copies);
  made.kernel = order_.get().copy_kernel(copies, step_of(direction_, steps));
  return made;
}

void StagedSide::begin(char* array) {
  array_ = array;
  if (memory_ == Memory::device)
    for (const OwnedStream& stream : streams_) order_.get().wait(stream.get(), order_.started());
}

char* StagedSide::direct(std::size_t slot) const {
  return memory_ == Memory::device && order_.get().known_to_mpi() ? slots_.at(slot_offsets_[slot]) : nullptr;
}

void StagedSide::start(std::size_t index, std::size_t slot, char* staged) {
  const auto& [plan, kernel] = chunks_[index];
  const bool packs = direction_ == Direction::pack;
  if (memory_ == Memory::host) return packs ? plan.pack(array_, staged) : plan.unpack(staged, array_);
  const trace::Span span(packs ? "pack" : "unpack", plan.peer, plan.nbytes);
  Device& device = order_.get();
  const Stream stream = streams_[slot % 2].get();
  const Event event = events_[slot].get();
  char* const in_slot = slots_.at(slot_offsets_[slot]);
  char* const packed = kernel ? in_slot : array_ + plan.array_offset;  // on the device
  char* const message = staged ? staged : in_slot;
  if (packs) {
    if (kernel) kernel->launch({array_}, {in_slot}, stream);
    if (message != packed) device.copy(message, packed, plan.nbytes, stream);
    return device.record(event, stream);
  }
  if (message != packed) device.copy(packed, message, plan.nbytes, stream);
  const bool frees_slot_early =
      !device.known_to_mpi();  // otherwise MPI may receive the next chunk in the device's slot
  if (frees_slot_early) device.record(event, stream);
  if (kernel) kernel->launch({in_slot}, {array_}, stream);
  if (!frees_slot_early) device.record(event, stream);
}

bool StagedSide::done(std::size_t slot) {
  return memory_ == Memory::host || order_.get().completed(events_[slot].get());
}

void StagedSide::finish() {
  if (memory_ == Memory::device)
    for (const OwnedStream& stream : streams_) order_.follow(stream.get());
}

}  // namespace dace_redist
