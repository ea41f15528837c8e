// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The chunks of one direction, between this rank's array and slots in main memory.
/// Start reading at: StagedSide.

#include <cstddef>
#include <memory>
#include <vector>

#include "copy/packing.hpp"
#include "device/packed_messages.hpp"

namespace dace_redist {

/// Packs chunks into slots, or unpacks them, as far as possible beside other work.
class StagedSide {
 public:
  StagedSide() = default;
  StagedSide(const StagedSide&) = delete;
  StagedSide& operator=(const StagedSide&) = delete;
  virtual ~StagedSide() = default;

  /// \param array  of the exchange that begins. \param started  what the array may not be used before.
  virtual void begin(char* array, Event started) = 0;
  /// Whether what is started runs after begin()'s event; otherwise it runs at once, and the event is to be waited for.
  virtual bool in_stream() const = 0;
  /// Where MPI itself can send or receive the chunk in a slot; null: in main memory only.
  virtual char* direct(std::size_t slot) const = 0;
  /// Starts to move a chunk between the array and a slot, whose bytes are at `staged`, or if that is null at direct().
  virtual void start(std::size_t chunk, std::size_t slot, char* staged) = 0;
  /// Whether what was started of a slot is done with its bytes.
  virtual bool done(std::size_t slot) = 0;
  /// What a stream gets from now on runs after all that was started.
  virtual void finish(Stream caller) = 0;
};

/// A side whose array lies in main memory: everything is done at once.
class HostSide final : public StagedSide {
 public:
  HostSide(Direction direction, const std::vector<Chunk>& chunks, const ElementSteps& steps) : direction_(direction) {
    for (const Chunk& chunk : chunks)
      chunks_.push_back(direction == Direction::pack ? pack_plan(chunk, steps) : unpack_plan(chunk, steps));
  }

  void begin(char* array, Event /*started*/) override { array_ = array; }
  bool in_stream() const override { return false; }
  char* direct(std::size_t /*slot*/) const override { return nullptr; }
  void start(std::size_t chunk, std::size_t /*slot*/, char* staged) override {
    if (direction_ == Direction::pack)
      chunks_[chunk].pack(array_, staged);
    else
      chunks_[chunk].unpack(staged, array_);
  }
  bool done(std::size_t /*slot*/) override { return true; }
  void finish(Stream /*caller*/) override {}

 private:
  Direction direction_;
  std::vector<PackedChunk> chunks_;
  char* array_ = nullptr;
};

/// A side whose array lies in a device's memory: a kernel packs into a slot there, which is copied to the slot in main
/// memory beside the kernel of the next chunk; the other way round for unpacking. Where the array holds a chunk as the
/// message does, the kernel is left out. An MPI that takes addresses of the device sends and receives the slots there.
class DeviceSide final : public StagedSide {
 public:
  /// \param slot_offsets  [slots + 1] where each slot begins in the buffer of slots, in bytes.
  DeviceSide(Device& device, Direction direction, const std::vector<Chunk>& chunks, const ElementSteps& steps,
             const std::vector<Index>& slot_offsets)
      : device_(device),
        direction_(direction),
        slot_offsets_(slot_offsets),
        slots_(device, slot_offsets.back()),
        kernels_(make_stream(device)),
        copies_(make_stream(device)),
        finished_(make_event(device)) {
    for (std::size_t slot = 0; slot + 1 < slot_offsets.size(); ++slot)
      slot_events_.push_back({make_event(device), make_event(device)});
    for (const Chunk& chunk : chunks) chunks_.push_back(device_chunk(chunk, steps));
  }

  void begin(char* array, Event started) override {
    array_ = array;
    device_.wait(kernels_.get(), started);
    device_.wait(copies_.get(), started);
  }

  bool in_stream() const override { return true; }
  char* direct(std::size_t slot) const override { return device_.known_to_mpi() ? in_device(slot) : nullptr; }

