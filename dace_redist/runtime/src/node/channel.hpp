// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// One rank's view of the messages from or to one other rank of its node, and of the exchange at hand.

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "copy/packing.hpp"
#include "node/staging_ring.hpp"
#include "node/staging_stores.hpp"

namespace dace_redist {

/// The copy of a group of blocks: of one block as it is, of several as runs. Where elements are computed with, their
/// blocks, whatever their number.
struct GroupCopy {
  CopyBlock block;
  RunList runs;
  std::vector<ElementBlock> elements;
};

/// A message, how far it has come in the exchange at hand, and the ring that its pieces may go through.
class Channel {
 public:
  /// \param other          the partner's rank.
  /// \param most_elements  of a piece.
  Channel(int other, Index most_elements)
      : peer(other), most_count(most_elements), part_count(most_elements), cutter(message, most_elements) {}

  /// Takes over a message.
  /// \param sends  whether this rank sends it.
  void set(Message new_message, bool sends, const ElementSteps& steps) {
    message = std::move(new_message);
    part_count = elements_of_part();
    cutter = MessageCutter(message, part_count, most_tiny);
    direct.clear();
    packed.clear();
    timed = message.count * steps.message_bytes() >= stream_threshold_bytes() / timed_sooner;
    if (sends) longest_source_run = longest_run_in_source() * steps.direct().source_bytes;
    shortest_run = std::numeric_limits<Index>::max();
    for (const BlockGroup& group : cutter.groups()) {
      direct.push_back(group_copy(group, steps.direct(), [](const StridedBlock& block, Index) { return block; }));
      packed.push_back(group_copy(group, sends ? steps.pack() : steps.unpack(), sends ? to_packed : from_packed));
      const bool one_copy = group.count == 1 && !steps.direct().kernel;
      shortest_run = std::min(shortest_run, one_copy ? direct.back().block.run_bytes : 0);
    }
  }

  /// \return slots for half of the message: with fewer, the two ranks wait for each other after every piece.
  Index sensible_slots() const { return ceil_div(message.count, 2 * part_count); }

  void begin() {
    protocol = Protocol::undecided;
    done = false;
    streams = false;
    cutter.restart(part_count);
  }

  /// \return whether this is what stays on the rank: it has no partner.
  bool is_own() const { return ring.state == nullptr; }

  bool equally_shaped(const Channel& other) const {
    const auto equal = [](const StridedBlock& x, const StridedBlock& y) {
      return x.ndim == y.ndim && x.counts == y.counts && x.source_strides == y.source_strides &&
             x.target_strides == y.target_strides;
    };
    const std::vector<StridedBlock>&a = message.blocks, &b = other.message.blocks;
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
  }

  /// \return whether the receiver should copy, where either rank could. Who copies goes through its own array in
  /// order; the stretches that are then scattered, on the other side, should be the longer ones.
  bool pulls_better() const {
    const StridedBlock& block = message.blocks[0];
    return stretch(block, block.source_strides) > stretch(block, block.target_strides);
  }

  int peer;
  Index most_count, part_count;  // most elements of any piece, and of those of this message
  Message message;
  MessageCutter cutter;
  std::vector<GroupCopy> direct, packed;  // [groups] as a whole: array to array, and array to or from a slot
  std::size_t shape = 0;                  // number of the first channel of this side with equally shaped blocks
  Index shortest_run = 0;                 // bytes that are contiguous on both sides, and copied
  Index longest_source_run = 0;           // bytes that are contiguous in the source, of a sender
  Protocol protocol = Protocol::undecided;
  bool done = false;
  StagingRing ring;
  bool timed = false;           // whether what is staged is timed, to choose the stores: not what is short
  bool streams = false;         // whether what is staged is packed with non-temporal stores, in the exchange at hand
  StoreChoice stores;           // of a sender
  PieceTime piece_time;         // of packing or unpacking
  char* partner = nullptr;      // the partner's array, when it is pushed or pulled
  std::uint64_t total = 0;      // pieces of all exchanges that went through the ring
  std::uint64_t read_seen = 0;  // pieces of which the sender knows that they were read
  PartnerArrays arrays;

