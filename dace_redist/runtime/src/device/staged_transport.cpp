// SPDX-License-Identifier: BSD-3-Clause
#include "device/staged_transport.hpp"

#include <algorithm>
#include <iterator>

#include "core/agreement.hpp"
#include "core/exchange_records.hpp"

namespace dace_redist {
namespace {

constexpr Index slot_alignment = 256;     // for whole words of a kernel
constexpr std::size_t max_slots = 32000;  // any MPI has tags for as many acknowledgements

}  // namespace

bool StagedTransport::Ring::take_next(std::size_t slot, Slot::State state) {
  slots[slot].state = Slot::free;
  if (posted_count == chunks.size()) return false;
  slots[slot] = {state, posted_count++};
  return true;
}

std::vector<int> StagedTransport::Ring::peers() const {
  std::vector<int> peers;
  for (const StagedChunk& chunk : chunks) peers.push_back(chunk.peer);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

// Preparation ---------------------------------------------------------------------------------------------------------

std::vector<Chunk> StagedTransport::cut_all(const std::vector<Message>& messages, const ElementSteps& steps) const {
  std::vector<Chunk> chunks;
  for (const Message& message : messages)
    for (Chunk& chunk : cut(message, limits_.chunk_bytes / steps.message_bytes(), limits_.growth))
      chunks.push_back(std::move(chunk));
  return chunks;
}

void StagedTransport::fill(Ring& ring, const std::vector<Message>& messages, const ElementSteps& steps) const {
  Index max_bytes = 0;
  for (const Chunk& chunk : cut_all(messages, steps)) {
    ring.chunks.push_back({static_cast<int>(chunk.peer), chunk.count * steps.message_bytes()});
    max_bytes = std::max(max_bytes, ring.chunks.back().nbytes);
  }
  const bool one_each = limits_.depth == 0;
  ring.slots.assign(one_each ? ring.chunks.size() : std::min(limits_.depth, ring.chunks.size()), {});
  ring.offsets = {0};
  for (std::size_t slot = 0; slot < ring.slots.size(); ++slot) {
    const Index nbytes = one_each ? ring.chunks[slot].nbytes : max_bytes;
    ring.offsets.push_back(ring.offsets.back() + ceil_div(nbytes, slot_alignment) * slot_alignment);
  }
}

void StagedTransport::connect(PlanDevice& device, MPI_Comm comm, int first_tag, const std::vector<Message>& sends,
                              const std::vector<Message>& receives, const ElementSteps& steps, const Limits& limits,
                              const std::vector<int>& node_ranks, const TryShared& try_shared) {
  order_ = &device;
  comm_ = comm;
  tag_ = first_tag;
  limits_ = limits;
  all_or_none(comm, [&] {
    fill(sends_, sends, steps);
    fill(receives_, receives, steps);
    if (sends_.slots.size() > max_slots)
      throw Error(text("strategy Pack supports at most ", max_slots, " messages per rank on a GPU, got ",
                       sends_.slots.size(), "; use Pipelined or Hierarchical"));
    requests_.assign(sends_.slots.size() + 2 * receives_.slots.size(), MPI_REQUEST_NULL);
    completed_.resize(requests_.size());
    statuses_.resize(requests_.size());
    endpoints_.resize(sends_.slots.size() + receives_.slots.size());
  });
  if (!try_shared([&] { allocate_slots(true); })) return all_or_none(comm, [&] { allocate_slots(false); });
  const auto on_node = [&](std::vector<int> peers) {
    const auto elsewhere = [&](int peer) {
      return peer == comm_rank(comm) || !std::binary_search(node_ranks.begin(), node_ranks.end(), peer);
    };
    peers.erase(std::remove_if(peers.begin(), peers.end(), elsewhere), peers.end());
    return peers;
  };
  std::vector<int> receivers = on_node(sends_.peers());
  const std::vector<int> senders = on_node(receives_.peers());
  const std::vector<SegmentEndpoint> own(receivers.size(), ring_.endpoint());
  const std::vector<SegmentEndpoint> endpoints = exchange_records(comm, tag_, receivers, own, senders);
  if (try_shared([&] { map_slots(senders, endpoints); }))
    node_receivers_ = std::move(receivers);
  else
    mapped_.clear();
}

void StagedTransport::allocate_slots(bool shared) {
  const CurrentDevice current(order_->get());
  if (shared) {
    ring_.allocate(sends_.nbytes());
    pinned_ring_ = pin(order_->get(), ring_.at(0), AdvertisedSegment::header_bytes + sends_.nbytes());
    send_slots_ = ring_.at(AdvertisedSegment::header_bytes);
  } else {
    private_ring_ = PinnedBuffer(order_->get(), sends_.nbytes());
    send_slots_ = private_ring_.at(0);
  }
}

void StagedTransport::map_slots(const std::vector<int>& senders, const std::vector<SegmentEndpoint>& endpoints) {
  const CurrentDevice current(order_->get());
  for (std::size_t s = 0; s < senders.size(); ++s) {
    MappedRing& ring = mapped_[senders[s]];
    if (!AdvertisedSegment::map(endpoints[s], ring.segment))
      throw Error(text("cannot map the slots of rank ", senders[s],
                       ": its process number names another process here (ranks in different PID namespaces?)"));
    ring.pinned = pin(order_->get(), ring.segment.at(0), ring.segment.nbytes());
  }
}

void StagedTransport::set_arrays(Memory source, Memory target, const std::vector<Message>& sends,
                                 const std::vector<Message>& receives, const ElementSteps& steps) {
  set_side(sends_, Direction::pack, source, sends, steps);
  set_side(receives_, Direction::unpack, target, receives, steps);
  const auto by_mpi = [this](const StagedChunk& chunk) { return mapped(chunk.peer) == nullptr; };
  const bool direct = target == Memory::device && order_->get().known_to_mpi();
  if (!direct && !buffer_.at(0) && std::any_of(receives_.chunks.begin(), receives_.chunks.end(), by_mpi))
    buffer_ = PinnedBuffer(order_->get(), receives_.nbytes());
}

void StagedTransport::set_side(Ring& ring, Direction direction, Memory memory, const std::vector<Message>& messages,
                               const ElementSteps& steps) {
  ring.side.reset();  // frees its memory before the new side takes some
  ring.side = std::make_unique<StagedSide>(*order_, direction, memory, cut_all(messages, steps), steps, ring.offsets);
}

// Exchange ------------------------------------------------------------------------------------------------------------

void StagedTransport::begin(const char* source, char* target) {
  finished_ = false;
  packing_.clear();
  sends_.posted_count = sends_.done_count = receives_.posted_count = receives_.done_count = 0;
  order_->attempt([&] {
    sends_.side->begin(const_cast<char*>(source));  // packs only
    receives_.side->begin(target);
  });
  for (std::size_t slot = 0; slot < receives_.slots.size(); ++slot) receive_next(slot);
  waits_ = sends_.side->runs_at_once() || receives_.side->runs_at_once();
  if (!waits_) pack_first();
}

bool StagedTransport::progress() {
  if (finished_) return false;
  bool any = false;
  if (waits_) {
    if (!order_->failed() && !order_->get().completed(order_->started())) return false;
    waits_ = false;
    pack_first();
    any = true;
  }
  any |= send_packed();
  any |= release_unpacked();
  any |= test_requests();
  if (sends_.done() && receives_.done()) finish();
  return any || finished_;
}

void StagedTransport::finish() {
  sends_.side->finish();
  receives_.side->finish();
  finished_ = true;
}

void StagedTransport::pack_first() {
  for (std::size_t slot = 0; slot < sends_.slots.size(); ++slot) pack_next(slot);
}

void StagedTransport::pack_next(std::size_t slot) {
  if (!sends_.take_next(slot, Slot::copying)) return;
  packing_.push_back(slot);
  char* const staged = sends_directly(slot) ? nullptr : send_slot(slot);
  order_->attempt([&] { sends_.side->start(sends_.slots[slot].chunk, slot, staged); });
}

bool StagedTransport::send_packed() {
  bool any = false;
  for (; !packing_.empty() && (order_->failed() || sends_.side->done(packing_.front())); any = true) {
    send(packing_.front());
    packing_.pop_front();
  }
  return any;
}

void StagedTransport::send(std::size_t slot) {
  const StagedChunk& chunk = sends_.chunk_in(slot);
  const trace::Span span("send", chunk.peer, chunk.nbytes);
  sends_.slots[slot].state = Slot::transferring;
  const bool by_node = sends_by_node(chunk.peer);
  if (order_->failed() || !by_node) {
    const char* const bytes = sends_directly(slot) ? sends_.side->direct(slot) : send_slot(slot);
    const int nbytes = order_->failed() ? 0 : static_cast<int>(chunk.nbytes);
    return check(MPI_Isend(bytes, nbytes, MPI_BYTE, chunk.peer, tag_, comm_, &requests_[slot]), "MPI_Isend");
  }
  endpoints_[slot] = {sends_.offsets[slot], static_cast<Index>(slot)};
  MPI_Request sent = MPI_REQUEST_NULL;
  check(MPI_Irecv(nullptr, 0, MPI_BYTE, chunk.peer, tag_ + 1 + static_cast<int>(slot), comm_, &requests_[slot]),
        "MPI_Irecv");
  check(MPI_Isend(&endpoints_[slot], sizeof(SlotEndpoint), MPI_BYTE, chunk.peer, tag_, comm_, &sent), "MPI_Isend");
  check(MPI_Request_free(&sent), "MPI_Request_free");  // the acknowledgement proves its arrival
}

void StagedTransport::receive_next(std::size_t slot) {
  if (!receives_.take_next(slot, Slot::transferring)) return;
  const StagedChunk& chunk = receives_.chunk_in(slot);
  const bool by_node = mapped(chunk.peer) != nullptr;
  char* const bytes = by_node ? reinterpret_cast<char*>(&received_endpoint(slot)) : receive_slot(slot);
  const int nbytes = static_cast<int>(by_node ? static_cast<Index>(sizeof(SlotEndpoint)) : chunk.nbytes);
  check(MPI_Irecv(bytes, nbytes, MPI_BYTE, chunk.peer, tag_, comm_, &receive_request(slot)), "MPI_Irecv");
}

bool StagedTransport::test_requests() {
  int count = 0;
  check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, completed_.data(), statuses_.data()),
        "MPI_Testsome");
  if (count == MPI_UNDEFINED) return false;
  for (int i = 0; i < count; ++i) {
    auto request = static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)]);
    if (request < sends_.slots.size()) {
      ++sends_.done_count;
      pack_next(request);
      continue;
    }
    request -= sends_.slots.size();
    if (request >= receives_.slots.size()) {
      receive_again(request - receives_.slots.size());
      continue;
    }
    int nbytes = 0;
    check(MPI_Get_count(&statuses_[static_cast<std::size_t>(i)], MPI_BYTE, &nbytes), "MPI_Get_count");
    if (nbytes > 0) {
      unpack(request);
    } else {
      order_->fail_with(receives_.chunk_in(request).peer);
      receive_again(request);
    }
  }
  return count > 0;
}

