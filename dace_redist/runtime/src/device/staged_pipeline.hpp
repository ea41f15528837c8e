// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages between arrays of which one side or both lie on a device, in chunks through slots in pinned main memory.
/// Start reading at: StagedPipeline.

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/mpi.hpp"
#include "device/staged_side.hpp"
#include "node/advertised_segment.hpp"
#include "plan/options.hpp"

namespace dace_redist {

/// Sends and receives in chunks through two rings of slots. Kernels, copies to main memory, transfers, copies to the
/// device and kernels of different chunks run beside each other. Between ranks of a node a chunk does not go through
/// MPI: the receiver copies it to its device from the sender's slot, which both have pinned, and MPI carries the number
/// of the slot there and an acknowledgement back.
class StagedPipeline {
 public:
  /// Where the chunks of a pipeline end.
  struct Limits {
    Index chunk_bytes = 0;
    double growth = 1;
    std::size_t depth = 0;  // slots of a direction; 0: one for each chunk
  };

  /// Cuts the messages, in the order of rounds, and takes memory for the slots. Local.
  /// \param shared  whether other ranks of the node are to see the slots. \throws Error if there is no such memory.
  void prepare(Device& device, const std::vector<Message>& sends, const std::vector<Message>& receives,
               const ElementSteps& steps, const Limits& limits, bool shared) {
    device_ = &device;
    fill(sends_, sends, steps, limits);
    fill(receives_, receives, steps, limits);
    if (sends_.slots.size() > most_slots)
      throw Error(text("a rank sends ", sends_.slots.size(), " messages, and ", most_slots, " are the most; take ",
                       "Pipelined or Hierarchical"));
    if (shared) {
      ring_.allocate(sends_.nbytes());
      pinned_ring_ = pin(device, ring_.at(0), AdvertisedSegment::header_bytes + sends_.nbytes());
      send_slots_ = ring_.at(AdvertisedSegment::header_bytes);
    } else {
      private_ring_ = PinnedBuffer(device, sends_.nbytes());
      send_slots_ = private_ring_.at(0);
    }
    requests_.assign(sends_.slots.size() + 2 * receives_.slots.size(), MPI_REQUEST_NULL);
    completed_.resize(requests_.size());
    endpoints_.resize(sends_.slots.size() + receives_.slots.size());
  }

  /// Where other ranks of the node find this rank's slots.
  SegmentEndpoint endpoint() const { return ring_.endpoint(); }

  /// Maps the slots of ranks of the node that send to this one. \throws Error if it cannot.
  /// \param senders  their endpoints by rank.
  void connect(const std::map<Index, SegmentEndpoint>& senders) {
    for (const auto& [rank, endpoint] : senders) {
      MappedRing& mapped = mapped_[rank];
      if (!AdvertisedSegment::map(endpoint, mapped.segment))
        throw Error(text("the slots of rank ", rank, " cannot be mapped"));
      mapped.pinned = pin(*device_, mapped.segment.at(0), mapped.segment.nbytes());
    }
  }

  void disconnect() { mapped_.clear(); }

  /// Local, once it is known who has connected.
  /// \param comm, tag, acknowledgement_tag  of the plan; tags from that of acknowledgements on are taken.
  /// \param node_receivers  ranks that connected to this one's slots, ascending.
  void set_network(MPI_Comm comm, int tag, int acknowledgement_tag, std::vector<Index> node_receivers) {
    comm_ = comm;
    tag_ = tag;
    acknowledgement_tag_ = acknowledgement_tag;
    node_receivers_ = std::move(node_receivers);
  }

  /// Sides for arrays of given memory and layout; the messages differ from those of prepare() in that only. Local.
  void set_arrays(Memory source, Memory target, const std::vector<Message>& sends, const std::vector<Message>& receives,
                  const ElementSteps& steps, const Limits& limits) {
    set_side(sends_, Direction::pack, source, cut_all(sends, steps, limits), steps);
    set_side(receives_, Direction::unpack, target, cut_all(receives, steps, limits), steps);
    const auto by_mpi = [this](const StagedChunk& chunk) { return mapped_.count(chunk.peer) == 0; };
    const bool direct = target == Memory::device && device_->known_to_mpi();
    if (!direct && !buffer_.at(0) && std::any_of(receives_.chunks.begin(), receives_.chunks.end(), by_mpi))
      buffer_ = PinnedBuffer(*device_, receives_.nbytes());
  }

  /// \param started  what neither array may be used before.
  void begin(const char* source, char* target, Event started) {
    packing_.clear();
    sends_.posted = sends_.done = receives_.posted = receives_.done = 0;
    sends_.side->begin(const_cast<char*>(source), started);  // packs only
    receives_.side->begin(target, started);
    for (std::size_t slot = 0; slot < receives_.slots.size(); ++slot) receive_next(slot);
    awaited_ = sends_.side->in_stream() && receives_.side->in_stream() ? nullptr : started;
    if (awaited_ == nullptr) pack_first();
  }

  bool finished() const { return sends_.finished() && receives_.finished(); }

