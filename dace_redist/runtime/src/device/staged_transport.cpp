// SPDX-License-Identifier: BSD-3-Clause
#include "device/staged_transport.hpp"

#include <algorithm>
#include <optional>

#include "core/agreement.hpp"
#include "core/exchange_records.hpp"
#include "shm/arena.hpp"
#include "trace/trace.hpp"

namespace dace_redist {

// Preparation ---------------------------------------------------------------------------------------------------------

StagedTransport::StagedTransport(PlanDevice& device, const Link& link, const TensorProblem& problem,
                                 const Staging& staging, const Messages& messages, bool node_memory)
    : order_(device), comm_(link.comm()), tag_(link.tag), tensors_(link.tensors) {
  all_or_none(comm_, [&] { make_sides(link, problem, staging, messages); });
  if (node_memory && try_shared([&] { make_ring(link, true); }))
    map_rings(link);
  else
    all_or_none(comm_, [&] { make_ring(link, false); });
  all_or_none(comm_, [&] {
    const std::vector<int> senders = receives_->peers();
    const bool by_mpi = std::any_of(senders.begin(), senders.end(), [this](int peer) { return !mapped(peer); });
    const CurrentDevice current(order_.get());
    if (by_mpi && !(receives_->slots() > 0 && receives_->direct(0)))
      buffer_ = PinnedBuffer(order_.get(), receives_->nbytes());
  });
}

bool StagedTransport::try_shared(const std::function<void()>& work) const {
  std::optional<Error> failure;
  try {
    const CurrentDevice current(order_.get());
    work();
  } catch (const Error& error) {
    failure = error;
  }
  const int failed = lowest_rank(comm_, failure.has_value());
  if (failed >= 0 && failed == comm_rank(comm_)) warn_fallback_once(*failure);
  return failed < 0;
}

void StagedTransport::make_sides(const Link& link, const TensorProblem& problem, const Staging& staging,
                                 const Messages& messages) {
  const CurrentDevice current(order_.get());
  sends_ = std::make_unique<StagedSide>(order_, Chunk::Side::sent, problem.source_memory, link.tensors, staging,
                                        messages.sends);
  receives_ = std::make_unique<StagedSide>(order_, Chunk::Side::received, problem.target_memory, link.tensors, staging,
                                           messages.receives);
  set_self(messages);
  requests_.assign(sends_->slots() + 2 * receives_->slots(), MPI_REQUEST_NULL);
  completed_.resize(requests_.size());
  sent_slots_.resize(sends_->slots());
  sent_places_.resize(sends_->slots());
  received_places_.resize(receives_->slots());
}

void StagedTransport::make_ring(const Link& link, bool shared) {
  const CurrentDevice current(order_.get());
  const std::vector<int> peers = sends_->peers();
  const bool partners = std::any_of(peers.begin(), peers.end(),
                                    [&](int peer) { return peer != link.rank() && link.topology.is_partner(peer); });
  ring_.reset();
  ring_ = std::make_unique<StagedRing>(order_.get(), sends_->nbytes(), shared && partners);
}

void StagedTransport::map_rings(const Link& link) {
  const auto on_node = [&](std::vector<int> peers) {
    const auto elsewhere = [&](int peer) { return peer == link.rank() || !link.topology.is_partner(peer); };
    peers.erase(std::remove_if(peers.begin(), peers.end(), elsewhere), peers.end());
    return peers;
  };
  const std::vector<int> receivers = on_node(sends_->peers()), senders = on_node(receives_->peers());
  const std::vector<RingName> own(receivers.size(), ring_->name());
  const std::vector<RingName> names = exchange_records(comm_, tag_, receivers, own, senders);
  const bool all = try_shared([&] {
    for (std::size_t s = 0; s < senders.size(); ++s)
      mapped_[senders[s]] = std::make_unique<MappedRing>(order_.get(), *link.context.arena_of(senders[s]), names[s]);
  });
  if (!all) return mapped_.clear();
  ring_->set_readers(static_cast<std::int64_t>(receivers.size()));
  node_receivers_ = receivers;
}

void StagedTransport::set_messages(const Messages& messages) {
  sends_->set_messages(messages.sends);
  receives_->set_messages(messages.receives);
  set_self(messages);
}

void StagedTransport::set_self(const Messages& messages) {
  self_.reset();
  if (messages.self.nbytes == 0) return;
  std::vector<DeviceCopy> copies;
  for (const Block& block : messages.self.blocks) copies.push_back({block.box, 0, 0});
  self_ = order_.get().copy_kernel(copies, tensors_[0]->direct_step(messages.self.summand));
  for (self_before_ = 0; self_before_ < receives_->chunks(); ++self_before_)
    if (receives_->step(self_before_) > messages.self.step) break;
}

// Transfer ------------------------------------------------------------------------------------------------------------

void StagedTransport::begin(const Arrays& arrays) {
  arrays_ = arrays;
  finished_ = false;
  packing_.clear();
  unpacking_.clear();
  next_ = 0;
  self_done_ = false;
  arrived_.assign(tensors_[0]->reduces ? receives_->chunks() : 0, none);
  free_requests_.clear();
  for (std::size_t request = 0; request < sends_->slots(); ++request) free_requests_.push_back(request);
  sends_->begin(arrays);
  receives_->begin(arrays);
  for (std::size_t slot = 0; slot < receives_->slots(); ++slot) receive_next(slot);
  waits_ = sends_->runs_at_once() || receives_->runs_at_once();
  if (!waits_) pack_first();
}

bool StagedTransport::progress() {
  if (finished_) return false;
  bool any = false;
  if (waits_) {
    if (!order_.get().completed(order_.started())) return false;
    waits_ = false;
    pack_first();
    any = true;
  }
  any |= send_packed();
  any |= release_unpacked();
  any |= test_requests();
  if (sends_->done() && receives_->done()) finish();
  return any || finished_;
}

void StagedTransport::finish() {
  sends_->finish();
  receives_->finish();
  finished_ = true;
}

void StagedTransport::pack_first() {
  for (std::size_t slot = 0; slot < sends_->slots(); ++slot) pack_next(slot);
  unpack_in_order();
}

void StagedTransport::pack_next(std::size_t slot) {
  if (!sends_->take_next(slot)) return;
  packing_.push_back(slot);
  sends_->start(slot, sends_directly(slot) ? nullptr : ring_->at(sends_->offset(slot)));
}

bool StagedTransport::send_packed() {
  bool any = false;
  for (; !packing_.empty() && sends_->copied(packing_.front()); any = true) {
    send(packing_.front());
    packing_.pop_front();
  }
  return any;
}

void StagedTransport::send(std::size_t slot) {
  const int peer = sends_->peer(slot);
  const Index nbytes = sends_->chunk_bytes(slot);
  const trace::Span span("send", peer, nbytes);
  const std::size_t request = free_requests_.back();
  free_requests_.pop_back();
  if (!sends_by_node(peer)) {
    sent_slots_[request] = static_cast<Index>(slot);
    const char* const bytes = sends_directly(slot) ? sends_->direct(slot) : ring_->at(sends_->offset(slot));
    return check(MPI_Isend(bytes, static_cast<int>(nbytes), MPI_BYTE, peer, tag_, comm_, &requests_[request]),
                 "MPI_Isend");
  }
  sent_places_[slot] = {sends_->offset(slot), static_cast<Index>(slot)};
  check(MPI_Irecv(&sent_slots_[request], sizeof(Index), MPI_BYTE, peer, tag_ + 1, comm_, &requests_[request]),
        "MPI_Irecv");
  MPI_Request sent = MPI_REQUEST_NULL;
  check(MPI_Isend(&sent_places_[slot], sizeof(SlotPlace), MPI_BYTE, peer, tag_, comm_, &sent), "MPI_Isend");
  check(MPI_Request_free(&sent), "MPI_Request_free");  // the acknowledgement proves its arrival
}

void StagedTransport::receive_next(std::size_t slot) {
  if (!receives_->take_next(slot)) return;
  const int peer = receives_->peer(slot);
  const bool by_node = mapped(peer) != nullptr;
  void* const bytes = by_node ? static_cast<void*>(&received_places_[slot]) : receive_slot(slot);
  const Index nbytes = by_node ? static_cast<Index>(sizeof(SlotPlace)) : receives_->chunk_bytes(slot);
  check(MPI_Irecv(bytes, static_cast<int>(nbytes), MPI_BYTE, peer, tag_, comm_, &receive_request(slot)), "MPI_Irecv");
}

bool StagedTransport::test_requests() {
  const int count = test_some(requests_, completed_);
  for (int i = 0; i < count; ++i) {
    auto request = static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)]);
    if (request < sends_->slots()) {
      sends_->count_done();
      free_requests_.push_back(request);
      pack_next(static_cast<std::size_t>(sent_slots_[request]));
      continue;
    }
    request -= sends_->slots();
    if (request < receives_->slots())
      take(request);
    else
      receive_again(request - receives_->slots());
  }
  return count > 0;
}

