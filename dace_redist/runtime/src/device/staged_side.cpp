// SPDX-License-Identifier: BSD-3-Clause
#include "device/staged_side.hpp"

#include <algorithm>
#include <utility>

#include "trace/trace.hpp"

namespace dace_redist {

StagedSide::StagedSide(PlanDevice& device, Chunk::Side side, Memory memory, const Tensors& tensors,
                       const Staging& staging, const std::vector<PeerMessage>& messages)
    : order_(device),
      side_(side),
      memory_(memory),
      tensors_(tensors),
      staging_(staging),
      one_stream_(side == Chunk::Side::received && tensors[0]->reduces) {
  set_messages(messages);
  make_slots(staging.depth);
}

void StagedSide::set_messages(const std::vector<PeerMessage>& messages) {
  chunks_.clear();
  for (const PeerMessage& message : messages) add_chunks(message);
}

void StagedSide::add_chunks(const PeerMessage& message) {
  const Tensor& tensor = *tensors_[0];
  const ElementStep step = side_ == Chunk::Side::sent ? tensor.steps.pack() : tensor.unpack_step(message.summand);
  each_chunk(message, tensors_, staging_.chunk_bytes, staging_.growth, [&](MessageCutter& cutter, Index max_bytes) {
    StagedChunk& made = chunks_.emplace_back(StagedChunk{message.peer, 0, message.step, {}, nullptr});
    if (memory_ == Memory::host) {
      made.host.emplace_back(message, cutter, tensors_, side_, max_bytes, false);
      made.nbytes = made.host.front().nbytes();
      return;
    }
    std::vector<DeviceCopy> copies;
    made.nbytes = cutter.take(max_bytes, [&](Index displacement) {
      copies.push_back({packed_side(side_, cutter.part(), displacement / tensor.message_bytes()), 0, 0});
    });
    made.place = place_in_array(side_, copies, step);
    if (made.place < 0) made.kernel = std::make_unique<CopyKernel>(order_.get(), copies, step);
  });
}

void StagedSide::make_slots(std::size_t depth) {
  constexpr Index alignment = 256;  // for whole words of a kernel
  Index max_bytes = 0;
  for (const StagedChunk& chunk : chunks_) max_bytes = std::max(max_bytes, chunk.nbytes);
  const bool one_each = depth == 0;
  chunk_in_.resize(one_each ? chunks_.size() : std::min(depth, chunks_.size()));
  offsets_ = {0};
  for (std::size_t slot = 0; slot < slots(); ++slot)
    offsets_.push_back(offsets_.back() + ceil_div(one_each ? chunks_[slot].nbytes : max_bytes, alignment) * alignment);
  if (memory_ == Memory::host) return;
  slots_ = DeviceBuffer(order_.get(), nbytes());
  for (DeviceHandle& stream : streams_) stream = order_.get().make_stream();
  for (std::size_t slot = 0; slot < slots(); ++slot) events_.push_back(order_.get().make_event());
}

void StagedSide::begin(const Arrays& arrays) {
  arrays_ = arrays;
  posted_ = 0;
  if (memory_ == Memory::device)
    for (const DeviceHandle& stream : streams_) order_.get().wait(stream.get(), order_.started());
}

bool StagedSide::take_next(std::size_t slot) {
  if (posted_ == chunks_.size()) return false;
  chunk_in_[slot] = posted_++;
  return true;
}

char* StagedSide::direct(std::size_t slot) const {
  return memory_ == Memory::device && order_.get().known_to_mpi() ? slots_.at(offsets_[slot]) : nullptr;
}

void StagedSide::start(std::size_t slot, char* staged) {
  const StagedChunk& chunk = this->chunk(slot);
  const bool packs = side_ == Chunk::Side::sent;
  if (memory_ == Memory::host)
    return packs ? chunk.host[0].pack(arrays_, staged, staging_.threads)
                 : chunk.host[0].unpack(staged, arrays_, staging_.threads);
  const trace::Span span(packs ? "pack" : "unpack", chunk.peer, chunk.nbytes);
  Device& device = order_.get();
  const Stream stream = this->stream(slot);
  const Event event = events_[slot].get();
  char* const array = packs ? const_cast<char*>(arrays_.sources[0]) : arrays_.targets[0];  // sources are only read
  char* const in_slot = slots_.at(offsets_[slot]);
  char* const packed = chunk.kernel ? in_slot : array + chunk.place;  // on the device
  char* const message = staged ? staged : in_slot;
  if (packs) {
    if (chunk.kernel) chunk.kernel->launch({array}, {in_slot}, stream);
    if (message != packed) device.copy(message, packed, chunk.nbytes, stream);
    return device.record(event, stream);
  }
  if (message != packed) device.copy(packed, message, chunk.nbytes, stream);
  const bool frees_slot_early = !device.known_to_mpi();  // otherwise MPI may receive the next chunk on the device
  if (frees_slot_early) device.record(event, stream);
  if (chunk.kernel) chunk.kernel->launch({in_slot}, {array}, stream);
  if (!frees_slot_early) device.record(event, stream);
}

bool StagedSide::copied(std::size_t slot) const {
  return memory_ == Memory::host || order_.get().completed(events_[slot].get());
}

void StagedSide::finish() {
  if (memory_ == Memory::device)
    for (const DeviceHandle& stream : streams_) order_.follow(stream.get());
}

}  // namespace dace_redist