void StagedTransport::unpack(std::size_t slot) {
  receives_.slots[slot].state = Slot::copying;
  char* staged = nullptr;
  if (const MappedRing* const ring = mapped(receives_.chunk_in(slot).peer))
    staged = ring->segment.at(AdvertisedSegment::header_bytes + received_endpoint(slot).offset);
  else if (receives_.side->direct(slot) == nullptr)
    staged = receive_slot(slot);
  order_->attempt([&] { receives_.side->start(receives_.slots[slot].chunk, slot, staged); });
}

bool StagedTransport::release_unpacked() {
  bool any = false;
  for (std::size_t slot = 0; slot < receives_.slots.size(); ++slot)
    if (receives_.slots[slot].state == Slot::copying && receives_.side->done(slot)) {
      release(slot);
      any = true;
    }
  return any;
}

void StagedTransport::release(std::size_t slot) {
  const int peer = receives_.chunk_in(slot).peer;
  if (mapped(peer) == nullptr) return receive_again(slot);
  receives_.slots[slot].state = Slot::transferring;
  const int tag = tag_ + 1 + static_cast<int>(received_endpoint(slot).slot);
  check(MPI_Isend(nullptr, 0, MPI_BYTE, peer, tag, comm_, &acknowledgement(slot)), "MPI_Isend");
}

void StagedTransport::receive_again(std::size_t slot) {
  ++receives_.done_count;
  receive_next(slot);
}

bool StagedTransport::sends_by_node(int peer) const {
  return std::binary_search(node_receivers_.begin(), node_receivers_.end(), peer);
}

bool StagedTransport::sends_directly(std::size_t slot) const {
  return !sends_by_node(sends_.chunk_in(slot).peer) && sends_.side->direct(slot) != nullptr;
}

char* StagedTransport::receive_slot(std::size_t slot) const {
  char* const direct = receives_.side->direct(slot);
  return direct ? direct : buffer_.at(receives_.offsets[slot]);
}

const StagedTransport::MappedRing* StagedTransport::mapped(int sender) const {
  const auto entry = mapped_.find(sender);
  return entry == mapped_.end() ? nullptr : &entry->second;
}

}  // namespace dace_redist
