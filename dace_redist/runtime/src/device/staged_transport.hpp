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

#include "device/staged_ring.hpp"
#include "device/staged_side.hpp"
#include "transport/transport.hpp"

namespace dace_redist {

/// Sends and receives in chunks through two rings of slots. Kernels, copies to main memory, transfers, copies to the
/// device and kernels of different chunks overlap. Between ranks of a node, the receiver copies a chunk to its device
/// from the sender's slot, which both have pinned; MPI carries the slot's place there, and its number back.
///
/// Partial results are unpacked in the order of the chunks, which is that of the reduction, and the self copy, if there
/// is one, between those of the summands before and after it.
class StagedTransport {
 public:
  /// Allocates the slots, and connects them with those of ranks of this node. Collective. Takes the link's two tags.
  /// \param messages  with a self copy of partial results only, which both lie on the device.
  /// \param node_memory  whether messages may move through node-shared memory.
  /// \throws Error on every rank if one has no memory for the slots.
  StagedTransport(PlanDevice& device, const Link& link, const TensorProblem& problem, const Staging& staging,
                  const Messages& messages, bool node_memory);

  /// Takes over messages of the same sizes. Local.
  void set_messages(const Messages& messages);
  void begin(const Arrays& arrays);
  /// Does what can be done at once. \return whether that was anything.
  bool progress();
  bool done() const { return finished_; }

 private:
  /// The place of a chunk in the sender's slots, and the number of the slot.
  struct SlotPlace {
    Index offset = 0, slot = 0;
  };
  static constexpr std::size_t none = ~std::size_t{0};

  /// Runs work that needs node-shared memory; false on every rank if it failed on any. Collective.
  bool try_shared(const std::function<void()>& work) const;
  void make_sides(const Link& link, const TensorProblem& problem, const Staging& staging, const Messages& messages);
  void make_ring(const Link& link, bool shared);
  void map_rings(const Link& link);
  void set_self(const Messages& messages);

  void pack_first();
  void pack_next(std::size_t slot);
  void send(std::size_t slot);
  void receive_next(std::size_t slot);
  void receive_again(std::size_t slot);
  /// A chunk, or its place, has arrived in a slot.
  void take(std::size_t slot);
  void unpack_in_order();
  void unpack(std::size_t slot);
  bool send_packed();
  /// Ends the use of slots whose bytes were copied to the array, or to the device.
  bool release_unpacked();
  bool test_requests();
  void finish();

  bool sends_by_node(int peer) const;
  /// Whether MPI sends from the slot on the device.
  bool sends_directly(std::size_t slot) const;
  /// The bytes that MPI receives: those of the slot on the device, or in main memory.
  char* receive_slot(std::size_t slot) const;
  /// The mapped slots of a sender; null if its chunks come by MPI.
  const MappedRing* mapped(int sender) const;

  // requests_: of sent chunks and the acknowledgements that they wait for, in any order; of the slots that receive, and
  // of their acknowledgements
  MPI_Request& receive_request(std::size_t slot) { return requests_[sends_->slots() + slot]; }
  MPI_Request& acknowledgement(std::size_t slot) { return requests_[sends_->slots() + receives_->slots() + slot]; }

  PlanDevice& order_;
  MPI_Comm comm_;
  int tag_;
  const Tensors& tensors_;
  std::unique_ptr<StagedSide> sends_, receives_;
  std::unique_ptr<StagedRing> ring_;                   // of the slots that send
  PinnedBuffer buffer_;                                // of the slots that receive
  std::vector<int> node_receivers_;                    // ascending; they have mapped this rank's slots
  std::map<int, std::unique_ptr<MappedRing>> mapped_;  // by sender on this node
  std::unique_ptr<CopyKernel> self_;                   // null without a self copy
  std::size_t self_before_ = 0;                        // received chunks that are reduced before it

  // Of the transfer at hand:
  Arrays arrays_;
  std::vector<MPI_Request> requests_;
  std::vector<int> completed_;                            // [requests]
  std::vector<std::size_t> free_requests_;                // of sent chunks
  std::vector<Index> sent_slots_;                         // [sending slots] by request: the slot that becomes free
  std::vector<SlotPlace> sent_places_, received_places_;  // [sending slots], [receiving slots]
  std::deque<std::size_t> packing_;     // slots in the order of their chunks, which the receivers expect
  std::vector<std::size_t> unpacking_;  // slots in use
  std::vector<std::size_t> arrived_;    // [received chunks] of partial results: slot of those that wait for their turn
  std::size_t next_ = 0;                // the next one of these
  bool self_done_ = false;
  bool waits_ = false;  // for PlanDevice::started(), before this rank uses an array in main memory
  bool finished_ = true;
};

}  // namespace dace_redist
