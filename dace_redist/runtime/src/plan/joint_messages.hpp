// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What several tensors send from one rank to another, as one message; and such messages between ranks of one node.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "copy/packing.hpp"
#include "node/staging_ring.hpp"

namespace dace_redist {

/// What goes from or to one rank, of all tensors.
struct JointMessage {
  /// What one tensor has in the message.
  struct Share {
    std::size_t tensor;
    CopyList copies;
    Index offset;  ///< bytes, in the message
  };

  int peer = 0;
  Index nbytes = 0;
  std::vector<Share> shares;

  /// Adds the message that a tensor has for the same rank.
  void append(std::size_t tensor, const PackedChunk& chunk) {
    shares.push_back({tensor, chunk.copies, nbytes});
    nbytes += ceil_div(chunk.nbytes, element_alignment) * element_alignment;
  }

  /// \param sources  this rank's part of each tensor.
  void pack(const std::vector<const char*>& sources, char* buffer) const {
    const trace::Span span("pack", peer, nbytes);
    for (const Share& share : shares) share.copies.copy(sources[share.tensor], buffer + share.offset);
  }
  void unpack(const char* buffer, const std::vector<char*>& targets) const {
    const trace::Span span("unpack", peer, nbytes);
    for (const Share& share : shares) share.copies.copy(buffer + share.offset, targets[share.tensor]);
  }
};

/// The joint messages between ranks of one node. The sender packs a message into a slot in its node-shared memory, from
/// where the receiver unpacks it. There are two slots for each receiver, so that the sender of one exchange does not
/// wait for the receivers of the exchange before; one, so that it does, where two do not fit the cache.
class NodeJointMessages {
 public:
  /// Takes over the messages and allocates the slots of those sent. \throws Error if there is too little shared memory.
  void allocate(std::vector<JointMessage> sends, std::vector<JointMessage> receives) {
    Index largest = 0;
    for (JointMessage& message : sends) largest = std::max(largest, message.nbytes);
    rings_.allocate(sends.size(), largest, 2);
    for (JointMessage& message : sends) sends_.push_back({std::move(message), rings_.ring(sends_.size())});
    for (JointMessage& message : receives) receives_.push_back({std::move(message), {}});
  }

  std::size_t send_count() const { return sends_.size(); }
  std::size_t receive_count() const { return receives_.size(); }
  int send_peer(std::size_t s) const { return sends_[s].message.peer; }
  int receive_peer(std::size_t r) const { return receives_[r].message.peer; }
  Endpoint endpoint_for_receiver(std::size_t s) const { return rings_.endpoint(s, {}); }

  /// Maps the slots of the senders. \throws Error if they cannot be mapped.
  void connect(const std::vector<Endpoint>& senders) {
    for (std::size_t r = 0; r < receives_.size(); ++r) {
      if (!AdvertisedSegment::map(senders[r].segment, partner_rings_.emplace_back()))
        throw Error(text("process ", senders[r].segment.segment.process, " is not rank ", receive_peer(r),
                         ": the ranks of this node do not see each other's processes"));
      receives_[r].ring = senders[r].ring(partner_rings_.back());
    }
  }

  void begin() {
    for (std::vector<Channel>* channels : {&sends_, &receives_})
      for (Channel& channel : *channels) channel.open = true;
    open_ = sends_.size() + receives_.size();
  }

  /// Does what can be done now. \return whether that was anything.
  bool progress(const std::vector<const char*>& sources, const std::vector<char*>& targets) {
    const std::size_t before = open_;
    for (Channel& send : sends_) {
      const StagingRing& ring = send.ring;
      if (!send.open || send.total - ring.state->read.load(std::memory_order_acquire) >= slots_of(ring)) continue;
      send.message.pack(sources, ring.slot(send.total));
      ring.state->written.store(++send.total, std::memory_order_release);
      close(send);
    }
    for (Channel& receive : receives_) {
      const StagingRing& ring = receive.ring;
      if (!receive.open || ring.state->written.load(std::memory_order_acquire) == receive.total) continue;
      receive.message.unpack(ring.slot(receive.total), targets);
      ring.state->read.store(++receive.total, std::memory_order_release);
      close(receive);
    }
    return open_ != before;
  }

  bool finished() const { return open_ == 0; }

 private:
  struct Channel {
    JointMessage message;
    StagingRing ring;
    std::uint64_t total = 0;  // messages of all exchanges
    bool open = false;        // in the exchange at hand
  };

  static std::uint64_t slots_of(const StagingRing& ring) { return static_cast<std::uint64_t>(ring.slots); }

  void close(Channel& channel) {
    channel.open = false;
    --open_;
  }

  StagingRings rings_;
  std::vector<SharedSegment> partner_rings_;
  std::vector<Channel> sends_, receives_;
  std::size_t open_ = 0;
};

}  // namespace dace_redist