  void start(std::size_t index, std::size_t slot, char* staged) override {
    const DeviceChunk& chunk = chunks_[index];
    const SlotEvents& events = slot_events_[slot];
    if (staged == nullptr) return start_direct(chunk, slot);
    if (direction_ == Direction::pack) {
      if (chunk.kernel) {
        const trace::Span span("pack", chunk.peer, chunk.nbytes);
        chunk.kernel->launch({array_}, {in_device(slot)}, kernels_.get());
        hand_over(events.kernel, kernels_, copies_);
      }
      copy(staged, chunk.kernel ? in_device(slot) : array_ + chunk.array_offset, chunk.nbytes);
      device_.record(events.copy.get(), copies_.get());
      return;
    }
    if (!chunk.kernel) {
      copy(array_ + chunk.array_offset, staged, chunk.nbytes);
      device_.record(events.copy.get(), copies_.get());
      return;
    }
    const trace::Span span("unpack", chunk.peer, chunk.nbytes);
    device_.wait(copies_.get(), events.kernel.get());  // which unpacks what was in the slot before
    copy(in_device(slot), staged, chunk.nbytes);
    hand_over(events.copy, copies_, kernels_);
    chunk.kernel->launch({in_device(slot)}, {array_}, kernels_.get());
    device_.record(events.kernel.get(), kernels_.get());
  }

  bool done(std::size_t slot) override {
    const SlotEvents& events = slot_events_[slot];
    if (!device_.completed(events.copy.get())) return false;
    return !device_.known_to_mpi() || device_.completed(events.kernel.get());  // then MPI may write there next
  }

  void finish(Stream caller) override {
    for (const OwnedStream* stream : {&kernels_, &copies_}) {
      device_.record(finished_.get(), stream->get());
      device_.wait(caller, finished_.get());
    }
  }

 private:
  struct DeviceChunk {
    int peer;
    Index nbytes;
    Index array_offset;                  // bytes, without a kernel
    std::unique_ptr<CopyKernel> kernel;  // null: the array holds the chunk as the message does
  };
  struct SlotEvents {
    OwnedEvent kernel, copy;  // what was last enqueued of either kind
  };

  /// Between the array and the slot on the device, which MPI sends afterwards or has received.
  void start_direct(const DeviceChunk& chunk, std::size_t slot) {
    const bool packs = direction_ == Direction::pack;
    char* const held = array_ + chunk.array_offset;
    if (chunk.kernel)
      chunk.kernel->launch({packs ? array_ : in_device(slot)}, {packs ? in_device(slot) : array_}, kernels_.get());
    else
      copy(packs ? in_device(slot) : held, packs ? held : in_device(slot), chunk.nbytes);
    device_.record(slot_events_[slot].copy.get(), (chunk.kernel ? kernels_ : copies_).get());
  }

  DeviceChunk device_chunk(const Chunk& chunk, const ElementSteps& steps) const {
    const bool packs = direction_ == Direction::pack;
    const PackedChunk plan = packs ? pack_plan(chunk, steps) : unpack_plan(chunk, steps);
    DeviceChunk made{plan.peer, plan.nbytes, plan.array_offset, nullptr};
    if (plan.in_place) return made;
    std::vector<DeviceCopy> copies;
    Index displacement = 0;
    for (const StridedBlock& block : chunk.blocks) {
      copies.push_back({packs ? to_packed(block, displacement) : from_packed(block, displacement), 0, 0});
      displacement += block.count();
    }
    made.kernel = device_.copy_kernel(copies, packs ? steps.pack() : steps.unpack());
    return made;
  }

  char* in_device(std::size_t slot) const { return slots_.at(slot_offsets_[slot]); }
  void copy(char* target, const char* source, Index nbytes) { device_.copy(target, source, nbytes, copies_.get()); }

  /// What `second` gets from now on runs after what `first` has.
  void hand_over(const OwnedEvent& event, const OwnedStream& first, const OwnedStream& second) {
    device_.record(event.get(), first.get());
    device_.wait(second.get(), event.get());
  }

  Device& device_;
  Direction direction_;
  std::vector<Index> slot_offsets_;
  DeviceBuffer slots_;
  OwnedStream kernels_, copies_;
  OwnedEvent finished_;
  std::vector<SlotEvents> slot_events_;
  std::vector<DeviceChunk> chunks_;
  char* array_ = nullptr;
};

}  // namespace dace_redist
