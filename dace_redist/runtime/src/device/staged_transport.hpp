// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Messages between arrays of which one side or both lie on a device, in chunks through slots in pinned main memory.
/// Start reading at: StagedTransport.

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "device/staged_side.hpp"
#include "node/advertised_segment.hpp"

namespace dace_redist {

/// Sends and receives in chunks through two rings of slots. Kernels, copies to main memory, transfers, copies to the
/// device and kernels of different chunks overlap. Between ranks of a node, the receiver copies a chunk to its device
/// from the sender's slot, which both have pinned; MPI carries the slot's number there, and an acknowledgement back.
///
/// A sender whose part of the exchange has failed sends empty messages; a receiver discards what arrives.
class StagedTransport {
 public:
  /// The cut of messages, and the slots of a direction.
  struct Limits {
    Index chunk_bytes = 0;
    double growth = 1;
    std::size_t depth = 0;  ///< 0: a slot for each chunk
  };
  /// Runs work that needs node-shared memory; false on every rank if it threw on any. Collective.
  using TryShared = std::function<bool(const std::function<void()>& work)>;

  /// Allocates the slots, and connects them with those of ranks of this node. Collective.
  /// \param sends, receives  in the order of steps.
  /// \param first_tag  of the chunks; the acknowledgements take those that follow.
  /// \param node_ranks  ranks of this node, ascending.
  /// \throws Error if a rank has no memory for the slots.
  void connect(PlanDevice& device, MPI_Comm comm, int first_tag, const std::vector<Message>& sends,
               const std::vector<Message>& receives, const ElementSteps& steps, const Limits& limits,
               const std::vector<int>& node_ranks, const TryShared& try_shared);

  /// Prepares for arrays of given memory and layout; the messages differ from those of connect() in that only. Local.
  void set_arrays(Memory source, Memory target, const std::vector<Message>& sends, const std::vector<Message>& receives,
                  const ElementSteps& steps);

  void begin(const char* source, char* target);
  /// Does what can be done at once. \return whether that was anything.
  bool progress();
  bool done() const { return finished_; }

 private:
  struct Slot {
    enum State {
      free,
      copying,       ///< between the array and the slot
      transferring,  ///< a message, or the acknowledgement of the receiver
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
    std::size_t posted_count = 0, done_count = 0;
    std::unique_ptr<StagedSide> side;

    Index nbytes() const { return offsets.back(); }
    bool done() const { return done_count == chunks.size(); }
    const StagedChunk& chunk_in(std::size_t slot) const { return chunks[slots[slot].chunk]; }
    /// Gives a slot to the next chunk. \return whether there is one.
    bool take_next(std::size_t slot, Slot::State state);
    std::vector<int> peers() const;  // ascending
  };

  /// The place of a chunk in the sender's slots, and the number of the slot.
  struct SlotEndpoint {
    Index offset = 0, slot = 0;
  };

  struct MappedRing {
    SharedSegment segment;
    Pinned pinned;  // released before its memory
  };

  std::vector<Chunk> cut_all(const std::vector<Message>& messages, const ElementSteps& steps) const;
  void fill(Ring& ring, const std::vector<Message>& messages, const ElementSteps& steps) const;
  void allocate_slots(bool shared);
  /// Maps the slots of senders on this node.
  void map_slots(const std::vector<int>& senders, const std::vector<SegmentEndpoint>& endpoints);
  void set_side(Ring& ring, Direction direction, Memory memory, const std::vector<Message>& messages,
                const ElementSteps& steps);

  void pack_first();
  void pack_next(std::size_t slot);
  void send(std::size_t slot);
  void receive_next(std::size_t slot);
  void receive_again(std::size_t slot);
  void unpack(std::size_t slot);
  /// Ends the use of a slot whose bytes were copied to the array, or to the device.
  void release(std::size_t slot);
  bool send_packed();
  bool release_unpacked();
  bool test_requests();
  void finish();

  bool sends_by_node(int peer) const;
  char* send_slot(std::size_t slot) const { return send_slots_ + sends_.offsets[slot]; }
  /// The bytes that MPI receives: those of the slot on the device, or in main memory.
  char* receive_slot(std::size_t slot) const;
  /// Whether MPI sends from the slot on the device.
  bool sends_directly(std::size_t slot) const;
  /// The mapped slots of a sender; null if its chunks come by MPI.
  const MappedRing* mapped(int sender) const;

  // requests_: of the slots that send, of those that receive, and of their acknowledgements
  MPI_Request& receive_request(std::size_t slot) { return requests_[sends_.slots.size() + slot]; }
  MPI_Request& acknowledgement(std::size_t slot) {
    return requests_[sends_.slots.size() + receives_.slots.size() + slot];
  }
  SlotEndpoint& received_endpoint(std::size_t slot) { return endpoints_[sends_.slots.size() + slot]; }

  PlanDevice* order_ = nullptr;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int tag_ = 0;
  Limits limits_;
  Ring sends_, receives_;
  std::deque<std::size_t> packing_;   // slots in the order of their chunks, which the receivers expect
  AdvertisedSegment ring_;            // of the slots that send
  Pinned pinned_ring_;                // released before its memory
  PinnedBuffer private_ring_;         // replaces both where there is no node-shared memory
  char* send_slots_ = nullptr;        // in either
  PinnedBuffer buffer_;               // of the slots that receive
  std::vector<int> node_receivers_;   // ascending; they have mapped this rank's slots
  std::map<int, MappedRing> mapped_;  // by sender on this node
  std::vector<MPI_Request> requests_;
  std::vector<int> completed_;  // [requests]
  std::vector<MPI_Status> statuses_;
  std::vector<SlotEndpoint> endpoints_;  // [sending slots, then receiving slots] sent or received
  bool waits_ = false;                   // for PlanDevice::started(), before this rank uses an array in main memory
  bool finished_ = true;
};

}  // namespace dace_redist