void StagedTransport::take(std::size_t slot) {
  if (arrived_.empty()) return unpack(slot);
  arrived_[receives_->chunk_in(slot)] = slot;
  unpack_in_order();
}

void StagedTransport::unpack_in_order() {
  for (;; ++next_) {
    if (self_ && !self_done_ && next_ == self_before_) {
      self_->launch({arrays_.sources[0]}, {arrays_.targets[0]}, receives_->stream(0));
      self_done_ = true;
    }
    if (next_ >= arrived_.size() || arrived_[next_] == none) return;
    unpack(arrived_[next_]);
  }
}

void StagedTransport::unpack(std::size_t slot) {
  char* staged = nullptr;
  if (const MappedRing* const ring = mapped(receives_->peer(slot)))
    staged = ring->at(received_places_[slot].offset);
  else if (!receives_->direct(slot))
    staged = receive_slot(slot);
  receives_->start(slot, staged);
  unpacking_.push_back(slot);
}

bool StagedTransport::release_unpacked() {
  const auto copied = std::stable_partition(unpacking_.begin(), unpacking_.end(),
                                            [this](std::size_t slot) { return !receives_->copied(slot); });
  const std::vector<std::size_t> released(copied, unpacking_.end());
  unpacking_.erase(copied, unpacking_.end());
  for (const std::size_t slot : released) {
    const int peer = receives_->peer(slot);
    if (!mapped(peer))
      receive_again(slot);
    else
      check(MPI_Isend(&received_places_[slot].slot, sizeof(Index), MPI_BYTE, peer, tag_ + 1, comm_,
                      &acknowledgement(slot)),
            "MPI_Isend");
  }
  return !released.empty();
}

void StagedTransport::receive_again(std::size_t slot) {
  receives_->count_done();
  receive_next(slot);
}

bool StagedTransport::sends_by_node(int peer) const {
  return std::binary_search(node_receivers_.begin(), node_receivers_.end(), peer);
}

bool StagedTransport::sends_directly(std::size_t slot) const {
  return !sends_by_node(sends_->peer(slot)) && sends_->direct(slot) != nullptr;
}

char* StagedTransport::receive_slot(std::size_t slot) const {
  char* const direct = receives_->direct(slot);
  return direct ? direct : buffer_.at(receives_->offset(slot));
}

const MappedRing* StagedTransport::mapped(int sender) const {
  const auto entry = mapped_.find(sender);
  return entry == mapped_.end() ? nullptr : entry->second.get();
}

}  // namespace dace_redist