 private:
  /// Parts of stream_threshold_bytes() from which the stores of a message make a difference.
  static constexpr Index timed_sooner = 512;
  static constexpr Index many_pieces = 16;  // of half of the most elements: from then on they get longer
  static constexpr Index most_tiny = CopyList::max_listed_runs;  // elements; a list holds less of them than a block

  /// Most elements of a piece; the same on both ranks. Half of most_count, so that the two seldom wait for each other;
  /// up to most_count in messages of many_pieces such pieces; down to a quarter, so that short ones still have two.
  Index elements_of_part() const {
    const Index half = ceil_div(most_count, 2), quarter = ceil_div(most_count, 4);
    return std::max(std::clamp(ceil_div(message.count, 2), quarter, half),
                    std::min(message.count / many_pieces, most_count));
  }

  template <class Side>
  GroupCopy group_copy(const BlockGroup& group, const ElementStep& step, const Side& side) const {
    GroupCopy copy;
    Index displacement = 0;
    for (std::size_t b = group.first; b < group.first + group.count; ++b) {
      const StridedBlock moved = side(message.blocks[b], displacement);
      displacement += message.blocks[b].count();
      if (step.kernel) {
        copy.elements.push_back(make_element_block(moved, step.source_bytes, step.target_bytes));
        continue;
      }
      const CopyBlock block = make_copy_block(moved, step.source_bytes);
      if (group.count == 1)
        copy.block = block;
      else
        copy.runs.append(block);
    }
    return copy;
  }

  /// Most elements that lie without a gap in the source: of one block, or of blocks that follow each other there.
  Index longest_run_in_source() const {
    Index longest = 0, joined = 0, end = 0;
    for (const StridedBlock& block : message.blocks) {
      const Index length = stretch(block, block.source_strides);
      if (block.source_offset != end) joined = 0;
      joined += length;
      longest = std::max(longest, joined);
      if (length != block.count()) joined = 0;  // what comes next follows none but the last of its stretches
      end = block.source_offset + length;
    }
    return longest;
  }

  /// Elements that lie without a gap on one side.
  static Index stretch(const StridedBlock& block, const std::array<Index, max_block_dims>& strides) {
    Index length = 1;
    for (bool longer = true; longer;) {
      longer = false;
      for (std::size_t d = 0; d < static_cast<std::size_t>(block.ndim); ++d)
        if (block.counts[d] > 1 && strides[d] == length) {
          length *= block.counts[d];
          longer = true;
        }
    }
    return length;
  }
};

/// Numbers the channels by the shape of their blocks.
inline void compare_shapes(std::vector<Channel>& channels) {
  for (std::size_t c = 0; c < channels.size(); ++c)
    for (channels[c].shape = 0; channels[c].shape < c; ++channels[c].shape)
      if (channels[channels[c].shape].equally_shaped(channels[c])) break;
}

/// The exchange at hand, as all channels of a rank see it.
struct ExchangeState {
  std::uint64_t number = 0;  ///< counts the exchanges, from 1 on
  const char* source = nullptr;
  char* target = nullptr;
  SharedArrayFinder::ArrayLocation source_location;
  const ElementSteps* steps = nullptr;
  bool reduces = false;  ///< whether messages are partial results
  std::size_t open = 0;  ///< channels that are not done

  /// Whether copies of each kind write with non-temporal stores: what is pushed, pulled, unpacked, and stays here.
  bool stream_pushed = false, stream_pulled = false, stream_unpacked = false, stream_own = false;

  /// Whether this rank sends more than stays in the cache while it does: then it pushes with non-temporal stores, too.
  bool large_source() const { return stream_pushed; }

  void close(Channel& channel) {
    channel.done = true;
    --open;
  }
  void close_if_done(Channel& channel) {
    if (channel.cutter.done()) close(channel);
  }
};

}  // namespace dace_redist
