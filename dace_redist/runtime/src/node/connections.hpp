// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Connects a rank with its partners on the node, once: allocates its rings, maps theirs.

#include <algorithm>
#include <vector>

#include "node/node_messages.hpp"

namespace dace_redist {

/// The rings of a rank's sends, and those of its senders. All ranks allocate(), send each partner its Endpoint, and
/// connect() with what they got.
class Connections {
 public:
  /// Allocates this rank's rings.
  /// \param depth  most slots of a ring.
  /// \throws Error if there is too little shared memory.
  void allocate(NodeMessages& messages, Index depth) {
    std::vector<Channel>& sends = messages.sends();
    const std::size_t count = sends.size() - 1;
    // a rank that sends to many packs for another while one unpacks; with few, it needs a second slot
    Index largest_piece = 0, most_slots = count > 2 ? 1 : 2;
    for (std::size_t s = 0; s < count; ++s) {
      largest_piece = std::max(largest_piece, sends[s + 1].part_count);
      most_slots = std::max(most_slots, sends[s + 1].sensible_slots());
    }
    rings_.allocate(count, largest_piece * messages.message_element_bytes(), std::min(most_slots, depth));
    for (std::size_t s = 0; s < count; ++s) sends[s + 1].ring = rings_.ring(s);
  }

  /// \return what the receiver of the message number `s` needs.
  Endpoint for_receiver(const NodeMessages& messages, std::size_t s) const {
    return rings_.endpoint(s, messages.source_layout());
  }
  /// \return what this rank's senders need.
  static Endpoint for_sender(const NodeMessages& messages) {
    return {{}, 0, 0, 0, PlainStrides(messages.target_layout())};
  }

  /// Maps the rings of the senders and plans the messages for the partners' layouts.
  /// \param receivers, senders  what the partners advertised, in the order of this rank's messages.
  /// \throws Error if a ring cannot be mapped.
  void connect(NodeMessages& messages, const std::vector<Endpoint>& receivers, const std::vector<Endpoint>& senders) {
    partner_rings_.clear();
    std::vector<Channel>& receives = messages.receives();
    for (std::size_t r = 0; r < receives.size(); ++r) {
      const Endpoint& sender = senders[r];
      if (!AdvertisedSegment::map(sender.segment, partner_rings_.emplace_back()))
        throw Error(text("process ", sender.segment.segment.process, " is not rank ", receives[r].peer,
                         ": the ranks of this node do not see each other's processes"));
      receives[r].ring = sender.ring(partner_rings_.back());
      messages.set_source_layout(receives[r].peer, sender.strides.layout());
    }
    for (std::size_t s = 0; s < receivers.size(); ++s)
      messages.set_target_layout(messages.sends()[s + 1].peer, receivers[s].strides.layout());
    messages.replan();
  }

  const SharedSegment& scratch() const { return rings_.scratch(); }

 private:
  StagingRings rings_;
  std::vector<SharedSegment> partner_rings_;
};

}  // namespace dace_redist
