// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The staging slots of messages that neither rank can copy alone: a ring of them behind the state of each message.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

#include "node/advertised_segment.hpp"
#include "node/message_state.hpp"

namespace dace_redist {

/// The state of one rank's messages to another and the ring of slots behind it, as this process sees them.
struct StagingRing {
  MessageState* state = nullptr;
  Index slots = 1;
  Index slot_bytes = 0;

  /// \param piece  number of the piece, counted over all exchanges.
  char* slot(std::uint64_t piece) const {
    const auto index = static_cast<Index>(piece % static_cast<std::uint64_t>(slots));
    return reinterpret_cast<char*>(state + 1) + index * slot_bytes;
  }
};

/// What a rank sends to each partner before the first exchange.
struct Endpoint {
  SegmentEndpoint segment;  ///< of the sender's rings; none from a receiver
  Index ring_offset = 0, ring_slots = 0, slot_bytes = 0;
  PlainStrides strides;  ///< of its source, from a sender; of its target, from a receiver

  /// \param mapped  the segment, as mapped by this process.
  StagingRing ring(const SharedSegment& mapped) const {
    return {reinterpret_cast<MessageState*>(mapped.at(ring_offset)), ring_slots, slot_bytes};
  }
};

/// The rings of one rank's sends, in one segment.
class StagingRings {
 public:
  /// Allocates rings of equal size.
  /// \param count             number of rings.
  /// \param least_slot_bytes  bytes of the largest piece.
  /// \param depth             most slots of a ring; fewer where the rings would not fit the cache.
  /// \throws Error if there is too little shared memory.
  void allocate(std::size_t count, Index least_slot_bytes, Index depth) {
    const Index rings = static_cast<Index>(count);
    slot_bytes_ = ceil_div(std::max<Index>(1, least_slot_bytes), MessageState::line_bytes) * MessageState::line_bytes;
    slots_ = std::clamp(most_ring_bytes() / std::max<Index>(1, rings * slot_bytes_), Index{1}, depth);
    segment_.allocate(ring_bytes() * rings);
    for (Index ring = 0; ring < rings; ++ring) new (segment_.at(offset(ring))) MessageState{};
  }

  StagingRing ring(std::size_t index) const {
    auto* state = std::launder(reinterpret_cast<MessageState*>(segment_.at(offset(static_cast<Index>(index)))));
    return {state, slots_, slot_bytes_};
  }

  /// \return what the receiver of a ring needs to map it.
  Endpoint endpoint(std::size_t index, const LocalLayout& source) const {
    return {segment_.endpoint(), offset(static_cast<Index>(index)), slots_, slot_bytes_, PlainStrides(source)};
  }

  const SharedSegment& scratch() const { return segment_.scratch(); }

 private:
  static constexpr Index page_bytes = 4096;

  Index ring_bytes() const {
    const Index nbytes = static_cast<Index>(sizeof(MessageState)) + slots_ * slot_bytes_;
    return ceil_div(nbytes, page_bytes) * page_bytes;
  }
  Index offset(Index ring) const { return AdvertisedSegment::header_bytes + ring_bytes() * ring; }

  /// All rings of a rank should stay in the cache of its core, beside what is copied: half of the second level.
  static Index most_ring_bytes() { return stream_threshold_bytes() / 8; }

  Index slot_bytes_ = MessageState::line_bytes, slots_ = 1;  // slots per ring
  AdvertisedSegment segment_;
};

}  // namespace dace_redist