  /// What `caller` gets from now on runs after what this exchange did.
  void finish(Stream caller) {
    sends_.side->finish(caller);
    receives_.side->finish(caller);
  }

  /// Does what can be done now; false if that was nothing.
  bool progress() {
    bool any = false;
    if (awaited_ != nullptr) {
      if (!device_->completed(awaited_)) return false;
      awaited_ = nullptr;
      pack_first();
      any = true;
    }
    for (; !packing_.empty() && sends_.side->done(packing_.front()); any = true) {
      send(packing_.front());
      packing_.pop_front();
    }
    for (std::size_t slot = 0; slot < receives_.slots.size(); ++slot)
      if (receives_.slots[slot].state == Slot::copying && receives_.side->done(slot)) {
        release(slot);
        any = true;
      }
    int count = 0;
    check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, completed_.data(),
                       MPI_STATUSES_IGNORE),
          "MPI_Testsome");
    if (count == MPI_UNDEFINED) return any;
    for (int i = 0; i < count; ++i) go_on(static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)]));
    return any || count > 0;
  }

 private:
  struct Slot {
    enum State {
      free,
      copying,   ///< between the array and the slot
      underway,  ///< a transfer, or the acknowledgement of the receiver
    };
    State state = free;
    std::size_t chunk = 0;
  };

  struct StagedChunk {
    int peer;
    Index nbytes;
  };

  /// One direction: its chunks in order, and the ring of slots they pass through.
  struct Ring {
    std::vector<StagedChunk> chunks;
    std::vector<Slot> slots;
    std::vector<Index> offsets;  // [slots + 1] bytes
    std::size_t posted = 0, done = 0;
    std::unique_ptr<StagedSide> side;

    Index nbytes() const { return offsets.back(); }
    bool finished() const { return done == chunks.size(); }
    const StagedChunk& chunk_in(std::size_t slot) const { return chunks[slots[slot].chunk]; }
  };

  /// Where a receiver of this node finds a chunk in the sender's slots, and how it names the slot back.
  struct SlotEndpoint {
    Index offset = 0, slot = 0;
  };

  struct MappedRing {
    SharedSegment segment;
    Pinned pinned;  // released before its memory
  };

  static std::vector<Chunk> cut_all(const std::vector<Message>& messages, const ElementSteps& steps,
                                    const Limits& limits) {
    std::vector<Chunk> chunks;
    for (const Message& message : messages)
      for (Chunk& chunk : cut(message, limits.chunk_bytes / steps.message_bytes(), limits.growth))
        chunks.push_back(std::move(chunk));
    return chunks;
  }

  static void fill(Ring& ring, const std::vector<Message>& messages, const ElementSteps& steps, const Limits& limits) {
    ring.chunks.clear();
    Index longest = 0;
    for (const Chunk& chunk : cut_all(messages, steps, limits)) {
      ring.chunks.push_back({static_cast<int>(chunk.peer), chunk.count * steps.message_bytes()});
      longest = std::max(longest, ring.chunks.back().nbytes);
    }
    const std::size_t slots = limits.depth == 0 ? ring.chunks.size() : std::min(limits.depth, ring.chunks.size());
    ring.slots.assign(slots, {});
    ring.offsets = {0};
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const Index nbytes = limits.depth == 0 ? ring.chunks[slot].nbytes : longest;
      ring.offsets.push_back(ring.offsets.back() + ceil_div(nbytes, alignment) * alignment);
    }
  }

  void set_side(Ring& ring, Direction direction, Memory memory, const std::vector<Chunk>& chunks,
                const ElementSteps& steps) {
    ring.side.reset();  // its memory first
    if (memory == Memory::host)
      ring.side = std::make_unique<HostSide>(direction, chunks, steps);
    else
      ring.side = std::make_unique<DeviceSide>(*device_, direction, chunks, steps, ring.offsets);
  }

  bool sends_by_node(int peer) const {
    return std::binary_search(node_receivers_.begin(), node_receivers_.end(), Index{peer});
  }

  char* send_slot(std::size_t slot) const { return send_slots_ + sends_.offsets[slot]; }
  /// Where MPI receives: in the slot on the device, or in that in main memory.
  char* receive_slot(std::size_t slot) const {
    char* const direct = receives_.side->direct(slot);
    return direct ? direct : buffer_.at(receives_.offsets[slot]);
  }
  /// Whether MPI sends from the slot on the device.
  bool sends_directly(std::size_t slot) const {
    return !sends_by_node(sends_.chunk_in(slot).peer) && sends_.side->direct(slot) != nullptr;
  }

  // requests_: of the slots that send, of those that receive, and of their acknowledgements
  MPI_Request& send_request(std::size_t slot) { return requests_[slot]; }
  MPI_Request& receive_request(std::size_t slot) { return requests_[sends_.slots.size() + slot]; }
  MPI_Request& acknowledgement(std::size_t slot) {
    return requests_[sends_.slots.size() + receives_.slots.size() + slot];
  }

  SlotEndpoint& received_endpoint(std::size_t slot) { return endpoints_[sends_.slots.size() + slot]; }

  void go_on(std::size_t request) {
    if (request < sends_.slots.size()) {
      ++sends_.done;
      return pack_next(request);
    }
    request -= sends_.slots.size();
    if (request < receives_.slots.size()) return unpack(request);
    receive_again(request - receives_.slots.size());
  }

  void pack_first() {
    for (std::size_t slot = 0; slot < sends_.slots.size(); ++slot) pack_next(slot);
  }

  void pack_next(std::size_t slot) {
    sends_.slots[slot].state = Slot::free;
    if (sends_.posted == sends_.chunks.size()) return;
    sends_.slots[slot] = {Slot::copying, sends_.posted++};
    packing_.push_back(slot);
    sends_.side->start(sends_.slots[slot].chunk, slot, sends_directly(slot) ? nullptr : send_slot(slot));
  }

  void send(std::size_t slot) {
    const StagedChunk& chunk = sends_.chunk_in(slot);
    const trace::Span span("send", chunk.peer, chunk.nbytes);
    sends_.slots[slot].state = Slot::underway;
    if (!sends_by_node(chunk.peer)) {
      const char* const bytes = sends_directly(slot) ? sends_.side->direct(slot) : send_slot(slot);
      check(MPI_Isend(bytes, static_cast<int>(chunk.nbytes), MPI_BYTE, chunk.peer, tag_, comm_, &send_request(slot)),
            "MPI_Isend");
      return;
    }
    endpoints_[slot] = {sends_.offsets[slot], static_cast<Index>(slot)};
    MPI_Request told = MPI_REQUEST_NULL;
    check(MPI_Irecv(nullptr, 0, MPI_BYTE, chunk.peer, acknowledgement_tag_ + static_cast<int>(slot), comm_,
                    &send_request(slot)),
          "MPI_Irecv");
    check(MPI_Isend(&endpoints_[slot], sizeof(SlotEndpoint), MPI_BYTE, chunk.peer, tag_, comm_, &told), "MPI_Isend");
    check(MPI_Request_free(&told), "MPI_Request_free");  // the acknowledgement says that it has arrived
  }

  void receive_next(std::size_t slot) {
    receives_.slots[slot].state = Slot::free;
    if (receives_.posted == receives_.chunks.size()) return;
    receives_.slots[slot] = {Slot::underway, receives_.posted++};
    const StagedChunk& chunk = receives_.chunk_in(slot);
    const auto mapped = mapped_.find(chunk.peer);
    if (mapped == mapped_.end())
      check(MPI_Irecv(receive_slot(slot), static_cast<int>(chunk.nbytes), MPI_BYTE, chunk.peer, tag_, comm_,
                      &receive_request(slot)),
            "MPI_Irecv");
    else
      check(MPI_Irecv(&received_endpoint(slot), sizeof(SlotEndpoint), MPI_BYTE, chunk.peer, tag_, comm_,
                      &receive_request(slot)),
            "MPI_Irecv");
  }

  void unpack(std::size_t slot) {
    receives_.slots[slot].state = Slot::copying;
    const auto mapped = mapped_.find(receives_.chunk_in(slot).peer);
    char* staged = nullptr;
    if (mapped != mapped_.end())
      staged = mapped->second.segment.at(AdvertisedSegment::header_bytes + received_endpoint(slot).offset);
    else if (receives_.side->direct(slot) == nullptr)
      staged = receive_slot(slot);
    receives_.side->start(receives_.slots[slot].chunk, slot, staged);
  }

  /// After the bytes of a slot were copied to the array, or to the device.
  void release(std::size_t slot) {
    const int peer = receives_.chunk_in(slot).peer;
    if (mapped_.count(peer) == 0) return receive_again(slot);
    receives_.slots[slot].state = Slot::underway;
    check(MPI_Isend(nullptr, 0, MPI_BYTE, peer, acknowledgement_tag_ + static_cast<int>(received_endpoint(slot).slot),
                    comm_, &acknowledgement(slot)),
          "MPI_Isend");
  }

  void receive_again(std::size_t slot) {
    ++receives_.done;
    receive_next(slot);
  }

  static constexpr Index alignment = 256;           // of a slot, for whole words of a kernel
  static constexpr std::size_t most_slots = 32000;  // any MPI has so many tags for acknowledgements

  Device* device_ = nullptr;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int tag_ = 0, acknowledgement_tag_ = 0;
  Ring sends_, receives_;
  std::deque<std::size_t> packing_;  // slots in the order of their chunks, in which the receivers expect them
  AdvertisedSegment ring_;           // of the slots that send
  Pinned pinned_ring_;               // released before its memory
  PinnedBuffer private_ring_;        // in place of both where there is no node-shared memory
  char* send_slots_ = nullptr;       // in either
  PinnedBuffer buffer_;              // of the slots that receive
  std::vector<Index> node_receivers_;
  std::map<Index, MappedRing> mapped_;  // by sender on this node
  std::vector<MPI_Request> requests_;
  std::vector<int> completed_;           // [requests]
  std::vector<SlotEndpoint> endpoints_;  // [sending slots, then receiving slots] sent or received
  Event awaited_ = nullptr;  // which an array in main memory may not be used before; null once it has completed
};

}  // namespace dace_redist
